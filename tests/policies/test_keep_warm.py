"""keep_warm: as many up as the pool says."""

from cmscale.model import NodeName, Power, Snapshot
from policies.keep_warm import Settings, propose
from tests.builders import node, pool, view

NOBODY: frozenset[NodeName] = frozenset()


def kept(seen: Snapshot, claimed: frozenset[NodeName] = NOBODY) -> list[str]:
    return [goal.node for goal in propose(seen, claimed, Settings())]


def test_a_pool_without_keep_keeps_nothing() -> None:
    assert kept(view()) == []


def test_nodes_that_are_up_are_kept_before_others_are_started() -> None:
    seen = view([pool(keep=2)], [node("t4-3", Power.ON), node("t4-2", Power.STARTING), node("t4-4", Power.ON)])
    assert kept(seen) == ["t4-3", "t4-4"]
    assert kept(view([pool(keep=2)])) == ["t4-1", "t4-2"]


def test_nodes_that_serve_the_queue_count_as_kept() -> None:
    seen = view([pool(keep=2)], [node("t4-1", Power.ON)])
    assert kept(seen, frozenset({NodeName("t4-1")})) == ["t4-2"]
