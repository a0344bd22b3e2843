"""A whole cluster in memory with a daemon that can be killed at any call and started again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cmscale.core.decide import Policy
from cmscale.model import HOME, Goal, Limits, NodeName, Pool, Site, SiteKind, Snapshot
from cmscale.shell.journal import SqlJournal
from cmscale.shell.loop import Daemon, Look, tick
from cmscale.shell.observe import World
from cmscale.sim.world import Cloud, Slurm, VirtualClock
from policies import keep_warm, release_idle, serve_queue
from tests.builders import EAST, pool

PROPOSE: dict[str, tuple[Callable[..., Any], Any]] = {
    "serve_queue": (serve_queue.propose, serve_queue.Settings()),
    "keep_warm": (keep_warm.propose, keep_warm.Settings()),
    "release_idle": (release_idle.propose, release_idle.Settings(idle_s=60)),
}


class Killed(BaseException):
    """The process ended here; BaseException, so that nothing in it can save itself."""


@dataclass
class Shipped:
    """A shipped policy as the loader would give it."""

    name: str

    def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Any:
        propose, settings = PROPOSE[self.name]
        yield from propose(view, claimed, settings)


@dataclass
class Deadly:
    """A port whose every call counts, and which kills the process before or after the effect of one of them."""

    inner: Any
    fuse: list[int]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self._burn()
            result = value(*args, **kwargs)
            self._burn()
            return result

        return call

    def _burn(self) -> None:
        self.fuse[0] -= 1
        if self.fuse[0] == 0:
            raise Killed


@dataclass
class Cluster:
    """One pool at one cloud, a Slurm, and the daemon's journal on disk."""

    path: Path
    pools: Sequence[Pool] = field(default_factory=lambda: [pool(count=8)])
    policies: Sequence[Policy] = field(default_factory=lambda: [Shipped(name) for name in PROPOSE])
    limits: Limits = field(default_factory=lambda: Limits(min_up_s=0))
    clock: VirtualClock = field(default_factory=VirtualClock)
    lives: int = 0

    def __post_init__(self) -> None:
        self.cloud = Cloud(EAST, self.clock)
        self.slurm = Slurm.declaring(self.pools, self.clock, [self.cloud])
        self.fuse = [0]
        self.began = self.clock.now()
        self.daemon = self.start()

    def start(self) -> Daemon:
        """A fresh process of the daemon: nothing but the journal is left of the one before."""
        self.lives += 1
        world = World(
            scheduler=Deadly(self.slurm, self.fuse),
            providers={EAST: Deadly(self.cloud, self.fuse)},
            journal=Deadly(SqlJournal(self.path), self.fuse),
            clock=self.clock,
            sites=MappingProxyType({EAST: Site(EAST, SiteKind.AWS), HOME: Site(HOME, SiteKind.ONPREM)}),
            pools=MappingProxyType({each.name: each for each in self.pools}),
        )
        return Daemon(world, self.policies, self.limits, f"life{self.lives}", may_act=True)

    def tick(self, times: int = 1, every_s: float = 1.0) -> Look:
        for _ in range(times):
            self.slurm.step()
            look = tick(self.daemon)
            self.clock.wait(every_s)
        return look

    def run_until(self, true: Callable[[], bool], limit: int = 1000, every_s: float = 1.0) -> None:
        for _ in range(limit):
            if true():
                return
            self.tick(every_s=every_s)
        raise AssertionError("the cluster did not get there")

    def kill_in(self, calls: int) -> None:
        """Burn the fuse: the process dies at that call from now on."""
        self.fuse[0] = calls

    @property
    def starts(self) -> list[str]:
        return [call for call in self.cloud.calls if call.startswith("start")]

    @property
    def finished(self) -> bool:
        return not self.slurm.queue and not self.slurm.running and not self.cloud.machines


def wished(look: Look) -> list[Goal]:
    return list(look.plan.goals)
