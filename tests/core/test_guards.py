"""Each guard: one situation it refuses, and that it lets the ordinary pass."""

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

import pytest

from cmscale.core.guards import Bench, Proposal, admit
from cmscale.core.steps import step
from cmscale.model import (
    Closure,
    Creations,
    GangId,
    Goal,
    JobId,
    Limits,
    Node,
    NodeName,
    OpId,
    PolicyFailure,
    PoolName,
    Power,
    Result,
    Site,
    SiteKind,
    Snapshot,
    Want,
)
from tests.builders import EAST, NOW, goal, machine, node, pool, view

JOB = JobId("1")
UP = goal(job=JOB)
GONE = goal(want=Want.GONE)
IDLE_NODE = node(power=Power.ON)


def proposal(of: Node, wish: Goal) -> Proposal:
    return Proposal(wish, of, step(of, wish))


def bench(seen: Snapshot, **changes: object) -> Bench:
    return replace(Bench.of(seen, Limits(), ()), **changes)  # type: ignore[arg-type]


def refused_by(seen: Snapshot, proposed: Proposal, **changes: object) -> list[str]:
    _, refused = admit([proposed], bench(seen, **changes))
    return [refusal.guard for refusal in refused]


def test_an_ordinary_start_and_an_ordinary_drain_pass() -> None:
    assert refused_by(view(), proposal(node(), UP)) == []
    assert refused_by(view(), proposal(IDLE_NODE, GONE)) == []


def test_nothing_is_done_at_a_site_that_could_not_be_read() -> None:
    dark = view(sites=MappingProxyType({EAST: Site(EAST, SiteKind.AWS, unseen="no answer")}))
    assert refused_by(dark, proposal(node(), UP)) == ["site_seen"]
    assert refused_by(dark, proposal(IDLE_NODE, GONE)) == ["site_seen"]


def test_a_node_with_an_operation_under_way_is_left_alone() -> None:
    assert refused_by(view(), proposal(node(op=OpId("t-1")), UP)) == ["no_operation_under_way"]


def test_nothing_is_started_from_a_closed_pool_but_its_nodes_may_still_be_given_back() -> None:
    closed = view(closed=MappingProxyType({PoolName("t4"): Closure(NOW + 60, Result.CAPACITY, "none left")}))
    assert refused_by(closed, proposal(node(), UP)) == ["pool_open"]
    assert refused_by(closed, proposal(IDLE_NODE, GONE)) == []


def closed_by(result: Result, until: float) -> Snapshot:
    closed = {PoolName("t4"): Closure(until, result, "so said EC2")}
    return view([pool(), pool("other")], closed=MappingProxyType(closed))


def test_refused_credentials_stop_all_launches_of_their_site() -> None:
    other = proposal(node("other-1", of=pool("other")), goal("other-1"))
    assert refused_by(closed_by(Result.AUTH, NOW + 60), other) == ["pool_open"]
    assert refused_by(closed_by(Result.CAPACITY, NOW + 60), other) == []


def test_a_throttle_makes_all_launches_of_its_site_wait_a_moment() -> None:
    other = proposal(node("other-1", of=pool("other")), goal("other-1"))
    assert refused_by(closed_by(Result.THROTTLED, NOW + 4), other) == ["not_throttled"]
    assert refused_by(closed_by(Result.THROTTLED, NOW), other) == []


def test_a_pool_that_was_closed_is_tried_with_one_machine_or_one_gang_first() -> None:
    half_open = closed_by(Result.CAPACITY, NOW - 1)
    singles = [proposal(node(name), goal(name)) for name in ("t4-1", "t4-2")]
    admitted, refused = admit(singles, bench(half_open))
    assert [each.node.name for each in admitted] == ["t4-1"]
    assert [refusal.guard for refusal in refused] == ["one_try_at_a_time"]
    gang = [proposal(node(name), goal(name, gang=GangId("g"))) for name in ("t4-1", "t4-2")]
    assert len(admit(gang, bench(half_open))[0]) == 2
    assert admit(gang, bench(half_open, booting=Counter({"t4": 1})))[0] == []


def test_while_a_machine_that_never_joined_is_given_up_its_pool_waits() -> None:
    stuck = node("t4-1", Power.STARTING, sick="has not joined")
    assert refused_by(view(nodes=[stuck]), proposal(node("t4-2"), goal("t4-2"))) == ["failed_boots_first"]


def test_refusals_that_are_only_counted_yet_stop_nothing() -> None:
    assert refused_by(closed_by(Result.BOOT, 0.0), proposal(node(), UP)) == []


def test_starts_are_limited_by_minute_and_by_hour() -> None:
    just_now = view(starts=(NOW - 10,) * 5)
    earlier = view(starts=(NOW - 600,) * 5)
    assert refused_by(just_now, proposal(node(), UP), limits=Limits(starts_per_minute=5)) == ["start_rate"]
    assert refused_by(earlier, proposal(node(), UP), limits=Limits(starts_per_minute=5)) == []
    assert refused_by(earlier, proposal(node(), UP), limits=Limits(creations_per_hour=5)) == ["creations_per_hour"]


def test_a_job_that_never_starts_gets_only_so_many_machines() -> None:
    greedy = view(creations=MappingProxyType({JOB: Creations(machines=3, need=1)}))
    assert refused_by(greedy, proposal(node(), UP)) == ["creations_per_job"]
    assert refused_by(greedy, proposal(node(), replace(UP, need=4))) == []
    assert refused_by(greedy, proposal(node(), replace(UP, job=JobId("2")))) == []


def test_a_pool_never_has_more_machines_than_its_maximum() -> None:
    small = view([pool(max=2)])
    assert refused_by(small, proposal(node(), UP), machines=Counter({"t4": 2})) == ["pool_maximum"]


def test_the_starts_of_one_tick_count_against_each_other() -> None:
    small = view([pool(max=1)])
    two = [proposal(node(name), goal(name)) for name in ("t4-1", "t4-2")]
    admitted, refused = admit(two, bench(small))
    assert [each.node.name for each in admitted] == ["t4-1"]
    assert [refusal.goal.node for refusal in refused] == ["t4-2"]


def test_a_machine_is_not_given_back_right_after_it_was_started_unless_it_is_sick() -> None:
    young = node(power=Power.ON, machine=machine("t4-1", launched=NOW - 5))
    assert refused_by(view(), proposal(young, GONE)) == ["minimum_up_time"]
    stuck = node(power=Power.STARTING, sick="stuck", machine=machine("t4-1", launched=NOW - 5))
    assert refused_by(view(), proposal(stuck, GONE)) == []


def test_nothing_is_taken_away_in_a_tick_in_which_a_policy_failed() -> None:
    failed = (PolicyFailure("mine", "ZeroDivisionError"),)
    guard = "nothing_destructive_after_a_failed_policy"
    assert refused_by(view(), proposal(IDLE_NODE, GONE), failed=failed) == [guard]
    assert refused_by(view(), proposal(node(), UP), failed=failed) == []


@pytest.mark.parametrize("most", [1, 3])
def test_a_gang_falls_together_and_leaves_room_for_others(most: int) -> None:
    names = ["t4-1", "t4-2", "t4-3", "t4-4"]
    gang = [proposal(node(name), goal(name, gang=GangId("1#1"))) for name in names]
    single = proposal(node("x-1", of=pool("x")), goal("x-1"))
    admitted, refused = admit([*gang, single], bench(view([pool(max=most), pool("x")])))
    assert [each.node.name for each in admitted] == [NodeName("x-1")]
    assert {refusal.goal.node for refusal in refused} == set(names)
    assert {refusal.guard for refusal in refused} == {"pool_maximum"}
