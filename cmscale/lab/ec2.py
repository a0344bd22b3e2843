"""What does Amazon EC2 answer, with real semantics, to a program that may run no real instance?

`python -m cmscale.lab.ec2 --dir D` serves the EC2 API of any number of regions on 127.0.0.1. Instances are those of
`cmscale.lab.instances`; everything else (networks, images, types, security groups, STS...) is moto. When it is ready it
writes D/ec2.json:

    {"endpoint": "http://127.0.0.1:PORT", "regions": {"us-east-1": {"image", "vpc", "subnet", "subnets": {zone: id}}}}

Private addresses lie in 127.64.0.0/10, so that a slurmd on this machine can be reached at its instance's address. Calls
are answered one at a time (moto is not safe for threads); delays of faults are waited out of turn. Each call becomes a
line of D/calls.jsonl: at, took_s, action, region, by (the access key), params, instances, error, status, fault.

Beside the API the same server has a side for tests and for the lab itself, see `cmscale.lab.backstage`.

The console output of an instance is what D/log/console-ID.out holds, which the lab's booter writes.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl

from cmscale.lab import console, wire, words
from cmscale.lab.backstage import Backstage
from cmscale.lab.clock import LabClock
from cmscale.lab.faults import Fault, Faults
from cmscale.lab.filters import passes, request_passes
from cmscale.lab.instances import Instance, Refused, Region, State, Times, changed
from cmscale.lab.surroundings import ACCOUNT, Surroundings

ACCESS_KEY = "AKIALAB0000000000000"
SECRET_KEY = "lab-secret-key"  # noqa: S105 - opens nothing but this double
DEFAULT_REGIONS = ("us-east-1", "us-west-2")
PAGE = 1000

OURS = re.compile(
    r"(Run|Describe|Terminate|Stop|Start)Instances|DescribeInstanceStatus|DescribeSpotInstanceRequests|GetConsoleOutput"
)
CREDENTIAL = re.compile(r"Credential=([^/,]+)/[^/]*/([^/]+)/([^/]+)/aws4_request")


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the API."""

    action: str
    service: str
    region: str
    key: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back; `instances` and `error` are for the journal."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/xml;charset=UTF-8"),)
    instances: tuple[str, ...] = ()
    error: str = ""


Environ = dict[str, Any]
StartResponse = Callable[..., Any]


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
        self._backstage = Backstage(self._regions, self._faults, self._calls, times, self._clock)

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
        call = _parse(environ, body)
        with self._lock:
            fault = self._faults.take(call.action, call.region, call.params)
        if fault and not fault.after:
            time.sleep(fault.delay_s)
        if fault and fault.prevents:
            answer = Answer(b"")
        else:
            with self._lock:
                answer = self._answer(call, environ)
        if fault and fault.after:
            time.sleep(fault.delay_s)
        if fault and fault.code:
            spoilt = _refusal(call.service, Refused(fault.code, fault.message, fault.status))
            answer = Answer(spoilt.body, spoilt.status, spoilt.headers, answer.instances, fault.code)
        self._note(call, answer, fault, at, time.monotonic() - began)
        if fault and fault.cut:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start_response("200 OK", [("Content-Length", "0")])
            return []
        start_response(f"{answer.status} lab", [*answer.headers, ("Content-Length", str(len(answer.body)))])
        return [answer.body]

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
            _check_key(call)
            if call.service == "ec2" and _is_ours(call):
                region = self._regions.get(call.region)
                if region is None:
                    return _refusal("ec2", Refused("OptInRequired", f"The lab has no region {call.region}.", 401))
                return self._serve(call, region, wire.nested(call.params), self._clock.now())
            status, headers, body = self._moto.answer(environ, call.action)
        except Refused as refused:
            return _refusal(call.service, refused)
        code = re.search(rb"<Code>([^<]+)</Code>", body) if status >= 400 else None
        return Answer(body, status, headers, error=code[1].decode() if code else "")

    # --- instances ---------------------------------------------------------------------------------------------------

    def _serve(self, call: Call, region: Region, asked: Mapping[str, Any], now: float) -> Answer:
        ids: list[str] = asked.get("InstanceId", [])
        if call.action == "RunInstances":
            launch = self._moto.check_launch(region.name, asked, call.params)
            _stop_here_if_dry(asked)
            instances = region.run(launch, now)
            content = self._reservation(region, instances, now)
            return _said(call, content, instances)
        if call.action.startswith("Describe"):
            _stop_here_if_dry(asked)
            return self._describe(call, region, asked, now)
        if call.action == "GetConsoleOutput":
            return self._console(call, region, asked, now)
        if call.action == "CreateTags":
            tags = {tag["Key"]: tag.get("Value", "") for tag in asked.get("Tag", [])}
            region.tag(asked.get("ResourceId", []), tags, now)
            return _said(call, {"return": True})
        if not ids:
            raise Refused("MissingParameter", "The request must contain the parameter InstanceId")
        list(region.described(ids, now))  # unknown ids come before DryRun
        _stop_here_if_dry(asked)
        send = {"TerminateInstances": region.terminate, "StopInstances": region.stop, "StartInstances": region.start}
        changes = send[call.action](ids, now)
        items = [
            {"instanceId": each.id, "currentState": after.words, "previousState": before.words}
            for each, before, after in changes
        ]
        return _said(call, {"instancesSet": items}, [each for each, _, _ in changes])

    def _describe(self, call: Call, region: Region, asked: Mapping[str, Any], now: float) -> Answer:
        spot = call.action == "DescribeSpotInstanceRequests"
        ids = asked.get("SpotInstanceRequestId" if spot else "InstanceId", [])
        if ids and "MaxResults" in asked:
            raise Refused(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        filters = {each["Name"]: each.get("Value", []) for each in asked.get("Filter", [])}
        size = int(asked.get("MaxResults", PAGE))
        if not 5 <= size <= PAGE:
            raise Refused("InvalidParameterValue", f"Value ( {size} ) for parameter maxResults is invalid.")
        try:
            after = int(asked.get("NextToken", "0"))
        except ValueError:
            raise Refused("InvalidParameterValue", "Unable to parse pagination token") from None
        there = (region.requested if spot else region.described)(ids, now, after=after)
        fits = request_passes if spot else passes
        found = [each for each in there if fits(each, filters, region.times, now)]
        page, more = found[:size], len(found) > size
        content = {"nextToken": str(page[-1].serial) if more else None}
        return _said(call, self._told(call.action, region, page, now) | content, page)

    def _told(self, action: str, region: Region, page: list[Instance], now: float) -> dict[str, Any]:
        if action == "DescribeSpotInstanceRequests":
            return {"spotInstanceRequestSet": [words.spot_request(each, region, now) for each in page]}
        if action == "DescribeInstanceStatus":
            running = [each for each in page if each.state(now, region.times) is State.RUNNING]
            return {"instanceStatusSet": [words.status(each, region, now) for each in running]}
        reservations: dict[str, list[Instance]] = {}
        for each in page:
            reservations.setdefault(each.reservation, []).append(each)
        return {"reservationSet": [self._reservation(region, group, now) for group in reservations.values()]}

    def _console(self, call: Call, region: Region, asked: Mapping[str, Any], now: float) -> Answer:
        if "InstanceId" not in asked:
            raise Refused("MissingParameter", "The request must contain the parameter InstanceId")
        (instance,) = region.described([asked["InstanceId"]], now)
        output = console.kept(self._directory, instance.id)
        content = {
            "instanceId": instance.id,
            "timestamp": words.at(now),
            "output": base64.b64encode(output).decode() if output else None,
        }
        return _said(call, content)

    def _reservation(self, region: Region, instances: list[Instance], now: float) -> dict[str, Any]:
        return {
            "reservationId": instances[0].reservation,
            "ownerId": ACCOUNT,
            "instancesSet": [words.instance(each, region, now) for each in instances],
        }

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


# --- words of EC2 ----------------------------------------------------------------------------------------------------


def _parse(environ: Environ, body: bytes) -> Call:
    signed = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
    key, region, service = (signed[1], signed[2], signed[3]) if signed else ("", "", "ec2")
    text = body.decode(errors="replace") or environ.get("QUERY_STRING", "")
    params = dict(parse_qsl(text, keep_blank_values=True))
    return Call(params.get("Action") or str(environ["PATH_INFO"]), service, region, key, params)


def _is_ours(call: Call) -> bool:
    if call.action == "CreateTags":
        return call.params.get("ResourceId.1", "").startswith("i-")
    return bool(OURS.fullmatch(call.action))


def _check_key(call: Call) -> None:
    if call.key == ACCESS_KEY:
        return
    if call.service == "ec2":
        raise Refused("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
    raise Refused("InvalidClientTokenId", "The security token included in the request is invalid.", 403)


def _stop_here_if_dry(asked: Mapping[str, Any]) -> None:
    if asked.get("DryRun") == "true":
        raise Refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)


def _said(call: Call, content: Mapping[str, Any], instances: Iterable[Instance] = ()) -> Answer:
    noted = () if call.action.startswith("Describe") else tuple(each.id for each in instances)
    return Answer(wire.answer(call.action, content), instances=noted)


def _refusal(service: str, refused: Refused) -> Answer:
    return Answer(wire.error(service, refused.code, refused.message), refused.status, error=refused.code)


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
    server.serve_forever()


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cmscale.lab.ec2", description="An EC2 API on 127.0.0.1")
    parser.add_argument("--dir", type=Path, required=True, help="where ec2.json and calls.jsonl are written")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--region", action="append", default=[], help="may be given several times")
    parser.add_argument("--times", type=json.loads, default={}, help="JSON: fields of instances.Times")
    given = parser.parse_args(argv)
    serve(given.dir, port=given.port, regions=given.region or DEFAULT_REGIONS, times=changed(Times(), given.times))


if __name__ == "__main__":
    main()
