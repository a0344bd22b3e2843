"""What did the clouds last say of their prices and quotas, how old is that, and when are they asked again?

They are asked beside the ticks, which never wait for them, and what they said is kept in a file for each site: so a
daemon that starts knows what the last one knew, and so does who looks from beside. A price that the configuration
names is never asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from cmscale.model import Pool, PoolName, Site, SiteName
from cmscale.ports import Market, Unavailable
from cmscale.shell import presence
from cmscale.shell.config import Config

T = TypeVar("T")

LIST_S = 86400.0
"""For how long a listed price counts as new; Amazon changes them a few times a year."""

SPOT_S = 3600.0
"""The same of spot prices, which move by the hour, slowly."""

QUOTA_S = 3600.0
"""The same of quotas: an increase is noticed in an hour."""

QUOTA_HOLDS_S = 86400.0
"""A quota that was not read anew for so long keeps nothing from being tried."""

TYPE_S = 30 * 86400.0
"""The same of what a machine of a type counts, which never changes."""

AGAIN_S = 600.0
"""How long a site that did not tell all is left alone."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Price:
    """What a machine of a pool costs, and who says so."""

    price_hour: float
    source: str
    """"configuration", "price list", "spot history"; empty if nobody knows the price, which then counts as 0."""
    at: float | None = None
    """When it was read; None of what the configuration says."""

    def age_s(self, now: float) -> float | None:
        return None if self.at is None else max(now - self.at, 0.0)


@dataclass(frozen=True, slots=True)
class Said:
    """A number that a cloud told, or that it knows none."""

    of: str
    """What it was asked about: a pool may be of other machines by now."""
    number: float | None
    at: float

    def holds(self, of: str, for_s: float, now: float) -> bool:
        """True if there is no need to ask again. What is of the future was read before the clock was set back."""
        return self.of == of and 0 <= now - self.at < for_s


@dataclass(frozen=True, slots=True)
class Known:
    """All that one site has told."""

    prices: Mapping[PoolName, Said] = field(default_factory=dict)
    cpus: Mapping[PoolName, Said] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    quotas_at: float = 0.0


_KNOWN = TypeAdapter(Known)


@dataclass(frozen=True, slots=True)
class Stall:
    """What there is to be asked at one site, and how."""

    site: SiteName
    goods: Mapping[PoolName, str]
    """What each pool's machines are, in the site's words."""
    spot: frozenset[PoolName]
    unpriced: frozenset[PoolName]
    """Those whose price the configuration does not name."""
    prices: bool
    """May it be asked for prices?"""
    quotas: bool
    """May it be asked for quotas?"""
    market: Callable[[], Market]

    def source(self, pool: PoolName) -> str:
        return "spot history" if pool in self.spot else "price list"

    def due_prices(self, known: Known, now: float) -> list[PoolName]:
        return [
            name
            for name in sorted(self.unpriced)
            if self.prices and not self._holds(known.prices, name, self._life_s(name), now)
        ]

    def due_cpus(self, known: Known, now: float) -> list[PoolName]:
        return [name for name in self.goods if self.quotas and not self._holds(known.cpus, name, TYPE_S, now)]

    def quotas_due(self, known: Known, now: float) -> bool:
        return self.quotas and not 0 <= now - known.quotas_at < QUOTA_S

    def noted(
        self,
        before: Mapping[PoolName, Said],
        due: Collection[PoolName],
        told: Mapping[PoolName, float] | None,
        now: float,
    ) -> Mapping[PoolName, Said]:
        """What is known after these pools were asked about; None: there was no answer."""
        if told is None:
            return before
        kept = {name: said for name, said in before.items() if name in self.goods}
        return kept | {name: Said(self.goods[name], told.get(name), now) for name in due}

    def of(self, said: Mapping[PoolName, Said], pool: PoolName) -> Said | None:
        """What was said of the pool as it is now."""
        found = said.get(pool)
        return found if found and found.of == self.goods.get(pool) else None

    def _life_s(self, pool: PoolName) -> float:
        return SPOT_S if pool in self.spot else LIST_S

    def _holds(self, said: Mapping[PoolName, Said], pool: PoolName, for_s: float, now: float) -> bool:
        return pool in said and said[pool].holds(self.goods[pool], for_s, now)


class Markets:
    """The markets of all sites, with what is known of them."""

    def __init__(self, config: Config, stalls: Iterable[Stall], *, keeps: bool = True) -> None:
        self._config = config
        self._keeps = keeps
        self._stalls = {stall.site: stall for stall in stalls}
        self._known = {site: _read(config, site) for site in self._stalls}
        self._asking: dict[SiteName, Thread] = {}
        self._rest_until: dict[SiteName, float] = {}
        self._troubles: dict[SiteName, tuple[str, ...]] = {}

    @property
    def troubles(self) -> tuple[str, ...]:
        """What could not be learnt when it was last asked for, a sentence each."""
        return tuple(trouble for each in self._troubles.values() for trouble in each)

    def ask(self, now: float, sites: Collection[SiteName] | None = None) -> None:
        """Begin to ask these sites, or all, for what is old or missing; returns at once."""
        for site, stall in self._stalls.items():
            if sites is not None and site not in sites:
                continue
            under_way = self._asking.get(site)
            if (under_way and under_way.is_alive()) or time.monotonic() < self._rest_until.get(site, 0.0):
                continue
            known = self._known[site]
            if stall.due_prices(known, now) or stall.due_cpus(known, now) or stall.quotas_due(known, now):
                self._asking[site] = Thread(target=self._ask, args=(stall, now), name=f"market {site}", daemon=True)
                self._asking[site].start()

    def wait(self, limit_s: float) -> None:
        """Wait for the answers, but no longer than this."""
        until = time.monotonic() + limit_s
        for thread in self._asking.values():
            thread.join(max(until - time.monotonic(), 0.0))

    def price(self, pool: Pool) -> Price:
        """What a machine of the pool costs."""
        stall = self._stalls.get(pool.site)
        if stall is None or pool.name not in stall.unpriced:
            return Price(pool.price_hour, "configuration")
        said = stall.of(self._known[pool.site].prices, pool.name) if stall.prices else None
        if said is None or said.number is None:
            return Price(0.0, "")
        return Price(said.number, stall.source(pool.name), said.at)

    def pools(self, pools: Mapping[PoolName, Pool]) -> dict[PoolName, Pool]:
        """The pools, with what is known of their prices, and of what they count."""
        return {
            name: replace(pool, price_hour=self.price(pool).price_hour, quota_cpus=self._cpus(pool))
            for name, pool in pools.items()
        }

    def sites(self, sites: Mapping[SiteName, Site], now: float) -> dict[SiteName, Site]:
        """The sites, with the quotas that are known and not too old to go by."""
        return {name: replace(site, quotas=self._quotas(name, now)) for name, site in sites.items()}

    def _cpus(self, pool: Pool) -> int:
        stall = self._stalls.get(pool.site)
        said = stall.of(self._known[pool.site].cpus, pool.name) if stall else None
        return int(said.number or 0) if said else 0

    def _quotas(self, site: SiteName, now: float) -> Mapping[str, int]:
        known, stall = self._known.get(site), self._stalls.get(site)
        if known is None or stall is None or not stall.quotas:
            return {}
        return known.quotas if 0 <= now - known.quotas_at < QUOTA_HOLDS_S else {}

    # --- asking, on a thread of its own

    def _ask(self, stall: Stall, now: float) -> None:
        before = known = self._known[stall.site]
        visit = _Visit()
        try:
            known = visit.ask(stall, stall.market(), before, now)
        except Unavailable as error:
            visit.troubles.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is no reason to end anything
            visit.troubles.append(f"asking site {stall.site} for its prices raised {type(error).__name__}: {error}")
        troubles = tuple(visit.troubles)
        if troubles:
            self._rest_until[stall.site] = time.monotonic() + AGAIN_S
        for trouble in troubles:
            if trouble not in self._troubles.get(stall.site, ()):
                log.warning("%s", trouble)
        self._troubles[stall.site] = troubles
        self._known[stall.site] = known
        if self._keeps and known is not before:
            presence.leave(self._config, _file(stall.site), _KNOWN.dump_json(known).decode())


class _Visit:
    """One visit to a market: what it does not tell is noted, and the rest is asked for all the same."""

    def __init__(self) -> None:
        self.troubles: list[str] = []

    def ask(self, stall: Stall, market: Market, known: Known, now: float) -> Known:
        """What is known after what was due has been asked for."""
        if due := stall.due_prices(known, now):
            told = self._tried(partial(market.prices, due))
            known = replace(known, prices=stall.noted(known.prices, due, told, now))
        if due := stall.due_cpus(known, now):
            counts = self._tried(partial(market.cpus, due))
            known = replace(known, cpus=stall.noted(known.cpus, due, counts, now))
        if stall.quotas_due(known, now) and (quotas := self._tried(market.quotas)) is not None:
            known = replace(known, quotas=quotas, quotas_at=now)
        return known

    def _tried(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except Unavailable as error:
            self.troubles.append(str(error))
            return None


def _file(site: SiteName) -> str:
    return f"market-{site}.json"


def _read(config: Config, site: SiteName) -> Known:
    try:
        return _KNOWN.validate_python(presence.left(config, _file(site)))
    except ValidationError:
        return Known()
