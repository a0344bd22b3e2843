"""What a plan leaves behind: facts for later ticks, events for people."""

from types import MappingProxyType
from typing import Any

from cmscale.core.consequences import closure_events, events, facts, unpinned
from cmscale.model import (
    Action,
    Closure,
    Constraint,
    EventKind,
    Fact,
    FactKind,
    GangId,
    Job,
    JobId,
    Limits,
    NodeName,
    OpId,
    Part,
    Plan,
    PolicyFailure,
    PoolName,
    Power,
    Result,
    Verb,
    Want,
)
from tests.builders import EAST, NOW, ask, goal, job, node, view

STUCK = node("t4-1", Power.STARTING, sick="machine i-1 has not joined Slurm within 900 s")
LOST = node("t4-2", Power.ON, sick="Slurm has lost it: Not responding")
T4 = PoolName("t4")


def action(verb: Verb, name: str, **changes: object) -> Action:
    return Action(verb, NodeName(name), "because", OpId("t-1"), T4, **changes)  # type: ignore[arg-type]


def plan(*actions: Action, **changes: object) -> Plan:
    return Plan("t", NOW, actions, **changes)  # type: ignore[arg-type]


def test_the_name_of_a_machine_that_is_given_up_rests() -> None:
    given_up = plan(action(Verb.DELETE, "t4-1"), action(Verb.DELETE, "t4-3"))
    (fact,) = facts(view(nodes=[STUCK]), given_up, Limits(quarantine_s=120))
    assert (fact.kind, fact.subject, fact.until) == (FactKind.QUARANTINE, "t4-1", NOW + 120)
    assert fact.why == STUCK.sick


def test_a_machine_that_is_switched_off_hard_was_given_up_before() -> None:
    hanging = node("t4-1", Power.STOPPING, sick="machine i-1 has not shut down within 180 s")
    assert list(facts(view(nodes=[hanging]), plan(action(Verb.DELETE, "t4-1")), Limits())) == []


UNPIN = plan(action(Verb.PIN, "", job=JobId("1"), arg=""))


def kept_in_the_east(number: int, **changes: Any) -> Job:
    east = Constraint(EAST, ((Part(0, (frozenset({EAST}),)),),))
    return job(number, ask(nodes=2, constraint=east), **changes)


def test_a_pin_remembers_the_constraint_of_the_user_and_is_forgotten_with_it() -> None:
    own = job(1, ask(nodes=2))
    pin = action(Verb.PIN, "", job=JobId("1"), arg="east")
    (fact,) = facts(view(jobs=[own]), plan(pin), Limits())
    assert (fact.kind, fact.subject, fact.why) == (FactKind.PIN, "1", "")
    known = view(jobs=[kept_in_the_east(1)], facts=MappingProxyType({(FactKind.PIN, "1"): fact}))
    assert list(facts(known, plan(pin), Limits())) == []
    assert list(unpinned(known, UNPIN)) == ["1"]


def test_the_pin_of_an_array_is_not_forgotten_while_a_task_bears_it() -> None:
    fact = Fact(FactKind.PIN, "1", NOW - 60, NOW + 3600, "")
    known = MappingProxyType({(FactKind.PIN, "1"): fact})
    array, task = kept_in_the_east(1, array=JobId("1"), count=2), kept_in_the_east(7, array=JobId("1"), state="RUNNING")
    assert list(unpinned(view(jobs=[array, task], facts=known), UNPIN)) == []
    assert list(unpinned(view(jobs=[array], facts=known), UNPIN)) == ["1"]


def test_a_requeued_job_is_remembered_and_told() -> None:
    requeue = plan(action(Verb.REQUEUE, "t4-2", job=JobId("7")))
    seen = view(nodes=[node("t4-2", Power.ON)])
    (fact,) = facts(seen, requeue, Limits())
    assert (fact.kind, fact.subject) == (FactKind.REQUEUED, "7")
    assert [(event.kind, event.subject) for event in events(seen, requeue)] == [(EventKind.REQUEUED, "7")]


def test_machines_that_failed_are_told_by_how_they_failed() -> None:
    given_up = plan(action(Verb.DELETE, "t4-1"), action(Verb.STOP, "t4-2"))
    told = list(events(view(nodes=[STUCK, LOST]), given_up))
    assert [(event.kind, event.subject) for event in told] == [
        (EventKind.FAILED_BOOT, "t4-1"),
        (EventKind.QUARANTINED, "t4-2"),
    ]
    assert "Not responding" in told[1].text


def test_a_gang_that_is_given_back_is_told_once_as_a_whole() -> None:
    away = [goal(name, Want.GONE, job=JobId("5"), gang=GangId("5#partial")) for name in ("t4-1", "t4-2")]
    (event,) = events(view(), plan(goals=tuple(away)))
    assert event.kind is EventKind.GANG_GIVEN_BACK
    assert event.text.startswith("2 machines of job 5 are given back")


def test_a_policy_that_failed_is_told() -> None:
    (event,) = events(view(), plan(failed=(PolicyFailure("mine", "KeyError: 'x'"),)))
    assert (event.kind, event.subject) == (EventKind.POLICY_FAILED, "mine")


def test_closing_and_opening_are_told_and_a_throttle_is_not() -> None:
    closed = {T4: Closure(NOW + 180, Result.CAPACITY, "none left")}
    now_closed = view(closed=MappingProxyType(closed))
    (event,) = closure_events({}, now_closed)
    assert (event.kind, event.subject) == (EventKind.CLOSED, "t4")
    assert "3 min (capacity): none left" in event.text
    assert list(closure_events(closed, now_closed)) == []
    (event,) = closure_events(closed, view())
    assert event.kind is EventKind.OPENED
    throttled = view(closed=MappingProxyType({T4: Closure(NOW + 4, Result.THROTTLED, "slow down")}))
    assert list(closure_events({}, throttled)) == []
    assert list(closure_events(dict(throttled.closed), view())) == []


def test_refusals_that_are_only_counted_close_nothing_and_are_not_told() -> None:
    counted = view(closed=MappingProxyType({T4: Closure(0.0, Result.BOOT, "stuck")}))
    assert list(closure_events({}, counted)) == []
