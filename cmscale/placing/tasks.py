"""Which jobs does each placement serve, and what is therefore wished of its nodes?"""

from __future__ import annotations

from collections.abc import Iterator

from cmscale.model import GangId, Goal, Job, JobId, Node, NodeName, Snapshot, Want
from cmscale.placing.room import Placement


class Tasks:
    """The jobs of a group that asks alike, served in order."""

    __slots__ = ("at", "jobs", "left", "taken")

    def __init__(self, jobs: tuple[Job, ...]) -> None:
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


class Served:
    """The nodes that serve waiting jobs: one wish each, whoever else it serves."""

    def __init__(self, view: Snapshot) -> None:
        self.first: dict[NodeName, tuple[Node, Job, GangId | None, int, bool]] = {}
        """For each node its first job, that one's gang and number of nodes, and whether the node is to be started."""
        self.others: dict[NodeName, list[JobId]] = {}
        self.gangs: dict[NodeName, list[GangId]] = {}
        """Further gangs that are not complete without a node."""
        self.where = {
            name: f"; {name} is the cheapest that fits, ${pool.price_hour:g} an hour"
            for name, pool in view.pools.items()
        }

    def by(self, placement: Placement, tasks: Tasks) -> None:
        """Count one placement."""
        _, there, new, shares, times = placement
        jobs = tasks.take(times)
        job, nodes = jobs[0], len(shares)
        gang = GangId(f"{job.id}#{tasks.taken}") if nodes > 1 else None
        first = self.first
        for node in there:
            if node.name in first:
                others = self.others.setdefault(node.name, [])
                for each in jobs:
                    others.append(each.id)
                if gang:
                    self.gangs.setdefault(node.name, []).append(gang)
            else:
                self._begin(node, jobs, (gang, nodes * job.count, False))
        for node in new:
            self._begin(node, jobs, (gang, nodes * job.count, True))

    def _begin(self, node: Node, jobs: list[Job], how: tuple[GangId | None, int, bool]) -> None:
        self.first[node.name] = (node, jobs[0], *how)
        if len(jobs) > 1:
            self.others[node.name] = [job.id for job in jobs[1:]]

    def goals(self) -> Iterator[Goal]:
        others, where = self.others, self.where
        for name, (node, job, gang, need, started) in self.first.items():
            why = where[node.pool] if started and node.pool else " and fits here"
            also = tuple(others[name]) if name in others else ()
            gangs = tuple(self.gangs[name]) if name in self.gangs else ()
            yield Goal(name, Want.UP, f"job {job.id} waits{why}", job.id, gang, need, also, gangs)
