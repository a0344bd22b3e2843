"""Two daemons over one cluster in memory and one journal; either may be killed or frozen at any of its calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import RLock
from types import MappingProxyType
from typing import Any

from sqlalchemy import URL, Float, literal
from sqlalchemy.sql.elements import ColumnElement

from cmscale.journal.database import Database
from cmscale.journal.lease import Holder, Lease, Tenure
from cmscale.journal.sql import SqlJournal
from cmscale.model import HOME, Site, SiteKind
from cmscale.ports import Deposed
from cmscale.shell.beside import Beside
from cmscale.shell.leading import begin
from cmscale.shell.loop import Daemon, tick
from cmscale.shell.observe import World
from cmscale.shell.schema import ClusterTable
from tests.shell.cluster import Cluster, Killed, shipped

LEASE_S = ClusterTable(name="simulated").lease


@dataclass
class Gate:
    """What happens to a process at one of its calls, and at which; all its threads stand still meanwhile."""

    happens: Callable[[], None] = lambda: None
    left: int = 0
    """In so many passes; 0: never."""
    begins: str = ""
    """Passes count from the first call of this name on."""
    lock: Any = field(default_factory=RLock)

    def pass_(self, call: str) -> None:
        if self.begins not in {"", call}:
            return
        self.begins = ""
        self.left -= 1
        if self.left == 0:
            self.happens()


@dataclass
class Gated:
    """A port whose every call passes the gate before its effect and after it; or only on one side of it."""

    inner: Any
    gate: Gate
    before: bool = True
    after: bool = True

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        return partial(self._call, name, value) if callable(value) else value

    def _call(self, name: str, value: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.gate.lock:
            if self.before:
                self.gate.pass_(name)
            result = value(*args, **kwargs)
            if self.after:
                self.gate.pass_(name)
            return result


@dataclass
class Head:
    """A head node, whose daemon is started again after each death."""

    name: str
    cluster: Cluster
    where: Path | URL
    lease_s: float
    gate: Gate = field(default_factory=Gate)
    """Around every call, the questions for the lease included."""
    last_moment: Gate = field(default_factory=Gate)
    """Around calls to clouds alone, when the lease has been asked for already."""
    lives: int = 0
    ticks: int = 0
    """In all its lives."""
    frozen: bool = False
    deposed: int = 0
    """How often it found, in the midst of a tick, that it leads no more."""

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A fresh process: nothing but the journal is left of the one before."""
        if self.lives:
            self.end()
        self.lives += 1
        self.gate.left = self.last_moment.left = 0
        cluster, life = self.cluster, f"{self.name}-{self.lives}"
        holder = Holder(self.name, self.lives, life)
        self.lease = Lease(Database(self.where), self.lease_s, holder, self.now, cluster.clock.steady)
        self.journal = SqlJournal(self.where)
        sites = {name: Site(name, SiteKind.AWS) for name in cluster.clouds}
        clouds = {name: Gated(cloud, self.last_moment, after=False) for name, cloud in cluster.clouds.items()}
        world = World(
            # What is between the question for the lease and the effect of a call, no lease can help.
            scheduler=Gated(cluster.slurm, self.gate, before=False),
            providers={name: Gated(cloud, self.gate, before=False) for name, cloud in clouds.items()},
            journal=self.journal,
            clock=cluster.clock,
            sites=MappingProxyType(sites | {HOME: Site(HOME, SiteKind.ONPREM)}),
            pools=MappingProxyType({each.name: each for each in cluster.pools}),
            beside=Beside(answer_s=60),
        )
        self.tenure: Tenure | None = None
        self.daemon = Daemon(world, cluster.policies, cluster.limits, life, may_act=True)

    def end(self) -> None:
        """Let go of the database, as the kernel does for a process that is dead."""
        self.lease.database.dispose()
        self.journal.dispose()

    def now(self) -> ColumnElement[float]:
        """The time, as the database is told to read it from its clock."""
        return literal(self.cluster.clock.now(), Float(53))

    def turn(self) -> None:
        """What it does in a second: it renews its lease or takes a free one, and if it leads it ticks."""
        if self.frozen:
            return
        try:
            if self.tenure and self.tenure.holds:
                self.tenure.renew()
            elif not self._takes():
                return
            self.ticks += 1
            tick(self.daemon)
        except Deposed:
            self.deposed += 1
        except Killed:
            self.start()

    def _takes(self) -> bool:
        last = self.lease.last()
        self.tenure = None if last and last.holds else self.lease.take()
        if self.tenure is None:
            return False
        self.journal.dispose()
        self.journal = SqlJournal(self.where, fence=self.tenure.fence)
        begin(self.daemon, self.tenure, last, Gated(self.journal, self.gate))
        check = Gated(self.tenure, self.gate, after=False).check
        self.daemon.world = replace(self.daemon.world, check_lease=check)
        return True


class Pair:
    """Two head nodes."""

    def __init__(self, where: Path | URL, lease_s: float = LEASE_S, idle: str = "60s") -> None:
        self.cluster = Cluster(where, policies=shipped(release_idle={"idle": idle}))
        self.heads = tuple(Head(name, self.cluster, where, lease_s) for name in ("head1", "head2"))

    def end(self) -> None:
        self.cluster.journal.dispose()
        for head in self.heads:
            head.end()

    @property
    def leader(self) -> Head | None:
        return next((head for head in self.heads if head.tenure and head.tenure.holds and not head.frozen), None)

    def second(self) -> None:
        """A second passes for everybody."""
        self.cluster.slurm.step()
        for head in self.heads:
            head.turn()
        named = [machine.node for machine in self.cluster.cloud.machines.values()]
        assert len(named) == len(set(named)), "two machines of one name"
        self.cluster.clock.wait(1)

    def seconds(self, count: int) -> None:
        for _ in range(count):
            self.second()

    def freeze(self, head: Head, for_s: int) -> None:
        """The head stands still, and the world goes on."""
        head.frozen = True
        self.seconds(for_s)
        head.frozen = False

    def run_until(self, true: Callable[[], bool], limit: int = 1000) -> None:
        for _ in range(limit):
            if true():
                return
            self.second()
        raise AssertionError("the heads did not get there")
