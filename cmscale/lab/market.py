"""What does the lab's EC2 have of each type, zone and market, and what does an hour of it cost?

Capacity, limits and prices are kept by keys: `TYPE`, `TYPE/PLACE`, `TYPE/MARKET` or `TYPE/PLACE/MARKET`, where a place
is a zone or the region, a market is on-demand, spot or capacity-block, and a `*` for the type is all types together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

ON_DEMAND, SPOT, BLOCK = "on-demand", "spot", "capacity-block"

SPOT_SHARE = 0.4
"""Of the price on demand, where no table says what a spot instance costs."""

CHANGE_S = 6 * 3600
"""How often a price of spot instances changes."""

SWINGS = (1.0, 1.03, 0.98, 1.06, 0.95, 1.01, 0.97)
"""How much of today's price it was, one change back after another."""

DOLLARS: Mapping[str, float] = {
    "c5.large": 0.085,
    "c5.4xlarge": 0.68,
    "c6i.8xlarge": 1.36,
    "g4dn.xlarge": 0.526,
    "g4dn.12xlarge": 3.912,
    "g5.xlarge": 1.006,
    "g5.12xlarge": 5.672,
    "g6.xlarge": 0.8048,
    "hpc7a.96xlarge": 7.2,
    "m5.large": 0.096,
    "m5.4xlarge": 0.768,
    "p4d.24xlarge": 21.9576,
    "p5.48xlarge": 55.04,
    "t3.micro": 0.0104,
}
"""An hour on demand of some types; of the others `guess` knows."""


def keys(kind: str, zone: str, region: str, market: str) -> tuple[str, ...]:
    """All keys that speak of such an instance, the narrowest first."""
    return tuple(
        f"{name}{where}{how}"
        for name in (kind, "*")
        for where in (f"/{zone}", f"/{region}", "")
        for how in (f"/{market}", "")
    )


def price(table: Mapping[str, float], kind: str, zone: str, region: str, market: str) -> float:
    """Dollars an hour; what the table says, or the lab's own price."""
    for key in keys(kind, zone, region, market):
        if key in table:
            return table[key]
    hour = DOLLARS.get(kind) or guess(kind)
    if market != SPOT:
        return hour
    # Zones differ a little, so that cheapest is never a matter of chance.
    return round(hour * (SPOT_SHARE + 0.01 * (ord(zone[-1:] or "a") - ord("a"))), 4)


def history(today: float, now: float, since: float) -> Iterator[tuple[float, float]]:
    """What spot instances of one kind have cost: (from when, how much), the latest first, back to `since`."""
    change = now // CHANGE_S
    while True:
        yield change * CHANGE_S, round(today * SWINGS[int(now // CHANGE_S - change) % len(SWINGS)], 6)
        if change * CHANGE_S <= since:
            return
        change -= 1


@cache
def guess(kind: str) -> float:
    """A price for any type, by its size: a twentieth of a dollar for each core, a dollar for each GPU."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    known: Any = INSTANCE_TYPES.get(kind, {})
    gpus = sum(each.get("Count", 0) for each in known.get("GpuInfo", {}).get("Gpus", ()))
    return float(round(0.05 * known.get("VCpuInfo", {}).get("DefaultVCpus", 1) + gpus, 4))
