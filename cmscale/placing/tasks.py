"""Which jobs does each placement serve, and what is therefore wished of its nodes?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cmscale.model import GangId, Goal, Job, JobId, NodeName, Power, Snapshot, Want
from cmscale.placing.room import Placement


class Tasks:
    """The jobs of a group that asks alike, served in order."""

    __slots__ = ("at", "jobs", "left", "taken")

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.left = jobs[0].count
        self.at = 0
        self.taken = 0

    @property
    def next(self) -> Job | None:
        """The job the next placement serves; None if all are served."""
        return self.jobs[self.at] if self.left > 0 else None

    def take(self, times: int) -> list[Job]:
        """The jobs that a placement for so many tasks serves."""
        self.taken += times
        served = [self.jobs[self.at]]
        while times >= self.left and self.at + 1 < len(self.jobs):
            times -= self.left
            self.at += 1
            self.left = self.jobs[self.at].count
            if times:
                served.append(self.jobs[self.at])
        self.left -= times
        return served


@dataclass(slots=True)
class Service:
    """What a node does for jobs: it holds some alone, and is one of the nodes of others."""

    job: JobId
    """The first..."""
    gang: GangId | None
    need: int
    """...which needs so many nodes in all."""
    also: list[JobId] = field(default_factory=list)
    gangs: list[GangId] = field(default_factory=list)
    """Those of the others."""


class Served:
    """The nodes that serve waiting jobs: one wish each, whoever else it serves."""

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        self.services: dict[NodeName, Service] = {}
        self.where = {
            name: f"; {name} is the cheapest that fits, ${pool.price_hour:g} an hour"
            for name, pool in view.pools.items()
        }

    def by(self, placement: Placement, tasks: Tasks) -> None:
        """Count one placement."""
        jobs = tasks.take(placement.times)
        job, nodes = jobs[0], placement.nodes + placement.new
        gang = GangId(f"{job.id}#{tasks.taken}") if len(nodes) > 1 else None
        ids = [each.id for each in jobs]
        for node in nodes:
            service = self.services.get(node.name)
            if service is None:
                self.services[node.name] = Service(job.id, gang, len(nodes) * job.count, ids[1:])
                continue
            service.also += ids
            if gang:
                service.gangs.append(gang)

    def goals(self) -> Iterator[Goal]:
        for name, of in self.services.items():
            node = self.view.nodes[name]
            started = node.power is Power.GONE or node.power is Power.OFF
            why = self.where[node.pool] if started and node.pool else " and fits here"
            yield Goal(
                name, Want.UP, f"job {of.job} waits{why}", of.job, of.gang, of.need, tuple(of.also), tuple(of.gangs)
            )
