"""Which of a pool's offers are asked for machines now?

Each refusal stands against the offer that it was given for, and against no other: a type in a subnet and a market. It
rests as a pool would, and once nothing else is left all are asked. What is remembered here spares a launch the offers
that would fail; it is forgotten with the process, which then finds out anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

from cmscale.adapters.aws.pool import Offer
from cmscale.model import Closure, Outcome, Result
from cmscale.resting import RESTS, struck

PASSING = frozenset({Result.THROTTLED, Result.AUTH})
"""What says nothing of the offer: the account is slowed down, or refused."""


class Choices:
    """What stands against offers, for all threads."""

    def __init__(self) -> None:
        self._closed: dict[Offer, Closure] = {}
        self._lock = Lock()

    def open(self, offers: Sequence[Offer], now: float) -> tuple[Offer, ...]:
        """Those of the offers that do not rest, in their order; all of them if all do."""
        with self._lock:
            rested = tuple(each for each in offers if each not in self._closed or self._closed[each].until <= now)
        return rested or tuple(offers)

    def learn(self, made: Iterable[Offer], refused: Mapping[Offer, Outcome], now: float) -> None:
        """What a launch has shown. One that gave machines and had too few is refused, but for the first time."""
        good = {*made}
        with self._lock:
            for offer in good:
                self._closed.pop(offer, None)
            for offer, outcome in refused.items():
                if outcome.result in RESTS and outcome.result not in PASSING:
                    before = self._closed.get(offer)
                    self._closed[offer] = struck(before, outcome.result, outcome.detail, now)


def soonest(refusals: Iterable[Outcome]) -> Result | None:
    """Of several refusals the one that passes first: the pool can be had again when any of its offers can."""
    results = [each.result for each in refusals if each.result in RESTS]
    return min(results, key=lambda result: RESTS[result].first_s, default=None)
