"""What is there to place jobs on: which nodes of a kind have how much room, and which could be started, in which order?

Written down so that the best node is found without looking at them all: deciding looks here for each of a hundred
thousand jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

from cmscale.model import Node, NodeOrder, Pool, Power, Shape, Snapshot
from cmscale.placing.quota import Quota

Size = tuple[int, int]
"""The CPUs and GPUs that a node has left."""

Entry = tuple[int, int, Node]
"""A node with the memory that it has left. Those of one size sort by memory, then by the number in the middle."""


@dataclass(slots=True)
class Stall:
    """The nodes of one kind that are up or coming, by the room they have left."""

    entries: dict[Size, list[Entry]] = field(default_factory=dict)
    sizes: list[Size] = field(default_factory=list)
    """Those that are there, the smallest first."""
    most_cpus: int = 0
    """The most that a node has left."""
    gained: int = 0
    """How many nodes starts have brought."""

    def take_fullest(self, need: Shape) -> tuple[Size, Entry] | None:
        """Take the node with the least room that holds this share."""
        mem_mb, gpus = need.mem_mb, need.gpus
        sizes = self.sizes
        for at in range(bisect_left(sizes, (need.cpus, gpus)), len(sizes)):
            size = sizes[at]
            if size[1] >= gpus:
                alike = self.entries[size]
                if alike[-1][0] >= mem_mb:
                    entry = alike.pop(bisect_left(alike, (mem_mb,)))
                    if not alike:
                        self._clear(size)
                    return size, entry
        return None

    def fitting(self, need: Shape, most: int) -> list[tuple[Size, list[Entry]]]:
        """So many nodes that hold this share, those with the least room first; fewer if there are not as many."""
        found: list[tuple[Size, list[Entry]]] = []
        for at in range(bisect_left(self.sizes, (need.cpus, need.gpus)), len(self.sizes)):
            size = self.sizes[at]
            if size[1] >= need.gpus:
                alike = self.entries[size]
                if alike[-1][0] >= need.mem_mb:
                    first = bisect_left(alike, (need.mem_mb,))
                    some = alike[first : first + most]
                    found.append((size, some))
                    most -= len(some)
                    if not most:
                        break
        return found

    def put(self, size: Size, entry: Entry) -> None:
        alike = self.entries.get(size)
        if alike is None:
            self.entries[size] = [entry]
            insort(self.sizes, size)
            self.most_cpus = self.sizes[-1][0]
        else:
            insort(alike, entry)

    def remove(self, size: Size, entry: Entry) -> None:
        alike = self.entries[size]
        del alike[bisect_left(alike, entry[:2])]
        if not alike:
            self._clear(size)

    def find(self, node: Node) -> tuple[Size, Entry] | None:
        """Where a node is; None if it is not here."""
        for size, alike in self.entries.items():
            for entry in alike:
                if entry[2].name == node.name:
                    return size, entry
        return None

    def _clear(self, size: Size) -> None:
        del self.entries[size]
        del self.sizes[bisect_left(self.sizes, size)]
        self.most_cpus = self.sizes[-1][0] if self.sizes else 0


@dataclass(slots=True)
class Allowance:
    """How many more machines a pool may have."""

    own: int
    """By its own maximum."""
    pool: Pool
    quota: Quota | None = None
    """What it shares with others; None: none is known."""

    @property
    def left(self) -> int:
        return self.own if self.quota is None else min(self.own, self.quota.room(self.pool))

    def take(self, made: int, started: int) -> None:
        """Count machines: those that are made, of those that are started."""
        self.own -= made
        if self.quota:
            self.quota.left -= started * self.pool.quota_cpus


@dataclass(slots=True, eq=False)
class Source:
    """The nodes of one pool and kind that could be started."""

    at: int
    """The place of their kind."""
    pool: Pool
    allowance: Allowance
    nodes: list[Node] = field(default_factory=list)
    """The next one last."""
    kept: int = 0
    """How many of them have a machine that is only off."""

    def __post_init__(self) -> None:
        self.kept = sum(node.power is not Power.GONE for node in self.nodes)

    @property
    def rank(self) -> tuple[int, float, str]:
        return (-self.pool.priority, self.pool.price_hour, self.pool.name)

    @property
    def empty(self) -> bool:
        return not self.nodes or (self.allowance.left <= 0 and not self.kept)

    def most(self, made: int, used: int) -> int:
        """How many can be taken, when so many machines of the pool are to be made already and so many of these nodes
        are taken."""
        kept = max(self.kept - used, 0)
        gone = len(self.nodes) - max(self.kept, used)
        return kept + min(gone, max(self.allowance.left - made, 0))

    def take(self, count: int) -> list[Node]:
        """Take the next ones; what is off comes before what is gone."""
        taken = self.nodes[: -count - 1 : -1]
        del self.nodes[-count:]
        self._count(taken)
        return taken

    def remove(self, node: Node) -> None:
        """Take just this node."""
        self.nodes.remove(node)
        self._count([node])

    def _count(self, taken: list[Node]) -> None:
        made = sum([node.power is Power.GONE for node in taken])
        self.allowance.take(made, len(taken))
        self.kept -= len(taken) - made


def start_order(view: Snapshot, pool: Pool) -> Callable[[Node], tuple[bool, float, int]]:
    """What sorts a pool's nodes into the order in which they are started; a machine that is kept boots faster."""
    rank = {name: at for at, name in enumerate(pool.nodes)}

    def key(node: Node) -> tuple[bool, float, int]:
        match pool.order:
            case NodeOrder.NAME:
                by = 0.0
            case NodeOrder.LEAST_USED:
                by = view.used_s.get(node.name, 0.0)
            case NodeOrder.RANDOM:  # by chance, yet the same view gives the same plan
                by = float(crc32(f"{view.tick} {node.name}".encode()))
        return (node.power is Power.GONE, by, rank[node.name])

    return key
