"""How is one request to the double answered, and how is the double served?

A request is hit by a fault, if one is set for it, answered by ours or by moto, and noted in the journal.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cmscale.lab import bus, wire
from cmscale.lab.backstage import Backstage
from cmscale.lab.clock import LabClock
from cmscale.lab.ec2 import DEFAULT_REGIONS
from cmscale.lab.ec2.actions import ACTIONS
from cmscale.lab.ec2.calls import Answer, Call, Environ, Scene, refusal
from cmscale.lab.ec2.services import services
from cmscale.lab.faults import Fault, Faults
from cmscale.lab.instances import Refused, Region, Times, changed
from cmscale.lab.surroundings import Surroundings

StartResponse = Callable[..., Any]

ERROR_CODE = re.compile(rb'<Code>([^<]+)</Code>|"__type": ?"([^"]+)"')

LOOK_S = 0.05
"""How often a waiting reader's queue is looked at, and what has changed by itself."""


class Cloud:
    """The WSGI application: all regions, behind one lock."""

    def __init__(self, directory: Path, regions: Iterable[str], times: Times) -> None:
        self._moto = Surroundings(regions)
        self._lock = threading.Lock()
        self._faults = Faults()
        self._clock = LabClock()
        self._calls: list[dict[str, Any]] = []
        self._directory = directory
        self._journal = (directory / "calls.jsonl").open("a", encoding="utf-8", buffering=1)
        self._regions = {
            name: Region(name, times, partial(self._moto.take_address, name), partial(self._moto.free_address, name))
            for name in self._moto.homes
        }
        self._services = services(self._regions)
        tell = self._moto.put_event
        self._backstage = Backstage(self._regions, self._faults, self._calls, times, self._clock, tell)

    @property
    def homes(self) -> dict[str, dict[str, Any]]:
        """The lab's image and networks, by region."""
        return self._moto.homes

    # --- one request -------------------------------------------------------------------------------------------------

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        at, began = self._clock.now(), time.monotonic()
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if environ["PATH_INFO"].startswith("/_lab/"):
            return self._control(environ, body, start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        call = Call.of(environ, body)
        with self._lock:
            fault = self._faults.take(call.action, call.region, call.params, at)
        if fault and not fault.after:
            time.sleep(fault.delay_s)
        if fault and fault.prevents:
            answer = Answer(b"")
        elif call.json and (call.service, call.action) == ("sqs", "ReceiveMessage"):
            answer = self._received(call, environ)
        else:
            with self._lock:
                answer = self._answer(call, environ)
        if fault and fault.after:
            time.sleep(fault.delay_s)
        if fault and fault.code:
            spoilt = refusal(call, Refused(fault.code, fault.message, fault.status))
            wait = () if fault.retry_after_s is None else (("Retry-After", str(fault.retry_after_s)),)
            answer = Answer(spoilt.body, spoilt.status, (*spoilt.headers, *wait), answer.instances, fault.code)
        self._note(call, answer, fault, at, time.monotonic() - began)
        if fault and fault.cut:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start_response("200 OK", [("Content-Length", "0")])
            return []
        start_response(f"{answer.status} lab", [*answer.headers, ("Content-Length", str(len(answer.body)))])
        return [answer.body]

    def _received(self, call: Call, environ: Environ) -> Answer:
        """What a queue holds. A reader who waits for it keeps nobody else waiting."""
        given = json.loads(call.body or b"{}")
        url = given.get("QueueUrl", "")
        wait_s = given["WaitTimeSeconds"] if "WaitTimeSeconds" in given else self._moto.patience_s(call.region, url)
        body = json.dumps(given | {"WaitTimeSeconds": 0}).encode()
        until = time.monotonic() + wait_s
        while True:
            once = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
            with self._lock:
                answer = self._answer(call, once)
            if answer.status != 200 or b"ReceiptHandle" in answer.body or time.monotonic() >= until:
                return answer
            time.sleep(LOOK_S)

    def watch(self, ended: threading.Event) -> None:
        """Tell EventBridge of every change of a state, as long as a rule listens."""
        while not ended.wait(LOOK_S):
            with self._lock:
                for name, region in self._regions.items():
                    if self._moto.listens(name):
                        now = self._clock.now()
                        for instance, state in region.turned(now):
                            self._moto.put_event(name, bus.state_change(instance, name, state, now))

    def _note(self, call: Call, answer: Answer, fault: Fault | None, at: float, took_s: float) -> None:
        line = {
            "at": at,
            "took_s": round(took_s, 4),
            "action": call.action,
            "region": call.region,
            "by": call.key,
            "params": {key: value for key, value in call.params.items() if key not in {"Action", "Version"}},
            "instances": list(answer.instances),
            "error": answer.error,
            "status": 0 if fault and fault.cut else answer.status,
            "fault": ("cut" if fault.cut else fault.code or "slow") + (" after" if fault.after else "")
            if fault
            else "",
        }
        with self._lock:
            self._calls.append(line)
            self._journal.write(json.dumps(line) + "\n")

    def _answer(self, call: Call, environ: Environ) -> Answer:
        try:
            call.check_key()
            answer = self._ours(call)
            if answer:
                return answer
            status, headers, body = self._moto.answer(environ, call.action)
        except Refused as refused:
            return refusal(call, refused)
        except Exception as error:  # noqa: BLE001 - a flaw of ours is told to the caller, in words, and to the journal
            return refusal(call, Refused("InternalError", f"the lab failed: {error!r}", 500))
        code = ERROR_CODE.search(body) if status >= 400 else None
        return Answer(body, status, headers, error=(code[1] or code[2]).decode() if code else "")

    def _ours(self, call: Call) -> Answer | None:
        """The answer to a call, unless it is moto's to give."""
        if call.service in self._services:
            return self._services[call.service](call)
        if call.service != "ec2" or call.action not in ACTIONS:
            return None
        region = self._regions.get(call.region)
        if region is None:
            raise Refused("OptInRequired", f"The lab has no region {call.region}.", 401)
        asked = wire.asked(call.action, call.params)
        return ACTIONS[call.action](Scene(call, asked, region, self._moto, self._directory, self._clock.now()))

    # --- the lab's own side ------------------------------------------------------------------------------------------

    def _control(self, environ: Environ, body: bytes, start_response: StartResponse) -> Iterable[bytes]:
        topic, method = environ["PATH_INFO"].removeprefix("/_lab/"), environ["REQUEST_METHOD"]
        query = parse_qs(environ.get("QUERY_STRING", ""))
        status = "200 OK"
        try:
            with self._lock:
                said = self._backstage.answer(method, topic, json.loads(body or b"{}"), query)
        except (KeyError, TypeError, ValueError) as error:
            said, status = {"error": f"{method} /_lab/{topic}: {error}"}, "400 Bad Request"
        text = json.dumps(said).encode()
        start_response(status, [("Content-Type", "application/json"), ("Content-Length", str(len(text)))])
        return [text]


# --- serving ---------------------------------------------------------------------------------------------------------


def serve(directory: Path, *, port: int, regions: Iterable[str], times: Times) -> None:
    """Serve until the process is ended."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        """The journal says more than a line of access log."""

        def log_request(self, *_: object) -> None:
            pass

    cloud = Cloud(directory, regions, times)
    server = make_server("127.0.0.1", port, cloud, threaded=True, request_handler=Quiet)
    state = {"endpoint": f"http://127.0.0.1:{server.server_port}", "regions": cloud.homes}
    draft = directory / "ec2.json.new"
    draft.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
    draft.rename(directory / "ec2.json")
    ended = threading.Event()
    threading.Thread(target=cloud.watch, args=(ended,), name="watch", daemon=True).start()
    try:
        server.serve_forever()
    finally:
        ended.set()
        server.server_close()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cmscale.lab.ec2", description="An EC2 API on 127.0.0.1")
    parser.add_argument("--dir", type=Path, required=True, help="where ec2.json and calls.jsonl are written")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--region", action="append", default=[], help="may be given several times")
    parser.add_argument("--times", type=json.loads, default={}, help="JSON: fields of instances.Times")
    given = parser.parse_args(argv)
    serve(given.dir, port=given.port, regions=given.region or DEFAULT_REGIONS, times=changed(Times(), given.times))
