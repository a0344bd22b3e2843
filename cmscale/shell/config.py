"""What does the configuration file say, and what is wrong with it?

One TOML file, read whole, checked whole: every problem is named at once, each on one line with its place, what was
expected and the nearest valid name. Credentials are never in it. Relative paths start at the file's own folder.
"""

from __future__ import annotations

import difflib
import itertools
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails

from cmscale.model import HOME, Limits, NodeName, Pool, PoolName, Shape, Site, SiteKind, SiteName
from cmscale.ports import Misconfigured

DEFAULT_PATH = Path("/etc/cm-scale/cmscale.toml")

Place = tuple[str, ...]
"""Where a value stands in the file: ("pools", "t4", "max")."""


class ConfigError(Misconfigured):
    """The configuration cannot be used; each problem is one line."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


# --- what a single value may be --------------------------------------------------------------------------------------

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(value: object) -> float:
    """The seconds that a text such as "10m" means; raises ValueError saying what was expected."""
    expected = 'expected a duration such as "30s", "10m" or "2h"'
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{expected}; add a unit, "{value}s" if seconds are meant')  # noqa: TRY004 (pydantic wants it)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"{expected}, got {shown(value)}")
    return float(match[1]) * _UNITS[match[2]]


def as_duration(seconds: float) -> str:
    """The shortest text that `duration` reads as so many seconds: "5m" for 300."""
    for unit, length in reversed(_UNITS.items()):
        count = round(seconds / length, 6)
        if count >= 1 and count.is_integer():
            return f"{count:.0f}{unit}"
    return f"{seconds:f}".rstrip("0").rstrip(".") + "s"


def shown(value: object) -> str:
    """A value as the file would write it, cut to a readable length."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(word: str, valid: Iterable[str]) -> str:
    """A few words that point from a wrong name to the right one."""
    names = sorted(valid)
    if close := difflib.get_close_matches(word, names, n=1):
        return f'did you mean "{close[0]}"?'
    return f"valid: {', '.join(names)}" if names else "there is none"


def hostlist(value: object) -> tuple[NodeName, ...]:
    """The names of a hostlist in order; raises ValueError unless each is valid and there once."""
    expected = f'expected node names such as "t4-[1-16]", got {shown(value)}'
    # NodeSet would read ! & ^ @ * and / as operators; Slurm's hostlists have none.
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.,\[\]-]+", value):
        raise ValueError(expected)
    if re.search(r"\][^,\[]*[^,\[](,|$)", value):
        raise ValueError(f"{expected}: Slurm knows no text after the last bracket of a name")
    try:
        names = tuple(NodeName(name) for name in _nodes(value))
        twice = next((name for name, count in Counter(_each_name(value)).items() if count > 1), None)
    except NodeSetException as error:
        raise ValueError(f"{expected}: {error}") from None
    if twice:
        raise ValueError(f'"{twice}" is named twice in {shown(value)}')
    return names


def _names_if_any(value: object) -> tuple[NodeName, ...]:
    return hostlist(value) if value else ()


def _nodes(text: str) -> Any:
    return NodeSet(text, resolver=RESOLVER_NOGROUP)


def _each_name(text: str) -> Iterator[str]:
    """The names one by one as written; a NodeSet by itself would hide what is there twice."""
    for part in re.split(r",(?![^\[]*\])", text):
        pieces = re.split(r"(\[[^\]]*\])", part)
        choices = [[f"[{one}]" for one in p[1:-1].split(",")] if p.startswith("[") else [p] for p in pieces]
        for simple in itertools.product(*choices):
            yield from _nodes("".join(simple))


def _unique(words: tuple[str, ...]) -> tuple[str, ...]:
    for word, count in Counter(words).items():
        if count > 1:
            raise ValueError(f'"{word}" is named twice')
    return words


@dataclass(frozen=True, slots=True)
class _Known:
    """What a value is checked against beside itself."""

    folder: Path
    sites: tuple[str, ...]


def _known(info: ValidationInfo) -> _Known:
    known: _Known = info.context  # type: ignore[assignment]
    return known


def _path(value: Path, info: ValidationInfo) -> Path:
    return _known(info).folder / value


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


# Slurm splits lists of features, partitions and nodes at other signs than these.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$")]
POLICY_NAME = r"^[a-z_][a-z0-9_]*$"
PolicyName = Annotated[str, Field(pattern=POLICY_NAME)]
NodeNames = Annotated[tuple[NodeName, ...], BeforeValidator(hostlist)]
Duration = Annotated[float, BeforeValidator(duration)]
Some = Annotated[Duration, Field(gt=0)]
FilePath = Annotated[Path, AfterValidator(_path)]
OptionalPath = Annotated[FilePath | None, BeforeValidator(_none_if_empty)]
Count = Annotated[int, Field(ge=1)]
Filled = Annotated[str, Field(min_length=1)]


# --- the tables of the file ------------------------------------------------------------------------------------------


class Mode(Enum):
    OBSERVE = "observe"
    ACT = "act"


class Market(Enum):
    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class ClusterTable(Table):
    name: Name
    mode: Mode = Mode.OBSERVE
    state_dir: FilePath = Path("/var/lib/cm-scale")
    policies: Annotated[tuple[PolicyName, ...], AfterValidator(_unique)] = (
        "serve_queue",
        "keep_warm",
        "release_idle",
    )
    policy_dir: OptionalPath = None


class SlurmSettings(Table):
    """How to reach Slurm, and the file of its configuration that is ours."""

    conf: OptionalPath = None
    bin_dir: OptionalPath = None
    include: FilePath = Path("/etc/slurm/cm-scale.conf")
    time_limit_s: Annotated[Some, Field(validation_alias="time_limit")] = 20.0


class LimitsTable(Table):
    starts_per_minute: Count = 200
    creations_per_hour: Count = 1000
    creations_per_job: Count = 3
    min_up: Duration = 60.0
    tick: Some = 1.0


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


class SiteTable(Table):
    kind: Annotated[SiteKind, AfterValidator(_startable)]
    region: Filled
    endpoint_url: Annotated[str, AfterValidator(_http)] = ""
    profile: str = ""


class AwsSettings(Table):
    """What EC2 is asked for. The ids are checked by EC2, not by their form: other endpoints form them otherwise."""

    instance_type: Filled
    image: Filled
    subnet: Filled
    security_groups: Annotated[tuple[str, ...], AfterValidator(_unique)] = ()
    key_name: str = ""
    instance_profile: str = ""
    user_data: OptionalPath = None


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


class PoolTable(Table):
    site: Annotated[str, AfterValidator(_known_site)]
    nodes: NodeNames
    cpus: Count
    mem_mb: Count
    gpus: int = Field(0, ge=0)
    gpu_type: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]*$"), AfterValidator(_type_of_some)] = ""
    partitions: Annotated[tuple[Name, ...], Field(min_length=1), AfterValidator(_unique)]
    features: Annotated[tuple[Name, ...], AfterValidator(_unique)] = ()
    weight: int = Field(100, ge=1)
    slurm: Annotated[dict[str, str], AfterValidator(_further_words)] = Field(default_factory=dict)
    market: Market = Market.ON_DEMAND
    price_hour: float = Field(0.0, ge=0)
    priority: int = 0
    max: Annotated[int, Field(ge=0), AfterValidator(_at_most_names)] = 0
    keep: Annotated[int, Field(ge=0), AfterValidator(_at_most_names), AfterValidator(_at_most_max)] = 0
    keep_running: Annotated[tuple[NodeName, ...], BeforeValidator(_names_if_any), AfterValidator(_own_names)] = ()
    billing_quantum: Duration = 0.0
    boot: Some = 180.0
    boot_limit: Some = 900.0
    aws: AwsSettings


class FileTable(Table):
    cluster: ClusterTable
    slurm: SlurmSettings = SlurmSettings()
    limits: LimitsTable = LimitsTable()
    policy: dict[PolicyName, dict[str, Any]] = Field(default_factory=dict)
    sites: dict[Annotated[Name, AfterValidator(_not_home)], SiteTable] = Field(default_factory=dict)
    pools: dict[Name, PoolTable] = Field(default_factory=dict)


# --- what the rest of cm-scale sees ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SiteSettings:
    site: Site
    endpoint_url: str
    profile: str


@dataclass(frozen=True, slots=True)
class PoolSettings:
    pool: Pool
    weight: int
    slurm: Mapping[str, str]
    """Further words for the NodeName line."""
    aws: AwsSettings


@dataclass(frozen=True, slots=True)
class Config:
    """The effective configuration."""

    path: Path
    cluster: str
    mode: Mode
    state_dir: Path
    policies: tuple[str, ...]
    """In order of precedence."""
    policy_dir: Path | None
    policy_tables: Mapping[str, Mapping[str, Any]]
    """As written; each policy checks its own."""
    slurm: SlurmSettings
    limits: Limits
    tick_s: float
    sites: Mapping[SiteName, SiteSettings]
    pools: Mapping[PoolName, PoolSettings]


def default_path() -> Path:
    """The file that is read when none is named: CMSCALE_CONFIG, or the one in /etc."""
    return Path(os.environ.get("CMSCALE_CONFIG") or DEFAULT_PATH)


def load(path: Path) -> Config:
    """The configuration in the file; raises ConfigError with every problem in it."""
    text = _read(path)
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax(path, str(error))]) from None
    problems = set(_shared_names(raw))
    file = None
    try:
        # Strict JSON is what TOML's values need: lists stand for tuples and texts for enums and paths, nothing else.
        file = FileTable.model_validate_json(
            json.dumps(raw, default=str),
            context=_Known(path.absolute().parent, _keys(raw, "sites")),
        )
    except ValidationError as error:
        problems |= set(map(_problem, error.errors()))
    if file is None or problems:
        lines = _lines(text)
        told = sorted((_line_of(place, lines), place, sentence) for place, sentence in _without_echoes(problems))
        raise ConfigError(f"{path}:{line}: {'.'.join(place)}: {sentence}" for line, place, sentence in told)
    return _config(path, file)


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


def _config(path: Path, file: FileTable) -> Config:
    cluster, limits = file.cluster, file.limits
    return Config(
        path=path,
        cluster=cluster.name,
        mode=cluster.mode,
        state_dir=cluster.state_dir,
        policies=cluster.policies,
        policy_dir=cluster.policy_dir,
        policy_tables=MappingProxyType(file.policy),
        slurm=file.slurm,
        limits=Limits(
            starts_per_minute=limits.starts_per_minute,
            creations_per_hour=limits.creations_per_hour,
            creations_per_job=limits.creations_per_job,
            min_up_s=limits.min_up,
        ),
        tick_s=limits.tick,
        sites=MappingProxyType({SiteName(name): _site(name, table) for name, table in file.sites.items()}),
        pools=MappingProxyType({PoolName(name): _pool(name, table) for name, table in file.pools.items()}),
    )


def _site(name: str, table: SiteTable) -> SiteSettings:
    return SiteSettings(Site(SiteName(name), table.kind, table.region), table.endpoint_url, table.profile)


def _pool(name: str, table: PoolTable) -> PoolSettings:
    pool = Pool(
        name=PoolName(name),
        site=SiteName(table.site),
        shape=Shape(table.cpus, table.mem_mb, table.gpus, table.gpu_type),
        nodes=table.nodes,
        partitions=table.partitions,
        features=frozenset({*table.features, table.site}),
        market=table.market.value,
        price_hour=table.price_hour,
        priority=table.priority,
        max=table.max,
        keep=table.keep,
        keep_running=frozenset(table.keep_running),
        billing_quantum_s=table.billing_quantum,
        boot_s=table.boot,
        boot_limit_s=table.boot_limit,
    )
    return PoolSettings(pool, table.weight, MappingProxyType(table.slurm), table.aws)


# --- how a problem is told -------------------------------------------------------------------------------------------


def _shared_names(raw: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Pools that name a node which a pool before them names."""
    owner: dict[NodeName, str] = {}
    for pool in _keys(raw, "pools"):
        try:
            names = hostlist(raw["pools"][pool]["nodes"])
        except (TypeError, LookupError, ValueError):
            continue  # told by the schema
        if shared := [name for name in names if name in owner]:
            yield ("pools", pool, "nodes"), f'"{shared[0]}" is a node of pool "{owner[shared[0]]}" already'
        owner = dict.fromkeys(names, pool) | owner


def _keys(raw: Mapping[str, Any], table: str) -> tuple[str, ...]:
    found = raw.get(table)
    return tuple(found) if isinstance(found, dict) else ()


def _problem(error: ErrorDetails) -> tuple[Place, str]:
    # A key that is wrong itself, and an item of a list, are told at the table or the list that holds them.
    place = tuple(part for part in error["loc"] if isinstance(part, str) and part != "[key]")
    return place, _sentence(error, place)


def _without_echoes(problems: set[tuple[Place, str]]) -> Iterator[tuple[Place, str]]:
    """The problems, without those of keys that are missing only because they are misspelt."""
    meant = {
        (*place[:-1], match[1]) for place, sentence in problems if (match := re.fullmatch(_DID_YOU_MEAN, sentence))
    }
    return (each for each in problems if not (each[1] == _MISSING and each[0] in meant))


_MISSING = "missing; this key is required"
_DID_YOU_MEAN = r'unknown key; did you mean "(.+?)"\?'
_EXPECTED = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "string_type": "expected a text in quotes",
    "path_type": "expected a path in quotes",
    "bool_type": "expected true or false",
    "tuple_type": 'expected a list such as ["a", "b"]',
    "too_short": "expected a list with at least one entry",
    "string_too_short": "expected a text that is not empty",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected {ge} or more",
    "string_pattern_mismatch": "expected a name of letters, digits, dots, dashes and underscores",
}


def _sentence(error: ErrorDetails, place: Place) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return _MISSING
        case "extra_forbidden":
            return _unknown(place)
        case "value_error":
            return str(context["error"])
        case "enum":
            valid = re.findall(r"'([^']*)'", context["expected"])
            return f"unknown {place[-1]} {shown(error['input'])}; {nearest(str(error['input']), valid)}"
        case kind:
            expected = _EXPECTED.get(kind, error["msg"]).format_map(context)
            return f"{expected}, got {shown(error['input'])}"


def _unknown(place: Place) -> str:
    *above, key = place
    if re.search(r"secret|password|passwd|access_key|token|credential", key, re.IGNORECASE):
        return (
            "credentials do not belong in this file; boto3 finds them in the environment, "
            "the files of ~/.aws or the role of the machine, and profile names one of the files' profiles"
        )
    table = _table_at(above)
    if close := difflib.get_close_matches(key, _names(table), n=1):
        return f'unknown key; did you mean "{close[0]}"?'
    for name, inner in _tables_in(table).items():
        if close := difflib.get_close_matches(key, _names(inner), n=1):
            return f'unknown key; did you mean "{close[0]}" in [{".".join([*above, name])}]?'
    return f"unknown key; valid: {', '.join(_names(table))}"


def _names(table: type[BaseModel]) -> list[str]:
    return [str(field.validation_alias or name) for name, field in table.model_fields.items()]


def _tables_in(table: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {name: field.annotation for name, field in table.model_fields.items()}
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


def _table_at(above: list[str]) -> type[BaseModel]:
    match above:
        case ["sites", _]:
            return SiteTable
        case ["pools", _]:
            return PoolTable
        case _:
            table: type[BaseModel] = FileTable if above[:1] != ["pools"] else PoolTable
            for name in above[2:] if table is PoolTable else above:
                table = _tables_in(table)[name]
            return table


# --- where a problem stands ------------------------------------------------------------------------------------------


def _syntax(path: Path, message: str) -> str:
    # tomllib tells the place inside its message only: "... (at line 3, column 5)".
    sentence, _, rest = message.partition(" (at ")
    line = re.match(r"line (\d+), column (\d+)", rest)
    if line:
        return f"{path}:{line[1]}: not valid TOML: {sentence}, at column {line[2]}"
    return f"{path}: not valid TOML: {sentence}, at the end of the file"


def _lines(text: str) -> dict[Place, int]:
    """The line of each table and key. tomllib keeps none, so each line is read once more, by itself."""
    lines: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("["):
            place = table = _place(line) or table
        else:
            place = table + _place(f"{line.partition('=')[0]}= 0")
        for size in range(1, len(place) + 1):
            lines.setdefault(place[:size], number)
    return lines


def _place(line: str) -> Place:
    """The names that a header or a key stands for; nothing if the line is neither."""
    try:
        value: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    place: list[str] = []
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        place.append(name)
    return tuple(place)


def at_line(path: Path, problem: str) -> str:
    """A problem found later, such as "cluster.state_dir: it can't be written", with its file and line."""
    try:
        lines = _lines(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return f"{path}: {problem}"
    return f"{path}:{_line_of(tuple(problem.partition(': ')[0].split('.')), lines)}: {problem}"


def _line_of(place: Place, lines: Mapping[Place, int]) -> int:
    """The line of the key, or of the nearest table above it."""
    return next((lines[place[:size]] for size in range(len(place), 0, -1) if place[:size] in lines), 1)
