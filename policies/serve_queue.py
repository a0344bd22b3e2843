"""Give every waiting job that more nodes would help the cheapest pool that fits.

Jobs are placed in Slurm's order of priority: first on nodes that are up or coming, then on new ones. All nodes of a
job come from one site, or none is started. What is coming already is counted first, so no tick starts the same node's
worth twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale import fit
from cmscale.model import GangId, Goal, Job, NodeName, PoolName, Power, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    patience_s: float = 120.0
    """How long Slurm has to use a node that seems free. After that its room no longer counts: Slurm sees
    something that we don't, and the waiting job must not wait for ever."""


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    yield from _bound(view, claimed)
    room = fit.Room.of(view, claimed, _tired(view, settings.patience_s))
    for group in fit.groups(view.jobs):
        tasks = _Tasks(group.jobs)
        for placement in room.place(group.ask, group.count):
            job, need = tasks.take(placement.times, len(placement.shares))
            gang = GangId(f"{job.id}#{tasks.taken}") if len(placement.shares) > 1 else None
            for node in placement.nodes:
                yield Goal(node.name, Want.UP, f"job {job.id} waits and fits here", job.id, gang, need)
            for node in placement.new:
                yield Goal(node.name, Want.UP, f"job {job.id} waits{_where(view, node.pool)}", job.id, gang, need)


def _bound(view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal]:
    """Slurm can bind a job to a node before we have parked it; the job then needs just that node."""
    for job in view.jobs:
        for name in sorted(job.nodes - claimed):
            node = view.nodes.get(name)
            if node and not job.pending and node.power in {Power.GONE, Power.OFF}:
                yield Goal(name, Want.UP, f"Slurm has bound job {job.id} to it", job.id, need=len(job.nodes))


def _tired(view: Snapshot, patience_s: float) -> frozenset[NodeName]:
    """Nodes that have been idle for so long that Slurm would have used them, were they what the jobs need."""
    return frozenset(
        node.name
        for node in view.nodes.values()
        if node.idle_since is not None and node.schedulable and view.now - node.idle_since > patience_s
    )


def _where(view: Snapshot, name: PoolName | None) -> str:
    pool = view.pools.get(name) if name else None
    return f"; {pool.name} is the cheapest that fits, ${pool.price_hour:g} an hour" if pool else ""


class _Tasks:
    """Deals placements to the jobs of a group in order."""

    def __init__(self, jobs: tuple[Job, ...]) -> None:
        self.jobs = list(jobs)
        self.left = self.jobs[0].count
        self.at = 0
        self.taken = 0

    def take(self, times: int, nodes: int) -> tuple[Job, int]:
        """The job the next placement serves, and how many nodes that job needs in all."""
        job = self.jobs[self.at]
        self.taken += times
        while times >= self.left and self.at + 1 < len(self.jobs):
            times -= self.left
            self.at += 1
            self.left = self.jobs[self.at].count
        self.left -= times
        return job, nodes * job.count
