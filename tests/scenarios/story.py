"""What does the file of a scenario say?

title, class     one sentence each: what is told, and the class of incidents that it stands for
incidents        the issues of other tools that tell it, as owner/name#number or a short name of the repository
ends             when the story ends; by then every machine is gone but those of the nodes in `kept`
kept             node names, folded
tick             the time between two ticks, 5s if nothing is said
never            claims that must not hold at any tick

[home]           nodes, cpus, mem_mb, gpus, gpu_type: nodes that the site runs without us
[pools.NAME] [sites.NAME] [limits] [policy.NAME] [partitions.NAME] [cluster]
                 as in cmscale.toml; what a pool or site leaves out is filled (see `POOL`)
[world]          boot, ending, lag: how long machines take to boot and to end, and how late listings are
[[jobs]]         id, at, run and what it asks (see `JOB`)
[[happens]]      at, what: sentences of deeds.py
[[timeline]]     expect: claims of claims.py, at a time (at), or by a time at the latest (by), or at each tick of a
                 stretch (from, to)
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cmscale.adapters.slurm import parse
from cmscale.model import ANYWHERE, HOME, Ask, NodeName, Shape
from cmscale.shell import config
from cmscale.shell.config import Config
from cmscale.shell.values import duration, hostlist, nearest
from tests.scenarios.claims import CLAIMS, Verdict
from tests.scenarios.deeds import DEEDS
from tests.scenarios.sentences import Sentence, WrongWord

KEYS = (
    *("title", "class", "incidents", "ends", "kept", "tick", "never", "home", "world", "jobs", "happens", "timeline"),
    *("pools", "sites", "limits", "policy", "partitions", "cluster"),
)

POOL: Mapping[str, Any] = {
    "site": "east",
    "cpus": 4,
    "mem_mb": 15000,
    "gpus": 1,
    "gpu_type": "t4",
    "partitions": ["batch"],
    "price_hour": 0.5,
    "boot": "1m",
    "aws": {"instance_type": "g4dn.xlarge", "image": "ami-1", "subnet": "subnet-1"},
}
"""A pool of which nothing is said; its nodes are NAME-[1-4]."""

HOME_NODES: Mapping[str, Any] = {"nodes": "op[1-2]", "cpus": 4, "mem_mb": 15000, "gpus": 1, "gpu_type": "t4"}
WORLD: Mapping[str, Any] = {"boot": "1m", "ending": "10s", "lag": "0s"}

JOB: Mapping[str, Any] = {
    "id": None,
    "at": "0s",
    "run": "5m",
    "count": 1,
    "user": "ada",
    "account": "",
    "comment": "",
    "priority": None,
    "held": False,
    "begin": None,
    "requeue": True,
    "partition": "batch",
    "nodes": 1,
    "tasks": None,
    "cpus": 1,
    "mem_mb": 0,
    "gpus": 1,
    "gpu_type": "",
    "exclusive": False,
    "constraint": "",
    "limit": None,
    "deadline": None,
    "reservation": "",
}
"""A job of which nothing is said but its id; `cpus` are those of a task, `mem_mb` and `gpus` those of a node, and there
is a task for each node."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job, and when it is submitted."""

    number: int
    at_s: float
    ask: Ask
    run_s: float
    count: int
    more: Mapping[str, Any]
    """What else `Slurm.submit` takes."""
    begin_s: float | None = None
    deadline_s: float | None = None

    def ask_at(self, began: float) -> Ask:
        """What it asks, if the story began then."""
        return self.ask if self.deadline_s is None else replace(self.ask, deadline=began + self.deadline_s)


@dataclass(frozen=True, slots=True)
class Deed:
    at_s: float
    what: Sentence[None]


@dataclass(frozen=True, slots=True)
class Expected:
    """A claim that holds at one time, at the latest at a time, or all the time of a stretch."""

    claim: Sentence[Verdict]
    from_s: float
    to_s: float
    once: bool
    """Once in the stretch is enough."""


@dataclass(frozen=True, slots=True)
class Home:
    nodes: tuple[NodeName, ...]
    shape: Shape


@dataclass(frozen=True, slots=True)
class Story:
    name: str
    title: str
    ends_s: float
    tick_s: float
    kept: frozenset[NodeName]
    config: Config
    home: Home | None
    world: Mapping[str, float]
    jobs: tuple[Submission, ...]
    deeds: tuple[Deed, ...]
    expected: tuple[Expected, ...]
    never: tuple[Sentence[Verdict], ...]


def read(path: Path, folder: Path) -> Story:
    """The story in the file; its configuration is written into the folder and read as the daemon's own would be."""
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    _only(raw, KEYS, "the file")
    pools = raw.get("pools", {"t4": {}})
    configured = folder / "cmscale.toml"
    configured.write_text(_toml(_configuration(raw, pools)), encoding="utf-8")
    story = Story(
        name=path.stem,
        title=raw["title"],
        ends_s=duration(raw["ends"]),
        tick_s=duration(raw.get("tick", "5s")),
        kept=frozenset(hostlist(raw["kept"])) if "kept" in raw else frozenset(),
        config=config.load(configured),
        home=_home(raw["home"]) if "home" in raw else None,
        world={key: duration(value) for key, value in _filled(raw.get("world", {}), WORLD, "[world]").items()},
        jobs=tuple(sorted(_jobs(raw.get("jobs", [])), key=lambda job: job.at_s)),
        deeds=tuple(sorted(_deeds(raw.get("happens", [])), key=lambda deed: deed.at_s)),
        expected=tuple(_expected(raw.get("timeline", []))),
        never=tuple(CLAIMS.read(text) for text in raw.get("never", [])),
    )
    _known_names(story)
    return story


def _known_names(story: Story) -> None:
    """Every pool, site, node and job that a sentence names is one of the story's."""
    pools = {each.pool.name: each.pool for each in story.config.pools.values()}
    known: dict[str, set[str]] = {
        "pool": set(pools),
        "site": set(story.config.sites) | {HOME},
        "node": {node for pool in pools.values() for node in pool.nodes} | set(story.home.nodes if story.home else ()),
        "job": {str(job.number) for job in story.jobs},
    }
    claims = (*story.never, *(each.claim for each in story.expected))
    said = [(sentence.text, sentence.words) for sentence in claims]
    said += [(deed.what.text, deed.what.words) for deed in story.deeds]
    for text, words in said:
        for slot, word in words.items():
            kind = slot.removesuffix("s")
            for name in word if isinstance(word, tuple) else (word,):
                plain = name.partition("_")[0] if kind == "job" else name
                if kind in known and plain not in known[kind]:
                    raise WrongWord(f'"{text}": there is no {kind} {name}; {nearest(name, known[kind])}')


def _only(table: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
    known = list(keys)
    for key in table:
        if key not in known:
            raise WrongWord(f"{where}: unknown key {key}; {nearest(key, known)}")


def _filled(table: Mapping[str, Any], defaults: Mapping[str, Any], where: str) -> dict[str, Any]:
    _only(table, defaults, where)
    return {**defaults, **table}


def _configuration(raw: Mapping[str, Any], pools: Mapping[str, Any]) -> dict[str, Any]:
    filled = {name: {"nodes": f"{name}-[1-4]", **POOL, **table} for name, table in pools.items()}
    sites = {table["site"]: {"kind": "aws", "region": table["site"]} for table in filled.values()}
    for name, table in raw.get("sites", {}).items():
        sites[name] = {**sites.get(name, {}), **table}
    given = {key: raw[key] for key in ("limits", "policy", "partitions") if key in raw}
    cluster = {"name": "story", "mode": "act", **raw.get("cluster", {})}
    return {"cluster": cluster, **given, "sites": sites, "pools": filled}


def _toml(table: Mapping[str, Any], above: str = "") -> str:
    values = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    header = [f"[{above}]"] if above else []
    inner = [_toml(value, f"{above}.{key}".lstrip(".")) for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([*header, *values, *inner])


def _home(table: Mapping[str, Any]) -> Home:
    filled = _filled(table, HOME_NODES, "[home]")
    shape = Shape(filled["cpus"], filled["mem_mb"], filled["gpus"], filled["gpu_type"] if filled["gpus"] else "")
    return Home(hostlist(filled["nodes"]), shape)


def _jobs(tables: Iterable[Mapping[str, Any]]) -> Iterator[Submission]:
    for table in tables:
        yield _submission(_filled(table, JOB, "[[jobs]]"))


def _submission(job: Mapping[str, Any]) -> Submission:
    if job["id"] is None:
        raise WrongWord("[[jobs]]: each needs an id")
    ask = Ask(
        partitions=(job["partition"],),
        nodes=job["nodes"],
        tasks=job["tasks"] or job["nodes"],
        cpus_per_task=job["cpus"],
        mem_mb_per_node=job["mem_mb"],
        gpus_per_node=job["gpus"],
        gpu_type=job["gpu_type"],
        exclusive=job["exclusive"],
        constraint=parse.constraint(job["constraint"]) if job["constraint"] else ANYWHERE,
        limit_s=None if job["limit"] is None else int(duration(job["limit"])),
        reservation=job["reservation"],
    )
    return Submission(
        number=job["id"],
        at_s=duration(job["at"]),
        ask=ask,
        run_s=duration(job["run"]),
        count=job["count"],
        more={key: job[key] for key in ("user", "account", "comment", "priority", "held", "requeue")},
        begin_s=None if job["begin"] is None else duration(job["begin"]),
        deadline_s=None if job["deadline"] is None else duration(job["deadline"]),
    )


def _deeds(entries: Iterable[Mapping[str, Any]]) -> Iterator[Deed]:
    for entry in entries:
        _only(entry, ("at", "what"), "[[happens]]")
        for text in [entry["what"]] if isinstance(entry["what"], str) else entry["what"]:
            yield Deed(duration(entry["at"]), DEEDS.read(text))


def _expected(entries: Iterable[Mapping[str, Any]]) -> Iterator[Expected]:
    before = 0.0
    for entry in entries:
        _only(entry, ("at", "by", "from", "to", "expect"), "[[timeline]]")
        match sorted(set(entry) - {"expect"}):
            case ["at"]:
                first = last = duration(entry["at"])
            case ["by"]:
                first, last = before, duration(entry["by"])
            case ["from", "to"]:
                first, last = duration(entry["from"]), duration(entry["to"])
            case other:
                raise WrongWord(f"[[timeline]]: expected at, by, or from and to; got {', '.join(other) or 'nothing'}")
        if first < before:
            raise WrongWord(f"[[timeline]]: {entry['expect'][0]!r} stands after something that is later")
        before = last if "from" not in entry else first
        for text in entry["expect"]:
            yield Expected(CLAIMS.read(text), first, last, once="by" in entry)
