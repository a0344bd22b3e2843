"""Which node is a machine, when all machines of one launch carry the same tags?

The tag holds the folded list of the nodes launched together, and a machine is the name in it at its launch index. What
a call may hold is bounded, so an operation can take several calls, each with a list and a token of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from cmscale.model import NodeName, Operation

LONGEST_TAG = 256
LONGEST_TOKEN = 64
MOST_AT_ONCE = 1000
"""EC2's bucket of launches holds so many; longer lists of ids are refused by other calls too."""


@dataclass(frozen=True, slots=True)
class LaunchCall:
    """One call: nodes that are launched together, in the order in which EC2 numbers them."""

    label: str
    """The folded list of the nodes, as the tag holds it."""
    token: str

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return names(self.label)


def launch_calls(operation: Operation) -> list[LaunchCall]:
    """The calls that an operation takes: one, unless its list of nodes is too long for a tag or a call."""
    labels = list(_labels(operation.nodes))
    tokens = [operation.id] if len(labels) == 1 else [f"{operation.id}-{number}" for number in range(len(labels))]
    return [LaunchCall(label, _token(token)) for label, token in zip(labels, tokens, strict=True)]


def folded(nodes: Sequence[NodeName]) -> str:
    """The nodes as a hostlist that Slurm's own tools on the machine can read: they know no text after a bracket."""
    numbered = NodeSet.fromlist([node for node in nodes if node[-1].isdigit()], resolver=RESOLVER_NOGROUP)
    numbered.fold_axis = (-1,)
    others = sorted(node for node in nodes if not node[-1].isdigit())
    return ",".join(filter(None, [str(numbered), *others]))


@lru_cache(maxsize=4096)
def names(label: str) -> tuple[NodeName, ...]:
    """The nodes of a folded list as they stand in it, which is the order of the launch; none if it cannot be read."""
    parts = re.split(r",(?![^\[]*\])", label)  # a NodeSet of all parts would sort them
    try:
        return tuple(NodeName(name) for part in parts for name in NodeSet(part, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ()


def _labels(nodes: Sequence[NodeName]) -> Iterator[str]:
    label = folded(nodes)
    # Always the order of the folded list, whatever the order of the operation: a listing knows no other.
    ordered = names(label)
    if len(ordered) == 1 or (len(label) <= LONGEST_TAG and len(ordered) <= MOST_AT_ONCE):
        yield label
    else:
        middle = len(ordered) // 2
        yield from _labels(ordered[:middle])
        yield from _labels(ordered[middle:])


def _token(text: str) -> str:
    return text if len(text) <= LONGEST_TOKEN else hashlib.sha256(text.encode()).hexdigest()[:LONGEST_TOKEN]
