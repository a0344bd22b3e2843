"""A whole cluster in memory with a daemon that can be killed at any call and started again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from sqlalchemy import URL

from cmscale.adapters.slurm import parse
from cmscale.core.decide import Policy
from cmscale.journal.sql import SqlJournal
from cmscale.model import HOME, Limits, Pool, PoolName, Queue, Site, SiteKind, SiteName, price
from cmscale.shell import policies
from cmscale.shell.loop import Daemon, Look, tick
from cmscale.shell.observe import World
from cmscale.shell.periods import Periods
from cmscale.shell.schema import ClusterTable
from cmscale.shell.scripts import Scripts
from cmscale.shell.spending import Rules
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud, Stretch
from cmscale.sim.slurm import Slurm
from tests.builders import pool


def shipped(**tables: Mapping[str, Any]) -> Sequence[Policy]:
    """The shipped policies in their shipped order, with their shipped settings but for these tables."""
    return policies.load(ClusterTable(name="simulated").policies, None, tables)


class Killed(BaseException):
    """The process ended here; BaseException, so that nothing in it can save itself."""


class Called(NamedTuple):
    """One call of a port."""

    name: str
    args: tuple[Any, ...]
    options: Mapping[str, Any]


@dataclass
class Fuse:
    """When the process dies: in so many burns (0: never), or as soon as a call of this name has taken effect."""

    left: int = 0
    after: str = ""
    one_at_a_time: AbstractContextManager[object] = field(default_factory=nullcontext)
    """Entered around each call; for calls side by side that must not overlap."""

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def before(self, _call: Called) -> None:
        self.burn()

    def took_effect(self, call: Called, _answer: Any) -> None:
        if call.name == self.after:
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
            called = Called(name, args, kwargs)
            with self.fuse.one_at_a_time:
                self.fuse.before(called)
                answer = value(*args, **kwargs)
                self.fuse.took_effect(called, answer)
            return answer

        return call


def stretch_ms(stretch: Stretch, begin: float, end: float) -> int:
    """How much of a stretch lies between."""
    last = end if stretch.ended is None else min(stretch.ended, end)
    return max(round(last * 1000) - round(max(stretch.began, begin) * 1000), 0)


def _price(pool: Pool, stretch: Stretch) -> int:
    return price(pool.price_hour if stretch.running else pool.stopped_price_hour)


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
    scripts: Mapping[PoolName, Scripts] = field(default_factory=dict)
    fuse: Fuse = field(default_factory=Fuse)
    open_journal: Callable[..., SqlJournal] = SqlJournal
    clock: VirtualClock = field(default_factory=VirtualClock)
    rules: Rules = field(default_factory=lambda: Rules(periods=Periods(UTC)))
    """What the site says of money."""
    may_act: bool = True
    lives: int = 0

    def __post_init__(self) -> None:
        self.clouds = {each.site: Cloud(each.site, self.clock) for each in self.pools}
        self.slurm = Slurm.declaring(self.pools, self.clock, list(self.clouds.values()))
        self.slurm.read_constraint = parse.constraint
        self.began = self.clock.now()
        self.daemon = self.start()

    @property
    def cloud(self) -> Cloud:
        """The cloud, where there is but one."""
        (only,) = self.clouds.values()
        return only

    def start(self) -> Daemon:
        """A fresh process of the daemon: nothing but the journal is left of the one before."""
        self.lives += 1
        self.journal: SqlJournal = self.open_journal(self.where, keeps=True, used=self.lives > 1, now=self.clock.now)
        sites = {name: Site(name, SiteKind.AWS) for name in self.clouds} | dict(self.sites)
        world = World(
            scheduler=Deadly(self.slurm, self.fuse),
            providers={name: Deadly(cloud, self.fuse) for name, cloud in self.clouds.items()},
            journal=Deadly(self.journal, self.fuse),
            clock=self.clock,
            sites=MappingProxyType(sites | {HOME: Site(HOME, SiteKind.ONPREM)}),
            pools=MappingProxyType({each.name: each for each in self.pools}),
            queues=MappingProxyType(dict(self.queues)),
            rules=self.rules,
            scripts={name: cast(Scripts, Deadly(each, self.fuse)) for name, each in self.scripts.items()},
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

    def billed(self, begin: float = 0.0, end: float = inf) -> int:
        """What the clouds charge for a time: each stretch of each machine at its pool's price."""
        now, pools = self.clock.now(), {each.name: each for each in self.pools}
        return sum(
            stretch_ms(each, begin, min(end, now)) * _price(pools[each.pool], each)
            for cloud in self.clouds.values()
            for each in cloud.billed
        )

    @property
    def starts(self) -> list[str]:
        return [call for cloud in self.clouds.values() for call in cloud.calls if call.startswith("start")]

    @property
    def finished(self) -> bool:
        machines = [machine for cloud in self.clouds.values() for machine in cloud.machines]
        return not self.slurm.queue and not self.slurm.running and not machines
