"""What may a pool on AWS offer, and what excludes what? One type in one subnet, or a choice of several.

Read from the file as it is written, as `relations` is; what is malformed counts as missing here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from cmscale.shell.relations import MISSING, Place, tables
from cmscale.shell.values import nearest

STRATEGIES: Mapping[str, tuple[str, ...]] = {
    "on-demand": ("prioritized", "lowest-price"),
    "spot": (
        "price-capacity-optimized",
        "capacity-optimized",
        "capacity-optimized-prioritized",
        "diversified",
        "lowest-price",
    ),
}
"""EC2's words for how a fleet picks among its offers, by market; the first of each is ours where none is named."""

MOST_OFFERS = 300
"""A fleet takes no more launch specifications."""

_FORMS = (("instance_type", "instance_types"), ("subnet", "subnets"))
_ONE_PLACE = ("placement_group", "capacity_reservation")


def contradictions(raw: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Each problem with its place."""
    for name, pool in tables(raw, "pools"):
        aws = pool.get("aws")
        if isinstance(aws, dict):
            found = chain(_forms(aws), _one_place(aws), _reserved(aws, pool), _strategy(aws, pool), _address(aws))
            yield from ((("pools", name, "aws", key), sentence) for key, sentence in found)


def _forms(aws: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for one, several in _FORMS:
        if one in aws and aws.get(several):
            yield several, f"{one} is given too; name all of them here, or one there"
        elif not (one in aws or aws.get(several)):
            yield one, MISSING
    offers = _count(aws, "instance_types") * _count(aws, "subnets")
    if offers > MOST_OFFERS:
        yield "instance_types", f"{offers} pairs of a type and a subnet are more than the {MOST_OFFERS} of a fleet"


def _one_place(aws: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What binds a pool to one type in one zone leaves nothing to choose."""
    choice = next((several for _, several in _FORMS if _count(aws, several) > 1), None)
    for key in _ONE_PLACE:
        if aws.get(key) and choice:
            yield key, f"it binds a pool to one type in one zone, and {choice} names several"


def _reserved(aws: Mapping[str, Any], pool: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if aws.get("capacity_block") is True and not aws.get("capacity_reservation"):
        yield "capacity_block", "a capacity block is a capacity reservation; name it in capacity_reservation"
    if aws.get("capacity_reservation") and pool.get("market") == "spot":
        yield "capacity_reservation", 'a pool of market = "spot" takes nothing from a reservation; use "on-demand"'


def _strategy(aws: Mapping[str, Any], pool: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    wanted, market = aws.get("allocation_strategy"), pool.get("market", "on-demand")
    if isinstance(wanted, str) and wanted and market in STRATEGIES and wanted not in STRATEGIES[market]:
        yield "allocation_strategy", f'unknown for market = "{market}"; {nearest(wanted, STRATEGIES[market])}'


def _address(aws: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    efa = aws.get("efa", 0)
    if aws.get("public_address") is True and (efa is True or (isinstance(efa, int) and efa > 1)):
        yield "public_address", "EC2 gives none to a machine of several interfaces; use efa = 1, or no public address"


def _count(aws: Mapping[str, Any], key: str) -> int:
    words = aws.get(key)
    return len(words) if isinstance(words, list) else 1
