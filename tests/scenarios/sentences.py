"""How does a sentence of a scenario become something to do, or something to check?

A form such as "[HOW ]N machine(s)[ of POOL]" stands beside its meaning. Words in capitals are slots, what stands in
brackets may be left out, and (s) is for grammar alone. A sentence that has no form is told with the nearest one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cmscale.model import EventKind, JobId, NodeName, PoolName, Power, Result, SiteName
from cmscale.shell.values import duration, hostlist
from cmscale.sim.cloud import Flaw

T = TypeVar("T")


class WrongWord(Exception):
    """A scenario says something that has no meaning; the message names it and the nearest that has."""


def _one_of(words: Iterable[str]) -> str:
    return "|".join(re.escape(word) for word in words)


SLOTS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "HOW": ("at most|at least|more than", str),
    "N": (r"\d+|no", lambda text: 0 if text == "no" else int(text)),
    "JOB": (r"\d+(?:_\d+)?", JobId),
    "NODES": (r"[\w.,\[\]-]+", hostlist),
    "NODE": (r"[\w.-]+", NodeName),
    "POOL": (r"[\w.-]+", PoolName),
    "SITE": (r"[\w.-]+", SiteName),
    "WHO": (r"\w+", str),
    "NAME": (r"[\w.-]+", str),
    "TIME": (r"\d+(?:s|m|h)", duration),
    "LATER": (r"\d+(?:s|m|h)", duration),
    "MONEY": (r"\d+(?:\.\d+)?", float),
    "TEXT": (r"'.*'", lambda text: text[1:-1]),
    "WHY": (".+", str),
    "RESULT": (_one_of(result.value for result in Result), Result),
    "KIND": (_one_of(kind.value for kind in EventKind), EventKind),
    "POWER": (_one_of(power.value for power in Power), Power),
    "FLAW": (_one_of(flaw.value for flaw in Flaw), Flaw),
}
"""What a slot may hold, and the value it then means."""

_SLOT = re.compile(rf"\b({_one_of(SLOTS)})\b")


def _pattern(form: str) -> re.Pattern[str]:
    escaped = re.escape(form).replace(r"\(s\)", "s?").replace(r"\[", "(?:").replace(r"\]", ")?")
    return re.compile(_SLOT.sub(lambda slot: f"(?P<{slot[0]}>{SLOTS[slot[0]][0]})", escaped))


@dataclass(frozen=True, slots=True)
class Sentence(Generic[T]):
    """A sentence that has a meaning."""

    text: str
    meaning: Callable[..., T]
    words: Mapping[str, Any]

    def __call__(self, scene: Any) -> T:
        return self.meaning(scene, **self.words)


@dataclass(slots=True)
class Vocabulary(Generic[T]):
    """Every form that a kind of sentence may have."""

    kind: str
    forms: dict[str, tuple[re.Pattern[str], Callable[..., T]]] = field(default_factory=dict)

    def means(self, form: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
        """What the function below it does is what a sentence of this form means."""

        def known(meaning: Callable[..., T]) -> Callable[..., T]:
            self.forms[form] = (_pattern(form), meaning)
            return meaning

        return known

    def read(self, text: str) -> Sentence[T]:
        for pattern, meaning in self.forms.values():
            if found := pattern.fullmatch(text):
                words = {slot.lower(): SLOTS[slot][1](word) for slot, word in found.groupdict().items() if word}
                return Sentence(text, meaning, words)
        near = difflib.get_close_matches(text, self.forms, n=1, cutoff=0.0)
        raise WrongWord(f'"{text}" is no {self.kind}; the nearest form is "{near[0]}"')
