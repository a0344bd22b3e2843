"""What does a word of a person change? `keep`, `drain-site`, `pause`, `reap` and `clear`, each checked and carried out.

One mechanism for all: dated facts in the journal, each with an end, a reason and an author, and an event of kind
`override` for each word, written together. What the daemon itself holds against nodes and pools, their quarantine and
their refusals, is cleared in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from cmscale.model import Closure, Event, EventKind, Fact, FactKind, Override, PoolName
from cmscale.ports import Journal
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.values import as_duration, folded, nearest

MOST_S = 365 * 86400.0
"""An override that outlives a year is a setting, and belongs into the configuration."""

MOST_CHARS = 1000


class Do(Enum):
    KEEP = "keep"
    DRAIN_SITE = "drain-site"
    PAUSE = "pause"
    REAP = "reap"
    CLEAR = "clear"


class Kind(Enum):
    """What can be cleared."""

    PAUSE = "pause"
    DRAIN_SITE = "drain-site"
    KEEP = "keep"
    QUARANTINE = "quarantine"
    REAP = "reap"
    CLOSED = "closed"


FACTS: Mapping[FactKind, Kind] = {
    FactKind.PAUSE: Kind.PAUSE,
    FactKind.DRAIN_SITE: Kind.DRAIN_SITE,
    FactKind.KEEP: Kind.KEEP,
    FactKind.QUARANTINE: Kind.QUARANTINE,
    FactKind.REAP: Kind.REAP,
}
"""Other facts are no opinions: without them a disk would stay for ever, or a job with a constraint of ours."""

OVERRIDES = frozenset({Kind.PAUSE, Kind.DRAIN_SITE, Kind.KEEP})
"""What persons have said."""


@dataclass(frozen=True, slots=True)
class Word:
    """What somebody asks for."""

    do: Do
    names: tuple[str, ...] = ()
    """keep: nodes; drain-site: the site; reap: machines, volumes, interfaces; clear: any of them, and pools."""
    for_s: float = 0.0
    why: str = ""
    pause: bool = False
    """clear: the pause."""
    only: Kind | None = None
    """clear: nothing of another kind."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What stands until it ends, or is cleared."""

    kind: Kind
    subject: str
    """The node, pool or site; empty for a pause."""
    until: float
    why: str
    by: str


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a word."""

    put: tuple[Hold, ...] = ()
    cleared: tuple[Hold, ...] = ()
    standing: tuple[Hold, ...] = ()
    """clear: what still stands."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who says it, and where."""

    name: str
    host: str


def holds(facts: Iterable[Fact], closed: Mapping[PoolName, Closure]) -> tuple[Hold, ...]:
    """All that can be cleared: what persons have said first."""
    found = [_hold(fact) for fact in facts if fact.kind in FACTS]
    found += [
        Hold(Kind.CLOSED, name, closure.until, f"{closure.result.value}: {closure.why}", "cm-scale")
        for name, closure in closed.items()
    ]
    order = list(Kind)
    return tuple(sorted(found, key=lambda hold: (order.index(hold.kind), hold.until, hold.subject)))


def _hold(fact: Fact) -> Hold:
    return Hold(FACTS[fact.kind], fact.subject, fact.until, fact.why, fact.by)


def carry_out(word: Word, config: Config, journal: Journal, now: float, author: Author) -> Done:
    """Do what is asked for; raises ConfigError, with every problem, if it can't be meant."""
    if word.do is Do.CLEAR:
        return _clear(word, config, journal, now, author)
    if problems := list(_problems(word, config)):
        raise ConfigError(problems)
    kind = FactKind(word.do.value)
    why = _line(word.why)
    put = tuple(Fact(kind, name, now, now + word.for_s, why, author.name) for name in word.names or ("",))
    whom = folded(word.names) if word.names else ""
    said = " ".join(filter(None, (word.do.value, whom, "for", as_duration(word.for_s))))
    journal.override(Override(_event(now, author, whom, f"{said}: {why}"), put))
    return Done(put=tuple(map(_hold, put)))


def _clear(word: Word, config: Config, journal: Journal, now: float, author: Author) -> Done:
    facts, closed = journal.facts(now), journal.closed()
    standing = holds(facts, closed)
    if problems := list(_unknown(word.names, config, {hold.subject for hold in standing})):
        raise ConfigError(problems)
    meant = [hold for hold in standing if _means(word, hold)]
    if meant:
        subjects = {(hold.kind, hold.subject) for hold in meant}
        drop = tuple(fact for fact in facts if (FACTS.get(fact.kind), fact.subject) in subjects)
        opened = tuple(name for name in closed if (Kind.CLOSED, name) in subjects)
        whom = folded({hold.subject for hold in meant} - {""})
        said = "; ".join(
            " ".join(filter(None, (hold.kind.value, names, f"(by {hold.by}: {hold.why})")))
            for hold, names in together(meant)
        )
        journal.override(Override(_event(now, author, whom, f"clear {said}"), drop=drop, opened=opened))
    return Done(cleared=tuple(meant), standing=tuple(hold for hold in standing if hold not in meant))


def together(holds: Iterable[Hold]) -> Iterator[tuple[Hold, str]]:
    """The holds that one word has put as one: the first of them, and the names of all."""
    alike: dict[Hold, list[str]] = {}
    for hold in holds:
        alike.setdefault(replace(hold, subject=""), []).append(hold.subject)
    for hold, names in alike.items():
        yield replace(hold, subject=names[0]), folded(filter(None, names))


def _means(word: Word, hold: Hold) -> bool:
    if word.only not in {None, hold.kind}:
        return False
    return word.pause if hold.kind is Kind.PAUSE else hold.subject in word.names


def _event(now: float, author: Author, subject: str, said: str) -> Event:
    return Event(now, EventKind.OVERRIDE, subject, f"{author.name} on {author.host}: {said}")


def _line(text: str) -> str:
    """The text in one line: it ends up in job comments and in tables."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


# --- what can't be meant ---------------------------------------------------------------------------------------------


def _problems(word: Word, config: Config) -> Iterator[str]:
    if not 0 < word.for_s <= MOST_S:
        yield f"expected an end after {as_duration(MOST_S)} at most, got {word.for_s:g} s; what shall last is a setting"
    if not 0 < len(_line(word.why)) <= MOST_CHARS:
        yield f"expected a reason of 1 to {MOST_CHARS} letters (--why), for those who meet this later"
    if word.do is Do.KEEP:
        nodes = [name for each in config.pools.values() for name in each.pool.nodes]
        yield from _not_among(word.names, nodes, "no pool has a node")
        yield from () if word.names else ("expected the names of nodes to keep",)
    elif word.do is Do.DRAIN_SITE:
        yield from _not_among(word.names, config.sites, "there is no site")
        yield from () if len(word.names) == 1 else ("expected the name of one site",)
    elif word.do is Do.REAP:
        yield from (
            f'expected the id of a machine, got "{name[:LONGEST_NAME]}"' for name in word.names if not _ID(name)
        )
        yield from () if word.names else ("expected the ids of what shall be deleted",)
    elif word.names:
        yield "a pause is of everything; expected no name"


def _unknown(names: Iterable[str], config: Config, holding: Collection[str]) -> Iterator[str]:
    """What is held is known, though the configuration may have lost it."""
    known = {*holding, *config.sites, *config.pools}
    known |= {node for each in config.pools.values() for node in each.pool.nodes}
    yield from _not_among(names, known - {""}, "there is no node, pool or site")


_ID = re.compile(r"[\w.-]{1,64}").fullmatch

NAMED = 5
LONGEST_LIST = 300
LONGEST_NAME = 64


def _not_among(names: Iterable[str], known: Collection[str], there_is_none: str) -> Iterator[str]:
    every = frozenset(known)
    unknown = [name[:LONGEST_NAME] for name in names if name not in every]
    for name in unknown[:NAMED]:
        close = nearest(name, every)
        yield f'{there_is_none} "{name}"; {close if len(close) < LONGEST_LIST else "see: cm-scale nodes --all"}'
    if len(unknown) > NAMED:
        yield f"{len(unknown) - NAMED} more names are not known"
