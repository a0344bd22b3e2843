"""Clouds that do not answer: a tick ends all the same, others are served, and nothing is asked twice meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from cmscale.model import NodeName, SiteName
from cmscale.ports import Provider
from cmscale.shell.loop import run
from cmscale.shell.observe import World
from tests.builders import EAST, WEST, ask, pool
from tests.shell.cluster import Cluster

ANSWER_S = 0.2
PATIENCE_S = 20.0


@dataclass
class Hanging:
    """A cloud of which some calls do not end before they are let go; their effect comes then."""

    cloud: Any
    hung: set[str] = field(default_factory=set)
    broken: dict[str, Exception] = field(default_factory=dict)
    """What calls raise that nobody foresaw."""
    asked: list[str] = field(default_factory=list)
    gate: Event = field(default_factory=Event)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.cloud, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            if name in self.broken:
                raise self.broken[name]
            if name in self.hung:
                assert self.gate.wait(PATIENCE_S)
            return value(*args, **kwargs)

        return call

    def let_go(self) -> None:
        self.hung.clear()
        self.gate.set()


@dataclass
class Setting:
    """Two sites of which the eastern one, which is cheaper, can hang."""

    cluster: Cluster
    east: Hanging

    @property
    def world(self) -> World:
        return self.cluster.daemon.world

    def comes(self, true: Callable[[], object]) -> None:
        """Wait for what happens beside the ticks."""
        until = time.monotonic() + PATIENCE_S
        while not true():
            assert time.monotonic() < until, "it did not come"
            time.sleep(0.01)


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    pools = [pool("e", site=EAST, partitions=("east",)), pool("w", site=WEST, partitions=("west",))]
    cluster = Cluster(tmp_path / "journal.db", pools)
    providers: dict[SiteName, Provider] = dict(cluster.daemon.world.providers)
    east = Hanging(providers[EAST])
    cluster.daemon.world = World(
        cluster.daemon.world.scheduler,
        providers | {EAST: east},
        cluster.daemon.world.journal,
        cluster.clock,
        cluster.daemon.world.sites,
        cluster.daemon.world.pools,
    )
    cluster.daemon.world.beside.answer_s = ANSWER_S
    yield Setting(cluster, east)
    east.let_go()
    cluster.daemon.world.beside.wait_for_all(PATIENCE_S)


def made(cluster: Cluster, site: SiteName) -> int:
    return len(cluster.clouds[site].made)


def test_a_listing_that_hangs_costs_its_site_alone(setting: Setting) -> None:
    cluster = setting.cluster
    cluster.slurm.submit(1, ask(partitions=("east",)))
    cluster.slurm.submit(2, ask(partitions=("west",)))
    setting.east.hung.add("list")
    look = cluster.tick(3)
    assert look.view.sites[EAST].unseen == (
        "site east did not answer within 0.2 s (limits.answer); it is not waited for"
    )
    assert not look.view.sites[WEST].unseen
    assert (made(cluster, EAST), made(cluster, WEST)) == (0, 1)


def test_a_site_that_hangs_is_waited_for_once_and_asked_once(setting: Setting) -> None:
    setting.east.hung.add("list")
    setting.cluster.tick()
    setting.world.beside.answer_s = PATIENCE_S
    began = time.monotonic()
    setting.cluster.tick(5)
    assert time.monotonic() - began < PATIENCE_S
    assert setting.east.asked == ["list"]


def test_a_late_listing_is_believed_when_it_comes(setting: Setting) -> None:
    setting.east.hung.add("list")
    assert setting.cluster.tick().view.sites[EAST].unseen
    setting.east.let_go()
    setting.comes(lambda: "notices" in setting.east.asked)
    setting.world.beside.answer_s = PATIENCE_S
    setting.cluster.tick()
    assert not setting.cluster.tick().view.sites[EAST].unseen


def test_a_late_listing_is_not_believed_if_something_was_done_since_it_began(setting: Setting) -> None:
    beside = setting.world.beside
    look, is_new = beside.look(EAST, lambda: "before")
    beside.wait([look])
    deed = beside.do(EAST, "o1", lambda: None)  # type: ignore[arg-type]
    beside.wait([deed])
    assert is_new
    again, is_new = beside.look(EAST, lambda: "after")
    beside.wait([again])
    assert is_new
    assert again.answer(1) == "after"


def test_a_launch_that_hangs_holds_no_other_site_and_is_not_repeated_meanwhile(setting: Setting) -> None:
    cluster = setting.cluster
    cluster.slurm.submit(1, ask(partitions=("east",)), run_s=600)
    cluster.slurm.submit(2, ask(partitions=("west",)), run_s=5)
    setting.east.hung.add("start")
    cluster.run_until(lambda: list(cluster.slurm.done) == ["2"], limit=150)
    assert setting.east.asked.count("start") == 1
    (operation,) = cluster.journal.under_way()
    assert operation.nodes == (NodeName("e-1"),)
    assert cluster.daemon.troubles == (
        "site east has not answered a call for more than 0.2 s (limits.answer); nothing waits for it",
    )
    setting.east.let_go()
    setting.comes(lambda: not cluster.journal.under_way())
    cluster.run_until(lambda: "1" in cluster.slurm.running, limit=150)
    assert made(cluster, EAST) == 1
    assert not cluster.daemon.troubles


def test_a_deletion_that_hangs_is_not_decided_anew_before_it_has_ended(setting: Setting) -> None:
    cluster = setting.cluster
    cluster.slurm.submit(1, ask(partitions=("east",)), run_s=5)
    setting.east.hung.add("delete")
    cluster.run_until(lambda: "delete" in setting.east.asked, limit=300)
    look = cluster.tick(5)
    assert look.view.nodes[NodeName("e-1")].op
    assert setting.east.asked.count("delete") == 1
    setting.east.let_go()
    setting.comes(lambda: not cluster.journal.under_way())
    cluster.run_until(lambda: not cluster.clouds[EAST].machines, limit=60)
    assert setting.east.asked.count("delete") == 1


def test_an_end_waits_a_while_for_calls_under_way_and_no_longer(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cmscale.shell.loop.END_S", 0.3)
    cluster = setting.cluster
    cluster.slurm.submit(1, ask(partitions=("east",)))
    setting.east.hung.add("start")
    cluster.run_until(lambda: "start" in setting.east.asked)
    cluster.clock.ended = True
    began = time.monotonic()
    run(cluster.daemon, lambda _: None)
    assert 0.3 <= time.monotonic() - began < PATIENCE_S / 2
    setting.east.let_go()
    setting.comes(lambda: not cluster.journal.under_way())


def test_what_nobody_foresaw_costs_one_call_alone_and_is_told_once(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = setting.cluster
    setting.east.broken["start"] = TypeError("'NoneType' object is not subscriptable")
    cluster.slurm.submit(1, ask(partitions=("east",)), run_s=600)
    cluster.slurm.submit(2, ask(partitions=("west",)), run_s=5)
    cluster.run_until(lambda: list(cluster.slurm.done) == ["2"], limit=150)
    assert setting.east.asked.count("start") > 2
    told = "start e-1 raised TypeError: 'NoneType' object is not subscriptable"
    assert cluster.daemon.troubles == (told,)
    assert [record.message for record in caplog.records if record.exc_info] == [told]
    setting.east.broken.clear()
    cluster.run_until(lambda: "1" in cluster.slurm.running, limit=200)
    assert made(cluster, EAST) == 1
    assert not cluster.daemon.troubles


def test_a_listing_that_raises_what_nobody_foresaw_costs_its_site_alone(setting: Setting) -> None:
    cluster = setting.cluster
    setting.east.broken["list"] = KeyError("LaunchTime")
    cluster.slurm.submit(2, ask(partitions=("west",)))
    look = cluster.tick(3)
    assert look.view.sites[EAST].unseen == "looking at site east raised KeyError: 'LaunchTime'"
    assert made(cluster, WEST) == 1
