"""release_idle: what goes, and what stays."""

import pytest

from cmscale.model import Node, NodeName, Power, Want
from policies.release_idle import Settings, propose
from tests.builders import BUSY, NOW, home_node, node, view

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


def test_a_machine_that_never_joined_goes() -> None:
    (goal,) = propose(view(nodes=[node("t4-1", Power.STARTING, sick="has not joined")]), NOBODY, SETTINGS)
    assert (goal.want, goal.reason) == (Want.GONE, "has not joined")
