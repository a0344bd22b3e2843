"""Which storms must the daemon ride out, and what may each cost?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from botocore.exceptions import ClientError

from cmscale.adapters.aws import AwsPool
from cmscale.lab.faults import DOCUMENTED, Fault, Rate
from cmscale.model import PoolName
from tests.builders import T4, pool
from tests.storms.weather import REGION, SITE, Double, Storm

GPU, OTHER_GPU = "g4dn.xlarge", "g5.xlarge"


@dataclass(frozen=True)
class Offer:
    """A pool of the storm."""

    name: str = "t4"
    types: tuple[str, ...] = (GPU,)
    zones: str = "a"
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
    brews: Sequence[Callable[[Storm], None]] = ()
    offers: Sequence[Offer] = (Offer(),)
    doomed: Callable[[int], bool] = lambda _: False
    run_s: float = 30.0
    tick_s: float = 5.0
    deaths: Sequence[int] = ()

    def storm(self, double: Double, directory: Path) -> Storm:
        storm = self._calm(double, directory)
        for each in self.brews:
            each(storm)
        storm.submit(self.nodes, self.run_s)
        return storm

    def idle(self, double: Double, directory: Path) -> Storm:
        """All machines are up, nobody wants them, and what the daemon does takes the time that it takes."""
        storm = self._calm(double, directory, work_counts=True)
        storm.begin_with_all_machines()
        return storm

    def _calm(self, double: Double, directory: Path, *, work_counts: bool = False) -> Storm:
        pools = [
            pool(
                each.name,
                self.nodes,
                site=SITE,
                shape=replace(T4, cpus=1),
                market=each.market,
                price_hour=each.price_hour,
                boot_limit_s=60.0,
            )
            for each in self.offers
        ]
        return Storm(
            self.name.replace(" ", "-"),
            double,
            directory / "journal.db",
            pools,
            self._offered(double),
            self.doomed,
            self.tick_s,
            work_counts,
            iter(self.deaths),
        )

    def _offered(self, double: Double) -> Mapping[PoolName, AwsPool]:
        subnets, image = double.home["subnets"], double.home["image"]
        return {
            PoolName(each.name): AwsPool(
                each.types, image, tuple(subnets[f"{REGION}{zone}"] for zone in each.zones), market=each.market
            )
            for each in self.offers
        }


# --- what happens ----------------------------------------------------------------------------------------------------


def as_documented(storm: Storm) -> None:
    """EC2 throttles as its documentation says."""
    storm.double.control.set_rates(*DOCUMENTED)


def throttle(storm: Storm) -> None:
    """All calls of the account together: 5 a second, of which others take most."""
    storm.double.control.set_rates(Rate(5, 5, together=True))
    neighbour = storm.double.client()
    takes = cycle((4, 5, 4, 3, 2))

    def happens() -> None:
        for _ in range(next(takes)):
            with suppress(ClientError):
                neighbour.describe_regions()

    storm.each_step(happens)


def cut(storm: Storm) -> None:
    storm.double.control.set_fault(Fault(cut=True, after=True, every=3, times=0))


def lag(storm: Storm) -> None:
    storm.double.control.set_times(unseen_s=30.0)


def reclaim_half(storm: Storm) -> None:
    """A minute from now half of the fleet is given two minutes."""

    def happens() -> None:
        fleet = [id_ for id_ in storm.machines.there if storm.machines.seen[id_]["spot"]]
        for id_ in fleet[::2]:
            storm.double.control.interrupt(id_)

    storm.after(60.0, happens)


def run_dry(storm: Storm) -> None:
    """The first two zones have nothing left, and nobody has the first type."""
    storm.double.control.set_capacity({"*/us-east-1a": 0, "*/us-east-1b": 0, GPU: 0})


def every_fifth(number: int) -> bool:
    return number % 5 == 4


# --- which there are -------------------------------------------------------------------------------------------------

ONE_BY_ONE = tuple(
    Offer(f"{short}-{zone}", (kind,), zone, price_hour=price)
    for price, (short, kind) in enumerate((("t4", GPU), ("a10g", OTHER_GPU)), start=1)
    for zone in "abc"
)
ALL_IN_ONE = (Offer("gpu", (GPU, OTHER_GPU), "abc"),)

DEATHS = (7, 23, 11, 41, 5, 17, 31, 13, 47, 3, 19, 29, 37, 2, 43, 27, 9, 21, 15, 33)
"""After so many calls of its ports, or to EC2, each life of the daemon ends."""

STORMS = (
    Forecast(
        "a thousand at once",
        "1,000 nodes are wanted at once; EC2 throttles as its documentation says",
        1000,
        0.05,
        120,
        (as_documented,),
        tick_s=10.0,
    ),
    Forecast(
        "throttled",
        "1,000 nodes are wanted, and the account may make 5 calls a second, of which others make most",
        1000,
        0.1,
        300,
        (throttle,),
        tick_s=10.0,
    ),
    Forecast("answers cut", "the connection of every third call is cut after it took effect", 100, 0.8, 120, (cut,)),
    Forecast("describe lags", "what was made is not described for the first 30 s", 100, 0.6, 180, (lag,)),
    Forecast("boots fail", "every fifth machine never boots", 100, 1.0, 180, doomed=every_fifth),
    Forecast(
        "spot reclaimed",
        "half of a fleet of spot machines is taken back at once; there is a pool on demand beside",
        100,
        1.5,
        600,
        (reclaim_half,),
        (Offer("spot", market="spot", price_hour=0.2), Offer()),
        run_s=150.0,
        tick_s=10.0,
    ),
    Forecast(
        "run dry",
        "two of three zones have nothing left, and nobody has the first of two types; each is a pool of its own",
        100,
        0.8,
        180,
        (run_dry,),
        ONE_BY_ONE,
    ),
    Forecast(
        "run dry in one pool",
        "the same in one pool of all six offers, launched by CreateFleet",
        100,
        0.6,
        120,
        (run_dry,),
        ALL_IN_ONE,
    ),
    Forecast(
        "killed",
        "the daemon is killed 20 times; every third answer is cut, describe lags, every fifth machine never boots",
        50,
        4.0,
        600,
        (lag, cut),
        doomed=every_fifth,
        deaths=DEATHS,
    ),
    Forecast(
        "killed with fleets",
        "the same without the lag, in one pool of six offers of which five have nothing left",
        50,
        4.0,
        600,
        (cut, run_dry),
        ALL_IN_ONE,
        doomed=every_fifth,
        deaths=DEATHS,
    ),
)
