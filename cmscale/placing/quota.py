"""How many more machines does the account's quota leave to each pool?

A cloud counts the CPUs of an account's machines in a region, by families of types. What machines of others take of a
quota is not seen here: so what is left is at most this, and the cloud refuses the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cmscale.model import Pool, PoolName, Power, Snapshot

COUNTED = frozenset({Power.STARTING, Power.ON})


class Family(NamedTuple):
    """Whose machines a quota counts."""

    account: str
    region: str
    name: str


@dataclass(slots=True)
class Quota:
    """What the account may have of one family, and what is left of it."""

    family: Family
    most: int
    left: int

    def room(self, pool: Pool) -> int:
        """How many more machines of the pool it leaves."""
        return max(self.left, 0) // pool.quota_cpus

    @property
    def text(self) -> str:
        return f'the quota "{self.family.name}" allows {self.most} CPUs, of which {max(self.left, 0)} are left'


def quotas(view: Snapshot) -> Mapping[PoolName, Quota]:
    """The quota of each pool, as far as it is known; pools that share one have the same."""
    known: dict[Family, Quota] = {}
    found: dict[PoolName, Quota] = {}
    for pool in view.pools.values():
        site = view.sites[pool.site]
        if pool.quota_cpus and pool.family in site.quotas:
            family = Family(site.account, site.region or site.name, pool.family)
            most = site.quotas[pool.family]
            found[pool.name] = known.setdefault(family, Quota(family, most, most))
    if found:
        there = Counter(node.pool for node in view.nodes.values() if node.pool in found and node.power in COUNTED)
        for name, quota in found.items():
            quota.left -= there[name] * view.pools[name].quota_cpus
    return found
