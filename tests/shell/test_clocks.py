"""The clock is set while the daemon runs: nothing is done on doubt, and what lasts, lasts as long as it was to last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from cmscale.model import EventKind, Fact, FactKind, Limits, NodeName, PoolName, Result
from cmscale.shell.timekeeping import TOLD_S, Ages
from cmscale.sim.clock import VirtualClock
from tests.builders import ask, pool
from tests.shell.cluster import Cluster, shipped

HOUR_S = 3600.0
BACK_AND_AHEAD = pytest.mark.parametrize("by_s", [-HOUR_S, HOUR_S, 30 * 24 * HOUR_S], ids=["back", "ahead", "a month"])


@dataclass
class Ours:
    """The clock of the daemon's machine: somebody may set it, and the world goes on by its own."""

    world: VirtualClock
    set_by_s: float = 0.0

    def now(self) -> float:
        return self.world.now() + self.set_by_s

    def steady(self) -> float:
        return self.world.steady()

    def utc_offset_s(self) -> float:
        return self.world.utc_offset_s()

    def wait(self, seconds: float) -> bool:
        return self.world.wait(seconds)

    def jump(self, by_s: float) -> None:
        self.set_by_s += by_s


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    policies = shipped(release_idle={"idle": "60s"})
    return Cluster(tmp_path / "journal.db", [pool(count=8)], policies, Limits(min_up_s=0))


@pytest.fixture
def ours(cluster: Cluster) -> Ours:
    clock = Ours(cluster.clock)
    cluster.daemon.world = replace(cluster.daemon.world, clock=clock)
    return clock


@BACK_AND_AHEAD
def test_in_the_tick_after_a_jump_nothing_is_done_and_it_is_said_why(cluster: Cluster, ours: Ours, by_s: float) -> None:
    cluster.tick(2)
    cluster.slurm.submit(1, ask())
    ours.jump(by_s)
    look = cluster.tick()
    way = "back" if by_s < 0 else "ahead"
    said = f"the clock jumped {way} by {abs(by_s):.0f} s; nothing was started or given back in that tick"
    assert look.plan.idle_because == said
    assert look.plan.actions == ()
    assert not cluster.starts
    assert cluster.daemon.troubles == (said,)
    assert [event.text for event in cluster.journal.events(0) if event.kind is EventKind.CLOCK_JUMPED] == [said]
    cluster.tick()
    assert len(cluster.starts) == 1
    cluster.clock.wait(TOLD_S)
    assert not cluster.daemon.troubles


@pytest.mark.slow
@BACK_AND_AHEAD
def test_the_whole_life_of_a_machine_goes_on_after_a_jump_at_any_time(
    cluster: Cluster, ours: Ours, by_s: float
) -> None:
    moments: list[Callable[[], object]] = [
        lambda: cluster.starts,
        lambda: cluster.slurm.running,
        lambda: cluster.slurm.done,
    ]
    for number, moment in enumerate(moments, start=1):
        cluster.run_until(lambda: cluster.finished)
        cluster.slurm.done.clear()
        cluster.cloud.calls.clear()
        made = len(cluster.cloud.made)
        job = cluster.slurm.submit(number, ask())
        cluster.run_until(lambda: bool(moment()))  # noqa: B023 - it is called at once
        ours.jump(by_s)
        cluster.run_until(lambda: cluster.finished, limit=100, every_s=4)
        assert list(cluster.slurm.done) == [job]
        assert len(cluster.cloud.made) == made + 1


def test_a_machine_that_boots_is_not_given_up_because_the_clock_went_ahead(cluster: Cluster, ours: Ours) -> None:
    cluster.slurm.submit(1, ask(), run_s=30)
    cluster.run_until(lambda: bool(cluster.cloud.machines))
    ours.jump(HOUR_S)
    look = cluster.tick(30)
    assert look.view.nodes[NodeName("t4-1")].sick == ""
    assert len(cluster.starts) == 1


def test_a_machine_that_never_joins_is_given_up_in_time_although_the_clock_went_back(
    cluster: Cluster, ours: Ours
) -> None:
    cluster.cloud.boot_s = 10**9
    cluster.slurm.submit(1, ask())
    cluster.run_until(lambda: bool(cluster.cloud.machines))
    limit_s = cluster.pools[0].boot_limit_s
    ours.jump(-HOUR_S)
    began = cluster.clock.steady()
    cluster.run_until(lambda: any(call.startswith("delete") for call in cluster.cloud.calls), every_s=5)
    assert cluster.clock.steady() - began <= limit_s + 10


def test_machines_of_a_cloud_whose_clock_is_an_hour_behind_are_not_old_when_they_come(
    cluster: Cluster, ours: Ours
) -> None:
    ours.jump(HOUR_S)
    cluster.tick(2)
    cluster.slurm.submit(1, ask(), run_s=30)
    cluster.run_until(lambda: bool(cluster.cloud.machines))
    look = cluster.tick(20)
    assert look.view.nodes[NodeName("t4-1")].sick == ""
    assert len(cluster.starts) == 1


def test_an_idle_machine_stays_as_long_as_it_was_to_stay(cluster: Cluster, ours: Ours) -> None:
    cluster.slurm.submit(1, ask(), run_s=10)
    cluster.run_until(lambda: bool(cluster.slurm.done))
    cluster.tick(10)
    ours.jump(HOUR_S)
    look = cluster.tick(20)
    idle_since = look.view.nodes[NodeName("t4-1")].idle_since
    assert idle_since is not None
    assert 25 <= look.view.now - idle_since <= 35
    cluster.run_until(lambda: cluster.finished, limit=60)


@BACK_AND_AHEAD
def test_a_pause_a_resting_name_and_a_closed_pool_last_as_long_as_they_were_to_last(
    cluster: Cluster, ours: Ours, by_s: float
) -> None:
    cluster.cloud.refuse(Result.CAPACITY)
    cluster.slurm.submit(1, ask())
    cluster.tick(3)
    now = ours.now()
    for kind, subject in ((FactKind.PAUSE, ""), (FactKind.QUARANTINE, "t4-1")):
        cluster.journal.put_fact(Fact(kind, subject, now, now + 600, "because"))
    open_in_s = cluster.journal.closed()[PoolName("t4")].until - now
    ours.jump(by_s)
    view = cluster.tick().view
    assert {fact.until - view.now for fact in view.facts.values()} == {600.0}
    assert view.closed[PoolName("t4")].until - view.now == open_in_s


def test_a_job_gets_no_more_machines_than_it_may_although_the_clock_goes_back(cluster: Cluster, ours: Ours) -> None:
    cluster.tick(2)
    job = cluster.slurm.submit(1, ask())
    cluster.tick()
    ours.jump(-HOUR_S)
    look = cluster.tick(3)
    assert look.view.creations[job].machines == 1


def test_a_clock_that_was_set_back_while_no_daemon_ran_is_found_at_the_start(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask(), run_s=10)
    cluster.run_until(lambda: cluster.tick().view.nodes[NodeName("t4-1")].idle_since is not None)
    cluster.daemon = cluster.start()
    ours = Ours(cluster.clock, -HOUR_S)
    cluster.daemon.world = replace(cluster.daemon.world, clock=ours)
    look = cluster.tick()
    assert "the clock jumped back by" in look.plan.idle_because
    cluster.run_until(lambda: cluster.finished, limit=120)


def test_a_clock_that_is_only_disciplined_is_believed(cluster: Cluster, ours: Ours) -> None:
    cluster.slurm.submit(1, ask(), run_s=20)
    while not cluster.finished:
        ours.jump(0.5)
        assert not cluster.tick().plan.idle_because


def test_a_jump_is_found_again_if_the_journal_could_not_be_told(
    cluster: Cluster, ours: Ours, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shift(_by_s: float, _now: float) -> None:
        raise OSError("disk full")

    cluster.tick()
    ours.jump(HOUR_S)
    with monkeypatch.context() as patch:
        patch.setattr(cluster.journal, "shift", shift)
        for _ in range(2):
            with pytest.raises(OSError, match="disk full"):
                cluster.decide()
    assert "jumped ahead" in cluster.decide().plan.idle_because
    assert not cluster.decide().plan.idle_because


def test_what_appears_between_two_looks_is_no_older_than_the_time_between_them() -> None:
    ages = Ages()
    assert ages.of("known before we were", 1000.0, now=5000.0, steady=1.0, unknown_s=None) == 4000
    assert ages.of("new", 1000.0, now=5000.0, steady=1.0, unknown_s=10.0) == 10
    assert ages.of("new", 1000.0, now=9000.0, steady=2.0, unknown_s=1.0) == 11
    assert ages.of("of the future", 6000.0, now=5000.0, steady=1.0, unknown_s=10.0) == 0
    ages.keep(["new"])
    assert list(ages.began) == ["new"]
