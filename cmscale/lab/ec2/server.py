"""How is one request to the double answered, and how is the double served?

A request is hit by a fault, if one is set for it, answered by ours or by moto, and noted in the journal.
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import botocore.session

from cmscale.lab import bus, wire
from cmscale.lab.backstage import Backstage
from cmscale.lab.clock import LabClock
from cmscale.lab.ec2 import ACCESS_KEY, DEFAULT_REGIONS, SECRET_KEY
from cmscale.lab.ec2.actions import ACTIONS
from cmscale.lab.ec2.calls import Answer, Call, Environ, Scene, refusal
from cmscale.lab.ec2.services import services
from cmscale.lab.faults import Fault, Faults
from cmscale.lab.instance import Refused, Times, changed
from cmscale.lab.instances import Region
from cmscale.lab.processes import LabError
from cmscale.lab.surroundings import Surroundings

StartResponse = Callable[..., Any]

CHANGES_AT_ONCE = 100

ERROR_CODE = re.compile(rb'<Code>([^<]+)</Code>|"__type": ?"([^"]+)"')

LONGEST_POLL_S = 20
"""SQS refuses to wait longer."""

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
        self._backstage = Backstage(self._regions, self._faults, self._calls, times, clock=self._clock, put_event=tell)

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
        if wait_s > LONGEST_POLL_S:
            with self._lock:
                return self._answer(call, environ)  # a refusal
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
            for name, region in self._regions.items():
                with self._lock:
                    if self._moto.listens(name):
                        now = self._clock.now()
                        # A few at a time: who calls EC2 meanwhile need not wait for all.
                        for instance, state in islice(region.turned(now), CHANGES_AT_ONCE):
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
            answer = self._ours(call, environ)
            if answer:
                return answer
            status, headers, body = self._moto.answer(environ, call.action)
        except Refused as refused:
            return refusal(call, refused)
        except Exception as error:  # noqa: BLE001 - a flaw of ours is told to the caller, in words, and to the journal
            return refusal(call, Refused("InternalError", f"the lab failed: {error!r}", 500))
        code = ERROR_CODE.search(body) if status >= 400 else None
        return Answer(body, status, headers, error=(code[1] or code[2]).decode() if code else "")

    def _ours(self, call: Call, environ: Environ) -> Answer | None:
        """The answer to a call, unless it is moto's to give."""
        if call.service in self._services:
            return self._services[call.service](call)
        if call.service != "ec2":
            return None
        if call.action not in ACTIONS:
            wire.check(call.action)
            return None
        region = self._regions.get(call.region)
        if region is None:
            raise Refused("OptInRequired", f"The lab has no region {call.region}.", 401)
        asked = wire.asked(call.action, call.params)
        scene = Scene(
            call, asked, region, self._moto, self._directory, self._clock.now(), partial(self._motos, call, environ)
        )
        return ACTIONS[call.action](scene)

    def _motos(self, call: Call, environ: Environ) -> Mapping[str, Any]:
        status, _, body = self._moto.answer(environ, call.action)
        return wire.told(call.action, status, body)

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


@dataclass(frozen=True, slots=True)
class Double:
    """What a running double can be reached by."""

    endpoint: str
    regions: Mapping[str, Mapping[str, Any]]
    directory: Path

    @property
    def env(self) -> dict[str, str]:
        """What the SDK, or any tool built on it, needs to come here instead of to Amazon."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": next(iter(self.regions)),
        }

    @property
    def text(self) -> str:
        lines = [f"EC2 of {', '.join(self.regions)} is at {self.endpoint} until it is interrupted."]
        lines += [f"  export {name}={value}" for name, value in self.env.items()]
        for region, home in self.regions.items():
            lines += [f"{region}: image {home['image']}, vpc {home['vpc']}"]
            lines += [f"  {zone}: {subnet}" for zone, subnet in home["subnets"].items()]
        return "\n".join([*lines, f"Calls: {self.directory / 'calls.jsonl'}"])

    def write(self) -> None:
        """Write ec2.json, at once and as a whole: who waits for it may read it."""
        draft = self.directory / "ec2.json.new"
        state = {"endpoint": self.endpoint, "regions": self.regions}
        draft.write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
        draft.rename(self.directory / "ec2.json")


def serve(
    directory: Path,
    *,
    port: int,
    regions: Iterable[str],
    times: Times,
    ready: Callable[[Double], None] = Double.write,
) -> None:
    """Serve until it is interrupted, or a signal's exception ends it; LabError if it cannot be."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        """The journal says more than a line of access log."""

        def log_request(self, *_: object) -> None:
            pass

    # Bound here, for werkzeug itself ends the program when the port is taken.
    try:
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
    except (OSError, OverflowError) as error:
        raise LabError(f"port {port} of 127.0.0.1 can't be taken: {error}") from None
    with listener:
        cloud = Cloud(directory, regions, times)
        server = make_server(
            "127.0.0.1", port, cloud, threaded=True, request_handler=Quiet, fd=os.dup(listener.fileno())
        )
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended = threading.Event()
        threading.Thread(target=cloud.watch, args=(ended,), name="watch", daemon=True).start()
        try:
            ready(Double(endpoint, cloud.homes, directory))
            server.serve_forever()
        finally:
            ended.set()
            server.server_close()


def check_regions(names: Iterable[str]) -> None:
    """Refuse what is no region of Amazon's, with the nearest that is one."""
    partition = botocore.session.get_session().get_available_regions("ec2")
    for name in names:
        if name not in partition:
            near = difflib.get_close_matches(name, partition, 1, cutoff=0.0)
            raise LabError(f"region {name!r} is unknown; did you mean {near[0]}?")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cmscale.lab.ec2", description="An EC2 API on 127.0.0.1")
    parser.add_argument("--dir", type=Path, required=True, help="where ec2.json and calls.jsonl are written")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--region", action="append", default=[], help="may be given several times")
    parser.add_argument("--times", type=json.loads, default={}, help="JSON: fields of instance.Times")
    given = parser.parse_args(argv)
    serve(given.dir, port=given.port, regions=given.region or DEFAULT_REGIONS, times=changed(Times(), given.times))
