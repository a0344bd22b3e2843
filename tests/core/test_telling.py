"""Telling: somebody who knows no code reads what is so, what is done, what stands in the way and what would change it.

The policies decide as they are shipped, so that these are the sentences that are read.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from cmscale import hours
from cmscale.core.decide import decide
from cmscale.core.guards import GUARDS
from cmscale.core.remedies import CHANGES
from cmscale.core.remedies import IDLE as IDLE_ENDS
from cmscale.core.telling import job_sentences, node_sentences, tick_sentences, why_not
from cmscale.model import (
    HOME,
    OFF_REASON,
    Ask,
    Closure,
    Constraint,
    Creations,
    FactKind,
    Help,
    JobId,
    Limits,
    MachineState,
    NodeName,
    Part,
    PolicyFailure,
    PoolName,
    Power,
    Queue,
    Result,
    Shape,
    Site,
    SiteKind,
    Snapshot,
)
from cmscale.shell.policies import load
from cmscale.shell.schema import ClusterTable
from tests.builders import (
    BUSY,
    CPU,
    EAST,
    IDLE,
    JOINED,
    NOW,
    OFF,
    WEST,
    ask,
    fact,
    facts,
    home_node,
    job,
    machine,
    node,
    notice,
    pool,
    view,
)

SHIPPED = load(ClusterTable.model_fields["policies"].default, None, {})
FOR_AN_HOUR = ask(limit_s=3600)
WAITING = job(1, FOR_AN_HOUR, why="waits for free nodes")
WAITS = "Job 1 is pending (Resources): waits for free nodes."
NEEDS = "It needs a node with at least 1 CPU, 1 GPU, in partition batch, for up to 60 min."
CHEAPEST = "(policy serve_queue: job 1 waits; t4 is the cheapest that fits, $0.5 an hour)."

COMING = (
    "Slurm can start it when it has joined; what has not joined after 15 min is given up, and another machine tried."
)


def told(seen: Snapshot) -> list[str]:
    """What is told of the first job."""
    return job_sentences(seen, decide(seen, SHIPPED, Limits()), seen.jobs[0])


def told_why_not(seen: Snapshot) -> list[str]:
    return why_not(seen, decide(seen, SHIPPED, Limits()), seen.jobs[0])


def told_of(name: str, seen: Snapshot) -> list[str]:
    """What is told of a node."""
    return node_sentences(seen, decide(seen, SHIPPED, Limits()), seen.nodes[NodeName(name)])


def told_of_tick(seen: Snapshot) -> list[str]:
    return tick_sentences(seen, decide(seen, SHIPPED, Limits()))


def closed(result: Result, why: str, until: float = NOW + 300) -> Mapping[PoolName, Closure]:
    return MappingProxyType({PoolName("t4"): Closure(until, result, why)})


def test_of_each_guard_it_is_known_what_would_change_its_mind() -> None:
    assert list(CHANGES) == [guard.__name__ for guard in GUARDS]


# --- a job that gets what it needs -----------------------------------------------------------------------------------


def test_a_job_is_told_which_machine_is_started_for_it_at_what_price_and_when_it_is_ready() -> None:
    starts = f"Starting now: t4-1 of t4 at east, $0.5 an hour, ready in about 3 min {CHEAPEST}"
    assert told(view(jobs=[WAITING])) == [WAITS, NEEDS, starts, COMING]


def test_while_its_machine_boots_a_job_is_told_how_much_longer() -> None:
    booting = node("t4-1", Power.STARTING, machine=machine("t4-1", launched=NOW - 60))
    (_, _, told_now, coming) = told(view(nodes=[booting], jobs=[WAITING]))
    assert told_now.startswith("Booting: t4-1 of t4 at east, $0.5 an hour, ready in about 2 min (policy serve_queue: ")
    assert coming == COMING
    overdue = node("t4-1", Power.STARTING, machine=machine("t4-1", launched=NOW - 300))
    assert ", later than usual (" in told(view(nodes=[overdue], jobs=[WAITING]))[-2]


def test_a_machine_that_has_joined_is_handed_over_and_then_slurms_to_use() -> None:
    joined = node(power=Power.ON, states=JOINED, reason=OFF_REASON, for_job=JobId("1"))
    assert told(view(nodes=[joined], jobs=[WAITING]))[-2].startswith("Handed to Slurm now: t4-1 of t4 at east")
    *_, up, then = told(view(nodes=[node(power=Power.ON)], jobs=[WAITING]))
    assert up.startswith("Up, and Slurm's to use: t4-1")
    assert then == "Slurm may start it there at any time; nothing else is to be done for it."


def test_a_node_that_must_be_parked_first_is_told_so() -> None:
    unparked = view(nodes=[node(states=IDLE, reason="")], jobs=[WAITING])
    assert told(unparked)[-2].endswith(" First: it has no machine, so Slurm must not use it.")


def test_alike_nodes_are_told_in_one_sentence_with_their_price_in_all() -> None:
    large = job(1, ask(nodes=9, tasks=9))
    (_, needs, starts, coming) = told(view([pool(count=9)], jobs=[large]))
    assert needs == "It needs 9 nodes with at least 1 CPU, 1 GPU each, in partition batch."
    names = "t4-1, t4-2, t4-3, t4-4, t4-5 and 4 more"
    assert starts.startswith(f"Starting now: {names} of t4 at east, $4.5 an hour in all, ready in about 3 min (")
    assert coming.startswith("Slurm can start it when they have joined; ")


def test_a_job_that_shares_a_node_is_told_with_whom() -> None:
    small = ask(gpus_per_node=0)
    shares = f"Starting now: t4-1 of t4 at east, $0.5 an hour, ready in about 3 min, shared with job 1 {CHEAPEST}"
    seen = view(jobs=[job(2, small, priority=1), job(1, small, priority=2)])
    assert told(seen)[-2] == shares


# --- a job that waits ------------------------------------------------------------------------------------------------


def test_a_pool_closed_for_capacity_is_told_with_its_price_and_when_it_is_tried_again() -> None:
    assert told(view(jobs=[WAITING], closed=closed(Result.CAPACITY, "EC2 has none"))) == [
        WAITS,
        NEEDS,
        "Offer: 1 node of t4 at east, $0.5 an hour, ready in about 3 min: not now, closed (capacity: EC2 has none).",
        "What would change it: t4 is tried again in 5 min.",
    ]


def test_a_quota_closes_its_whole_family_and_only_a_person_can_raise_it() -> None:
    family = [pool("t4", family="gpu"), pool("t4x", family="gpu", price_hour=2)]
    seen = view(family, jobs=[WAITING], closed=closed(Result.QUOTA, "64 vCPUs are used up"))
    *_, first, second, change = told(seen)
    assert "t4 at east, $0.5 an hour, ready in about 3 min: not now, closed (quota: 64 vCPUs are used up)" in first
    assert "t4x at east, $2 an hour, ready in about 3 min: not now, closed (quota: 64 vCPUs are used up)" in second
    assert change == (
        "What would change it: t4 is tried again in 5 min; or the account's quota is raised, or other machines of the "
        "family are given back; or t4x is tried again in 5 min."
    )


@pytest.mark.parametrize(
    ("result", "change"),
    [
        (Result.AUTH, "the site's credentials are mended: cm-scale check"),
        (Result.BOOT, "what keeps its machines from joining is mended: cm-scale explain node NAME --console"),
        (Result.PROLOG, "the pool's prolog is mended"),
    ],
)
def test_what_a_person_can_mend_is_told(result: Result, change: str) -> None:
    assert told(view(jobs=[WAITING], closed=closed(result, "so it is")))[-1].endswith(f"; or {change}.")


def test_a_drained_site_is_told_with_the_command_that_ends_it() -> None:
    seen = view(jobs=[WAITING], facts=facts(fact(FactKind.DRAIN_SITE, EAST, why="a storm")))
    assert told(seen)[2:] == [
        "Offer: 1 node of t4 at east, $0.5 an hour, ready in about 3 min: not now, east is drained (a storm).",
        "What would change it: cm-scale clear east, or the drain ends in 10 min.",
    ]


def test_a_node_is_told_that_a_person_keeps_it_until_when_and_why() -> None:
    idle = node("t4-1", Power.ON, idle_since=NOW - 900)
    kept = facts(fact(FactKind.KEEP, "t4-1", why="the driver is debugged", by="ann"))
    seen = view(nodes=[idle], facts=kept)
    sentences = node_sentences(seen, decide(seen, SHIPPED, Limits()), idle)
    assert "Not now: t4-1 is kept: the driver is debugged (guard not_kept_by_hand)." in sentences
    assert "It is kept for another 10 min by ann: the driver is debugged." in sentences
    assert sentences[-1] == "What would change it: cm-scale clear t4-1, or the keep ends in 10 min."


def test_a_pause_is_told_with_its_guard_and_the_command_that_ends_it() -> None:
    seen = view(jobs=[WAITING], facts=facts(fact(FactKind.PAUSE, why="the switch is moved")))
    *_, wanted, change = told(seen)
    assert wanted == (
        f"Wanted: t4-1 of t4 at east, $0.5 an hour {CHEAPEST} Not now: paused: the switch is moved (guard not_paused)."
    )
    assert change == "What would change it: cm-scale resume, or the pause ends in 10 min."


def with_threshold() -> Snapshot:
    return view(jobs=[WAITING], queues=MappingProxyType({"batch": Queue("batch", queue_length=5)}))


def test_a_partitions_threshold_is_told_with_the_setting_that_holds_it() -> None:
    *_, barred, _, change = told(with_threshold())
    assert "partitions.batch.queue_length is 5 (guard queue_thresholds)." in barred
    assert change.endswith("as many jobs wait, or this one as long, as [partitions] in the configuration asks.")


def test_a_gang_that_came_in_part_is_told_what_is_kept_for_it_and_what_it_waits_for() -> None:
    joined = node(power=Power.ON, states=JOINED, reason=OFF_REASON, for_job=JobId("1"))
    came = [replace(joined, name=name, machine=machine(name, launched=NOW - 120)) for name in pool().nodes[:2]]
    seen = view(nodes=came, jobs=[job(1, ask(nodes=4, tasks=4))], closed=closed(Result.CAPACITY, "none left"))
    *_, kept, offer, change = told(seen)
    assert kept == (
        "Up, and kept for it until all its nodes have come: t4-1, t4-2 of t4 at east, $1 an hour in all "
        "(policy serve_queue: job 1 has 2 of its 4 nodes and waits for the rest)."
    )
    assert offer.endswith(": not now, closed (capacity: none left).")
    assert change == "What would change it: t4 is tried again in 5 min."


def test_a_job_that_waits_for_home_on_purpose_is_told_so_with_the_offer_it_is_spared() -> None:
    of = Ask(("batch",), cpus_per_node=8, limit_s=3600)
    runs = job(9, replace(of, limit_s=600), state="RUNNING", nodes=frozenset({NodeName("op1")}), started=NOW - 480)
    busy = home_node(states=frozenset({"ALLOCATED"}), free=Shape(0, 0))
    *_, purpose, home, offer, change = told(view([pool("cpu", shape=CPU, price_hour=0.4)], [busy], [job(1, of), runs]))
    expected = "home should have room in about 2 min, sooner than a machine of cpu boots"
    assert purpose == f"It waits on purpose: {expected}."
    assert home == "1 node at home could hold it when free."
    assert offer.endswith("1 node of cpu at east, $0.4 an hour, ready in about 3 min: not wanted, it waits on purpose.")
    settings = "the policy's settings change: cm-scale policies list"
    assert change == f"What would change it: what it waits for comes; or {settings}."


def test_a_job_that_wants_no_spot_machines_is_told_that_only_those_are_left() -> None:
    *_, offer, change = told(view([pool("spot", market="spot")], jobs=[replace(WAITING, requeue=False)]))
    assert offer.startswith("Offer: 1 node of spot at east, $0.5 an hour")
    assert offer.endswith(": not wanted, it waits on purpose.")
    assert change.startswith("What would change it: another pool than spot has machines for it; or ")


def test_a_job_too_long_for_the_time_before_a_maintenance_is_told_that_a_shorter_one_could_run() -> None:
    until = [node(name, until=NOW + 1800) for name in pool().nodes]
    *_, offer, change = told(view(nodes=until, jobs=[WAITING]))
    assert "not now, may serve for another 30 min" in offer
    over = "the reservation is over: scontrol show reservation"
    assert change == f"What would change it: the job gets a --time that ends before, or {over}."


def test_nodes_reserved_for_others_or_in_maintenance_are_told_with_the_command_that_shows_the_reservation() -> None:
    reserved = view(nodes=[node(name, reserved="course") for name in pool().nodes], jobs=[WAITING])
    assert "not now, is reserved (course)." in told(reserved)[-2]
    assert told(reserved)[-1] == "What would change it: the reservation ends: scontrol show reservation."
    resting = [node(name, states=OFF | {"MAINT"}, resting="maintenance mt") for name in pool().nodes]
    *_, offer, change = told(view(nodes=resting, jobs=[WAITING]))
    assert "t4-1 rests (maintenance mt)" in offer
    assert change == "What would change it: the maintenance ends: scontrol show reservation."


def test_a_job_that_never_fits_is_told_what_each_pool_lacks() -> None:
    assert told(view(jobs=[job(1, ask(gpus_per_node=4))]))[-2:] == [
        "No pool can ever serve it: pool t4 has 1 of the 4 GPUs asked for on each node.",
        "What would change it: the job asks for less, or a pool offers more.",
    ]


def test_a_job_that_got_machines_enough_is_told_which_limit_that_is() -> None:
    *_, barred, _, change = told(view(jobs=[WAITING], creations=MappingProxyType({JobId("1"): Creations(3, 1)})))
    assert "3 machines were created for job 1 already" in barred
    assert barred.endswith("(guard creations_per_job).")
    anew = "the job is submitted anew; see cm-scale events"
    assert change == f"What would change it: limits.creations_per_job is raised, or {anew}."


def test_a_full_pool_is_told_with_its_maximum() -> None:
    busy = node(power=Power.ON, states=BUSY, free=Shape(0, 0))
    assert told(view([pool(max=1)], [busy], [WAITING]))[-1] == (
        "What would change it: a job there ends, or a machine is given back, or the pool's nodes and max allow more."
    )


LICENCES = pool("lic", count=1, partitions=())


def test_a_job_whose_machine_needs_a_helper_is_told_to_wait_for_it() -> None:
    helper = node("lic-1", of=LICENCES, states=frozenset(), reason="", outside=True)
    *_, wanted, change = told(view([pool(helpers=(NodeName("lic-1"),)), LICENCES], [helper], [WAITING]))
    assert "its helper lic-1 is not up yet" in wanted
    assert wanted.endswith("(guard helpers_first).")
    assert change == "What would change it: the helper has started."


def test_a_job_for_which_nothing_is_done_because_a_policy_failed_is_told_so() -> None:
    seen = view(jobs=[WAITING])
    plan = replace(decide(seen, (), Limits()), failed=(PolicyFailure("mine", "KeyError: 'x'"),))
    _, _, failed, _, change = job_sentences(seen, plan, WAITING)
    assert failed == "Policy mine failed, so what it would do for the job is not known: KeyError: 'x'."
    assert change == "What would change it: the policy is mended: cm-scale policies check."


def test_a_site_that_does_not_answer_is_told() -> None:
    dark = MappingProxyType({EAST: Site(EAST, SiteKind.AWS, unseen="EC2 is silent"), HOME: Site(HOME, SiteKind.ONPREM)})
    *_, offer, change = told(view(jobs=[WAITING], sites=dark))
    assert offer.endswith("not now, east could not be read (EC2 is silent).")
    assert change == "What would change it: the site answers again: cm-scale check."


def test_a_job_that_more_nodes_would_not_help_and_one_that_runs_are_told_in_a_few_sentences() -> None:
    held = job(1, help=Help.NO, reason="JobHeldUser", why="held by its user")
    assert told(view(jobs=[held]))[0] == "Job 1 is pending (JobHeldUser): held by its user."
    assert told(view(jobs=[held]))[2:] == [
        "More machines would not help it, so none is started.",
        "What would change it: its user releases it: scontrol release 1.",
    ]
    limited = replace(held, reason="AssocMaxJobsLimit", why="a limit is reached")
    assert told(view(jobs=[limited]))[-1] == "What would change it: that passes in Slurm: scontrol show job 1."
    unknown = told(view(jobs=[replace(held, help=Help.ASK_AGAIN)]))
    assert unknown[-1] == "Whether machines would help it is not known yet; Slurm is asked again at the next tick."
    runs = job(1, state="RUNNING", nodes=frozenset({NodeName("op1")}))
    assert told(view(nodes=[home_node()], jobs=[runs])) == ["Job 1 is RUNNING on op1; there is nothing to do for it."]


def test_a_job_that_is_pinned_to_a_site_is_told_what_its_user_had_asked_for() -> None:
    there = Constraint("gpu&east", ((Part(0, (frozenset({"gpu", "east"}),)),),))
    kept = replace(WAITING, ask=replace(WAITING.ask, constraint=there))
    seen = view(jobs=[kept], facts=facts(fact(FactKind.PIN, "1", why="gpu")))
    assert any('it has the constraint "gpu" of its own' in sentence for sentence in told(seen))


def test_when_slurm_is_silent_nothing_else_is_told() -> None:
    silent = view(jobs=[WAITING], unseen="slurmctld does not answer")
    sentence = "Slurm could not be read, so nothing is done: slurmctld does not answer"
    assert told(silent) == told_why_not(silent) == told_of("t4-1", silent) == told_of_tick(silent) == [sentence]


# --- why not more ----------------------------------------------------------------------------------------------------


def test_why_not_more_names_every_offer_with_its_price_and_what_is_against_it() -> None:
    pools = [pool(), pool("a10", price_hour=1.2, site=WEST), pool("a100", price_hour=4, site=WEST)]
    seen = view(pools, jobs=[WAITING], closed=closed(Result.CAPACITY, "none left"))
    assert told_why_not(seen)[2].startswith("Starting now: a10-1 of a10 at west, $1.2 an hour")
    assert told_why_not(seen)[3:] == [
        "Offer: 1 node of t4 at east, $0.5 an hour, ready in about 3 min: not now, closed (capacity: none left).",
        "Offer: 1 node of a10 at west, $1.2 an hour, ready in about 3 min: taken for it.",
        "Offer: 1 node of a100 at west, $4 an hour, ready in about 3 min: could be had.",
        "More is not needed: what it needs is up or coming.",
        "What would open the others: t4 is tried again in 5 min.",
    ]


def test_why_not_names_the_guard_and_what_would_change_its_mind_last() -> None:
    *_, offer, change = told_why_not(with_threshold())
    assert offer.endswith(": not now (guard queue_thresholds).")
    assert change.startswith("What would change it: as many jobs wait")


def test_where_nothing_can_be_done_why_not_says_what_explain_job_says() -> None:
    for seen in (
        view(jobs=[job(1, ask(gpus_per_node=4))]),
        view(jobs=[job(1, help=Help.NO)]),
        view(nodes=[home_node()], jobs=[job(1, state="RUNNING", nodes=frozenset({NodeName("op1")}))]),
        view(jobs=[WAITING], closed=closed(Result.CAPACITY, "none left")),
    ):
        assert told_why_not(seen) == told(seen)


# --- a node ----------------------------------------------------------------------------------------------------------


def test_a_machine_that_failed_to_boot_is_told_to_go_and_why() -> None:
    stuck = node("t4-1", Power.STARTING, sick="it has not joined within 15 min", for_job=JobId("1"))
    assert told_of("t4-1", view(nodes=[stuck])) == [
        "t4-1 of pool t4 at east is starting; Slurm says CLOUD+DOWN+DRAIN.",
        "It should be given back, says policy quarantine: it has not joined within 15 min.",
        "Its machine is deleted now.",
        "Its machine is i-t4-1 (running).",
        "It was started for job 1.",
    ]


def test_the_name_of_a_failed_machine_is_told_to_rest_and_where_its_console_is() -> None:
    seen = view(facts=facts(fact(FactKind.QUARANTINE, "t4-1", why="it has not joined")))
    assert told_of("t4-1", seen) == [
        "t4-1 of pool t4 at east has no machine; Slurm says CLOUD+DOWN+DRAIN.",
        "Nothing is done now: it is off, as it should be; no policy wants anything of it.",
        "Its name rests for another 10 min, so nothing is started under it: it has not joined.",
        "What would change it: its rest ends; cm-scale explain node t4-1 --console shows what its machine wrote.",
    ]


def test_a_node_that_the_cloud_takes_back_is_told_when_its_jobs_are_requeued() -> None:
    taken = node(power=Power.ON, states=BUSY, notice=notice())
    runs = job(7, state="RUNNING", nodes=frozenset({NodeName("t4-1")}))
    _, wish, drained, *others = told_of("t4-1", view(nodes=[taken], jobs=[runs]))
    assert wish.startswith("It should be given back, says policy leave_reclaimed: the cloud takes its machine back")
    assert drained == "It is drained now."
    assert others == [
        "Jobs that still run there in 90 s are requeued.",
        "The cloud takes its machine back in 2 min: spot interruption.",
        "Job 7 runs there.",
        "Its machine is i-t4-1 (running).",
        "What would change it: nothing, the cloud decides.",
    ]
    bound = replace(runs, requeue=False)
    stays = "Job 7 may not be requeued: it runs on for as long as the machine is there."
    assert told_of("t4-1", view(nodes=[taken], jobs=[bound]))[3] == stays


def by_day(power: Power) -> Snapshot:
    """A desk that serves Slurm at night, at noon."""
    desks = pool("desk", hours=hours.windows(["20:00-06:00"]), static=True)
    state = MachineState.RUNNING if power is Power.ON else MachineState.STOPPED
    desk = node(
        "desk-1",
        power,
        desks,
        kept=True,
        resting="desk serves Slurm 20:00-06:00 only",
        machine=machine("desk-1", state),
    )
    return view([desks], [desk])


def test_a_harvested_node_outside_its_hours_is_told_when_it_may_serve_again() -> None:
    assert told_of("desk-1", by_day(Power.ON))[1:4] == [
        "It should be given back, says policy harvest: it is outside the hours of desk.",
        "It is drained now.",
        "It may not serve Slurm now: desk serves Slurm 20:00-06:00 only.",
    ]
    assert told_of("desk-1", by_day(Power.OFF)) == [
        "desk-1 of pool desk at east is powered off; Slurm says CLOUD+DOWN+DRAIN.",
        "Nothing is done now: it is off, as it should be; no policy wants anything of it.",
        "It may not serve Slurm now: desk serves Slurm 20:00-06:00 only.",
        "Its machine is i-desk-1 (stopped).",
        "Its machine is kept: it is powered off, never deleted.",
        "What would change it: the hours of pool desk begin.",
    ]


def test_a_wish_that_a_guard_refuses_is_told_with_the_guard() -> None:
    young = node(power=Power.ON, idle_since=NOW - 900, machine=machine("t4-1", launched=NOW - 5))
    (_, wish, refused, *_, change) = told_of("t4-1", view(nodes=[young]))
    assert wish == "It should be given back, says policy release_idle: idle for 900 s and no waiting job needs it."
    assert refused == "Not now: it has been up for 5 s; limits.min_up is 60 s (guard minimum_up_time)."
    assert change == "What would change it: limits.min_up has passed."


def test_a_persons_drain_is_told_with_the_command_that_ends_it() -> None:
    drained = view(nodes=[node(power=Power.ON, states=IDLE | {"DRAIN"}, reason="disk")])
    _, nothing, *_, change = told_of("t4-1", drained)
    assert nothing.startswith("Nothing is done now: drained by a person (disk); left alone")
    assert change == "What would change it: scontrol update nodename=t4-1 state=resume."


def test_an_idle_node_is_told_who_may_end_that() -> None:
    idle = node(power=Power.ON, idle_since=NOW - 5)
    assert told_of("t4-1", view(nodes=[idle]))[1:] == [
        "Nothing is done now: it is up; no policy wants anything of it.",
        "It has been idle for 5 s.",
        "Its machine is i-t4-1 (running).",
        f"What would change it: {IDLE_ENDS}.",
    ]


def test_a_node_of_no_pool_is_never_touched() -> None:
    (sentence,) = told_of("op1", view(nodes=[home_node()]))
    assert sentence.endswith("it belongs to no pool, so cm-scale counts its room and never touches it.")


def test_of_a_node_at_a_site_that_does_not_answer_nothing_is_concluded() -> None:
    dark = MappingProxyType({EAST: Site(EAST, SiteKind.AWS, unseen="EC2 is silent"), HOME: Site(HOME, SiteKind.ONPREM)})
    assert told_of("t4-1", view(nodes=[node(states=IDLE, reason="")], sites=dark)) == [
        "t4-1 of pool t4 cannot be seen: east could not be read (EC2 is silent); Slurm says CLOUD+IDLE.",
        "Nothing is done at east until it answers again; what runs there runs on.",
        "What would change it: the site answers again: cm-scale check.",
    ]


# --- a tick ----------------------------------------------------------------------------------------------------------


def test_a_tick_tells_what_it_saw_and_all_it_decided_and_did_not() -> None:
    seen = view(
        [pool(), pool("small", shape=CPU)],
        [node("t4-4", Power.STARTING, sick="it has not joined")],
        [WAITING, job(2, ask(gpus_per_node=9)), job(3, help=Help.NO)],
    )
    assert told_of_tick(seen) == [
        "It saw 3 pending jobs, 2 of which more nodes would help; machines: 0 up, 1 starting, 0 stopping.",
        "It decided to delete t4-4: it has not joined.",
        "Not done for t4-1: t4-4 is given up first: it has not joined (guard failed_boots_first).",
        "No pool can ever serve job 2: pool small has no GPU; pool t4 has 1 of the 9 GPUs asked for on each node.",
        "What would change it: the failed machine is gone.",
    ]


def test_an_idle_tick_and_a_failed_policy_are_told() -> None:
    assert told_of_tick(view())[1:] == ["It decided to do nothing."]
    plan = replace(decide(view(), SHIPPED, Limits()), failed=(PolicyFailure("mine", "KeyError: 'x'"),))
    assert "Policy mine failed: KeyError: 'x'." in tick_sentences(view(), plan)
