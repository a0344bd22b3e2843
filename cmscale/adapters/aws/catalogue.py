"""Which instance types would do for what somebody wants, the cheapest first?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cmscale.adapters.aws import types
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.types import InstanceType

Prices = Mapping[tuple[str, str], float]
"""By type and zone; by type and "" what holds in every zone."""

MOST_PRICED = 12
"""The price list is asked type by type: so only about the smallest that would do."""


class NothingFits(Exception):
    """No type would do; the message says what is wanted too much."""

    def __init__(self, message: str, words: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.words = frozenset(words)
        """The GPUs that there are, if the one that is wanted is none of them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What one machine must have."""

    gpu_type: str = ""
    gpus: int = 0
    cpus: int = 0
    mem_mb: int = 0
    market: str = "on-demand"
    architecture: str = "x86_64"


@dataclass(frozen=True, slots=True)
class Offer:
    """A type that would do."""

    type: InstanceType
    price_hour: float | None
    """At spot in the first of its zones; None if nobody knows."""
    zones: tuple[str, ...]
    """The cheapest first."""


def suitable(known: Iterable[InstanceType], wish: Wish, where: str) -> list[InstanceType]:
    """The types that would do, the smallest first; raises NothingFits."""
    left = [*known]
    if wish.gpu_type:
        words = {each.gpu_type for each in left if each.gpus}
        if wish.gpu_type not in words:
            raise NothingFits(f'no instance type in {where} has a GPU "{wish.gpu_type}"', words)
        left = [each for each in left if each.gpu_type == wish.gpu_type]
    elif not wish.gpus:
        left = [each for each in left if not each.accelerated]
    asked: Sequence[tuple[str, int, Callable[[InstanceType], int]]] = (
        (f"GPUs of type {wish.gpu_type}" if wish.gpu_type else "GPUs", wish.gpus, lambda each: each.gpus),
        ("CPUs", wish.cpus, lambda each: each.cpus),
        ("MiB of memory", wish.mem_mb, lambda each: each.mem_mb),
    )
    so_far = ""
    for what, least, has in asked:
        most = max(map(has, left), default=0)
        if most < least:
            raise NothingFits(f"no instance type in {where} has {least} {what}{so_far}; the most is {most} {what}")
        left = [each for each in left if has(each) >= least]
        so_far += f" and {least} {what}" if least else ""
    sold = [each for each in left if wish.market in each.markets]
    if not sold:
        ways = ", ".join(sorted({market for each in left for market in each.markets})) or "nothing"
        raise NothingFits(f"what would do in {where} is not sold {wish.market}, only as: {ways}")
    return sorted(sold, key=lambda each: (each.gpus, each.cpus, each.mem_mb, each.name))


def offers(ec2: Connection, found: Sequence[InstanceType], price_of: Callable[[Sequence[str]], Prices]) -> list[Offer]:
    """The smallest of these types with their prices and zones, the cheapest first; what no zone has is left out."""
    zones = types.zones_of(ec2, [each.name for each in found[:MOST_PRICED]])
    there = [each for each in found[:MOST_PRICED] if each.name in zones]
    prices = price_of([each.name for each in there])
    made = [_offer(each, zones[each.name], prices) for each in there]
    return sorted(made, key=lambda each: (each.price_hour is None, each.price_hour or 0.0))


def _offer(of: InstanceType, zones: Sequence[str], prices: Prices) -> Offer:
    asked = {zone: prices.get((of.name, zone), prices.get((of.name, ""))) for zone in zones}
    order = sorted(asked, key=lambda zone: (asked[zone] is None, asked[zone] or 0.0, zone))
    return Offer(of, asked[order[0]], tuple(order))
