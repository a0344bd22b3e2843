"""Prices and quotas are read beside the ticks, kept with their age, and never stand in anybody's way."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cmscale.model import PoolName, SiteName
from cmscale.ports import Market, Unavailable
from cmscale.shell import config as configuration
from cmscale.shell import markets as module
from cmscale.shell import wiring
from cmscale.shell.config import Config
from cmscale.shell.markets import LIST_S, QUOTA_HOLDS_S, QUOTA_S, SPOT_S, Markets, Price, Stall
from cmscale.shell.reload import Configured

NOW = 1_000_000.0
EAST, T4, SPOT, FIXED = SiteName("east"), PoolName("t4"), PoolName("spot"), PoolName("fixed")
FAMILY = "Running On-Demand G and VT instances"

FILE = """\
[cluster]
name = "c1"
state_dir = "state"

[sites.east]
kind = "aws"
region = "us-east-1"
"""

POOL = """
[pools.{name}]
site = "east"
nodes = "{name}-[1-4]"
cpus = 4
mem_mb = 15000
partitions = ["cloud"]
{more}
aws = {{ instance_type = "g4dn.xlarge", image = "ami-1", subnet = "subnet-1" }}
"""


@dataclass
class Told:
    """A market that tells what a test gives it, and remembers what it was asked."""

    dollars: dict[PoolName, float] = field(default_factory=lambda: {T4: 0.5, SPOT: 0.2})
    most: dict[str, int] = field(default_factory=lambda: {FAMILY: 64})
    asked: list[tuple[str, ...]] = field(default_factory=list)
    refusal: str = ""
    hurdle: threading.Event | None = None

    def prices(self, pools: Collection[PoolName]) -> Mapping[PoolName, float]:
        self._asked("prices", *pools)
        return {name: self.dollars[name] for name in pools if name in self.dollars}

    def cpus(self, pools: Collection[PoolName]) -> Mapping[PoolName, int]:
        self._asked("cpus", *pools)
        return dict.fromkeys(pools, 4)

    def quotas(self) -> Mapping[str, int]:
        self._asked("quotas")
        return self.most

    def _asked(self, *words: str) -> None:
        if self.hurdle:
            assert self.hurdle.wait(20)
        self.asked.append(words)
        if self.refusal == words[0]:
            raise Unavailable(f"site east does not tell its {self.refusal}: AccessDenied")


@pytest.fixture
def market() -> Told:
    return Told()


Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path, market: Told, monkeypatch: pytest.MonkeyPatch) -> Load:
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(wiring, "market", lambda *_: market)

    def load(old: str = "", new: str = "") -> Config:
        more = {"t4": "", "spot": 'market = "spot"', "fixed": "price_hour = 0.9"}
        text = FILE + "".join(POOL.format(name=name, more=words) for name, words in more.items())
        path = tmp_path / "x.toml"
        path.write_text(text.replace(old, new) if old else text)
        return configuration.load(path)

    return load


def asked(markets: Markets, now: float = NOW) -> Markets:
    markets.ask(now)
    markets.wait(20)
    return markets


def prices(markets: Markets, config: Config) -> dict[str, Price]:
    return {name: markets.price(each.pool) for name, each in config.pools.items()}


def test_a_price_in_the_configuration_always_wins_and_is_not_asked_for(load: Load, market: Told) -> None:
    config = load()
    assert prices(asked(wiring.markets(config)), config) == {
        "t4": Price(0.5, "price list", NOW),
        "spot": Price(0.2, "spot history", NOW),
        "fixed": Price(0.9, "configuration"),
    }
    assert market.asked[0] == ("prices", "spot", "t4")


def test_a_price_of_nothing_is_a_price(load: Load, market: Told) -> None:
    config = load("price_hour = 0.9", "price_hour = 0")
    assert prices(asked(wiring.markets(config)), config)["fixed"] == Price(0.0, "configuration")


def test_what_nobody_knows_costs_nothing_and_says_so(load: Load, market: Told) -> None:
    market.dollars = {}
    config = load()
    assert prices(asked(wiring.markets(config)), config)["t4"] == Price(0.0, "")


def test_pools_and_sites_get_what_is_known_at_once_when_a_daemon_starts_again(load: Load, market: Told) -> None:
    config = load()
    asked(wiring.markets(config))
    again = wiring.markets(config)
    pools, sites = again.pools(wiring.pools(config)), again.sites(wiring.sites_of(config), NOW)
    assert {name: (each.price_hour, each.quota_cpus) for name, each in pools.items()} == {
        "t4": (0.5, 4),
        "spot": (0.2, 4),
        "fixed": (0.9, 4),
    }
    assert sites[EAST].quotas == {FAMILY: 64}


def test_each_is_asked_again_when_it_is_old_and_not_before(load: Load, market: Told) -> None:
    markets = asked(wiring.markets(load()))
    market.asked.clear()
    asked(markets, NOW + min(SPOT_S, QUOTA_S) - 1)
    assert market.asked == []
    asked(markets, NOW + SPOT_S)
    assert market.asked == [("prices", "spot"), ("quotas",)]
    market.asked.clear()
    asked(markets, NOW + LIST_S)
    assert market.asked == [("prices", "spot", "t4"), ("quotas",)]


def test_a_pool_that_is_of_other_machines_by_now_is_asked_about_anew(load: Load, market: Told) -> None:
    asked(wiring.markets(load()))
    market.asked.clear()
    config = load("g4dn.xlarge", "g5.xlarge")
    markets = wiring.markets(config)
    assert prices(markets, config)["t4"] == Price(0.0, "")
    asked(markets)
    assert ("prices", "spot", "t4") in market.asked


def test_off_means_that_no_call_is_made(load: Load, market: Told) -> None:
    config = load('kind = "aws"', 'kind = "aws"\nprices = false\nquotas = false')
    markets = asked(wiring.markets(config))
    assert market.asked == []
    assert prices(markets, config)["t4"] == Price(0.0, "")


def test_a_quota_that_was_not_read_for_long_bounds_nothing(load: Load) -> None:
    config = load()
    markets = asked(wiring.markets(config))
    assert markets.sites(wiring.sites_of(config), NOW + QUOTA_HOLDS_S - 1)[EAST].quotas
    assert not markets.sites(wiring.sites_of(config), NOW + QUOTA_HOLDS_S)[EAST].quotas


def test_what_one_call_does_not_tell_keeps_no_other_from_being_made_and_is_told_once(
    load: Load, market: Told, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.0)
    market.refusal = "prices"
    config = load()
    markets = asked(asked(wiring.markets(config)))
    assert markets.troubles == ("site east does not tell its prices: AccessDenied",)
    assert [record.message for record in caplog.records] == list(markets.troubles)
    assert markets.sites(wiring.sites_of(config), NOW)[EAST].quotas == {FAMILY: 64}
    market.refusal = ""
    assert asked(markets).troubles == ()
    assert prices(markets, config)["t4"].price_hour == 0.5


def test_a_site_that_does_not_tell_is_left_alone_for_a_while(load: Load, market: Told) -> None:
    market.refusal = "prices"
    markets = asked(wiring.markets(load()))
    calls = len(market.asked)
    asked(markets, NOW + 1)
    assert len(market.asked) == calls


def test_nothing_waits_for_a_market_that_takes_long(load: Load, market: Told) -> None:
    market.hurdle = threading.Event()
    config = load()
    markets = wiring.markets(config)
    markets.ask(NOW)
    markets.ask(NOW)
    assert prices(markets, config)["t4"] == Price(0.0, "")
    market.hurdle.set()
    markets.wait(20)
    assert prices(markets, config)["t4"].price_hour == 0.5
    assert market.asked.count(("quotas",)) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"prices": 3}', '{"prices": {"t4": {"of": 1}}}'])
def test_a_file_that_makes_no_sense_is_as_good_as_none(load: Load, market: Told, tmp_path: Path, text: str) -> None:
    (tmp_path / "state" / "market-east.json").write_text(text)
    config = load()
    markets = wiring.markets(config)
    assert prices(markets, config)["t4"] == Price(0.0, "")
    asked(markets)
    assert json.loads((tmp_path / "state" / "market-east.json").read_text())["quotas"] == {FAMILY: 64}


def test_whoever_looks_from_beside_leaves_no_trace(load: Load, tmp_path: Path) -> None:
    asked(wiring.markets(load(), keeps=False))
    assert list((tmp_path / "state").iterdir()) == []


def test_a_surprise_is_told_and_ends_nothing(load: Load, market: Told) -> None:
    def broken() -> Market:
        raise KeyError("Quotas")

    stall = Stall(EAST, {T4: "x"}, frozenset(), frozenset({T4}), prices=True, quotas=True, market=broken)
    markets = asked(Markets(load(), [stall]))
    assert markets.troubles == ("asking site east for its prices raised KeyError: 'Quotas'",)


def test_a_daemon_takes_up_what_was_said_between_two_ticks_of_sites_that_answer(load: Load, market: Told) -> None:
    config = load()
    with wiring.journal_if_any(config) as journal:
        daemon = wiring.daemon(config, journal, wiring.SystemClock(), may_act=False)
        configured = Configured(config, daemon, only_observe=True)
        configured.ask_markets()
        configured.markets.wait(20)
        assert market.asked == []
        daemon.memory.looked[EAST] = 0.0
        configured.ask_markets()
        configured.markets.wait(20)
        assert daemon.world.pools[T4].price_hour == 0.0
        configured.ask_markets()
        assert daemon.world.pools[T4].price_hour == 0.5
        assert daemon.world.sites[EAST].quotas == {FAMILY: 64}
        before = daemon.world
        configured.ask_markets()
        assert daemon.world is before
        again = wiring.daemon(config, journal, wiring.SystemClock(), may_act=False)
        assert again.world.pools[T4].price_hour == 0.5
