"""Which names does a folded list such as `t4-[1-16]` stand for, and how is a set of names folded?"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from cmscale.model import NodeName


def unfold(text: str) -> tuple[NodeName, ...]:
    """The names of a folded list, in order. Raises ValueError for text that is none."""
    try:
        # No resolver: a group of ClusterShell ("@gpu") has no meaning in Slurm.
        return tuple(NodeName(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException as error:
        raise ValueError(f"{text!r} is no list of nodes: {error}") from None


@lru_cache(maxsize=4096)
def expand(text: str) -> tuple[NodeName, ...]:
    """As `unfold`, for lists that are seen again and again."""
    return unfold(text)


@lru_cache(maxsize=4096)
def _fold(names: frozenset[str]) -> str:
    return str(NodeSet.fromlist(sorted(names), resolver=RESOLVER_NOGROUP))


def fold(names: Iterable[str]) -> str:
    """The shortest text for a set of names, as Slurm's commands take it."""
    return _fold(frozenset(names))
