"""Which storms must the daemon ride out, and what may each cost?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cmscale.adapters.aws import AwsPool
from cmscale.lab.faults import Fault
from cmscale.model import Pool, PoolName
from tests.builders import pool
from tests.storms.weather import SITE, Double, Storm

GPU = "g4dn.xlarge"


@dataclass(frozen=True)
class Offer:
    """A pool of the storm: like machines of one zone and market."""

    name: str = "t4"
    type: str = GPU
    zone: str = "us-east-1a"
    market: str = "on-demand"
    price_hour: float = 0.5


@dataclass(frozen=True)
class Forecast:
    """One storm as it is announced."""

    name: str
    story: str
    nodes: int
    calls_per_node: float
    """At the most."""
    last_job_s: float
    """At the latest."""
    brews: Callable[[Storm], None] = lambda _: None
    offers: Sequence[Offer] = (Offer(),)
    doomed: Callable[[int], bool] = lambda _: False
    run_s: float = 30.0

    def storm(self, double: Double, directory: Path) -> Storm:
        pools = [
            pool(each.name, self.nodes, site=SITE, market=each.market, price_hour=each.price_hour, boot_limit_s=60.0)
            for each in self.offers
        ]
        storm = Storm(self.name.replace(" ", "-"), double, directory / "journal.db", pools, self._offered(double), self.doomed)
        self.brews(storm)
        storm.submit(self.nodes, self.run_s)
        return storm

    def _offered(self, double: Double) -> Mapping[PoolName, AwsPool]:
        subnets, image = double.home["subnets"], double.home["image"]
        return {
            PoolName(each.name): AwsPool(each.type, image, subnets[each.zone], market=each.market)
            for each in self.offers
        }


def lag(storm: Storm) -> None:
    storm.double.control.set_times(unseen_s=30.0)


def reclaim_half(storm: Storm) -> None:
    """A minute from now half of the fleet is given two minutes."""

    def happens() -> None:
        for id_ in storm.machines.there[::2]:
            storm.double.control.interrupt(id_)

    storm.after(60.0, happens)


STORMS = (
    Forecast("a thousand at once", "1,000 nodes wanted at once", 1000, 0.1, 120),
    Forecast("describe lags", "what was made is not described for 30 s", 200, 0.4, 300, lag),
    Forecast("boots fail", "every fifth machine never boots", 200, 1.0, 1800, doomed=lambda number: number % 5 == 4),
    Forecast("spot reclaimed", "half of the fleet is taken back at once", 200, 1.0, 1800, reclaim_half, (Offer(market="spot"),), run_s=300.0),
)
