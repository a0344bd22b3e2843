"""Had a job better wait for home? It had where home is free sooner than a machine has booted, or soon for the price.

How long home takes is estimated from the time limits of the jobs that run there. Waiting in proportion to what a job
would cost in the cloud, devices times time, is what the best of the waiting policies known do (Starburst's
Compute-Wait; USENIX ATC 2024).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from cmscale.model import Ask, Job, Snapshot, Wait
from cmscale.placing.later import Later
from cmscale.placing.offers import Offer, Offers
from cmscale.placing.room import Placement
from cmscale.placing.tasks import Tasks


class Home:
    """The room that home will have, as far as jobs wait for it."""

    def __init__(self, view: Snapshot, wait_per_dollar_s: float, wait_at_most_s: float) -> None:
        self.view = view
        self.wait_per_dollar_s, self.wait_at_most_s = wait_per_dollar_s, wait_at_most_s
        self.nothing_new = frozenset(view.pools)
        slowest_s = max((pool.boot_s for pool in view.pools.values()), default=0.0)
        # What is later than that is worth no wait.
        self.later = Later.of(view, max(slowest_s, wait_at_most_s if wait_per_dollar_s else 0.0))
        self.hopeful = self.later.hopeful
        self.all_offers = Offers(view) if self.hopeful else None
        self.offers: dict[int, Offer | None] = {}
        """The cheapest offer for each ask that home may serve, too; by identity, which is told faster than value."""

    def may_serve(self, ask: Ask) -> bool:
        """True if home will have room for such jobs some time, and a machine could be started for them instead."""
        if self.all_offers is None:
            return False
        if id(ask) not in self.offers:
            found = self.all_offers.to(ask) if self.later.start(ask) is not None else []
            self.offers[id(ask)] = next((offer for offer in found if not offer.obstacle), None)
        return self.offers[id(ask)] is not None

    def uses(self, placement: Placement, ask: Ask) -> None:
        """Nobody else can wait for the nodes at home that jobs are placed on now."""
        if any(node.pool is None for node in placement.nodes):
            for _ in range(placement.times):
                self.later.book(ask, self.view.now)

    def patient(self, tasks: Tasks, ask: Ask) -> Iterator[Wait]:
        """Let the next tasks of a group wait for home, each with the room it waits for, until one had better not."""
        while job := tasks.next:
            at = self.later.start(ask)
            # What seems free by now is left to Slurm: it sees something that we don't.
            if at is None or at <= self.view.now or not (why := self._why(job, ask, at - self.view.now)):
                return
            self.later.book(ask, at)
            tasks.take(1)
            yield Wait(job.id, why)

    def _why(self, job: Job, ask: Ask, wait_s: float) -> str:
        offer = self.offers[id(ask)]
        assert offer  # noqa: S101 - asked of jobs that home may serve
        expected = f"home should have room in about {ceil(wait_s / 60)} min"
        if wait_s <= offer.ready_in_s:
            return f"{expected}, sooner than a machine of {offer.pool} boots"
        dollars = offer.price_hour * (ask.limit_s or 0) / 3600
        waited_s = self.view.now - max(job.submit, job.begin or 0.0)
        if wait_s <= dollars * self.wait_per_dollar_s and waited_s + wait_s <= self.wait_at_most_s:
            return f"{expected}; {offer.pool} would cost up to ${dollars:.2f}"
        return ""
