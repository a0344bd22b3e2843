"""release_idle: what goes, and what stays."""

from typing import Any

import pytest

from cmscale.model import Goal, Node, NodeName, Power, Want
from policies.release_idle import Settings, propose
from tests.builders import BUSY, JOINED, NOW, home_node, machine, node, pool, view

NOBODY: frozenset[NodeName] = frozenset()
SETTINGS = Settings(idle_s=300)


def test_a_node_that_was_idle_for_long_enough_goes() -> None:
    (goal,) = propose(view(nodes=[node("t4-1", Power.ON, idle_since=NOW - 300)]), NOBODY, SETTINGS)
    assert (goal.node, goal.want) == ("t4-1", Want.GONE)
    assert goal.reason == "idle for 300 s and no waiting job needs it"


@pytest.mark.parametrize(
    "stays",
    [
        node("t4-1", Power.ON, idle_since=NOW - 299),
        node("t4-1", Power.ON, states=BUSY),
        node("t4-1", Power.STARTING),
        node("t4-1"),
        home_node("op1", idle_since=NOW - 9000),
    ],
    ids=["not long enough", "busy", "starting", "gone", "not ours"],
)
def test_everything_else_stays(stays: Node) -> None:
    assert list(propose(view(nodes=[stays]), NOBODY, SETTINGS)) == []


def test_a_node_that_another_policy_needs_stays() -> None:
    idle = view(nodes=[node("t4-1", Power.ON, idle_since=NOW - 9000)])
    assert list(propose(idle, frozenset({NodeName("t4-1")}), SETTINGS)) == []


def paid_by_the_hour(minute: float, **changes: Any) -> list[Goal]:
    """What is wished of a node that has been idle for long, so many minutes after its machine started."""
    of = pool(billing_quantum_s=3600)
    up = node(
        "t4-1", Power.ON, of, idle_since=NOW - 900, machine=machine("t4-1", launched=NOW - minute * 60), **changes
    )
    return list(propose(view([of], [up]), NOBODY, SETTINGS))


@pytest.mark.parametrize(
    ("minute", "goes"), [(20, False), (56, False), (57.5, True), (59, True), (61, False), (119, True), (125, False)]
)
def test_what_is_paid_by_the_hour_goes_at_the_last_call_of_an_hour_only(minute: float, goes: bool) -> None:
    assert bool(paid_by_the_hour(minute)) is goes


def test_what_was_drained_at_the_last_call_is_not_taken_back_when_the_call_is_over() -> None:
    assert paid_by_the_hour(61, states=JOINED, reason="cm-scale: giving back")


def test_what_shall_keep_running_stays_however_idle() -> None:
    of = pool(keep_running=frozenset({NodeName("t4-1")}))
    idle = [node(name, Power.ON, of, idle_since=NOW - 9000) for name in ("t4-1", "t4-2")]
    assert [goal.node for goal in propose(view([of], idle), NOBODY, SETTINGS)] == ["t4-2"]


def test_a_helper_stays_since_it_always_seems_idle() -> None:
    of = pool("licence", partitions=())
    helper = node("licence-1", Power.ON, of, idle_since=NOW - 9000, outside=True)
    assert list(propose(view([of], [helper]), NOBODY, SETTINGS)) == []
