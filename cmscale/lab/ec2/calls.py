"""What came in, and what goes back: a request and an answer of any service of the double, as values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from cmscale.lab import wire
from cmscale.lab.ec2 import ACCESS_KEY
from cmscale.lab.instance import Instance, Refused
from cmscale.lab.instances import Region
from cmscale.lab.surroundings import Surroundings

Environ = dict[str, Any]

_CREDENTIAL = re.compile(r"Credential=([^/,]+)/[^/]*/([^/]+)/([^/]+)/aws4_request")
_XML = (("Content-Type", "text/xml;charset=UTF-8"),)


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the API."""

    action: str
    service: str
    """By its name in the signature: ec2, sts, sqs, events, pricing, servicequotas..."""
    region: str
    key: str
    params: Mapping[str, str]
    """Flat: of a query as it came; of JSON the outermost words."""
    body: bytes = b""
    json: bool = False
    """It speaks JSON, as younger services do."""

    @classmethod
    def of(cls, environ: Environ, body: bytes) -> Call:
        signed = _CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        key, region, service = (signed[1], signed[2], signed[3]) if signed else ("", "", "ec2")
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        if target:
            given = _object(body)
            flat = {name: each if isinstance(each, str) else json.dumps(each) for name, each in given.items()}
            return cls(target.rpartition(".")[2], service, region, key, flat, body, json=True)
        text = body.decode(errors="replace") or environ.get("QUERY_STRING", "")
        params = dict(parse_qsl(text, keep_blank_values=True))
        return cls(params.get("Action") or str(environ["PATH_INFO"]), service, region, key, params, body)

    def check_key(self) -> None:
        """Refuse all but the lab's own credentials."""
        if self.key == ACCESS_KEY:
            return
        if self.service == "ec2":
            raise Refused("AuthFailure", "AWS was not able to validate the provided access credentials", 401)
        code = "UnrecognizedClientException" if self.json else "InvalidClientTokenId"
        raise Refused(code, "The security token included in the request is invalid.", 403)


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body or b"{}")
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back; `instances` and `error` are for the journal."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = _XML
    instances: tuple[str, ...] = ()
    error: str = ""


Service = Callable[[Call], Answer]
"""Answers the calls to one service; it may raise Refused."""


def json_answer(content: Mapping[str, Any], status: int = 200, error: str = "") -> Answer:
    """What a service that speaks JSON says."""
    headers = (("Content-Type", "application/x-amz-json-1.1"), *((("x-amzn-ErrorType", error),) if error else ()))
    return Answer(json.dumps(content).encode(), status, headers, error=error)


def refusal(call: Call, refused: Refused) -> Answer:
    """No, in the words of the service that was asked."""
    code, message, status = refused.code, str(refused), refused.status
    if call.json:
        return json_answer({"__type": code, "message": message}, status, code)
    return Answer(wire.error(call.service, code, message), status, error=code)


@dataclass(frozen=True, slots=True)
class Scene:
    """One call to EC2, with all that it is answered from."""

    call: Call
    asked: Mapping[str, Any]
    """The request in boto3's words."""
    region: Region
    moto: Surroundings
    directory: Path
    now: float
    motos: Callable[[], Mapping[str, Any]]
    """What moto answers to the same call, in boto3's words."""

    def stop_here_if_dry(self) -> None:
        if self.asked.get("DryRun"):
            raise Refused("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)

    def told(self, content: Mapping[str, Any], instances: Iterable[Instance] = ()) -> Answer:
        """The answer in boto3's words; the journal notes the instances that the call changed."""
        return Answer(wire.answer(self.call.action, content), instances=tuple(each.id for each in instances))


Action = Callable[[Scene], Answer | None]
"""Answers one action of EC2; nothing if this call is about what moto keeps."""
