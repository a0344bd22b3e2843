"""May spot machines be started for a job? What its user, its limit, the site and the share of spot machines say."""

from __future__ import annotations

from collections.abc import Iterator

from cmscale.fit import Group
from cmscale.model import Job, Power, Snapshot, Wait
from cmscale.placing.room import Placement, Room
from cmscale.placing.tasks import Tasks

WORDS = ("always", "opt-in", "never")


class Market:
    """What may be started of which market. `word`: "always", for every job that can run again; "opt-in", for those
    whose limit is at most `limit_s` or whose user asks for it; "never". `share`: the most of all machines."""

    def __init__(self, view: Snapshot, word: str, limit_s: float, share: float) -> None:
        self.word, self.limit_s, self.share = word, limit_s, share
        self.spot = frozenset(pool.name for pool in view.pools.values() if pool.market == "spot")
        machines = [node.pool for node in view.nodes.values() if node.pool and node.power is not Power.GONE]
        self.spot_machines = sum(1 for name in machines if name in self.spot)
        self.machines = len(machines)
        self.at_share = False
        """True if jobs of the last group were left without machines for the share."""

    def wish(self, job: Job) -> bool:
        """True if spot machines may be started for the job."""
        return not self.spot or not self._against(job)

    def _against(self, job: Job) -> str:
        """Why no spot machines are started for a job; empty if they may be."""
        if self.word == "never":
            return "the site starts none for waiting jobs"
        if not job.requeue:
            return "it could not run again if its machine were taken back"
        if "on-demand" in job.words:
            return "its comment asks for on-demand"
        short = job.ask.limit_s is not None and job.ask.limit_s <= self.limit_s
        if self.word == "always" or short or "spot" in job.words:
            return ""
        return f"its time limit is above {self.limit_s / 3600:g} h and its comment does not say spot"

    def place_next(self, room: Room, group: Group, count: int) -> Placement | None:
        """The next of so many jobs of the group on nodes that are there or new, within the share that spot machines
        may have."""
        self.at_share = False
        if not self.spot:
            return room.place_next(group.ask, count)
        may = self.wish(group.jobs[0])
        if may and self.share < 1:
            nodes = group.ask.nodes
            may = self.spot_machines + nodes <= self.share * (self.machines + nodes)
            self.at_share = not may
        placement = room.place_next(group.ask, count, frozenset() if may else self.spot)
        if placement is not None:
            self.machines += len(placement.new)
            self.spot_machines += sum(1 for node in placement.new if node.pool in self.spot)
        return placement

    def barred_waits(self, tasks: Tasks) -> Iterator[Wait]:
        """Why jobs that were not served get nothing of some pools."""
        for job in tasks.jobs[tasks.at :] if self.spot else ():
            why = self._against(job)
            if not why and self.at_share:
                why = f"{self.share:.0%} of all machines at most may be spot machines, and none on demand is to be had"
            if why:
                yield Wait(job.id, f"no spot machines are started for it: {why}", self.spot)
