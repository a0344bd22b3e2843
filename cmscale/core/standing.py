"""May a node serve Slurm now, for whom, and until when? What reservations and the hours of its pool say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from cmscale import hours
from cmscale.model import NodeName, Pool, Reservation


@dataclass(frozen=True, slots=True)
class Standing:
    """One node's part in the site's calendar."""

    reserved: str = ""
    """The reservation whose jobs alone run there now."""
    resting: str = ""
    """Why it may not serve Slurm now; empty if it may."""
    until: float | None = None
    """When something else takes it: jobs must have ended by then."""


ORDINARY = Standing()


def standings(
    pools: Iterable[Pool], reservations: Iterable[Reservation], now: float, utc_offset_s: float
) -> Mapping[NodeName, Standing]:
    """The standing of each node that is not ordinary."""
    found: dict[NodeName, Standing] = {}
    for pool in pools:
        if (by_hours := _by_hours(pool, now, utc_offset_s)) != ORDINARY:
            found |= dict.fromkeys(pool.nodes, by_hours)
    for reservation in sorted(reservations, key=lambda each: each.start):
        if now < reservation.end:
            for name in reservation.nodes:
                found[name] = _under(found.get(name, ORDINARY), reservation, now)
    return found


def _by_hours(pool: Pool, now: float, utc_offset_s: float) -> Standing:
    until = hours.open_until(pool.hours, now, utc_offset_s)
    if until is not None:
        return Standing(until=until) if until < inf else ORDINARY
    when = ", ".join(hours.text(window) for window in pool.hours)
    return Standing(resting=f"{pool.name} serves Slurm {when} only")


def _under(before: Standing, reservation: Reservation, now: float) -> Standing:
    if not reservation.active(now):
        return Standing(before.reserved, before.resting, _earlier(before.until, reservation.start))
    left = f"for another {(reservation.end - now) / 60:.0f} min"
    if reservation.maintenance:
        return Standing(before.reserved, f"maintenance {reservation.name} {left}", before.until)
    return Standing(reservation.name, before.resting, _earlier(before.until, reservation.end))


def _earlier(one: float | None, other: float) -> float:
    return other if one is None else min(one, other)
