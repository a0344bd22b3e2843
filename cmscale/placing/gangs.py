"""What becomes of the machines of a job of several nodes when not all have come?

They are kept for a stated time, out of Slurm's sight, and completed as soon as the rest can be had; then they are given
back as a whole. A job before it in the queue may take them at any time, so two gangs that hold half each never wait for
each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from cmscale.model import GangId, Goal, Job, JobId, Node, Power, Snapshot, Want
from cmscale.placing.room import Room


class Gangs:
    """The machines that were started for gangs and are not handed to Slurm yet."""

    def __init__(self, view: Snapshot, wait_s: float) -> None:
        self.now, self.wait_s = view.now, wait_s
        self.mine: dict[JobId, list[Node]] = defaultdict(list)
        """The machines that were started for each job and are not handed to Slurm yet."""
        self.late: list[tuple[Job, Node]] = []
        for node in view.nodes.values():
            coming = node.power is Power.STARTING or (node.power is Power.ON and node.drained_by_us)
            if node.for_job and coming and not node.sick:
                self.mine[node.for_job].append(node)

    def held(self, room: Room, jobs: Iterable[Job]) -> Iterator[Goal]:
        """What has come for these jobs, which could not be placed, is kept for a while."""
        for job in jobs if self.mine else ():
            mine = [node for node in self.mine.pop(job.id, ()) if room.is_whole(node)]
            if job.ask.nodes < 2 or not mine:
                continue
            if self.now - min(node.up_since or self.now for node in mine) >= self.wait_s:
                self.late += [(job, node) for node in mine]  # for jobs behind it, if they can use it
                continue
            why = f"job {job.id} has {len(mine)} of its {job.ask.nodes} nodes and waits for the rest"
            for node in mine:
                room.drop(node)
                yield Goal(node.name, Want.UP, why, job.id, _partial(job), job.ask.nodes, whole=False)

    def given_back(self, room: Room) -> Iterator[Goal]:
        """What no other job can use goes back as a whole."""
        for job, node in self.late:
            if room.is_whole(node):
                why = f"not all {job.ask.nodes} nodes of job {job.id} came within {self.wait_s / 60:.0f} min"
                yield Goal(node.name, Want.GONE, why, job.id, _partial(job), job.ask.nodes)


def _partial(job: Job) -> GangId:
    return GangId(f"{job.id}#partial")
