"""What does Amazon ask for the machines of our pools, how many may the account have, and what else would there be?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

from cmscale.adapters.aws import catalogue, prices, quotas, types
from cmscale.adapters.aws.buckets import Buckets
from cmscale.adapters.aws.catalogue import Offer, Prices, Wish
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.pool import AwsPool
from cmscale.model import PoolName, SiteName
from cmscale.ports import Unavailable

K = TypeVar("K")
T = TypeVar("T")


class AwsMarket:
    """One region's prices and quotas.

    A pool that may have machines of several types, or in several zones, costs what the dearest of them does, so that a
    budget is never exceeded; and counts against its quota what the smallest does, so that no launch that could succeed
    is left untried.
    """

    def __init__(
        self,
        site: SiteName,
        region: str,
        pools: Mapping[PoolName, AwsPool],
        *,
        endpoint_url: str = "",
        profile: str = "",
        currency: str = "USD",
    ) -> None:
        self._ec2 = Connection(site, region, endpoint_url, profile, Buckets())
        self._pools = pools
        self._currency = currency

    def prices(self, pools: Collection[PoolName]) -> Mapping[PoolName, float]:
        return self._asked("its prices", partial(self._of_pools, pools))

    def cpus(self, pools: Collection[PoolName]) -> Mapping[PoolName, int]:
        return self._asked("its instance types", partial(self._cpus, pools))

    def quotas(self) -> Mapping[str, int]:
        return self._asked("its quotas", lambda: quotas.applied(self._quotas))

    def suitable(self, wish: Wish) -> Sequence[types.InstanceType]:
        """The types that would do, the smallest first; raises NothingFits."""
        known = self._asked("its instance types", lambda: [*types.ordinary_types(self._ec2, wish.architecture)])
        return catalogue.suitable(known, wish, self._ec2.region)

    def offers(self, found: Sequence[types.InstanceType], market: str, *, priced: bool = True) -> Sequence[Offer]:
        """These with their zones and, if that may be asked, their prices; the cheapest first."""
        price_of: Callable[[Sequence[str]], Prices] = partial(self._prices, market) if priced else lambda _: {}
        return self._asked("its zones and prices", lambda: catalogue.offers(self._ec2, found, price_of))

    def zones(self, subnets: Collection[str]) -> Mapping[str, str]:
        """The zone of each of these subnets; without those that don't exist."""
        return self._asked("its subnets", lambda: types.subnet_zones(self._ec2, subnets))

    # --- asking

    def _of_pools(self, pools: Collection[PoolName]) -> Mapping[PoolName, float]:
        found: dict[PoolName, float] = {}
        for market in ("on-demand", "spot"):
            of = {name: self._pools[name] for name in pools if self._pools[name].market == market}
            asked = self._prices(market, sorted({kind for pool in of.values() for kind in pool.instance_types}))
            zones = types.subnet_zones(
                self._ec2, {net for pool in of.values() for net in pool.subnets} if asked else ()
            )
            for name, pool in of.items():
                where = ["", *_known(zones, pool.subnets)]
                offers = [(kind, zone) for kind in pool.instance_types for zone in where]
                if known := _known(asked, offers):
                    found[name] = max(known)
        return found

    def _prices(self, market: str, kinds: Sequence[str]) -> Prices:
        if market == "spot":
            # The history is in dollars.
            return prices.spot(self._ec2, kinds) if self._currency == "USD" else {}
        listed = {
            (kind, ""): prices.on_demand(self._price_list, self._ec2.region, kind, self._currency) for kind in kinds
        }
        return {offer: price for offer, price in listed.items() if price}

    def _cpus(self, pools: Collection[PoolName]) -> Mapping[PoolName, int]:
        known = types.types_named(self._ec2, {kind for name in pools for kind in self._pools[name].instance_types})
        found = {name: [each.cpus for each in _known(known, self._pools[name].instance_types)] for name in pools}
        return {name: min(cpus) for name, cpus in found.items() if cpus}

    @cached_property
    def _price_list(self) -> Any:
        return self._ec2.service("pricing", prices.PRICE_LIST_REGION)

    @cached_property
    def _quotas(self) -> Any:
        return self._ec2.service("service-quotas")

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        errors = self._ec2.errors
        try:
            return ask()
        except errors.any as error:
            raise Unavailable(f"site {self._ec2.site} does not tell {what}: {errors.said(error)}") from error


def _known(known: Mapping[K, T], keys: Iterable[K]) -> list[T]:
    """What is known of these."""
    return [known[key] for key in keys if key in known]
