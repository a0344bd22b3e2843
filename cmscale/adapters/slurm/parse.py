"""Which values do Slurm's words mean: memory, time limits, GPUs, array tasks, constraints, node states?

Pure functions from one text to one value. A text of a shape that is not known raises ValueError, whose message goes to
an admin; a guess is never made. The shapes are those of 22.05 to 25.11. Results are cached: a queue of ten thousand
jobs has few different texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from types import MappingProxyType

from cmscale.model import ANYWHERE, Constraint, Part

NOTHING = frozenset({"", "(null)", "N/A", "NONE", "n/a"})
"""How Slurm's commands write that there is nothing."""

_MIB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)[cn]?")
_COUNT = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_FOREVER = frozenset({"UNLIMITED", "NOT_SET", "INFINITE", "PARTITION_LIMIT"})
_DURATION = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
_BRACKETED = re.compile(r"\([^)]*\)")
_TRES_COUNT = re.compile(r"(\d+)([KMG]?)")
_TASKS = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")
_FEATURE = re.compile(r"[A-Za-z0-9_.=+\-/@#$:]+")


def text(word: str) -> str:
    """The word itself, or nothing where Slurm says that there is nothing."""
    return "" if word in NOTHING else word


@lru_cache(maxsize=4096)
def memory(word: str) -> int:
    """MiB, rounded up: "2G", "100M", "500Mc", "1.50G", "0"."""
    if word in NOTHING:
        return 0
    found = _MEMORY.fullmatch(word)
    if not found:
        raise ValueError(f"memory of {word!r}")
    return -int(-float(found[1]) * _MIB[found[2] or "M"] // 1)


@lru_cache(maxsize=4096)
def duration(word: str) -> int | None:
    """Seconds of "5:00", "1:00:00" or "1-00:00:00"; None where there is no limit."""
    if word in NOTHING or word.upper() in _FOREVER:
        return None
    found = _DURATION.fullmatch(word)
    if not found:
        raise ValueError(f"a time limit of {word!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@lru_cache(maxsize=65536)
def moment(word: str) -> float | None:
    """Seconds since the epoch, as SLURM_TIME_FORMAT=%s has them written."""
    if word in NOTHING or word == "Unknown":
        return None
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"a time of {word!r}") from None


@lru_cache(maxsize=4096)
def number(word: str) -> int:
    """A count; 0 where there is none, or where Slurm may choose ("*")."""
    if word in NOTHING or word == "*":
        return 0
    found = _TRES_COUNT.fullmatch(word)
    if not found:
        raise ValueError(f"a number of {word!r}")
    return int(found[1]) * _COUNT[found[2]]


def _amounts(word: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if word in NOTHING:
        return found
    for item in _BRACKETED.sub("", word).split(","):
        name, _, amount = item.removeprefix("gres:").removeprefix("gres/").replace("=", ":").rpartition(":")
        if not amount[:1].isdigit():
            # No count was written: one of it.
            name, amount = (f"{name}:{amount}" if name else amount), "1"
        if not name:
            raise ValueError(f"resources of {word!r}")
        found.append((name, amount))
    return found


@lru_cache(maxsize=4096)
def tres(word: str) -> Mapping[str, str]:
    """What a list of resources asks, by name: "cpu=1,mem=2G,node=1", and "gres:gpu:t4:1" as {"gpu:t4": "1"}.

    Written in many ways over the releases: `gres:gpu:t4:1`, `gres/gpu:t4=1`, `gres/gpu=1`, `gpu:t4:1(S:0-1)`,
    `gpu:2(IDX:0-1)`, `gpu`.
    """
    return MappingProxyType(dict(_amounts(word)))


@lru_cache(maxsize=4096)
def gres(word: str) -> Mapping[tuple[str, str], int]:
    """How many of each (name, type): "gpu:t4:2,shard:8" gives {("gpu", "t4"): 2, ("shard", ""): 8}."""
    counts: dict[tuple[str, str], int] = {}
    for full, amount in _amounts(word):
        name, _, kind = full.partition(":")
        counts[name, kind] = counts.get((name, kind), 0) + number(amount)
    return MappingProxyType(counts)


@lru_cache(maxsize=4096)
def gpus(word: str) -> tuple[int, str]:
    """How many GPUs, and their type if there is but one. Of several types the most numerous counts: a Shape has one."""
    most: tuple[int, str] = (0, "")
    for (name, kind), count in gres(word).items():
        if name == "gpu" and count > most[0]:
            most = (count, kind)
    return most


@lru_cache(maxsize=65536)
def array_tasks(word: str) -> tuple[int, int]:
    """How many tasks "1-19:2%3" or "1,3,5-7" stands for, and its % limit (0: none)."""
    tasks, _, limit = word.partition("%")
    count = 0
    for item in tasks.split(","):
        found = _TASKS.fullmatch(item)
        if not found:
            raise ValueError(f"array tasks of {word!r}")
        first = int(found[1])
        count += len(range(first, int(found[2] or first) + 1, int(found[3] or 1)))
    return count, int(limit) if limit else 0


@lru_cache(maxsize=4096)
def states(word: str) -> frozenset[str]:
    """A node's flags: "idle+cloud+drain" gives {"IDLE", "CLOUD", "DRAIN"}; marks such as "idle~" are dropped."""
    return frozenset(flag for part in word.upper().split("+") if (flag := part.rstrip("*~#!%$@^-")))


# --- constraints -----------------------------------------------------------------------------------------------------

_AnyOf = tuple[frozenset[str], ...]


@lru_cache(maxsize=4096)
def constraint(word: str) -> Constraint:
    """What --constraint asks. Raises ValueError for a form that is not known."""
    if word in NOTHING:
        return ANYWHERE
    return Constraint(word, _Constraint(word).choices())


class _Constraint:
    """Slurm reads from left to right, `&` and `|` bind alike, and neither brackets nor parentheses nest."""

    def __init__(self, word: str) -> None:
        self.word = word
        # Slurm itself takes a comma for "&".
        self.tokens: list[str] = re.findall(r"[&|*()\[\]]|[^&|*()\[\]]+", word.replace(",", "&"))
        self.everywhere: _AnyOf = (frozenset(),)
        self.parts: list[Part] = []
        self.alternatives: list[_AnyOf] = []

    def choices(self) -> tuple[tuple[Part, ...], ...]:
        operator = "&"
        while True:
            if self._next("["):
                self._brackets(operator)
            else:
                self._plain(operator)
            if not self.tokens:
                break
            operator = self._operator()
        if self.parts:
            parts = [Part(part.count, _both(self.everywhere, part.any_of)) for part in self.parts]
            return ((*parts, Part(0, self.everywhere)),)
        if self.alternatives:
            return tuple((Part(0, _both(self.everywhere, any_of)),) for any_of in self.alternatives)
        return ((Part(0, self.everywhere),),)

    def _plain(self, operator: str) -> None:
        any_of, count = self._counted()
        if count and operator == "&":
            self.parts.append(Part(count, any_of))
        elif operator == "&":
            self.everywhere = _both(self.everywhere, any_of)
        elif count or self.parts or self.alternatives:
            raise self._unknown()
        else:
            self.everywhere = _either(self.everywhere, any_of)

    def _brackets(self, operator: str) -> None:
        if operator != "&" or self.parts or self.alternatives:
            raise self._unknown()
        found = [self._counted()]
        operators = set()
        while not self._next("]"):
            operators.add(self._operator())
            found.append(self._counted())
        counted = [count for _, count in found if count]
        if operators <= {"&"} and len(counted) == len(found):
            self.parts = [Part(count, any_of) for any_of, count in found]
        elif operators <= {"|"} and not counted:
            self.alternatives = [any_of for any_of, _ in found]
        else:
            raise self._unknown()

    def _counted(self) -> tuple[_AnyOf, int]:
        """A feature or a group in parentheses, and the count behind it."""
        if self._next("("):
            any_of = self._feature()
            while not self._next(")"):
                join = _both if self._operator() == "&" else _either
                any_of = join(any_of, self._feature())
        else:
            any_of = self._feature()
        if not self._next("*"):
            return any_of, 0
        count = self._take()
        if not count.isdecimal() or int(count) == 0:
            raise self._unknown()
        return any_of, int(count)

    def _feature(self) -> _AnyOf:
        name = self._take()
        if not _FEATURE.fullmatch(name):
            raise self._unknown()
        return (frozenset({name}),)

    def _operator(self) -> str:
        operator = self._take()
        if operator not in {"&", "|"}:
            raise self._unknown()
        return operator

    def _take(self) -> str:
        if not self.tokens:
            raise self._unknown()
        return self.tokens.pop(0)

    def _next(self, token: str) -> bool:
        if self.tokens and self.tokens[0] == token:
            self.tokens.pop(0)
            return True
        return False

    def _unknown(self) -> ValueError:
        return ValueError(f"the constraint {self.word!r}")


def _both(one: _AnyOf, other: _AnyOf) -> _AnyOf:
    return tuple(dict.fromkeys(a | b for a, b in product(one, other)))


def _either(one: _AnyOf, other: _AnyOf) -> _AnyOf:
    return tuple(dict.fromkeys((*one, *other)))
