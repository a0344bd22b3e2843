"""leave_reclaimed: what the cloud takes back is left in time."""

import pytest

from cmscale.model import NodeName, Power, Want
from policies.leave_reclaimed import Settings, propose
from tests.builders import BUSY, IDLE, NOW, node, notice, view

NOBODY: frozenset[NodeName] = frozenset()


@pytest.mark.parametrize("states", [BUSY, IDLE], ids=["busy", "idle"])
def test_a_node_that_the_cloud_takes_back_goes_and_its_jobs_are_requeued_just_before(states: frozenset[str]) -> None:
    taken = node("t4-1", Power.ON, states=states, notice=notice(NOW + 120))
    (goal,) = propose(view(nodes=[taken]), NOBODY, Settings(requeue_before_s=30))
    assert (goal.node, goal.want, goal.by) == ("t4-1", Want.GONE, NOW + 90)


def test_a_notice_that_comes_days_ahead_takes_nothing_away_yet() -> None:
    retired = node("t4-1", Power.ON, notice=notice(NOW + 86400, "instance-retirement"))
    assert list(propose(view(nodes=[retired]), NOBODY, Settings(drain_before_s=3600))) == []
    assert list(propose(view(nodes=[retired], now=NOW + 82800), NOBODY, Settings(drain_before_s=3600)))


def test_the_reason_says_until_when_by_the_sites_clock() -> None:
    taken = node("t4-1", Power.ON, notice=notice(NOW + 120))
    (goal,) = propose(view(nodes=[taken], utc_offset_s=3600.0), NOBODY, Settings())
    assert goal.reason == "the cloud takes its machine back on mon 14:48:40 (spot interruption)"


def test_every_other_node_is_left_alone() -> None:
    taken = node("t4-1", Power.ON, notice=notice())
    seen = view(nodes=[taken, node("t4-2", Power.ON, states=BUSY)])
    assert [goal.node for goal in propose(seen, NOBODY, Settings())] == ["t4-1"]
    assert list(propose(seen, frozenset({NodeName("t4-1")}), Settings())) == []
