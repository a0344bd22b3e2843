"""harvest: nodes with another role go back to it in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cmscale import hours
from cmscale.model import Goal, Node, NodeName, Power, Snapshot, Want
from policies.harvest import Settings, propose
from tests.builders import BUSY, IDLE, node, pool, view

NOBODY: frozenset[NodeName] = frozenset()
DESKS = pool("desk", hours=hours.windows(["mon-fri 20:00-06:00"]))
MIDNIGHT = 86400.0 * 4  # the first Monday of 1970
END = MIDNIGHT + 30 * 3600.0
WORKING = node("desk-1", Power.ON, DESKS, states=BUSY)
FREE = node("desk-2", Power.ON, DESKS)


def at(now: float, *nodes: Node) -> Snapshot:
    return view([DESKS], nodes or [WORKING, FREE], now=now)


def wished(seen: Snapshot, settings: Settings | None = None) -> list[Goal]:
    return list(propose(seen, NOBODY, settings or Settings()))


def test_in_the_middle_of_the_hours_nothing_is_wished() -> None:
    assert wished(at(MIDNIGHT + 21 * 3600.0)) == []
    assert wished(at(END - 3601)) == []


def test_an_hour_before_the_end_all_nodes_go_and_their_jobs_are_requeued_in_time() -> None:
    goals = wished(at(END - 3600))
    assert [(goal.node, goal.want, goal.by) for goal in goals] == [
        ("desk-1", Want.GONE, END - 600),
        ("desk-2", Want.GONE, END - 600),
    ]
    assert goals[0].reason == "the hours of desk end on tue 06:00"


def test_outside_the_hours_whatever_is_up_or_coming_goes_now() -> None:
    goals = wished(at(END + 5, WORKING, node("desk-2", Power.STARTING, DESKS)))
    assert [(goal.node, goal.by) for goal in goals] == [("desk-1", END + 5), ("desk-2", END + 5)]
    assert goals[0].reason == "it is outside the hours of desk"


def test_a_site_may_let_jobs_run_to_their_end() -> None:
    for now in (END - 60, END + 60):
        assert {goal.by for goal in wished(at(now), Settings(requeue=False))} == {None}


def test_what_is_off_or_claimed_or_has_no_hours_is_left_alone() -> None:
    assert wished(view([DESKS], now=END)) == []
    assert list(propose(at(END), frozenset({NodeName("desk-1"), NodeName("desk-2")}), Settings())) == []
    assert wished(view(nodes=[node("t4-1", Power.ON)])) == []
    always = pool("desk", hours=hours.windows(["00:00-24:00"]))
    assert wished(view([always], [node("desk-1", Power.ON, always)])) == []


def test_requeueing_before_draining_is_refused() -> None:
    with pytest.raises(ValueError, match="stop_before is longer than drain_before"):
        Settings(drain_before_s=60, stop_before_s=120)


@given(some.integers(0, hours.WEEK_S * 2).map(float), some.booleans(), some.floats(-43200, 50400))
def test_at_every_second_of_the_week_a_busy_node_goes_by_the_end_of_its_hours(
    now: float, idle: bool, offset_s: float
) -> None:
    one = node("desk-1", Power.ON, DESKS, states=IDLE if idle else BUSY)
    goals = wished(view([DESKS], [one], now=now, utc_offset_s=offset_s))
    end = hours.open_until(DESKS.hours, now, offset_s)
    assert bool(goals) is (end is None or end - now <= 3600)
    assert all(goal.by is not None and goal.by <= (end or now) for goal in goals)
