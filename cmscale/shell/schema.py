"""What may the configuration file hold? Each key of each table with its type, its bounds and its default.

A field's name is its key in the file. What tables say of one another is checked in `relations`.
"""

from __future__ import annotations

import re
import stat
import zoneinfo
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationInfo,
)
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from cmscale import hours
from cmscale.model import HOME, AtLimit, NodeName, NodeOrder, Period, Reap, SiteKind, Window
from cmscale.shell.logs import LogFormat
from cmscale.shell.values import duration, hostlist, names_if_any, nearest, shown, unique

# --- what a single value may be --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """What a value is checked against beside itself."""

    folder: Path
    sites: tuple[str, ...]


def _known(info: ValidationInfo) -> Known:
    known: Known = info.context  # type: ignore[assignment]
    return known


def _path(value: Path, info: ValidationInfo) -> Path:
    return _known(info).folder / value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def _runnable(value: Path, info: ValidationInfo) -> Path:
    path = _path(value, info)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ValueError(f"{path} can't be run ({error.strerror})") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} can't be run (it is no file)")
    if not mode & 0o111:
        raise ValueError(f"{path} can't be run (it is not executable); chmod +x {path}")
    return path


def _window(value: object) -> Window:
    if not isinstance(value, str):
        raise ValueError(f'expected hours such as "mon-fri 20:00-06:00", got {shown(value)}')  # noqa: TRY004 (pydantic)
    return hours.window(value)


def _controllers(hosts: str) -> str:
    if hosts and not re.fullmatch(r"[\w.-]+(:\d+)?(,[\w.-]+(:\d+)?)*", hosts, re.ASCII):
        raise ValueError(f'expected hosts such as "head:6817" or "head1,head2", got {shown(hosts)}')
    return hosts


def _journal(value: object, info: ValidationInfo) -> Path | URL | None:
    expected = 'expected a path, or a URL such as "postgresql://cm-scale@db.example.org/cm_scale"'
    if not isinstance(value, str):
        raise ValueError(f"{expected}, got {shown(value)}")  # noqa: TRY004 (pydantic)
    if "://" not in value:
        return _path(Path(value), info) if value else None
    # What is written here may hold a password, and is never shown.
    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        raise ValueError(expected) from None
    if url.drivername not in {"postgresql", "postgresql+psycopg"}:
        raise ValueError(f'{expected}, and none with "{url.drivername}"')
    if url.password is not None or "password" in url.query:
        raise ValueError("credentials do not belong in this file; PostgreSQL's library finds them in a passfile")
    return url


# Slurm splits lists of features, partitions and nodes at other signs than these.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
POLICY_NAME = r"^[a-z_][a-z0-9_]*$"
PolicyName = Annotated[str, Field(pattern=POLICY_NAME)]
NodeNames = Annotated[tuple[NodeName, ...], BeforeValidator(hostlist)]
NamesIfAny = Annotated[tuple[NodeName, ...], BeforeValidator(names_if_any)]
Hours = tuple[Annotated[Window, PlainValidator(_window)], ...]
Duration = Annotated[float, BeforeValidator(duration)]
Some = Annotated[Duration, Field(gt=0)]
FilePath = Annotated[Path, AfterValidator(_path)]
Runnable = Annotated[Annotated[Path, AfterValidator(_runnable)] | None, BeforeValidator(_none_if_empty)]
OptionalPath = Annotated[FilePath | None, BeforeValidator(_none_if_empty)]
Journal = Annotated[Path | URL | None, PlainValidator(_journal)]
Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]
Price = Annotated[float, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Filled = Annotated[str, Field(min_length=1)]


# --- the tables of the file ------------------------------------------------------------------------------------------


class Mode(Enum):
    OBSERVE = "observe"
    ACT = "act"
    PAUSED = "paused"


class SlurmBackend(Enum):
    AUTO = "auto"
    COMMANDS = "commands"
    PYSLURM = "pyslurm"


class Market(Enum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ClusterTable(Table):
    name: Name
    mode: Mode = Mode.OBSERVE
    state_dir: FilePath = Path("/var/lib/cm-scale")
    journal: Journal = None
    lease: Some = 10.0
    policies: Annotated[tuple[PolicyName, ...], AfterValidator(unique)] = (
        "leave_reclaimed",
        "harvest",
        "quarantine",
        "drain_sites",
        "respect_budgets",
        "serve_queue",
        "keep_warm",
        "start_helpers",
        "consolidate",
        "release_idle",
    )
    policy_dir: OptionalPath = None
    admins: str = ""


class SlurmSettings(Table):
    """How to reach Slurm, and the file of its configuration that is ours."""

    backend: SlurmBackend = SlurmBackend.AUTO
    pyslurm_python: Runnable = None
    conf: OptionalPath = None
    bin_dir: OptionalPath = None
    include: FilePath = Path("/etc/slurm/cm-scale.conf")
    time_limit_s: Annotated[Some, Field(validation_alias="time_limit")] = 20.0
    conf_server: Annotated[str, AfterValidator(_controllers)] = ""


class LimitsTable(Table):
    starts_per_minute: Count = 200
    creations_per_hour: Count = 1000
    creations_per_job: Count = 3
    min_up: Duration = 60.0
    search: Some = 900.0
    search_rest: Duration = 900.0
    quarantine: Duration = 600.0
    reap: Reap = Reap.DELETE
    reap_after: Duration = 90.0
    reap_most: CountOrNone = 10
    tick: Some = 1.0
    answer: Some = 10.0


class LogTable(Table):
    format: LogFormat = LogFormat.TEXT


def _startable(kind: SiteKind) -> SiteKind:
    if kind is not SiteKind.AWS:
        raise ValueError(
            f'"{kind.value}" is not available yet, this version starts machines of "aws" only; '
            "nodes that Slurm has by itself need no entry here"
        )
    return kind


def _not_home(site: str) -> str:
    if site == HOME:
        raise ValueError(f'"{HOME}" is where the nodes are that Slurm has by itself; choose another name')
    return site


def _http(url: str) -> str:
    if url and not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise ValueError(f'expected a URL such as "https://ec2.example.org", got {shown(url)}')
    return url


def _queue(named: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{0,80}|https?://[^\s/]+/\S+", named):
        raise ValueError(f'expected "auto", the name of a queue or its URL, got {shown(named)}')
    return named


class CostTag(Enum):
    ACCOUNT = "account"
    USER = "user"
    JOB = "job"


class SiteTable(Table):
    kind: Annotated[SiteKind, AfterValidator(_startable)]
    region: Filled
    endpoint_url: Annotated[str, AfterValidator(_http)] = ""
    profile: str = ""
    account: str = ""
    prices: bool = True
    quotas: bool = True
    notices_queue: Annotated[str, AfterValidator(_queue)] = "auto"
    launch_burst: Count = 1000
    launch_refill: Rate = 2.0
    call_burst: Count = 5
    call_refill: Rate = 2.0
    expiry_margin: Duration = 900.0
    cost_tags: Annotated[tuple[CostTag, ...], AfterValidator(unique)] = ()


class AwsSettings(Table):
    """What EC2 is asked for. The ids are checked by EC2, not by their form: other endpoints form them otherwise.

    What its keys say of one another is checked in `offering`.
    """

    instance_type: Filled = ""
    instance_types: Annotated[tuple[Filled, ...], AfterValidator(unique)] = ()
    image: Filled
    subnet: Filled = ""
    subnets: Annotated[tuple[Filled, ...], AfterValidator(unique)] = ()
    allocation_strategy: str = ""
    placement_group: str = ""
    capacity_reservation: str = ""
    capacity_block: bool = False
    efa: bool | CountOrNone = False
    security_groups: Annotated[tuple[str, ...], AfterValidator(unique)] = ()
    public_address: bool = False
    volume_gb: CountOrNone = 0
    volume_type: Filled = "gp3"
    key_name: str = ""
    instance_profile: str = ""
    user_data: OptionalPath = None
    bootstrap: bool = True

    @property
    def types(self) -> tuple[str, ...]:
        """The types that will do, in either form."""
        return self.instance_types or (self.instance_type,)

    @property
    def nets(self) -> tuple[str, ...]:
        """The subnets that will do, in either form."""
        return self.subnets or (self.subnet,)


_OUR_WORDS = ("NodeName", "CPUs", "RealMemory", "Gres", "Feature", "Features", "Weight", "State")


def _further_words(words: dict[str, str]) -> dict[str, str]:
    for key, value in words.items():
        if key.lower() in {word.lower() for word in _OUR_WORDS}:
            raise ValueError(f'"{key}" is written by cm-scale itself, from the other keys of the pool')
        if not re.fullmatch(r"[A-Za-z]\w*", key) or not value or re.search(r"[\s#]", value):
            raise ValueError(f"expected words of a NodeName line, got {key} = {shown(value)}")
    return words


def _known_site(site: str, info: ValidationInfo) -> str:
    sites = _known(info).sites
    if site not in sites:
        raise ValueError(f'there is no site "{site}"; {nearest(site, sites)}')
    return site


def _at_most_names(number: int, info: ValidationInfo) -> int:
    names = len(info.data.get("nodes", ())) or number
    if number > names:
        raise ValueError(f"{number} machines are more than the {names} names in nodes")
    return number


def _at_most_max(keep: int, info: ValidationInfo) -> int:
    most = info.data.get("max", 0)
    if 0 < most < keep:
        raise ValueError(f"{keep} machines are more than max = {most}")
    return keep


def _type_of_some(gpu_type: str, info: ValidationInfo) -> str:
    if gpu_type and not info.data.get("gpus", 1):
        raise ValueError(f'"{gpu_type}" is given, but gpus is 0')
    return gpu_type


def _own_names(names: tuple[NodeName, ...], info: ValidationInfo) -> tuple[NodeName, ...]:
    for name in names:
        if name not in info.data.get("nodes", names):
            raise ValueError(f'"{name}" is not among the names in nodes; {nearest(name, info.data["nodes"])}')
    return names


def _not_spot(value: Any, info: ValidationInfo) -> Any:
    if value and info.data.get("market") is Market.SPOT:
        raise ValueError('a machine of market = "spot" can\'t be powered off and kept; use "on-demand"')
    return value


class PoolTable(Table):
    site: Annotated[str, AfterValidator(_known_site)]
    nodes: NodeNames
    cpus: Count = 0
    mem_mb: Count = 0
    gpus: CountOrNone = 0
    gpu_type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$"), AfterValidator(_type_of_some)] = ""
    partitions: Annotated[tuple[Name, ...], AfterValidator(unique)]
    features: Annotated[tuple[Name, ...], AfterValidator(unique)] = ()
    weight: Count = 100
    slurm: Annotated[dict[str, str], AfterValidator(_further_words)] = Field(default_factory=dict)
    market: Market = Market.ON_DEMAND
    family: str = ""
    price_hour: Annotated[Price | None, BeforeValidator(_none_if_empty)] = None
    stopped_price_hour: Price = 0.0
    priority: int = 0
    max: Annotated[CountOrNone, AfterValidator(_at_most_names)] = 0
    keep: Annotated[CountOrNone, AfterValidator(_at_most_names), AfterValidator(_at_most_max)] = 0
    keep_running: Annotated[NamesIfAny, AfterValidator(_own_names)] = ()
    static: Annotated[bool, AfterValidator(_not_spot)] = False
    never_terminate: Annotated[NamesIfAny, AfterValidator(_own_names), AfterValidator(_not_spot)] = ()
    order: NodeOrder = NodeOrder.NAME
    helpers: NamesIfAny = ()
    hours: Hours = ()
    billing_quantum: Duration = 0.0
    billing_minimum: Duration = 60.0
    boot: Some = 180.0
    boot_limit: Some = 900.0
    shutdown_limit: Some = 180.0
    prolog: Runnable = None
    epilog: Runnable = None
    scripts_limit: Some = 10.0
    aws: AwsSettings


class PartitionTable(Table):
    pools: Annotated[tuple[Name, ...], AfterValidator(unique)] = ()
    pin: bool = False
    queue_length: CountOrNone = 0
    age: Duration = 0.0
    jobs_per_node: CountOrNone = 0
    mix_sites: bool = False


def _known_zone(name: str) -> str:
    if name and name not in (zones := zoneinfo.available_timezones()):
        hint = nearest(name, zones) if zones else "no time zone data is installed: apt install tzdata"
        close = hint if hint.startswith(("did", "no ")) else 'expected a name such as "Europe/Paris"'
        raise ValueError(f'there is no time zone "{name}"; {close}')
    return name


class CostTable(Table):
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] = "USD"
    time_zone: Annotated[str, AfterValidator(_known_zone)] = ""


class BudgetTable(Table):
    per: Period
    limit: Annotated[float, Field(gt=0)]
    pool: str = ""
    account: str = ""
    user: str = ""
    at_limit: AtLimit = AtLimit.STOP_STARTING
    warn_at: Annotated[float, Field(gt=0, le=1)] = 0.8
    count_ahead: Annotated[Some | None, BeforeValidator(_none_if_empty)] = None


class FileTable(Table):
    cluster: ClusterTable
    slurm: SlurmSettings = SlurmSettings()
    limits: LimitsTable = LimitsTable()
    log: LogTable = LogTable()
    policy: dict[PolicyName, dict[str, Any]] = Field(default_factory=dict)
    sites: dict[Annotated[Name, AfterValidator(_not_home)], SiteTable] = Field(default_factory=dict)
    pools: dict[Name, PoolTable] = Field(default_factory=dict)
    partitions: dict[Name, PartitionTable] = Field(default_factory=dict)
    cost: CostTable = CostTable()
    budgets: dict[Name, BudgetTable] = Field(default_factory=dict)
