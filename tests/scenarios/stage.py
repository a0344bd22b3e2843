"""What is on the stage while a scenario is played: the cluster, and what has happened on it so far?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from cmscale.model import Event, MachineId, MachineState, NodeName, Pool, PoolName
from cmscale.shell.loop import Look
from cmscale.shell.values import as_duration
from cmscale.sim.cloud import Cloud, Instance
from tests.shell.cluster import Cluster, Killed

TWINS_FOR_TICKS = 5
"""For how many ticks a node may have two machines before that is wrong."""


@dataclass(frozen=True, slots=True)
class Call:
    """What a cloud was asked to do."""

    at: float
    verb: str
    nodes: tuple[NodeName, ...]


@dataclass(slots=True)
class Stage:
    cluster: Cluster
    began: float
    look: Look
    calls: list[Call] = field(default_factory=list)
    spent: float = 0.0
    """Dollars, for the machines that are not off."""
    deaths: int = 0
    away: bool = False
    """The daemon does not run."""
    names: dict[MachineId, NodeName] = field(default_factory=dict)
    twins: Counter[NodeName] = field(default_factory=Counter)
    """For how many ticks nodes have had two machines."""
    heard: dict[str, int] = field(default_factory=dict)
    """How many calls of each cloud are in `calls`."""

    @classmethod
    def of(cls, cluster: Cluster) -> Stage:
        return cls(cluster, cluster.clock.now(), cluster.decide())

    @property
    def now(self) -> float:
        return self.cluster.clock.now()

    @property
    def at_s(self) -> float:
        """The time of the story."""
        return self.now - self.began

    @property
    def time(self) -> str:
        return as_duration(self.at_s) if self.at_s else "the beginning"

    @property
    def pools(self) -> dict[PoolName, Pool]:
        return {pool.name: pool for pool in self.cluster.pools}

    def cloud_of(self, pool: PoolName) -> Cloud:
        return self.cluster.clouds[self.pools[pool].site]

    def cloud_at(self, node: NodeName) -> Cloud:
        return self.cloud_of(next(pool.name for pool in self.cluster.pools if node in pool.nodes))

    @property
    def machines(self) -> list[Instance]:
        """Every machine that exists and is not on its way out."""
        there = [machine for cloud in self.cluster.clouds.values() for machine in cloud.machines.values()]
        return [machine for machine in there if machine.going is not MachineState.ENDING]

    @property
    def events(self) -> tuple[Event, ...]:
        return self.cluster.journal.events(self.began)

    def tick(self) -> list[str]:
        """One tick of the daemon, which may die in it. Gives what must never be, and is."""
        before = {machine.id for machine in self.machines if machine.going is None}
        self.cluster.slurm.step()
        try:
            if not self.away:
                self.look = self.cluster.decide()
        except Killed:
            self.deaths += 1
            self.cluster.kill_in(0)
            self.cluster.daemon = self.cluster.start()
        self._listen()
        return [*self._busy_stopped(before), *self._twins()]

    def pass_time(self, seconds: float) -> None:
        """Let time pass; machines that run cost money."""
        price = {node: pool.price_hour for pool in self.cluster.pools for node in pool.nodes}
        running = [machine for machine in self.machines if machine.going is None]
        self.spent += sum(price.get(machine.node, 0.0) for machine in running) * seconds / 3600
        self.cluster.clock.wait(seconds)

    def _listen(self) -> None:
        for name, cloud in self.cluster.clouds.items():
            self.names |= {machine.id: machine.node for machine in cloud.machines.values()}
            for call in cloud.calls[self.heard.get(name, 0) :]:
                verb, *_, last = call.split(" ")
                nodes = last.split(",")
                known = (
                    nodes if verb == "start" else [self.names.get(MachineId(node), NodeName(node)) for node in nodes]
                )
                self.calls.append(Call(self.now, verb, tuple(map(NodeName, known))))
            self.heard[name] = len(cloud.calls)

    def _busy_stopped(self, before: set[MachineId]) -> Iterator[str]:
        serving = set(self.cluster.slurm.registered.values())
        busy = {name for running in self.cluster.slurm.running.values() for name in running.shares}
        for cloud in self.cluster.clouds.values():
            for machine in cloud.machines.values():
                if machine.going and machine.id in before & serving and machine.node in busy:
                    yield f"{machine.node} is stopped although a job runs on it"

    def _twins(self) -> Iterator[str]:
        counts = Counter(machine.node for machine in self.machines)
        self.twins = Counter({node: self.twins[node] + 1 for node, count in counts.items() if count > 1})
        for node, ticks in self.twins.items():
            if ticks > TWINS_FOR_TICKS:
                yield f"{node} has had two machines for {ticks} ticks"
