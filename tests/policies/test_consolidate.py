"""consolidate: of two half-empty nodes one is emptied."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cmscale.model import FactKind, Goal, Help, Job, Node, NodeName, Power, Shape, Want
from policies.consolidate import Settings, propose
from tests.builders import BUSY, IDLE, JOINED, NOW, ask, fact, facts, job, machine, node, notice, pool, view

NOBODY: frozenset[NodeName] = frozenset()
BIG = pool("big", 8, shape=Shape(16, 64000))
GOING = "cm-scale: giving back"


def used(number: int, cpus: int, **changes: Any) -> Node:
    """A node that was up for long, with jobs on so many of its 16 CPUs."""
    name = f"big-{number}"
    defaults: dict[str, Any] = {
        "states": BUSY if cpus else IDLE,
        "free": Shape(16 - cpus, 64000 - cpus * 4000),
        "machine": machine(name, launched=NOW - 7200),
    }
    return node(name, Power.ON, BIG, **(defaults | changes))


def emptying(number: int, cpus: int) -> Node:
    return used(number, cpus, states=(BUSY if cpus else IDLE) | {"DRAIN"}, reason=GOING)


def wished(
    nodes: Iterable[Node],
    jobs: Iterable[Job] = (),
    claimed: frozenset[NodeName] = NOBODY,
    of: Any = BIG,
    **settings: Any,
) -> list[Goal]:
    return list(propose(view([of], nodes, jobs), claimed, Settings(**settings)))


def chosen(nodes: Iterable[Node], **more: Any) -> list[tuple[str, Want]]:
    return [(goal.node, goal.want) for goal in wished(nodes, **more)]


# --- which -----------------------------------------------------------------------------------------------------------


def test_of_two_nodes_whose_work_would_fit_on_one_the_less_used_is_drained() -> None:
    (goal,) = wished([used(1, 8), used(2, 4)])
    assert (goal.node, goal.want, goal.by) == ("big-2", Want.DRAINED, None)
    assert goal.reason == "it is being emptied: what it runs would fit on big-1"


def test_a_node_that_a_person_keeps_is_not_chosen_and_keeps_no_other_from_being_emptied() -> None:
    kept = facts(fact(FactKind.KEEP, "big-2"))
    (goal,) = propose(view([BIG], [used(1, 8), used(2, 2), used(3, 4)], facts=kept), NOBODY, Settings())
    assert goal.node == "big-3"


def test_work_that_fits_nowhere_else_stays() -> None:
    assert chosen([used(1, 12), used(2, 5)]) == []
    assert chosen([used(1, 4)]) == []
    much_memory = used(2, 2, free=Shape(14, 10000))
    assert chosen([used(1, 8), much_memory]) == []


def test_the_fullest_node_that_has_room_takes_it_and_names_decide_among_equals() -> None:
    assert wished([used(1, 6), used(2, 4), used(3, 11), used(4, 13)])[0].reason.endswith("fit on big-3")
    assert chosen([used(2, 4), used(1, 4)]) == [("big-1", Want.DRAINED)]


def test_an_idle_node_takes_no_ones_work_for_it_goes_itself() -> None:
    assert chosen([used(1, 0), used(2, 4)]) == []


def test_no_more_than_so_many_of_a_pool_are_emptied_at_once() -> None:
    four = [used(1, 3), used(2, 3), used(3, 3), used(4, 3)]
    assert chosen(four) == [("big-1", Want.DRAINED)]
    assert [name for name, _ in chosen(four, at_once=2)] == ["big-1", "big-2"]
    assert chosen(four, at_once=0) == []


def test_room_that_is_meant_for_one_nodes_work_is_not_counted_again() -> None:
    assert [name for name, _ in chosen([used(1, 8), used(2, 5), used(3, 5)], at_once=9)] == ["big-2"]


# --- from tick to tick -----------------------------------------------------------------------------------------------


def test_what_is_being_emptied_goes_on_although_others_have_filled_up_or_are_less_used_now() -> None:
    assert chosen([used(1, 16), emptying(2, 4)]) == [("big-2", Want.DRAINED)]
    assert chosen([used(1, 1), emptying(2, 4), used(3, 8)]) == [("big-2", Want.DRAINED)]


def test_when_its_jobs_have_ended_the_node_goes() -> None:
    assert chosen([used(1, 8), emptying(2, 0)]) == [("big-2", Want.GONE)]


def test_a_node_that_is_alone_by_now_is_handed_back() -> None:
    assert chosen([emptying(2, 4)]) == []


def test_a_node_that_has_just_joined_is_not_taken_for_one_that_was_emptied() -> None:
    assert chosen([used(1, 8), used(2, 0, states=JOINED, reason="cm-scale: off")]) == []


# --- never -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("help_", [Help.NODES, Help.ASK_AGAIN])
def test_nothing_is_emptied_where_a_job_waits_and_what_is_being_emptied_is_handed_back(help_: Help) -> None:
    waiting = [job(1, ask(partitions=("batch", "other")), help=help_)]
    assert chosen([used(1, 8), used(2, 4)], jobs=waiting) == []
    assert chosen([used(1, 8), emptying(2, 0)], jobs=waiting) == []


def test_jobs_that_wait_elsewhere_or_that_nodes_would_not_help_change_nothing() -> None:
    others = [job(1, ask(partitions=("other",))), job(2, help=Help.NO), job(3, state="RUNNING")]
    assert chosen([used(1, 8), used(2, 4)], jobs=others) == [("big-2", Want.DRAINED)]


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": machine("big-2", launched=NOW - 1799)},
        {"notice": notice()},
        {"sick": "lost"},
        {"until": NOW + 7200},
        {"reserved": "course"},
        {"resting": "maintenance"},
        {"states": BUSY | {"DRAIN"}, "reason": "a person's"},
    ],
    ids=["just up", "taken back", "sick", "other end", "reserved", "resting", "drained by a person"],
)
def test_a_node_with_a_fate_of_its_own_is_neither_emptied_nor_given_others_work(changes: dict[str, Any]) -> None:
    assert ("big-2", Want.DRAINED) not in chosen([used(1, 8), used(2, 4, **changes)])
    if "machine" not in changes:
        assert chosen([used(1, 4), used(2, 8, **changes)]) == []


def test_nodes_with_the_same_end_are_alike() -> None:
    same = [used(1, 8, until=NOW + 7200), used(2, 4, until=NOW + 7200)]
    assert chosen(same) == [("big-2", Want.DRAINED)]


def test_no_pool_falls_below_what_it_keeps_and_what_shall_keep_running_stays() -> None:
    two = [used(1, 8), used(2, 4)]
    assert chosen(two, of=replace(BIG, keep=2)) == []
    assert chosen(two, of=replace(BIG, keep=1)) == [("big-2", Want.DRAINED)]
    assert chosen(two, of=replace(BIG, keep_running=frozenset({NodeName("big-2")}))) == [("big-1", Want.DRAINED)]
    assert chosen(two, claimed=frozenset({NodeName("big-2")})) == [("big-1", Want.DRAINED)]


def test_fewer_than_no_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="at_once is -1; expected 0 or more nodes"):
        Settings(at_once=-1)


# --- whatever runs ---------------------------------------------------------------------------------------------------

LOADS = some.lists(some.integers(0, 16), min_size=2, max_size=8)


def next_look(nodes: list[Node], goals: list[Goal]) -> list[Node]:
    """The nodes as they are when the wishes have been followed: drained where that is wished, else handed to Slurm."""
    drained = {goal.node for goal in goals}
    return [
        replace(
            each,
            states=(each.states | {"DRAIN"}) if each.name in drained else each.states - {"DRAIN"},
            reason=GOING if each.name in drained else "",
        )
        for each in nodes
    ]


@given(LOADS, some.integers(0, 3))
def test_never_more_than_so_many_at_once_and_never_a_busy_node_given_back(loads: list[int], at_once: int) -> None:
    goals = wished([used(number, cpus) for number, cpus in enumerate(loads, 1)], at_once=at_once)
    assert len(goals) <= at_once
    assert all(goal.want is Want.DRAINED for goal in goals)
    staying = [cpus for number, cpus in enumerate(loads, 1) if f"big-{number}" not in {goal.node for goal in goals}]
    assert sum(loads) <= 16 * len(staying)


@given(LOADS, some.integers(1, 3))
def test_the_choice_stays_the_same_from_tick_to_tick_while_nothing_else_changes(loads: list[int], at_once: int) -> None:
    nodes = [used(number, cpus) for number, cpus in enumerate(loads, 1)]
    first = chosen(nodes, at_once=at_once)
    second = chosen(next_look(nodes, wished(nodes, at_once=at_once)), at_once=at_once)
    assert sorted(first) == sorted(second)


@given(LOADS, some.data())
def test_what_is_being_emptied_goes_on_however_the_other_nodes_fill(loads: list[int], data: some.DataObject) -> None:
    nodes = [used(number, max(cpus, 1)) for number, cpus in enumerate(loads, 1)]
    goals = wished(nodes)
    filled = [
        replace(each, free=used(1, data.draw(some.integers(1, 16))).free) if not each.drained else each
        for each in next_look(nodes, goals)
    ]
    if goals:
        assert chosen(filled) == [(goals[0].node, Want.DRAINED)]
