"""What does a single value of the file mean, and how is a wrong one told? Durations, node names, the nearest name."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from cmscale.model import NodeName

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


def folded(names: Iterable[str]) -> str:
    """The hostlist of names, which `hostlist` takes apart."""
    return str(NodeSet.fromlist(sorted(names), resolver=RESOLVER_NOGROUP))


def names_if_any(value: object) -> tuple[NodeName, ...]:
    """The same, where there may be no name at all."""
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


def unique(words: tuple[str, ...]) -> tuple[str, ...]:
    """The words; raises ValueError if one is there twice."""
    for word, count in Counter(words).items():
        if count > 1:
            raise ValueError(f'"{word}" is named twice')
    return words
