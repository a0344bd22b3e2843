"""Which node is a machine, when all machines of one launch carry the same tags?

One tag holds the folded list of the nodes launched together. A machine of RunInstances is the name in it at its launch
index. Machines of a fleet, whose indexes nobody promises to be distinct, carry further tags with the order of all of
them, each by a mark that follows from its id; a machine is the name at the position of its mark. Until the order is
known these tags say so, and the machine is no node yet.

What a call may hold is bounded, so an operation can take several calls, each with a list and a token of its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, takewhile

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from cmscale.adapters.aws.pool import NODE_TAG
from cmscale.model import NodeName, Operation

ORDER_TAG = "cm-scale:order-"
"""And a number from 0 on: the order is cut into as many tags as it needs."""

NO_ORDER_YET = {f"{ORDER_TAG}0": "..."}
"""What machines of a fleet are launched with; no mark has a dot."""

LONGEST_TAG = 256
LONGEST_TOKEN = 64
MOST_AT_ONCE = 1000
"""Longer lists of ids are refused by EC2's calls."""
MOST_A_LAUNCH = 500
"""With more machines in a call EC2 is slow to answer, and more is lost with an answer that is."""
SHORTEST_MARK = 4


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


def node_of(machine: str, tags: Mapping[str, str], index: int) -> NodeName:
    """The node that a machine is, by its tags and its launch index; "" if they do not say."""
    nodes = names(tags.get(NODE_TAG, ""))
    order = order_in(tags)
    place = index if order is None else position(machine, order)
    return nodes[place] if place is not None and place < len(nodes) else NodeName("")


def position(machine: str, order: Sequence[str]) -> int | None:
    """Where the mark of the machine stands in the order; None if it is not among them."""
    digest = _digest(machine)
    return next((at for at, mark in enumerate(order) if digest.startswith(mark)), None)


def marks(machines: Sequence[str]) -> list[str]:
    """A short word for each machine, that none of the others begins with."""
    digests = [_digest(machine) for machine in machines]
    length = next(size for size in count(SHORTEST_MARK) if len({each[:size] for each in digests}) == len({*machines}))
    return [digest[:length] for digest in digests]


def order_tags(order: Sequence[str]) -> dict[str, str]:
    """The tags that hold these marks, in this order."""
    fit = (LONGEST_TAG + 1) // (len(order[0]) + 1)
    parts = [" ".join(order[first : first + fit]) for first in range(0, len(order), fit)]
    return {f"{ORDER_TAG}{number}": part for number, part in enumerate(parts)}


def order_in(tags: Mapping[str, str]) -> list[str] | None:
    """The marks that the tags of a machine hold, as far as they are there; None if it is of no fleet."""
    if f"{ORDER_TAG}0" not in tags:
        return None
    parts = (tags.get(f"{ORDER_TAG}{number}", "") for number in count())
    # What comes after a part that is missing would be at another place than it seems.
    return " ".join(takewhile(lambda part: part not in {"", *NO_ORDER_YET.values()}, parts)).split()


@lru_cache(maxsize=65536)
def _digest(machine: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(machine.encode()).digest()).decode().rstrip("=")


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
    # Always the order of the folded list, whatever the order of the operation: a listing knows no other.
    ordered = names(folded(nodes))
    calls = -(-len(ordered) // MOST_A_LAUNCH)
    for number in range(calls):
        yield from _short(ordered[len(ordered) * number // calls : len(ordered) * (number + 1) // calls])


def _short(ordered: Sequence[NodeName]) -> Iterator[str]:
    """The label of these nodes, or of parts of them, where one would be too long for a tag."""
    label = folded(ordered)
    if len(ordered) == 1 or len(label) <= LONGEST_TAG:
        yield label
    else:
        middle = len(ordered) // 2
        yield from _short(ordered[:middle])
        yield from _short(ordered[middle:])


def _token(text: str) -> str:
    return text if len(text) <= LONGEST_TOKEN else hashlib.sha256(text.encode()).hexdigest()[:LONGEST_TOKEN]
