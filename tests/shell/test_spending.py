"""What machines have cost: the journal's bill beside the clouds' own record of their lives."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from pathlib import Path

import pytest

from cmscale.model import (
    DOLLAR,
    AtLimit,
    Budget,
    EventKind,
    JobId,
    NodeName,
    Payer,
    Period,
    Pool,
    PoolName,
    Power,
    Spending,
    Use,
    Verb,
)
from cmscale.shell.periods import Periods
from cmscale.shell.spending import Rules
from cmscale.sim.cloud import Flaw
from tests.builders import ask, budget, pool
from tests.shell.cluster import Cluster, Killed

FOREVER = 10.0**12


def bill(cluster: Cluster) -> Counter[Use]:
    return Counter(cluster.journal.bill(0, FOREVER))


def charged(cluster: Cluster, spending: Spending | None = None, user: str | None = None) -> int:
    return sum(
        ms * use.price
        for use, ms in bill(cluster).items()
        if spending in {None, use.spending} and user in {None, use.payer.user}
    )


def with_budgets(path: Path, *budgets: Budget, pools: list[Pool] | None = None) -> Cluster:
    rules = Rules(budgets, Periods(UTC))
    return Cluster(path / "journal.db", rules=rules, **({"pools": pools} if pools else {}))  # type: ignore[arg-type]


def played(cluster: Cluster, every_s: float = 7.0) -> Cluster:
    """Three jobs run, and all machines go."""
    for number, run_s in enumerate((100, 40, 300), 1):
        cluster.slurm.submit(number, ask(), run_s=run_s, user=("ada", "bob")[number % 2], account="physics")
    cluster.run_until(lambda: cluster.finished, every_s=every_s)
    cluster.tick(2)
    return cluster


# --- the bill --------------------------------------------------------------------------------------------------------


def test_the_bill_is_the_lives_of_machines_times_their_prices_to_the_millisecond(tmp_path: Path) -> None:
    cluster = played(Cluster(tmp_path / "journal.db"))
    assert charged(cluster) == cluster.billed() > 0
    parts = {each: charged(cluster, each) for each in Spending}
    assert sum(parts.values()) == cluster.billed()
    assert all(parts.values())


def test_a_job_pays_for_what_it_ran_and_its_user_for_the_boot_and_the_idle_time_of_its_machine(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db")
    cluster.slurm.submit(1, ask(), run_s=100, user="ada", account="physics")
    cluster.run_until(lambda: cluster.finished)
    cluster.tick(2)
    lines: Counter[tuple[Spending, Payer]] = Counter()
    for use, ms in bill(cluster).items():
        lines[use.spending, use.payer] += ms
    ada = Payer("ada", "physics", "1")
    assert set(lines) == {(each, ada) for each in Spending}
    assert abs(lines[Spending.JOB, ada] - 100_000) <= 1000  # up to the last look that saw it
    assert abs(lines[Spending.BOOT, ada] - 60_000) <= 1000


def test_jobs_that_share_a_node_divide_its_time_by_their_cpus(tmp_path: Path) -> None:
    cluster = Cluster(
        tmp_path / "journal.db", pools=[pool(count=1, shape=pool().shape.less(pool().shape.__class__(0, 0, 1)))]
    )
    for number, cpus, user in ((1, 1, "ada"), (2, 3, "bob")):
        cluster.slurm.submit(number, ask(gpus_per_node=0, cpus_per_task=cpus), run_s=100, user=user)
    cluster.run_until(lambda: cluster.finished)
    cluster.tick(2)
    of_jobs = {user: charged(cluster, Spending.JOB, user) for user in ("ada", "bob")}
    assert of_jobs["bob"] == 3 * of_jobs["ada"]


def test_a_daemon_that_was_away_bills_the_machines_that_ran_meanwhile(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db")
    cluster.slurm.submit(1, ask(), run_s=10_000)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    cluster.clock.wait(7200)
    cluster.daemon = cluster.start()
    cluster.tick(40)
    job = sum(ms for use, ms in bill(cluster).items() if use.spending is Spending.JOB)
    assert job >= 7_200_000
    cluster.run_until(lambda: cluster.finished, every_s=30)
    cluster.tick(2)
    assert charged(cluster) == cluster.billed()


@pytest.mark.parametrize("call", range(1, 400, 41))
def test_killed_at_any_call_no_time_is_lost_and_none_told_twice(tmp_path: Path, call: int) -> None:
    cluster = Cluster(tmp_path / "journal.db")
    cluster.slurm.submit(1, ask(), run_s=30)
    cluster.kill_in(call)
    for _ in range(60):
        try:
            cluster.tick(every_s=5)
        except Killed:
            cluster.daemon = cluster.start()
    cluster.run_until(lambda: cluster.finished, every_s=5)
    cluster.tick(2)
    assert charged(cluster) == cluster.billed() > 0


@pytest.mark.parametrize("by_s", [86400.0, -86400.0, 3600.0])
def test_a_clock_that_is_set_is_not_billed_as_time_that_ran(tmp_path: Path, by_s: float) -> None:
    cluster = Cluster(tmp_path / "journal.db")
    cluster.slurm.submit(1, ask(), run_s=100_000)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    cluster.tick(40)
    before_ms = sum(bill(cluster).values())
    cluster.clock.set_by(by_s)
    cluster.tick(60)
    assert 0 < sum(bill(cluster).values()) - before_ms <= 100_000


def test_whole_quanta_and_the_least_time_are_billed_and_what_was_not_used_is_idle(tmp_path: Path) -> None:
    quanta = pool(count=1, billing_quantum_s=3600.0)
    cluster = played(Cluster(tmp_path / "journal.db", pools=[quanta]), every_s=20)
    assert sum(bill(cluster).values()) % 3_600_000 == 0
    at_least = pool(count=1, billing_minimum_s=7200.0)
    other = played(Cluster(tmp_path / "other.db", pools=[at_least]), every_s=20)
    assert sum(bill(other).values()) == 7_200_000 * len(other.cloud.billed)


def test_a_machine_that_is_kept_powered_off_costs_its_stopped_price(tmp_path: Path) -> None:
    kept = pool(count=1, never_terminate=frozenset({NodeName("t4-1")}), stopped_price_hour=0.05)
    cluster = Cluster(tmp_path / "journal.db", pools=[kept])
    cluster.slurm.submit(1, ask(), run_s=20)
    cluster.run_until(lambda: any(not each.running for each in cluster.cloud.billed))
    cluster.tick(40, every_s=60)
    cluster.slurm.submit(2, ask(), run_s=20)
    cluster.run_until(lambda: len(cluster.cloud.billed) == 4)
    cluster.tick(1)
    at = {use.price for use in bill(cluster)}
    assert at == {500_000, 50_000}
    open_ms = 1000 * 50_000  # the last stretch goes on: the last second of it has not been metered yet
    assert abs(charged(cluster) - cluster.billed()) <= open_ms


def test_a_price_that_changes_counts_from_the_next_process_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db", pools=[pool(count=1)])
    cluster.slurm.submit(1, ask(), run_s=3000)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    cluster.tick(60)
    cluster.pools = [pool(count=1, price_hour=0.8)]
    cluster.daemon = cluster.start()
    cluster.run_until(lambda: cluster.finished, every_s=30)
    cluster.tick(2)
    by_price: Counter[int] = Counter()
    for use, ms in bill(cluster).items():
        by_price[use.price] += ms
    assert set(by_price) == {500_000, 800_000}
    (life,) = cluster.cloud.billed
    assert sum(by_price.values()) == round((life.ended or 0) * 1000) - round(life.began * 1000)


def test_a_lost_machine_is_billed_until_it_was_missed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db")
    cluster.cloud.spoil(Flaw.DIES, after_s=200.0, for_s=30)
    cluster.slurm.submit(1, ask(), run_s=50)
    cluster.run_until(lambda: any(each.ended for each in cluster.cloud.billed))
    cluster.run_until(lambda: cluster.finished)
    cluster.tick(40)
    assert 0 <= charged(cluster) - cluster.billed() <= 5 * 1000 * 500_000


def test_long_past_hours_become_days_and_forget_their_jobs_and_not_a_millisecond_is_lost(tmp_path: Path) -> None:
    cluster = played(Cluster(tmp_path / "journal.db"))
    before = bill(cluster)
    day = Periods(UTC).began(Period.DAY, cluster.clock.now())
    for days, forgotten in ((0, False), (4, False), (101, True)):
        cluster.journal.roll_up(cluster.clock.now() + days * 86400, lambda _: day)
        after = bill(cluster)
        assert sum(after.values()) == sum(before.values())
        assert ({use.payer.job for use in after} == {""}) is forgotten
        assert ({use.hour for use in after} == {int(day)}) is (days > 0)


# --- budgets ---------------------------------------------------------------------------------------------------------


def test_a_spent_budget_starts_nothing_until_the_next_day_begins(tmp_path: Path) -> None:
    cluster = with_budgets(tmp_path, budget(0.15))
    cluster.slurm.submit(1, ask(), run_s=1500, user="ada")
    cluster.run_until(lambda: cluster.finished, every_s=10)
    cluster.slurm.submit(2, ask(), run_s=100)
    look = cluster.tick(4)
    assert look.view.purses[0].spent == charged(cluster) == cluster.billed() >= 0.15 * DOLLAR
    comment = cluster.slurm.queue[JobId("2")].comment
    assert (
        "t4: closed (budget: money ($0.15 a day) is used up: 151 % spent (ada 151 %); it opens on tue 00:00)" in comment
    )
    cluster.run_until(lambda: cluster.clock.now() % 86400 < 1200, limit=2000, every_s=600)
    assert len(cluster.starts) == 1
    cluster.run_until(lambda: cluster.finished, every_s=10)
    kinds = [event.kind for event in cluster.journal.events(0)]
    assert {EventKind.BUDGET_REACHED, EventKind.BUDGET_OPENED} <= set(kinds)


def test_while_the_first_machine_may_use_a_budget_up_no_second_one_is_started(tmp_path: Path) -> None:
    cluster = with_budgets(tmp_path, budget(3))
    for number in (1, 2, 3):
        cluster.slurm.submit(number, ask(), run_s=1500)
    look = cluster.tick(3)
    assert len(cluster.cloud.machines) == 1  # to the end of the day it may cost more than $5
    assert (look.view.purses[0].used_up, look.view.purses[0].gone) == (True, False)
    comment = cluster.slurm.queue[JobId("2")].comment
    assert "is used up: 0 % spent, 170 % with what is up, if it runs on to the end of the day" in comment
    assert "it opens as machines are given back, at the latest on tue 00:00" in comment


def test_what_is_given_back_opens_a_budget_again_that_is_not_spent(tmp_path: Path) -> None:
    cluster = with_budgets(tmp_path, budget(3))
    cluster.slurm.submit(1, ask(), run_s=100)
    cluster.tick(3)
    assert cluster.decide().view.purses[0].used_up
    cluster.run_until(lambda: cluster.finished, every_s=5)
    cluster.tick(2)
    assert not cluster.decide().view.purses[0].used_up


def test_another_pool_serves_when_the_budget_of_the_first_is_used_up(tmp_path: Path) -> None:
    pools = [pool("cheap", 2), pool("dear", 2, price_hour=2.0)]
    cluster = with_budgets(tmp_path, budget(0.1, pool=PoolName("cheap")), pools=pools)
    for number in (1, 2):
        cluster.slurm.submit(number, ask(), run_s=100)
    cluster.run_until(lambda: len(cluster.slurm.running) == 2)
    assert {each.pool for each in cluster.cloud.machines.values()} == {"cheap", "dear"}


def test_the_budget_of_one_user_holds_back_nobody_else(tmp_path: Path) -> None:
    cluster = with_budgets(tmp_path, budget(0.1, user="ada"))
    for number, user in ((1, "ada"), (2, "ada"), (3, "bob"), (4, "bob")):
        cluster.slurm.submit(number, ask(), run_s=100, user=user)
    cluster.tick(3)
    assert len(cluster.cloud.machines) == 3
    why = cluster.slurm.queue[JobId("2")].comment
    assert why.startswith("cm-scale: waits: budget money of user ada ($0.1 a day) is used up: ")


def test_each_user_has_a_budget_of_their_own(tmp_path: Path) -> None:
    cluster = with_budgets(tmp_path, budget(0.1, user="*"))
    for number, user in ((1, "ada"), (2, "ada"), (3, "bob"), (4, "bob")):
        cluster.slurm.submit(number, ask(), run_s=100, user=user)
    cluster.tick(3)
    assert len(cluster.cloud.machines) == 2
    assert {purse.who for purse in cluster.decide().view.purses} == {"ada", "bob"}


def test_a_budget_of_spot_only_lets_spot_machines_start(tmp_path: Path) -> None:
    pools = [pool("cheap", 2), pool("spot", 2, price_hour=2.0, market="spot")]
    cluster = with_budgets(tmp_path, budget(0.1, at_limit=AtLimit.SPOT_ONLY), pools=pools)
    for number in (1, 2):
        cluster.slurm.submit(number, ask(), run_s=100)
    cluster.run_until(lambda: len(cluster.slurm.running) == 2)
    assert {each.pool for each in cluster.cloud.machines.values()} == {"cheap", "spot"}


def test_with_drain_machines_go_as_they_get_free_and_no_job_is_ended(tmp_path: Path) -> None:
    cluster = with_budgets(tmp_path, budget(0.05, at_limit=AtLimit.DRAIN))
    cluster.slurm.submit(1, ask(), run_s=2000)
    cluster.slurm.submit(2, ask(), run_s=2000)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    look = cluster.tick(80, every_s=5)
    assert look.view.purses[0].gone
    assert "DRAIN" in cluster.slurm.records[NodeName("t4-1")].states
    assert list(cluster.slurm.running) == ["1"]
    cluster.run_until(lambda: not cluster.cloud.machines, every_s=5)
    assert list(cluster.slurm.done) == ["1"]
    assert list(cluster.slurm.queue) == ["2"]
    assert all(action.verb is not Verb.REQUEUE for action in look.plan.actions)
    assert look.view.nodes[NodeName("t4-1")].power is Power.ON


def test_admins_are_told_when_a_budget_is_nearly_spent(tmp_path: Path) -> None:
    cluster = with_budgets(tmp_path, budget(1.0, per=Period.MONTH, warn_at=0.5, ahead_s=60.0))
    cluster.slurm.submit(1, ask(), run_s=100_000)
    cluster.run_until(lambda: cluster.decide().view.purses[0].spent > DOLLAR // 2, every_s=60)
    cluster.tick(2)
    (event,) = [each for each in cluster.journal.events(0) if each.kind is EventKind.BUDGET_NEARLY_SPENT]
    assert event.text == "budget money ($1 a month) is 50 % spent"
