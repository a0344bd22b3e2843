"""drain_sites: what a person wants to leave is left."""

import pytest

from cmscale.model import FactKind, Node, NodeName, Power, Snapshot, Want
from policies.drain_sites import propose
from tests.builders import BUSY, EAST, IDLE, JOINED, NOW, WEST, fact, facts, node, pool, view

NOBODY: frozenset[NodeName] = frozenset()


def drained(*nodes: Node, site: str = EAST) -> Snapshot:
    return view(nodes=nodes, facts=facts(fact(FactKind.DRAIN_SITE, site, why="the link is repaired")))


@pytest.mark.parametrize(
    "up",
    [
        node("t4-1", Power.ON, states=IDLE, idle_since=NOW - 1),
        node("t4-1", Power.ON, states=BUSY),
        node("t4-1", Power.ON, states=JOINED),
        node("t4-1", Power.STARTING),
    ],
    ids=["idle for a second", "busy", "just joined", "starting"],
)
def test_whatever_is_up_or_coming_at_the_site_goes_when_its_jobs_have_ended(up: Node) -> None:
    (goal,) = propose(drained(up), NOBODY, None)
    assert (goal.node, goal.want, goal.by) == ("t4-1", Want.GONE, None)
    assert goal.reason == "east is drained: the link is repaired"


def test_other_sites_and_what_is_off_stay_as_they_are() -> None:
    idle, stopped = node("t4-1", Power.ON), node("t4-2", Power.OFF)
    assert list(propose(drained(idle, site=WEST), NOBODY, None)) == []
    assert list(propose(drained(stopped), NOBODY, None)) == []
    assert list(propose(view(nodes=[idle]), NOBODY, None)) == []


def test_what_failed_and_what_others_have_claimed_is_theirs() -> None:
    assert list(propose(drained(node("t4-1", Power.STARTING, sick="stuck")), NOBODY, None)) == []
    assert list(propose(drained(node("t4-1", Power.ON)), frozenset({NodeName("t4-1")}), None)) == []


def test_a_helper_goes_when_no_machine_needs_it_any_more() -> None:
    licences = pool("lic", 1, partitions=())
    needed = node("lic-1", Power.ON, licences, outside=True)
    unneeded = node("lic-1", Power.ON, licences, outside=True, idle_since=NOW - 1)
    site = facts(fact(FactKind.DRAIN_SITE, EAST))
    assert list(propose(view([licences], [needed], facts=site), NOBODY, None)) == []
    assert [goal.node for goal in propose(view([licences], [unneeded], facts=site), NOBODY, None)] == ["lic-1"]
