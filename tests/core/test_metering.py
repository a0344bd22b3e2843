"""What a machine has cost between two looks, and when a stretch of its life is over."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cmscale.core.metering import Scene, begun, billed_ms, divided, ended, goes_on, metered
from cmscale.model import OFF_REASON, Job, Life, MachineState, Node, NodeName, Payer, Pool, Power, Spending
from tests.builders import JOINED, NOW, ask, job, machine, node, pool

ADA = Payer("ada", "physics", "1")


def life(of: Pool | None = None, launched: float = NOW - 600) -> Life:
    return begun(machine("t4-1", launched=launched), of or pool(), ADA, NOW)


def scene(seen: Node | None = None, *jobs: Job, of: Pool | None = None) -> Scene:
    return Scene(of or pool(), seen, jobs, 0.0)


def runs(number: int, since: float, cpus: int = 1, user: str = "ada") -> Job:
    there = frozenset({NodeName("t4-1")})
    asks = ask(gpus_per_node=0, cpus_per_task=cpus)
    return job(number, asks, state="RUNNING", started=since, nodes=there, user=user)


def by_purpose(life: Life, scene: Scene, until: float = NOW) -> dict[tuple[Spending, str], float]:
    """Seconds by purpose and user."""
    seconds: Counter[tuple[Spending, str]] = Counter()
    for use, ms in metered(life, scene, until)[1].items():
        seconds[use.spending, use.payer.user] += ms
    return {key: ms / 1000 for key, ms in seconds.items()}


UP = node("t4-1", Power.ON)


def test_time_before_a_job_is_idle_and_the_job_pays_from_its_start() -> None:
    told = by_purpose(life(), scene(UP, runs(2, NOW - 400, user="bob")))
    assert told == {(Spending.IDLE, "ada"): 200, (Spending.JOB, "bob"): 400}


def test_a_job_that_began_before_the_last_look_pays_from_that_look() -> None:
    assert by_purpose(life(), scene(UP, runs(2, NOW - 9000, user="bob"))) == {(Spending.JOB, "bob"): 600}


def test_jobs_pay_by_their_cpus_while_they_are_there_together() -> None:
    both = scene(UP, runs(1, NOW - 600, 1), runs(2, NOW - 200, 3, "bob"))
    assert by_purpose(life(), both) == {(Spending.JOB, "ada"): 400 + 50, (Spending.JOB, "bob"): 150}


def test_a_machine_boots_until_it_was_seen_to_have_joined() -> None:
    joined = node("t4-1", Power.ON, states=JOINED, reason=OFF_REASON, idle_since=NOW - 100)
    assert by_purpose(life(), scene(joined)) == {(Spending.BOOT, "ada"): 500, (Spending.IDLE, "ada"): 100}
    assert by_purpose(life(), scene(node("t4-1", Power.STARTING))) == {(Spending.BOOT, "ada"): 600}


def test_what_serves_no_node_is_idle() -> None:
    assert by_purpose(life(), scene(None, runs(1, NOW - 600))) == {(Spending.IDLE, "ada"): 600}


@settings(derandomize=True, deadline=None)
@given(some.lists(some.floats(0, 90_000), min_size=1, max_size=6), some.sampled_from((0.0, 19_800.0, -3600.0)))
def test_however_often_it_is_looked_at_the_bill_is_the_time(steps: list[float], offset_s: float) -> None:
    now, of, sum_ms = life().until, life(), 0
    for step in steps:
        now += step
        of, bill = metered(of, scene(UP, runs(1, NOW), runs(2, NOW + 100, 2))._replace(utc_offset_s=offset_s), now)
        sum_ms += sum(bill.values())
        assert all((use.hour + offset_s) % 3600 == 0 for use in bill)
    assert sum_ms == of.paid_ms == round(now * 1000) - round(life().until * 1000)


@pytest.mark.parametrize(
    ("quantum_s", "minimum_s", "ran_s", "paid_s"),
    [(0, 0, 7, 7), (0, 60, 7, 60), (0, 60, 61, 61), (3600, 0, 1, 3600), (3600, 0, 3600, 3600), (60, 90, 1, 120)],
)
def test_a_machine_is_paid_for_in_whole_quanta_and_for_the_least_time(
    quantum_s: float, minimum_s: float, ran_s: float, paid_s: float
) -> None:
    of = pool(billing_quantum_s=quantum_s, billing_minimum_s=minimum_s)
    assert billed_ms(round(ran_s * 1000), of) == paid_s * 1000
    last, _ = metered(life(of, NOW - ran_s), scene(UP, of=of), NOW)
    assert sum(ended(last, scene(UP, of=of)).values()) == (paid_s - ran_s) * 1000


def test_a_stretch_is_over_when_the_machine_is_powered_off_or_was_launched_again() -> None:
    seen = machine("t4-1")
    assert goes_on(life(), seen)
    assert goes_on(life(), replace(seen, state=MachineState.STARTING))
    for state in (MachineState.STOPPING, MachineState.STOPPED, MachineState.ENDING):
        assert not goes_on(life(), replace(seen, state=state))
    last, _ = metered(life(), scene(UP), NOW)
    assert not goes_on(last, replace(seen, launched=NOW + 200))


def test_a_launch_that_is_dated_otherwise_is_no_second_launch() -> None:
    last, _ = metered(life(), scene(UP), NOW)
    for other in (NOW - 4000, NOW - 590, NOW - 300):  # by our call and by the cloud; by a clock that was set
        assert goes_on(last, machine("t4-1", launched=other))


@settings(derandomize=True, deadline=None)
@given(some.integers(0, 10**9), some.lists(some.integers(1, 100), min_size=1, max_size=9))
def test_what_is_divided_adds_up(whole: int, weights: list[int]) -> None:
    parts = list(divided(whole, weights))
    assert sum(parts) == whole
    assert all(abs(part - whole * weight / sum(weights)) <= 1 for part, weight in zip(parts, weights, strict=True))
