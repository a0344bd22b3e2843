"""Snapshots and plans as text: back comes what went in, also when another version wrote it."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmscale.journal import stored
from cmscale.model import Plan, Snapshot
from tests.builders import ask, job, view

NUMBERS = st.integers(-(2**53), 2**53)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=5),
    int: NUMBERS,
    float: st.floats(allow_nan=False) | NUMBERS,
    bool: st.booleans(),
}


@cache
def any_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of ours, whatever fields it may be given one day."""
    kind, of = getattr(hint, "__supertype__", hint), get_args(hint)
    origin = get_origin(kind) or kind
    if origin in PLAIN:
        return PLAIN[origin]
    if origin in {Union, UnionType}:
        return st.none() | any_of(of[0])
    if origin is tuple and of[1] is not ...:
        return st.tuples(*map(any_of, of))
    if origin in {tuple, frozenset}:
        return st.lists(any_of(of[0]), max_size=2).map(origin)
    if origin is Mapping:
        return st.dictionaries(any_of(of[0]), any_of(of[1]), max_size=2).map(MappingProxyType)
    return st.sampled_from(origin) if issubclass(origin, Enum) else any_value(origin)


def any_value(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    # Half of the fields of a value are as they are by default, as they are in life.
    fields = {field.name: any_of(hints[field.name]) for field in dataclasses.fields(kind)}
    required = {field.name for field in dataclasses.fields(kind) if _required(field)}
    return st.fixed_dictionaries(
        {name: of for name, of in fields.items() if name in required},
        optional={name: of for name, of in fields.items() if name not in required},
    ).map(lambda values: kind(**values))


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


@settings(max_examples=300, deadline=None)
@given(any_of(Snapshot))
def test_a_snapshot_comes_back_as_it_was(snapshot: Snapshot) -> None:
    assert stored.decode(Snapshot, stored.encode(snapshot)) == snapshot


@settings(max_examples=200, deadline=None)
@given(any_of(Plan))
def test_a_plan_comes_back_as_it_was(plan: Plan) -> None:
    assert stored.decode(Plan, stored.encode(plan)) == plan


def test_what_comes_back_can_be_changed_no_more_than_what_went_in() -> None:
    again = stored.decode(Snapshot, stored.encode(view(jobs=[job(nodes=frozenset({"t4-1"}))])))
    assert {type(each) for each in (again.nodes, again.pools, again.facts)} == {MappingProxyType}
    assert {type(each) for each in (again.jobs, again.unreadable)} == {tuple}
    assert isinstance(again.jobs[0].nodes, frozenset)


def test_what_jobs_ask_alike_is_written_once_and_is_one_value_again() -> None:
    text = stored.encode(view(jobs=[job(number, ask(tasks=1 + number % 3)) for number in range(30)]))
    assert len(json.loads(zlib.decompress(text))["once"]["Ask"]) == 3
    jobs = stored.decode(Snapshot, text).jobs
    assert jobs[0].ask is jobs[3].ask
    assert jobs[0].ask is not jobs[1].ask


# --- other versions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lamp:
    """As an earlier version knew it."""

    name: str
    watts: int
    colour: str = "white"


def later(**fields: Any) -> type:
    """The same value as a later version knows it."""
    return dataclasses.make_dataclass("Lamp", [(name, type(of), of) for name, of in fields.items()], frozen=True)


def test_a_field_that_an_earlier_version_did_not_write_has_its_default_and_one_no_longer_known_is_left_out() -> None:
    known = later(watts=0, name="", price=0.5)
    assert stored.decode(known, stored.encode(Lamp("desk", 40))) == known(watts=40, name="desk", price=0.5)


@dataclass(frozen=True)
class Shade:
    """What no lamp had earlier."""

    name: str = "none"
    area: float = 0.0


def test_a_value_without_which_there_is_none_is_missed() -> None:
    text = stored.encode(Lamp("desk", 40))
    told = json.loads(zlib.decompress(text))
    told["fields"]["Lamp"] = ["name", "power", "colour"]
    with pytest.raises(stored.Unreadable, match=r"can't be read as a Lamp of this version .*'watts'"):
        stored.decode(Lamp, zlib.compress(json.dumps(told).encode()))


def test_a_type_that_an_earlier_version_had_not_has_its_default() -> None:
    known = later(name="", watts=0, shade=Shade())
    assert stored.decode(known, stored.encode(Lamp("desk", 40))).shade == Shade()


@pytest.mark.parametrize("text", [b"", b"no compressed text", zlib.compress(b"{}"), zlib.compress(b"no JSON")])
def test_a_text_that_is_not_ours_is_told_so(text: bytes) -> None:
    with pytest.raises(stored.Unreadable, match="can't be read as a Snapshot of this version"):
        stored.decode(Snapshot, text)


def test_a_word_that_is_no_longer_known_makes_the_text_unreadable() -> None:
    text = zlib.decompress(stored.encode(view())).replace(b'"aws"', b'"gcp"')
    with pytest.raises(stored.Unreadable, match="gcp"):
        stored.decode(Snapshot, zlib.compress(text))
