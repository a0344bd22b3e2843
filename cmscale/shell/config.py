"""What does the configuration file say, and what is wrong with it?

One TOML file, read whole, checked whole: every problem is named at once, each on one line with its place, what was
expected and the nearest valid name. Credentials are never in it. Relative paths start at the file's own folder.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import ValidationError
from sqlalchemy import URL

from cmscale.model import DOLLAR, Bucket, Budget, Limits, Pool, PoolName, Queue, Shape, Site, SiteName
from cmscale.ports import Misconfigured
from cmscale.shell import mistakes, offering
from cmscale.shell.logs import LogFormat
from cmscale.shell.periods import Periods
from cmscale.shell.relations import Relations, relations
from cmscale.shell.schema import (
    AwsSettings,
    BudgetTable,
    ClusterTable,
    FileTable,
    Known,
    Mode,
    PartitionTable,
    PoolTable,
    SiteTable,
    SlurmSettings,
)
from cmscale.shell.scripts import Scripts
from cmscale.shell.spending import Rules

DEFAULT_PATH = Path("/etc/cm-scale/cmscale.toml")

FABRIC = "efa"
"""The feature by which jobs ask for a fabric."""


class ConfigError(Misconfigured):
    """The configuration cannot be used; each problem is one line."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True, slots=True)
class SiteSettings:
    site: Site
    endpoint_url: str
    profile: str
    notices_queue: str
    prices: bool
    """May its cloud be asked what machines cost?"""
    quotas: bool
    """May it be asked how many the account may have?"""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    pool: Pool
    weight: int
    slurm: Mapping[str, str]
    """Further words for the NodeName line."""
    aws: AwsSettings
    scripts: Scripts
    priced: bool
    """The file says what its machines cost."""


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration."""

    path: Path
    cluster: str
    mode: Mode
    state_dir: Path
    journal: Path | URL
    """A SQLite file, or a PostgreSQL database."""
    lease_s: float
    """How long whoever leads on a PostgreSQL database leads without a word."""
    policies: tuple[str, ...]
    """In order of precedence."""
    policy_dir: Path | None
    policy_tables: Mapping[str, Mapping[str, Any]]
    """As written; each policy checks its own."""
    admins: str
    """The group whose members may overrule the daemon; empty: none."""
    slurm: SlurmSettings
    limits: Limits
    tick_s: float
    answer_s: float
    log_format: LogFormat
    sites: Mapping[SiteName, SiteSettings]
    pools: Mapping[PoolName, PoolSettings]
    queues: Mapping[str, Queue]
    """By partition; those of which the file says nothing have none."""
    text: str
    """The file, as it was read."""
    rules: Rules = field(default_factory=Rules)
    """What the file says of money."""


def default_path() -> Path:
    """The file that is read when none is named: CMSCALE_CONFIG, or the one in /etc."""
    return Path(os.environ.get("CMSCALE_CONFIG") or DEFAULT_PATH)


def load(path: Path, text: str | None = None) -> Config:
    """The configuration in the file, or in this text in its place; raises ConfigError with every problem in it."""
    text = _read(path) if text is None else text
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([mistakes.syntax(path, str(error))]) from None
    related = relations(raw)
    problems = {*related.contradictions(), *offering.contradictions(raw)}
    file = None
    try:
        # Strict JSON is what TOML's values need: lists stand for tuples and texts for enums and paths, nothing else.
        file = FileTable.model_validate_json(
            json.dumps(raw, default=str),
            context=Known(path.absolute().parent, _sites(raw)),
        )
    except ValidationError as error:
        problems |= set(map(mistakes.problem, error.errors()))
    if file is None or problems:
        lines = mistakes.lines(text)
        found = mistakes.without_echoes(problems)
        told = sorted((mistakes.line_of(place, lines), place, sentence) for place, sentence in found)
        raise ConfigError(f"{path}:{line}: {'.'.join(place)}: {sentence}" for line, place, sentence in told)
    return _config(path, text, file, related)


def state_dir_despite(path: Path) -> Path:
    """Where the file says that the journal is, however wrong the rest of it may be."""
    try:
        found = re.search(r"""^\s*state_dir\s*=\s*["'](.+?)["']""", path.read_text(encoding="utf-8"), re.MULTILINE)
    except (OSError, UnicodeDecodeError):
        found = None
    return path.absolute().parent / (found[1] if found else ClusterTable.model_fields["state_dir"].default)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            [f"{path}: there is no such file; copy etc/cmscale.toml there to start, or name another in CMSCALE_CONFIG"]
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: the file is not UTF-8 text, at byte {error.start}"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: the file cannot be read: {error.strerror}"]) from None


def _config(path: Path, text: str, file: FileTable, related: Relations) -> Config:
    cluster, limits = file.cluster, file.limits
    return Config(
        path=path,
        cluster=cluster.name,
        mode=cluster.mode,
        state_dir=cluster.state_dir,
        journal=cluster.journal or cluster.state_dir / "journal.db",
        lease_s=cluster.lease,
        policies=cluster.policies,
        policy_dir=cluster.policy_dir,
        policy_tables=MappingProxyType(file.policy),
        admins=cluster.admins,
        slurm=file.slurm,
        limits=Limits(
            starts_per_minute=limits.starts_per_minute,
            creations_per_hour=limits.creations_per_hour,
            creations_per_job=limits.creations_per_job,
            min_up_s=limits.min_up,
            search_s=limits.search,
            search_rest_s=limits.search_rest,
            quarantine_s=limits.quarantine,
            reap=limits.reap,
            reap_after_s=limits.reap_after,
            reap_most=limits.reap_most,
        ),
        tick_s=limits.tick,
        answer_s=limits.answer,
        log_format=file.log.format,
        sites=MappingProxyType({SiteName(name): _site(name, table) for name, table in file.sites.items()}),
        pools=MappingProxyType({PoolName(name): _pool(name, table) for name, table in file.pools.items()}),
        queues=MappingProxyType(dict(_queues(file.partitions, related))),
        rules=_rules(file),
        text=text,
    )


def _sites(raw: Mapping[str, Any]) -> tuple[str, ...]:
    found = raw.get("sites")
    return tuple(found) if isinstance(found, dict) else ()


def _site(name: str, table: SiteTable) -> SiteSettings:
    site = Site(
        name=SiteName(name),
        kind=table.kind,
        region=table.region,
        account=table.account or table.profile,
        launched=Bucket(table.launch_burst, table.launch_refill),
        calls=Bucket(table.call_burst, table.call_refill),
        expiry_margin_s=table.expiry_margin,
        cost_tags=frozenset(tag.value for tag in table.cost_tags),
    )
    return SiteSettings(site, table.endpoint_url, table.profile, table.notices_queue, table.prices, table.quotas)


def _pool(name: str, table: PoolTable) -> PoolSettings:
    pool = Pool(
        name=PoolName(name),
        site=SiteName(table.site),
        shape=Shape(table.cpus, table.mem_mb, table.gpus, table.gpu_type),
        nodes=table.nodes,
        partitions=table.partitions,
        features=frozenset({*table.features, table.site, *((FABRIC,) if table.aws.efa else ())}),
        market=table.market.value,
        family=table.family,
        price_hour=table.price_hour or 0.0,
        stopped_price_hour=table.stopped_price_hour,
        priority=table.priority,
        max=table.max,
        keep=table.keep,
        keep_running=frozenset(table.keep_running),
        static=table.static,
        never_terminate=frozenset(table.never_terminate),
        order=table.order,
        helpers=table.helpers,
        hours=table.hours,
        billing_quantum_s=table.billing_quantum,
        billing_minimum_s=table.billing_minimum,
        boot_s=table.boot,
        boot_limit_s=table.boot_limit,
        shutdown_limit_s=table.shutdown_limit,
    )
    scripts = Scripts(table.prolog, table.epilog, table.scripts_limit)
    return PoolSettings(
        pool, table.weight, MappingProxyType(table.slurm), table.aws, scripts, table.price_hour is not None
    )


def _rules(file: FileTable) -> Rules:
    zone = ZoneInfo(file.cost.time_zone) if file.cost.time_zone else None
    budgets = tuple(_budget(name, table, file.cost.currency) for name, table in file.budgets.items())
    return Rules(budgets, Periods(zone), file.cost.currency)


def _budget(name: str, table: BudgetTable, currency: str) -> Budget:
    return Budget(
        name=name,
        per=table.per,
        limit=round(table.limit * DOLLAR),
        pool=PoolName(table.pool) if table.pool else None,
        account=table.account,
        user=table.user,
        at_limit=table.at_limit,
        warn_at=table.warn_at,
        ahead_s=table.count_ahead,
        currency=currency,
    )


def _queues(tables: Mapping[str, PartitionTable], related: Relations) -> Iterator[tuple[str, Queue]]:
    """What is wanted of each partition's jobs; a partition may have no table and still be kept off another's pools."""
    for name in dict.fromkeys((*tables, *related.served)):
        allowed = related.startable(name)
        if name not in tables and allowed is None:
            continue
        table = tables.get(name, PartitionTable())
        yield (
            name,
            Queue(
                partition=name,
                pools=None if allowed is None else frozenset(map(PoolName, allowed)),
                queue_length=table.queue_length,
                age_s=table.age,
                jobs_per_node=table.jobs_per_node,
                mix_sites=table.mix_sites,
            ),
        )
