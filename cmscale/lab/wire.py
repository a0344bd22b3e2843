"""How do a flat EC2 query and its XML answer look as plain dicts and lists?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
REQUEST_ID = "1ab00000-0000-4000-8000-000000000000"


def nested(flat: Mapping[str, str]) -> dict[str, Any]:
    """`Filter.1.Value.2=x` as nested dicts; the numbered ones are lists."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        here = tree
        for word in path:
            here = here.setdefault(word, {})
        here[last] = value
    folded = _fold(tree)
    return folded if isinstance(folded, dict) else {}


def _fold(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdigit() for key in tree):
        return [_fold(tree[key]) for key in sorted(tree, key=int)]
    return {key: _fold(value) for key, value in tree.items()}


def xml(value: Any) -> str:
    """The inside of an element: dicts by key, lists as <item>s, None left out."""
    if isinstance(value, Mapping):
        return "".join(f"<{key}>{xml(item)}</{key}>" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return "".join(f"<item>{xml(item)}</item>" for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(str(value))


def answer(action: str, content: Mapping[str, Any]) -> bytes:
    """A whole answer of EC2."""
    inside = xml({"requestId": REQUEST_ID, **content})
    return f'{HEAD}<{action}Response xmlns="{NAMESPACE}">{inside}</{action}Response>'.encode()


def error(service: str, code: str, message: str) -> bytes:
    """An error as EC2 words it, or as the other services of the query protocol do."""
    if service == "ec2":
        what = {"Errors": {"Error": {"Code": code, "Message": message}}, "RequestID": REQUEST_ID}
        return f"{HEAD}<Response>{xml(what)}</Response>".encode()
    what = {"Error": {"Type": "Sender", "Code": code, "Message": message}, "RequestId": REQUEST_ID}
    return f"{HEAD}<ErrorResponse>{xml(what)}</ErrorResponse>".encode()
