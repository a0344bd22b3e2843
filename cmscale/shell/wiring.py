"""How do a configuration's words become the objects of a running process? Everything is built once, here."""

from __future__ import annotations

import gc
import os
import secrets
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType, MappingProxyType

from sqlalchemy import Connection

from cmscale.adapters.aws import AwsMarket, AwsPool, AwsSite, Buckets, quota_family
from cmscale.adapters.aws.connection import Connection as AwsConnection
from cmscale.adapters.aws.policy import Realm
from cmscale.adapters.aws.setup import Setup
from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.adapters.slurm.conf import Declared
from cmscale.adapters.slurm.pyslurm.scheduler import SlurmByPyslurm
from cmscale.core.rates import account
from cmscale.journal.database import Database
from cmscale.journal.lease import Lease, Term
from cmscale.journal.lease import last_term as of_database
from cmscale.journal.sql import SqlJournal
from cmscale.model import Pool, PoolName, Site, SiteName
from cmscale.ports import Clock, Journal, Misconfigured, Provider, Unavailable
from cmscale.shell import policies, presence
from cmscale.shell.beside import Beside
from cmscale.shell.config import Config, ConfigError, PoolSettings
from cmscale.shell.loop import Daemon
from cmscale.shell.markets import Markets, Stall
from cmscale.shell.mistakes import at_line
from cmscale.shell.observe import World
from cmscale.shell.offering import STRATEGIES
from cmscale.shell.schema import Mode, SlurmBackend
from cmscale.shell.shipped import share_dir

GRACE_S = 5.0
"""How long calls in flight may take to end after SIGTERM. What does not end is in the journal, and taken up again."""


def search_for_cycles_seldom() -> None:
    """A look at a large queue makes many values that live on and hardly a cycle: at Python's own pace the search for
    cycles would cost a fifth of the time."""
    gc.set_threshold(100_000, 20, 100)


@dataclass(slots=True)
class SystemClock:
    """The machine's clock; waiting is cut short when a signal asks something of us."""

    ending: bool = False
    """Are we asked to end?"""
    _to_reload: bool = False
    # A pipe, not an Event: whoever waits for an Event may be holding its lock when the signal comes.
    _woken: tuple[int, int] = field(default_factory=os.pipe)

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        return time.monotonic()

    def utc_offset_s(self) -> float:
        return time.localtime().tm_gmtoff

    def wait(self, seconds: float) -> bool:
        if seconds and not self.ending and not self._to_reload and select.select(self._woken[:1], (), (), seconds)[0]:
            os.read(self._woken[0], 1024)
        return self.ending

    def heed_signals(self) -> None:
        """SIGTERM and SIGINT ask us to end after the calls in flight, or after the grace at the latest; SIGHUP to read
        the configuration anew."""
        signal.signal(signal.SIGTERM, self._asked_to_end)
        signal.signal(signal.SIGINT, self._asked_to_end)
        signal.signal(signal.SIGHUP, self._asked_to_reload)

    def reload_asked(self) -> bool:
        """True once for each time that we were asked to read the configuration anew."""
        asked, self._to_reload = self._to_reload, False
        return asked

    def _asked_to_end(self, _number: int, _frame: FrameType | None) -> None:
        if not self.ending:
            self.ending = True
            os.write(self._woken[1], b"e")
            leave = threading.Timer(GRACE_S, os._exit, (0,))
            leave.daemon = True
            leave.start()

    def _asked_to_reload(self, _number: int, _frame: FrameType | None) -> None:
        if not self._to_reload:
            self._to_reload = True
            os.write(self._woken[1], b"r")


def scheduler(config: Config) -> SlurmCommands:
    slurm = config.slurm
    if slurm.backend is SlurmBackend.COMMANDS:
        return SlurmCommands(slurm.conf, slurm.bin_dir, slurm.time_limit_s)
    return SlurmByPyslurm(
        slurm.conf,
        slurm.bin_dir,
        slurm.time_limit_s,
        python=slurm.pyslurm_python,
        insist=slurm.backend is SlurmBackend.PYSLURM,
    )


def providers(config: Config) -> dict[SiteName, Provider]:
    """The provider of each site; raises Misconfigured if one can't even be built (an SDK, a profile is missing)."""
    payers = {account(each.site): Buckets(RunInstances=each.site.calls) for each in config.sites.values()}
    return {name: provider(config, name, payers[account(each.site)]) for name, each in config.sites.items()}


def provider(config: Config, name: SiteName, buckets: Buckets | None = None) -> AwsSite:
    """The provider of one site; raises as `providers` does. Sites of one account and region share its buckets."""
    settings = config.sites[name]
    return AwsSite(
        config.cluster,
        name,
        settings.site.region,
        aws_pools(config, name),
        endpoint_url=settings.endpoint_url,
        profile=settings.profile,
        notices_queue=settings.notices_queue,
        buckets=buckets,
    )


def market(config: Config, name: SiteName) -> AwsMarket:
    """The prices and quotas of one site; raises as `providers` does."""
    settings = config.sites[name]
    return AwsMarket(
        name,
        settings.site.region,
        aws_pools(config, name),
        endpoint_url=settings.endpoint_url,
        profile=settings.profile,
        currency=config.rules.currency,
    )


def markets(config: Config, *, keeps: bool = True) -> Markets:
    """What the clouds said of prices and quotas, and who may be asked for more. Asks nobody yet."""
    return Markets(config, [_stall(config, name) for name in config.sites], keeps=keeps)


def _stall(config: Config, site: SiteName) -> Stall:
    settings, goods = config.sites[site], aws_pools(config, site)
    return Stall(
        site,
        goods={name: pool.goods for name, pool in goods.items()},
        spot=frozenset(name for name, pool in goods.items() if pool.spot),
        unpriced=frozenset(name for name in goods if not config.pools[name].priced),
        prices=settings.prices,
        quotas=settings.quotas,
        market=partial(market, config, site),
    )


def aws_setup(config: Config, name: SiteName) -> Setup:
    """What sets the account of one site up; raises as `providers` does."""
    settings = config.sites[name]
    ec2 = AwsConnection(name, settings.site.region, settings.endpoint_url, settings.profile, Buckets())
    return Setup(ec2, config.cluster, settings.notices_queue)


def aws_realm(config: Config, name: SiteName) -> Realm:
    """Where and with what one site's machines are launched."""
    settings = config.sites[name]
    pools = tuple(aws_pools(config, name).values())
    return Realm(config.cluster, settings.site.region, pools, settings.notices_queue)


def aws_pools(config: Config, name: SiteName) -> dict[PoolName, AwsPool]:
    """What is launched at one site."""
    return {pool: _aws_pool(config, each) for pool, each in config.pools.items() if each.pool.site == name}


def _aws_pool(config: Config, settings: PoolSettings) -> AwsPool:
    aws, pool = settings.aws, settings.pool
    return AwsPool(
        instance_types=aws.types,
        image=aws.image,
        subnets=aws.nets,
        security_groups=aws.security_groups,
        key_name=aws.key_name,
        instance_profile=aws.instance_profile,
        user_data=user_data(settings),
        conf_server=config.slurm.conf_server,
        market=pool.market,
        promised=pool.shape,
        allocation_strategy=aws.allocation_strategy or STRATEGIES[pool.market][0],
        placement_group=aws.placement_group,
        capacity_reservation=aws.capacity_reservation,
        capacity_block=aws.capacity_block,
        efa=aws.efa,
        public_address=aws.public_address,
        volume_gb=aws.volume_gb,
        volume_type=aws.volume_type,
    )


def user_data(pool: PoolSettings) -> Path | None:
    """What its machines run at their first boot: the site's own script; or ours, if they are to be nodes of Slurm's."""
    ours = share_dir("etc") / "aws" / "node.sh" if pool.aws.bootstrap and pool.pool.partitions else None
    return pool.aws.user_data or ours


def declared(config: Config) -> list[Declared]:
    """The pools as Slurm's configuration must name them; of those in no partition it knows nothing."""
    return [Declared(each.pool, each.weight, each.slurm) for each in config.pools.values() if each.pool.partitions]


def pools(config: Config) -> dict[PoolName, Pool]:
    """The pools, each with the family whose quota it shares."""
    return {
        name: replace(each.pool, family=each.pool.family or quota_family(each.aws.types[0], each.pool.market))
        for name, each in config.pools.items()
    }


def with_market(world: World, config: Config, known: Markets) -> World:
    """The world, with the prices and quotas that are known now."""
    priced, sites = known.pools(pools(config)), known.sites(sites_of(config), world.clock.now())
    if (priced, sites) == (dict(world.pools), dict(world.sites)):
        return world
    return replace(world, pools=MappingProxyType(priced), sites=MappingProxyType(sites))


def sites_of(config: Config) -> dict[SiteName, Site]:
    return {name: each.site for name, each in config.sites.items()}


def world(config: Config, journal: Journal, clock: Clock) -> World:
    bare = World(
        scheduler=scheduler(config),
        providers=MappingProxyType(providers(config)),
        journal=journal,
        clock=clock,
        sites=MappingProxyType(sites_of(config)),
        pools=MappingProxyType(pools(config)),
        queues=config.queues,
        scripts=MappingProxyType({name: each.scripts for name, each in config.pools.items()}),
        cluster=config.cluster,
        paused=paused(config),
        rules=config.rules,
        beside=Beside(config.answer_s),
    )
    return with_market(bare, config, markets(config))


def paused(config: Config) -> str:
    """Why the configuration pauses us; empty if it does not."""
    return f'cluster.mode is "paused" in {config.path}' if config.mode is Mode.PAUSED else ""


def loaded_policies(config: Config, names: tuple[str, ...] | None = None) -> tuple[policies.Policy, ...]:
    """The policies that decide; or those of these names, whatever is wrong with others and with their tables."""
    tables = config.policy_tables
    if names is not None:
        tables = {name: table for name, table in tables.items() if name in names}
    try:
        return policies.load(config.policies if names is None else names, config.policy_dir, tables)
    except policies.PolicyError as error:
        raise ConfigError(
            problem if _names_a_file(problem) else at_line(config.path, problem) for problem in error.problems
        ) from None


def _names_a_file(problem: str) -> bool:
    return problem.startswith("/")


def daemon(config: Config, journal: Journal, clock: Clock, *, may_act: bool) -> Daemon:
    """A process of ours, ready to tick. Its name makes the ids of its operations unlike those of any other process."""
    name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
    decide_with = loaded_policies(config)  # first: what is wrong with them is found at once
    return Daemon(
        world=world(config, journal, clock),
        policies=decide_with,
        limits=config.limits,
        name=name,
        tick_s=config.tick_s,
        may_act=may_act and config.mode is not Mode.OBSERVE,
    )


@contextmanager
def journal(
    config: Config, keeper: Clock | None = None, *, fence: Callable[[Connection], None] | None = None
) -> Iterator[SqlJournal]:
    """The daemon's journal, to be written; made if there is none yet. Raises Misconfigured if it can't be. The daemon
    gives its clock, and keeps it: what is broken is begun anew.
    """
    if problems := presence.state_dir_problems(config):
        raise ConfigError(problems)
    path = config.journal
    if isinstance(path, Path) and os.access(path, os.F_OK) and not os.access(path, os.W_OK):
        raise Misconfigured(f"{path}: the journal is not for this user to write; type this as the daemon's user")
    used = bool(presence.last_tick(config))
    book = SqlJournal(path, keeps=keeper is not None, used=used, now=(keeper or SystemClock()).now, fence=fence)
    try:
        yield book
    finally:
        book.dispose()


def may_stand_by(config: Config) -> bool:
    """True if daemons of several machines may share the journal, of which one leads."""
    return not isinstance(config.journal, Path)


@contextmanager
def lease(config: Config) -> Iterator[Lease | None]:
    """What decides which daemon leads, of those that share a journal; None where one machine has it for itself."""
    if not may_stand_by(config):
        yield None
        return
    database = Database(config.journal)
    try:
        yield Lease(database, config.lease_s)
    finally:
        database.dispose()


def last_term(config: Config) -> Term | None:
    """Who leads, of the daemons that share a journal, or led last; None if none ever did. Raises Unavailable."""
    if not may_stand_by(config):
        return None
    database = Database(config.journal, read_only=True)
    try:
        return of_database(database)
    finally:
        database.dispose()


def _has_journal(config: Config) -> bool:
    if not isinstance(config.journal, Path):
        return True
    try:
        config.journal.stat()
    except FileNotFoundError:
        return False
    except OSError as error:
        key = "state_dir" if config.journal.parent == config.state_dir else "journal"
        problem = f"cluster.{key}: {config.journal.parent} can't be read ({error.strerror})"
        raise Misconfigured(at_line(config.path, problem)) from None
    return True


def journal_problems(config: Config) -> list[str]:
    """Why the journal can't be used; found out without making or changing it."""
    try:
        with journal_if_any(config) as book:
            book.idle()
    except Unavailable as error:
        return [str(error)]
    return []


@contextmanager
def journal_if_any(config: Config) -> Iterator[SqlJournal]:
    """For a look from beside: the daemon's journal if there is one, an empty one in memory if not."""
    where = config.journal if _has_journal(config) else None
    if isinstance(where, Path) and not os.access(where, os.R_OK):
        raise Misconfigured(f"{where}: the journal is not for this user to read; type this as root or as its owner")
    book = SqlJournal(where, read_only=where is not None)
    try:
        yield book
    finally:
        book.dispose()
