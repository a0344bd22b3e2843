"""Each guard: one situation it refuses, and that it lets the ordinary pass."""

from collections import Counter
from dataclasses import replace
from types import MappingProxyType

import pytest

from cmscale.core.guards import Bench, Proposal, admit
from cmscale.core.steps import step
from cmscale.model import (
    OFF_REASON,
    Bucket,
    Closure,
    Creations,
    Fact,
    FactKind,
    GangId,
    Goal,
    JobId,
    Launch,
    Limits,
    MachineState,
    Node,
    NodeName,
    Notice,
    OpId,
    PolicyFailure,
    PoolName,
    Power,
    Queue,
    Result,
    Site,
    SiteKind,
    Snapshot,
    Want,
)
from tests.builders import EAST, IDLE, JOINED, NOW, OFF, WEST, fact, facts, goal, job, machine, node, pool, view

JOB = JobId("1")
UP = goal(job=JOB)
GONE = goal(want=Want.GONE)
IDLE_NODE = node(power=Power.ON)


def proposal(of: Node, wish: Goal) -> Proposal:
    return Proposal(wish, of, step(of, wish, NOW))


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
    start, seen = proposal(node("t4-2"), goal("t4-2")), view(nodes=[stuck])
    given_up = Bench.of(seen, Limits(), (), [goal("t4-1", Want.GONE)])
    assert [refusal.guard for refusal in admit([start], given_up)[1]] == ["failed_boots_first"]
    left_as_it_is = Bench.of(seen, Limits(), ())
    assert admit([start], left_as_it_is)[1] == []


def test_refusals_that_are_only_counted_yet_stop_nothing() -> None:
    assert refused_by(closed_by(Result.BOOT, 0.0), proposal(node(), UP)) == []


def test_starts_are_limited_by_minute_and_by_hour() -> None:
    just_now = view(launches=(Launch(NOW - 10, PoolName("t4"), 5),))
    earlier = view(launches=(Launch(NOW - 600, PoolName("t4"), 5),))
    assert refused_by(just_now, proposal(node(), UP), limits=Limits(starts_per_minute=5)) == ["start_rate"]
    assert refused_by(earlier, proposal(node(), UP), limits=Limits(starts_per_minute=5)) == []
    assert refused_by(earlier, proposal(node(), UP), limits=Limits(creations_per_hour=5)) == ["creations_per_hour"]


def test_a_gang_larger_than_a_limit_by_minute_has_a_minute_of_its_own() -> None:
    names = ["t4-1", "t4-2", "t4-3"]
    gang = [proposal(node(name), goal(name, gang=GangId("1#1"))) for name in names]
    limits = Limits(starts_per_minute=2)
    assert len(admit(gang, bench(view(), limits=limits))[0]) == 3
    busy = view(launches=(Launch(NOW - 10, PoolName("t4"), 1),))
    assert admit(gang, Bench.of(busy, limits, ()))[0] == []
    single = proposal(node("t4-4"), goal("t4-4"))
    assert [each.node.name for each in admit([single, *gang], bench(view(), limits=limits))[0]] == ["t4-4"]


ACCOUNT = MappingProxyType(
    {
        EAST: Site(EAST, SiteKind.AWS, "us-east-1", account="ours", launched=Bucket(3, 1), calls=Bucket(2, 1)),
        WEST: Site(WEST, SiteKind.AWS, "us-east-1", account="ours", launched=Bucket(3, 1), calls=Bucket(2, 1)),
    }
)


def test_sites_of_one_account_and_region_share_a_bucket_of_machines() -> None:
    both = view([pool(), pool("w", site=WEST)], sites=ACCOUNT, launches=(Launch(NOW - 1, PoolName("w"), 3),))
    two = [proposal(node(name), goal(name)) for name in ("t4-1", "t4-2")]
    admitted, refused = admit(two, bench(both))
    assert [each.node.name for each in admitted] == ["t4-1"]
    assert [refusal.guard for refusal in refused] == ["launch_bucket"]
    later = replace(both, now=NOW + 10)
    assert len(admit(two, bench(later))[0]) == 2


def test_launch_calls_have_a_bucket_of_their_own_and_singles_of_a_pool_share_a_call() -> None:
    site = Site(EAST, SiteKind.AWS, "us-east-1", calls=Bucket(2, 1))
    just_now = (Launch(NOW, PoolName("t4"), 1),)
    seen = view([pool(), pool("other")], sites=MappingProxyType({EAST: site}), launches=just_now)
    singles = [proposal(node(name), goal(name)) for name in ("t4-1", "t4-2")]
    another = proposal(node("other-1", of=pool("other")), goal("other-1"))
    admitted, refused = admit([*singles, another], bench(seen))
    assert [each.node.name for each in admitted] == ["t4-1", "t4-2"]
    assert [refusal.guard for refusal in refused] == ["call_bucket"]


def test_a_gang_larger_than_the_bucket_starts_when_the_bucket_is_full() -> None:
    gang = [proposal(node(f"t4-{at}"), goal(f"t4-{at}", gang=GangId("1#1"))) for at in range(1, 5)]
    assert len(admit(gang, bench(view(sites=ACCOUNT)))[0]) == 4
    spent = view(sites=ACCOUNT, launches=(Launch(NOW, PoolName("t4"), 1),))
    assert admit(gang, bench(spent))[0] == []


def paused(seen: Snapshot) -> Snapshot:
    fact = Fact(FactKind.PAUSE, "", NOW - 60, NOW + 60, "the file server is down", "root")
    return replace(seen, facts=MappingProxyType({(FactKind.PAUSE, ""): fact}))


def test_while_paused_nothing_is_started_and_nothing_given_back_but_what_the_cloud_takes() -> None:
    assert refused_by(paused(view()), proposal(node(), UP)) == ["not_paused"]
    assert refused_by(paused(view()), proposal(IDLE_NODE, GONE)) == ["not_paused"]
    reclaimed = node(power=Power.ON, notice=Notice(NOW + 100, "spot"))
    assert refused_by(paused(view()), proposal(reclaimed, replace(GONE, by=NOW + 60))) == []
    joined = node(power=Power.ON, states=JOINED, reason=OFF_REASON)
    assert refused_by(paused(view()), proposal(joined, UP)) == []


def said(kind: FactKind, subject: str) -> Snapshot:
    return view(facts=facts(fact(kind, subject, why="ann says so")))


def test_a_node_that_a_person_keeps_is_neither_drained_nor_given_back_but_may_be_started() -> None:
    kept = said(FactKind.KEEP, "t4-1")
    assert refused_by(kept, proposal(IDLE_NODE, GONE)) == ["not_kept_by_hand"]
    drained = node(power=Power.ON, states=IDLE | {"DRAIN"}, reason="cm-scale: giving back")
    assert refused_by(kept, proposal(drained, GONE)) == ["not_kept_by_hand"]
    assert refused_by(kept, proposal(drained, goal(want=Want.OFF))) == ["not_kept_by_hand"]
    assert refused_by(kept, proposal(node(), UP)) == []
    assert refused_by(said(FactKind.KEEP, "t4-2"), proposal(IDLE_NODE, GONE)) == []


def test_a_kept_node_that_failed_is_left_for_whoever_looks_into_it_and_does_not_hold_up_its_pool() -> None:
    stuck = node("t4-1", Power.STARTING, sick="has not joined")
    seen = replace(said(FactKind.KEEP, "t4-1"), nodes=view(nodes=[stuck]).nodes)
    of = Bench.of(seen, Limits(), (), [GONE])
    start = proposal(node("t4-2"), goal("t4-2"))
    admitted, refused = admit([proposal(stuck, GONE), start], of)
    assert [each.node.name for each in admitted] == ["t4-2"]
    assert [refusal.guard for refusal in refused] == ["not_kept_by_hand"]


def test_what_the_cloud_takes_back_is_let_go_although_it_is_kept_but_not_before_its_time() -> None:
    kept = said(FactKind.KEEP, "t4-1")
    reclaimed = node(power=Power.ON, notice=Notice(NOW + 100, "spot"))
    assert refused_by(kept, proposal(reclaimed, replace(GONE, by=NOW + 70))) == []
    assert refused_by(kept, proposal(reclaimed, GONE)) == ["not_kept_by_hand"]
    end_of_hours = replace(GONE, by=NOW + 70)
    assert refused_by(kept, proposal(IDLE_NODE, end_of_hours)) == ["not_kept_by_hand"]


def test_a_kept_node_without_a_machine_is_parked_all_the_same() -> None:
    unparked = node(states=IDLE)
    assert refused_by(said(FactKind.KEEP, "t4-1"), proposal(unparked, UP)) == []


def test_nothing_is_started_at_a_site_that_a_person_drains_and_what_is_there_may_go() -> None:
    drained = said(FactKind.DRAIN_SITE, EAST)
    assert refused_by(drained, proposal(node(), UP)) == ["site_not_drained"]
    assert refused_by(drained, proposal(IDLE_NODE, GONE)) == []
    assert refused_by(said(FactKind.DRAIN_SITE, WEST), proposal(node(), UP)) == []


def test_a_node_in_maintenance_is_neither_started_nor_taken_away() -> None:
    off = node(states=OFF | {"MAINT"})
    assert refused_by(view(), proposal(off, UP)) == ["left_to_maintenance"]
    up = node(power=Power.ON, states=IDLE | {"MAINT"})
    assert refused_by(view(), proposal(up, GONE)) == ["left_to_maintenance"]
    stuck = node(power=Power.STARTING, states=OFF | {"MAINT"}, sick="has not joined")
    assert refused_by(view(), proposal(stuck, GONE)) == []


def test_what_may_not_serve_slurm_now_is_not_started() -> None:
    night = node(resting="t4 serves Slurm 20:00-06:00 only")
    assert refused_by(view(), proposal(night, UP)) == ["not_resting"]


def test_the_name_of_a_failed_machine_rests() -> None:
    fact = Fact(FactKind.QUARANTINE, "t4-1", NOW - 60, NOW + 60, "has not joined")
    seen = view(facts=MappingProxyType({(FactKind.QUARANTINE, "t4-1"): fact}))
    assert refused_by(seen, proposal(node(), UP)) == ["not_quarantined"]
    assert refused_by(seen, proposal(node("t4-2"), goal("t4-2"))) == []


def test_no_machine_is_created_in_a_static_pool() -> None:
    static = pool(static=True)
    off = node(power=Power.OFF, of=static, machine=machine("t4-1", MachineState.STOPPED), kept=True)
    assert refused_by(view([static]), proposal(node(of=static), UP)) == ["static_machines"]
    assert refused_by(view([static], [off]), proposal(off, UP)) == []


def helped(helper: Node) -> Snapshot:
    return view([pool(helpers=(NodeName("lic-1"),)), pool("lic", count=1, partitions=())], [helper])


LICENCES = pool("lic", count=1, partitions=())


def test_a_machine_waits_for_its_helper_and_the_helper_for_the_last_machine_to_go() -> None:
    off = node("lic-1", of=LICENCES, states=frozenset(), reason="", outside=True)
    up = node("lic-1", Power.ON, of=LICENCES, states=frozenset(), outside=True)
    assert refused_by(helped(off), proposal(node(), UP)) == ["helpers_first"]
    assert refused_by(helped(up), proposal(node(), UP)) == []
    gone = proposal(up, goal("lic-1", Want.GONE))
    assert refused_by(helped(up), gone) == []
    still = replace(helped(up), nodes=MappingProxyType({**helped(up).nodes, NodeName("t4-1"): IDLE_NODE}))
    assert refused_by(still, gone) == ["helpers_last"]


def with_queue(**changes: object) -> Snapshot:
    queue = replace(Queue("batch"), **changes)  # type: ignore[arg-type]
    return view(jobs=[job(1), job(2, count=3)], queues=MappingProxyType({"batch": queue}))


def test_a_partition_may_ask_for_a_number_of_waiting_jobs_before_machines_are_started() -> None:
    assert refused_by(with_queue(queue_length=5), proposal(node(), UP)) == ["queue_thresholds"]
    assert refused_by(with_queue(queue_length=4), proposal(node(), UP)) == []


def test_a_partition_may_ask_jobs_for_some_patience_before_machines_are_started() -> None:
    assert refused_by(with_queue(age_s=60.0), proposal(node(), UP)) == ["queue_thresholds"]
    assert refused_by(with_queue(age_s=5.0), proposal(node(), UP)) == []


def test_after_a_search_in_vain_a_job_rests_as_stated_and_is_then_searched_for_again() -> None:
    def at(age_s: float, refused: int = 4) -> list[str]:
        past = Creations(machines=0, need=1, first=NOW - age_s, refused=refused)
        seen = view(creations=MappingProxyType({JOB: past}))
        return refused_by(seen, proposal(node(), UP), limits=Limits(search_s=600, search_rest_s=300))

    assert at(599) == []
    assert at(601) == ["search_time"]
    assert at(899) == ["search_time"]
    assert at(901) == []
    assert at(601, refused=0) == []


def test_a_job_that_never_starts_gets_only_so_many_machines() -> None:
    greedy = view(creations=MappingProxyType({JOB: Creations(machines=3, need=1)}))
    assert refused_by(greedy, proposal(node(), UP)) == ["creations_per_job"]
    assert refused_by(greedy, proposal(node(), replace(UP, need=4))) == []
    assert refused_by(greedy, proposal(node(), replace(UP, job=JobId("2")))) == []


def test_a_pool_never_has_more_machines_than_its_maximum() -> None:
    small = view([pool(max=2)])
    assert refused_by(small, proposal(node(), UP), machines=Counter({"t4": 2})) == ["pool_maximum"]


def test_a_machine_that_is_powered_on_again_takes_no_more_of_the_maximum_than_it_has() -> None:
    stopped = node("t4-1", Power.OFF, machine=machine("t4-1", MachineState.STOPPED), kept=True)
    both = [proposal(stopped, goal("t4-1")), proposal(node("t4-2"), goal("t4-2"))]
    admitted, refused = admit(both, bench(view([pool(max=2)], [stopped])))
    assert ([each.node.name for each in admitted], refused) == (["t4-1", "t4-2"], [])


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
