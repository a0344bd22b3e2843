"""Which machine of a launch is which node, and what a call may hold."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmscale.adapters.aws.names import (
    LONGEST_TAG,
    NO_ORDER_YET,
    folded,
    launch_calls,
    marks,
    node_of,
    order_tags,
    position,
)
from cmscale.adapters.aws.pool import NODE_TAG
from cmscale.model import NodeName, Operation, OpId, PoolName, Verb

IDS = [f"i-{hashlib.sha256(str(number).encode()).hexdigest()[:17]}" for number in range(500)]


def nodes(number: int, form: str = "e{}") -> tuple[NodeName, ...]:
    return tuple(NodeName(form.format(each)) for each in range(1, number + 1))


def tags_of(machines: list[str], names: tuple[NodeName, ...]) -> dict[str, str]:
    return {NODE_TAG: folded(names), **order_tags(marks(machines))}


def operation(names: tuple[NodeName, ...]) -> Operation:
    return Operation(OpId("op"), Verb.START, PoolName("t4"), names, 0.0)


@settings(derandomize=True, max_examples=50)
@given(st.lists(st.from_regex(r"i-[0-9a-f]{17}", fullmatch=True), min_size=1, max_size=200, unique=True))
def test_each_machine_of_a_fleet_finds_its_own_node_whatever_its_index(machines: list[str]) -> None:
    names = nodes(len(machines))
    tags = tags_of(machines, names)
    assert tuple(node_of(machine, tags, 0) for machine in machines) == names
    assert all(len(value) <= LONGEST_TAG for key, value in tags.items() if key != NODE_TAG)


def test_five_hundred_machines_take_ten_tags() -> None:
    tags = order_tags(marks(IDS))
    assert sorted(tags, key=lambda key: int(key[-1])) == [f"cm-scale:order-{number}" for number in range(10)]


def test_machines_whose_marks_are_alike_get_longer_ones() -> None:
    by_mark: dict[str, str] = {}
    numbers = iter(range(100_000))
    while True:  # two of a few thousand always share four letters, and these are always the same two
        machine = f"i-{next(numbers):017x}"
        (mark,) = marks([machine])
        if mark in by_mark:
            break
        by_mark[mark] = machine
    alike = [by_mark[mark], machine]
    assert [len(each) for each in marks(alike)] == [5, 5]
    assert [node_of(each, tags_of(alike, nodes(2)), 0) for each in alike] == ["e1", "e2"]


def test_a_machine_of_a_fleet_is_no_node_before_its_order_is_known() -> None:
    assert node_of(IDS[0], {NODE_TAG: "e[1-2]", **NO_ORDER_YET}, 0) == ""
    assert node_of(IDS[0], {NODE_TAG: "e[1-2]", "cm-scale:order-0": ""}, 0) == ""


@pytest.mark.parametrize("part", ["", "..."])
def test_an_order_of_which_a_part_is_not_there_yet_tells_no_place_behind_it(part: str) -> None:
    tags = tags_of(IDS[:120], nodes(120))
    told = [node_of(machine, {**tags, "cm-scale:order-1": part}, 0) for machine in IDS[:120]]
    assert told == [f"e{number}" for number in range(1, 52)] + [""] * 69


def test_a_machine_that_is_not_in_the_order_is_no_node() -> None:
    assert node_of(IDS[3], tags_of(IDS[:2], nodes(2)), 0) == ""
    assert position(IDS[3], marks(IDS[:2])) is None


def test_a_machine_without_an_order_is_the_node_at_its_index() -> None:
    assert node_of(IDS[0], {NODE_TAG: "e[1-3]"}, 2) == "e3"
    assert node_of(IDS[0], {NODE_TAG: "e[1-3]"}, 3) == ""


@pytest.mark.parametrize(
    ("number", "sizes"), [(500, [500]), (501, [250, 251]), (1000, [500, 500]), (1001, [333, 334, 334])]
)
def test_many_machines_are_as_few_calls_as_can_be(number: int, sizes: list[int]) -> None:
    calls = launch_calls(operation(nodes(number)))
    assert [len(call.nodes) for call in calls] == sizes
    assert [node for call in calls for node in call.nodes] == list(nodes(number))
    assert len({call.token for call in calls}) == len(calls)


def test_a_list_too_long_for_a_tag_is_several_calls() -> None:
    names = tuple(NodeName(f"node{number * number:06d}-{number}") for number in range(60))
    calls = launch_calls(operation(names))
    assert len(calls) > 1
    assert all(len(call.label) <= LONGEST_TAG for call in calls)
    assert {node for call in calls for node in call.nodes} == {*names}
