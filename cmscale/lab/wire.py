"""How does a call to EC2 read, and how is it answered, in the words of the SDK?

EC2 speaks flat queries (`Filter.1.Value.2=x`) and XML (`<instancesSet>`), whose names differ from those of boto3. The
SDK's own model of the API tells which is which. So the double speaks as boto3 does, on both sides: what is read has the
types that the API promises, and an answer with a word that the API lacks cannot be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import botocore.session
from botocore.model import ListShape, OperationModel, OperationNotFoundError, ServiceModel, Shape, StructureShape
from botocore.parsers import create_parser

from cmscale.lab.instance import Refused

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
REQUEST_ID = "1ab00000-0000-4000-8000-000000000000"


@cache
def model() -> ServiceModel:
    return botocore.session.get_session().get_service_model("ec2")


def check(action: str) -> None:
    """Refuse an action that EC2 does not have."""
    _operation(action)


@cache
def _operation(action: str) -> OperationModel:
    try:
        return model().operation_model(action)
    except OperationNotFoundError:
        raise Refused("InvalidAction", f"The action {action} is not valid for this web service.") from None


# --- reading ---------------------------------------------------------------------------------------------------------


def asked(action: str, flat: Mapping[str, str]) -> dict[str, Any]:
    """A request as boto3 was given it; refuses what the API does not know."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        here = tree
        for word in path:
            here = here.setdefault(word, {})
        here[last] = value
    shape = _operation(action).input_shape
    known = {key: value for key, value in tree.items() if key not in {"Action", "Version"}}
    return _structure(shape, known, "") if isinstance(shape, StructureShape) else {}


@cache
def _read_names(shape: StructureShape) -> dict[str, tuple[str, Shape]]:
    """Of each name in a query: the SDK's name, and what it holds."""
    names: dict[str, tuple[str, Shape]] = {}
    for name, member in shape.members.items():
        word = member.serialization.get("queryName") or member.serialization.get("name", name)
        names[word[:1].upper() + word[1:] if "queryName" not in member.serialization else word] = (name, member)
    return names


def _structure(shape: StructureShape, tree: Mapping[str, Any], path: str) -> dict[str, Any]:
    names, found = _read_names(shape), {}
    for word, inside in tree.items():
        if word not in names:
            raise Refused("UnknownParameter", f"The parameter {path}{word} is not recognized")
        name, member = names[word]
        found[name] = _read(member, inside, f"{path}{word}")
    return found


def _read(shape: Shape, inside: Any, path: str) -> Any:
    if isinstance(shape, StructureShape) and isinstance(inside, dict):
        return _structure(shape, inside, f"{path}.")
    if isinstance(shape, ListShape) and isinstance(inside, dict):
        return [_read(shape.member, inside[key], f"{path}.{key}") for key in sorted(inside, key=int)]
    if isinstance(shape, ListShape) and inside == "":
        return []
    try:
        return _PLAIN.get(shape.type_name, str)(inside)
    except (KeyError, ValueError):
        raise Refused(
            "InvalidParameterValue", f"Invalid value '{inside}' for {path}: not of type {shape.type_name}."
        ) from None


_PLAIN: Mapping[str, Any] = {
    "integer": int,
    "long": int,
    "double": float,
    "float": float,
    "boolean": lambda word: {"true": True, "false": False}[word.lower()],
    "timestamp": lambda word: datetime.fromisoformat(word).timestamp(),
}


def told(action: str, status: int, body: bytes) -> dict[str, Any]:
    """An answer of somebody else's, as boto3 reads it."""
    shape = _operation(action).output_shape
    answer = {"status_code": status, "headers": {}, "body": body}
    parsed: dict[str, Any] = create_parser("ec2").parse(answer, shape) if shape else {}
    return parsed


# --- writing ---------------------------------------------------------------------------------------------------------


def at(seconds: float) -> str:
    """A time as EC2 writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def answer(action: str, content: Mapping[str, Any]) -> bytes:
    """A whole answer of EC2; KeyError if the API knows no such word."""
    shape = _operation(action).output_shape
    # Where the SDK expects nothing, EC2 says <return>true</return>.
    inside = _write(shape, content) if shape else "<return>true</return>"
    whole = f"<requestId>{REQUEST_ID}</requestId>{inside}"
    return f'{HEAD}<{action}Response xmlns="{NAMESPACE}">{whole}</{action}Response>'.encode()


def trimmed(action: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Without the words that the API lacks there: for answers that repeat a request, or differ between SDKs."""
    shape = _operation(action).output_shape
    trim: dict[str, Any] = _trim(shape, content) if shape else {}
    return trim


def _trim(shape: Shape, value: Any) -> Any:
    if isinstance(shape, StructureShape):
        members = shape.members
        return {
            name: _trim(members[name], each) for name, each in value.items() if name in members and each is not None
        }
    if isinstance(shape, ListShape):
        return [_trim(shape.member, each) for each in value]
    return value


@cache
def _written_names(shape: StructureShape) -> dict[str, tuple[str, Shape]]:
    return {name: (member.serialization.get("name", name), member) for name, member in shape.members.items()}


def _write(shape: Shape, value: Any) -> str:
    """The inside of an element; what is None is left out."""
    if isinstance(shape, StructureShape):
        names, parts = _written_names(shape), []
        for name, inside in value.items():
            if inside is not None:
                word, member = names[name]
                parts.append(f"<{word}>{_write(member, inside)}</{word}>")
        return "".join(parts)
    if isinstance(shape, ListShape):
        return "".join(f"<item>{_write(shape.member, each)}</item>" for each in value)
    return str(_PLAINLY.get(shape.type_name, escape)(value))


_PLAINLY: Mapping[str, Any] = {
    "integer": lambda value: str(int(value)),
    "long": lambda value: str(int(value)),
    "double": lambda value: str(float(value)),
    "float": lambda value: str(float(value)),
    "boolean": lambda value: "true" if value else "false",
    "timestamp": lambda moment: at(moment if isinstance(moment, float | int) else moment.timestamp()),
    "string": lambda value: escape(str(value)),
}


def error(service: str, code: str, message: str) -> bytes:
    """An error as EC2 words it, or as the other services of the query protocol do."""
    said = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if service == "ec2":
        inside = f"<Errors><Error>{said}</Error></Errors><RequestID>{REQUEST_ID}</RequestID>"
        return f"{HEAD}<Response>{inside}</Response>".encode()
    inside = f"<Error><Type>Sender</Type>{said}</Error><RequestId>{REQUEST_ID}</RequestId>"
    return f"{HEAD}<ErrorResponse>{inside}</ErrorResponse>".encode()
