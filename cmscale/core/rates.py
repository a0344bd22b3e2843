"""How many machines, and in how many calls, may an account launch in a region now?

A cloud grants each account and region a bucket of tokens that refills by the second. What was launched is in the
journal, so the buckets are worked out anew each tick: they survive a restart, and all sites of an account share them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cmscale.model import Bucket, Site, Snapshot


class Account(NamedTuple):
    """Who is billed, and where."""

    name: str
    region: str


def account(site: Site) -> Account:
    return Account(site.account, site.region or site.name)


def tokens(view: Snapshot) -> tuple[Mapping[Account, float], Mapping[Account, float]]:
    """(machines, calls) that each account may launch now, after the launches of the last hour."""
    machines: dict[Account, _Level] = {}
    calls: dict[Account, _Level] = {}
    for site in view.sites.values():
        machines.setdefault(account(site), _Level(site.launched, site.launched.burst))
        calls.setdefault(account(site), _Level(site.calls, site.calls.burst))
    for launch in view.launches:
        pool = view.pools.get(launch.pool)
        if pool and pool.site in view.sites:
            payer = account(view.sites[pool.site])
            machines[payer].take(launch.machines, launch.at)
            calls[payer].take(1, launch.at)
    return (
        {payer: level.at_time(view.now) for payer, level in machines.items()},
        {payer: level.at_time(view.now) for payer, level in calls.items()},
    )


@dataclass(slots=True)
class _Level:
    """A bucket's content while launches are taken from it in order."""

    bucket: Bucket
    content: float
    at: float = 0.0

    def at_time(self, now: float) -> float:
        return min(self.bucket.burst, self.content + max(now - self.at, 0.0) * self.bucket.refill)

    def take(self, amount: float, now: float) -> None:
        self.content = self.at_time(now) - amount
        self.at = now
