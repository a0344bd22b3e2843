"""A whole cluster in memory with a daemon that can be killed at any call and started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import URL

from cmscale.adapters.slurm import parse
from cmscale.core.decide import Policy
from cmscale.model import HOME, Limits, Pool, Queue, Site, SiteKind, SiteName
from cmscale.shell import policies
from cmscale.shell.journal import SqlJournal
from cmscale.shell.loop import Daemon, Look, tick
from cmscale.shell.observe import World
from cmscale.shell.schema import ClusterTable
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud
from cmscale.sim.slurm import Slurm
from tests.builders import pool


def shipped(**tables: Mapping[str, Any]) -> Sequence[Policy]:
    """The shipped policies in their shipped order, with their shipped settings but for these tables."""
    return policies.load(ClusterTable(name="simulated").policies, None, tables)


class Killed(BaseException):
    """The process ended here; BaseException, so that nothing in it can save itself."""


@dataclass
class Fuse:
    """When the process dies: in so many burns (0: never), or as soon as a call of this name has taken effect."""

    left: int = 0
    after: str = ""

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def took_effect(self, call: str) -> None:
        if call == self.after:
            self.after = ""
            raise Killed
        self.burn()


@dataclass
class Deadly:
    """A port whose every call burns the fuse, before its effect and after it."""

    inner: Any
    fuse: Fuse

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.fuse.burn()
            result = value(*args, **kwargs)
            self.fuse.took_effect(name)
            return result

        return call


@dataclass
class Cluster:
    """Clouds with pools, a Slurm, and the daemon's journal on disk."""

    where: Path | URL
    """The journal."""
    pools: Sequence[Pool] = field(default_factory=lambda: [pool(count=8)])
    policies: Sequence[Policy] = field(default_factory=lambda: shipped(release_idle={"idle": "60s"}))
    limits: Limits = field(default_factory=lambda: Limits(min_up_s=0))
    sites: Mapping[SiteName, Site] = field(default_factory=dict)
    """What is to be known of a site beside that it is one."""
    queues: Mapping[str, Queue] = field(default_factory=dict)
    clock: VirtualClock = field(default_factory=VirtualClock)
    may_act: bool = True
    lives: int = 0

    def __post_init__(self) -> None:
        self.clouds = {each.site: Cloud(each.site, self.clock) for each in self.pools}
        self.slurm = Slurm.declaring(self.pools, self.clock, list(self.clouds.values()))
        self.slurm.read_constraint = parse.constraint
        self.fuse = Fuse()
        self.began = self.clock.now()
        self.daemon = self.start()

    @property
    def cloud(self) -> Cloud:
        """The cloud, where there is but one."""
        (only,) = self.clouds.values()
        return only

    def start(self) -> Daemon:
        """A fresh process of the daemon: nothing but the journal is left of the one before."""
        if self.lives:
            self.journal.dispose()
        self.lives += 1
        self.journal: SqlJournal = SqlJournal(self.where, keeps=True, used=self.lives > 1, now=self.clock.now)
        sites = {name: Site(name, SiteKind.AWS) for name in self.clouds} | dict(self.sites)
        world = World(
            scheduler=Deadly(self.slurm, self.fuse),
            providers={name: Deadly(cloud, self.fuse) for name, cloud in self.clouds.items()},
            journal=Deadly(self.journal, self.fuse),
            clock=self.clock,
            sites=MappingProxyType(sites | {HOME: Site(HOME, SiteKind.ONPREM)}),
            pools=MappingProxyType({each.name: each for each in self.pools}),
            queues=MappingProxyType(dict(self.queues)),
        )
        return Daemon(world, self.policies, self.limits, f"life{self.lives}", may_act=self.may_act)

    def tick(self, times: int = 1, every_s: float = 1.0) -> Look:
        for _ in range(times):
            self.slurm.step()
            look = self.decide()
            self.clock.wait(every_s)
        return look

    def decide(self) -> Look:
        """One tick of the daemon alone; Slurm and the clouds stay as they are."""
        return tick(self.daemon)

    def run_until(self, true: Callable[[], bool], limit: int = 1000, every_s: float = 1.0) -> None:
        for _ in range(limit):
            if true():
                return
            self.tick(every_s=every_s)
        raise AssertionError("the cluster did not get there")

    def kill_in(self, calls: int) -> None:
        """Burn the fuse: the process dies at that call from now on."""
        self.fuse.left = calls

    def kill_after(self, call: str) -> None:
        """The process dies as soon as the next call of this name has taken effect."""
        self.fuse.after = call

    @property
    def starts(self) -> list[str]:
        return [call for cloud in self.clouds.values() for call in cloud.calls if call.startswith("start")]

    @property
    def finished(self) -> bool:
        machines = [machine for cloud in self.clouds.values() for machine in cloud.machines]
        return not self.slurm.queue and not self.slurm.running and not machines
