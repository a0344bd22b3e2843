"""How is a snapshot, or a plan, written down so that it can be decided again, exactly, by a later version?

Compressed JSON, made by the values' own type hints, so that no field is named here. A value is the list of its fields;
which fields these are is written once for each type, and is what a later version goes by: what it does not know is left
out, what is missing has its default. What many jobs ask alike is written once.
"""

from __future__ import annotations

import dataclasses
import json
import types
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from cmscale.model import Ask

T = TypeVar("T")

Way = Callable[[Any], Any]

ONCE = frozenset({Ask})
"""Types whose equal values are written once and referred to by number."""

LEVEL = 1
"""zlib's fastest: the next ones take three times as long for a tenth of the size."""

PLAIN = frozenset({str, int, float, bool})


class Unreadable(Exception):
    """This text was not written by us, or what it says can't be said any more."""


def encode(value: object) -> bytes:
    """The text of a frozen value of ours, compressed."""
    ways = _Writing()
    written = ways.of(type(value))(value)
    told = {"fields": ways.fields, "once": ways.once, "value": written}
    return zlib.compress(json.dumps(told, separators=(",", ":"), check_circular=False).encode(), LEVEL)


def decode(kind: type[T], text: bytes) -> T:
    """The value of this kind that was written; raises Unreadable."""
    try:
        told = json.loads(zlib.decompress(text))
        value: T = _Reading(told["fields"], told["once"]).of(kind)(told["value"])
    except (zlib.error, ValueError, TypeError, LookupError, AttributeError) as error:
        raise Unreadable(f"it can't be read as a {kind.__name__} of this version ({error})") from None
    return value


class _Ways(ABC):
    """For each type hint the way from its values to what JSON has, or back; made when it is first needed."""

    def __init__(self) -> None:
        self._known: dict[Any, Way] = {}

    def of(self, hint: Any) -> Way:
        if hint not in self._known:
            self._known[hint] = self._made(_bare(hint), get_args(hint))
        return self._known[hint]

    def _made(self, kind: Any, of: tuple[Any, ...]) -> Way:
        origin = get_origin(kind) or kind
        if origin in PLAIN:
            return _as_it_is
        if origin in {Union, types.UnionType}:
            return _if_any(self.of(of[0]))
        if origin is tuple and of[1] is not ...:
            return self._side_by_side(tuple(map(self.of, of)))
        if origin in {tuple, frozenset}:
            return self._many(self.of(of[0]), origin)
        if origin is Mapping:
            return self._mapping(*of)
        return self._word(origin) if issubclass(origin, Enum) else self._value(origin)

    @abstractmethod
    def _side_by_side(self, ways: tuple[Way, ...]) -> Way: ...

    @abstractmethod
    def _many(self, way: Way, into: type) -> Way: ...

    @abstractmethod
    def _mapping(self, key: Any, of: Any) -> Way: ...

    @abstractmethod
    def _word(self, kind: type[Enum]) -> Way: ...

    @abstractmethod
    def _value(self, kind: type) -> Way: ...


class _Writing(_Ways):
    """From values to what JSON has; keeps which fields were written, and what is written once."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, tuple[str, ...]] = {}
        self.once: dict[str, list[Any]] = {}

    def _side_by_side(self, ways: tuple[Way, ...]) -> Way:
        return lambda values: [way(value) for way, value in zip(ways, values, strict=True)]

    def _many(self, way: Way, into: type) -> Way:
        if way is _as_it_is:
            return _as_it_is if into is tuple else tuple
        return lambda values: tuple(map(way, values))

    def _mapping(self, key: Any, of: Any) -> Way:
        name, way = self.of(key), self.of(of)
        if _bare(key) is str:
            return lambda values: {key: way(value) for key, value in values.items()}
        return lambda values: [(name(key), way(value)) for key, value in values.items()]

    def _word(self, kind: type[Enum]) -> Way:
        return {each: each.value for each in kind}.__getitem__

    def _value(self, kind: type) -> Way:
        return self._number(kind) if kind in ONCE else self._row(kind)

    def _row(self, kind: type) -> Way:
        fields = _fields(kind)
        self.fields[kind.__name__] = tuple(fields)
        ways = _worth([(at, self.of(hint)) for at, hint in enumerate(fields.values())])
        values = attrgetter(*fields)

        def row(value: Any) -> list[Any]:
            written = list(values(value))
            for at, way in ways:
                written[at] = way(written[at])
            return written

        return row

    def _number(self, kind: type) -> Way:
        numbers: dict[Any, int] = {}
        rows = self.once[kind.__name__] = []
        row = self._row(kind)

        def number(value: Any) -> int:
            if (known := numbers.get(value)) is not None:
                return known
            rows.append(row(value))
            return numbers.setdefault(value, len(numbers))

        return number


class _Reading(_Ways):
    """From what JSON has back to values, given which fields were written."""

    def __init__(self, fields: Mapping[str, list[str]], once: Mapping[str, list[Any]]) -> None:
        super().__init__()
        self._written = fields
        self._once = once

    def _side_by_side(self, ways: tuple[Way, ...]) -> Way:
        return lambda values: tuple(way(value) for way, value in zip(ways, values, strict=True))

    def _many(self, way: Way, into: type) -> Way:
        return into if way is _as_it_is else lambda values: into(map(way, values))

    def _mapping(self, key: Any, of: Any) -> Way:
        name, way = self.of(key), self.of(of)
        if _bare(key) is str:
            return lambda values: MappingProxyType({key: way(value) for key, value in values.items()})
        return lambda values: MappingProxyType({name(key): way(value) for key, value in values})

    def _word(self, kind: type[Enum]) -> Way:
        return {each.value: each for each in kind}.__getitem__

    def _value(self, kind: type) -> Way:
        if kind.__name__ in self._once:
            return list(map(self._row(kind), self._once[kind.__name__])).__getitem__
        return self._row(kind)

    def _row(self, kind: type) -> Way:
        hints = _fields(kind)
        known = [(at, name) for at, name in enumerate(self._written[kind.__name__]) if name in hints]
        ways = _worth([(at, self.of(hints[name])) for at, name in known])

        def row(written: list[Any]) -> Any:
            for at, way in ways:
                written[at] = way(written[at])
            return kind(**{name: written[at] for at, name in known})

        return row


def _as_it_is(value: Any) -> Any:
    return value


def _if_any(way: Way) -> Way:
    return way if way is _as_it_is else lambda value: None if value is None else way(value)


def _worth(ways: list[tuple[int, Way]]) -> list[tuple[int, Way]]:
    """Those that change anything."""
    return [(at, way) for at, way in ways if way is not _as_it_is]


def _bare(hint: Any) -> Any:
    """The type behind a NewType."""
    return getattr(hint, "__supertype__", hint)


@cache
def _fields(kind: type) -> Mapping[str, Any]:
    """The fields of a type of ours, two at least, with their hints."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
