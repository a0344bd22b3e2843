"""Which jobs does each placement serve, and what is therefore wished of its nodes?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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


class Service(NamedTuple):
    """What some nodes do for jobs: they hold one or more on one node, or all of a gang together."""

    jobs: list[JobId]
    gang: GangId | None
    need: int
    """How many nodes the first job needs in all."""


class Served:
    """The nodes that serve waiting jobs: one wish each, whoever else it serves."""

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        self.services: defaultdict[NodeName, list[Service]] = defaultdict(list)
        self.where = {
            name: f"; {name} is the cheapest that fits, ${pool.price_hour:g} an hour"
            for name, pool in view.pools.items()
        }

    def by(self, placement: Placement, tasks: Tasks) -> None:
        """Count one placement."""
        jobs = tasks.take(placement.times)
        job, nodes = jobs[0], len(placement.shares)
        gang = GangId(f"{job.id}#{tasks.taken}") if nodes > 1 else None
        service = Service([each.id for each in jobs], gang, nodes * job.count)
        for node in placement.nodes + placement.new:
            self.services[node.name].append(service)

    def goals(self) -> Iterator[Goal]:
        for name, services in self.services.items():
            node, ((job, *also), gang, need) = self.view.nodes[name], services[0]
            started = node.power is Power.GONE or node.power is Power.OFF
            why = self.where[node.pool] if started and node.pool else " and fits here"
            gangs: list[GangId] = []
            for service in services[1:]:
                also += service.jobs
                if service.gang:
                    gangs.append(service.gang)
            yield Goal(name, Want.UP, f"job {job} waits{why}", job, gang, need, tuple(also), tuple(gangs))
