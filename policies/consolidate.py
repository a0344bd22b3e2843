"""Empty half-empty nodes: where the work of two would fit on one, the less used one gets no new jobs and then goes.

Jobs are never moved. They run to their end, and what comes in the meantime packs onto the nodes that stay. As soon as
a job waits in one of the pool's partitions, the node is handed back to Slurm.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from cmscale import fit
from cmscale.model import OFF_REASON, Goal, Help, Node, NodeName, Pool, Power, Shape, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    at_once: int = 1
    """How many nodes of a pool are emptied at the same time."""
    min_up_s: float = 1800.0
    """How long a node has been up before it is emptied."""

    def __post_init__(self) -> None:
        if self.at_once < 0:
            raise ValueError(f"at_once is {self.at_once}; expected 0 or more nodes")


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    asked_for = {job.ask.partitions for job in view.jobs if job.help is not Help.NO and job.pending}
    waited_for = {name for partitions in asked_for for name in partitions}
    for pool in view.pools.values():
        if waited_for.isdisjoint(pool.partitions):
            yield from _emptied(view, pool, claimed, settings)


def _emptied(view: Snapshot, pool: Pool, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    """What is being emptied first, so that nothing else is chosen meanwhile; never below what the pool keeps."""
    up = [node for name in pool.nodes if (node := view.nodes.get(name)) and _serves(node)]
    held = claimed | pool.keep_running | {name for name in pool.nodes if view.keep(name)}
    may_go = frozenset(node.name for node in up if node.name not in held and _up_s(view, node) >= settings.min_up_s)
    groups: dict[object, list[Node]] = defaultdict(list)
    for node in up:
        groups[node.shape, node.features, node.partitions, node.until].append(node)
    under_way = (goal for alike in groups.values() for goal in _under_way(alike, may_go))
    chosen = (goal for alike in groups.values() for goal in _chosen(alike, may_go))
    yield from islice(chain(under_way, chosen), max(min(settings.at_once, len(up) - pool.keep), 0))


def _under_way(alike: list[Node], may_go: frozenset[NodeName]) -> Iterator[Goal]:
    """Goes on even if the other nodes have filled up since: new work has come to them, as was meant."""
    others = any(node.busy and not _emptying(node) for node in alike)
    for node in alike:
        if _emptying(node) and node.name in may_go:
            if not node.busy:
                yield Goal(node.name, Want.GONE, "it has been emptied, and no waiting job needs it")
            elif others:
                yield Goal(node.name, Want.DRAINED, "it is being emptied; other nodes take the new jobs")


def _chosen(alike: list[Node], may_go: frozenset[NodeName]) -> Iterator[Goal]:
    """The least used node, if its work would fit on another, which takes it in thought; then the next."""
    busy = sorted(
        (node for node in alike if node.busy), key=lambda node: (not _emptying(node), _used_share(node), node.name)
    )
    room = {node.name: node.free for node in busy if not _emptying(node)}
    stays: set[NodeName] = set()
    for node in busy:
        if node.name in stays or not (node.name in may_go or _emptying(node)):
            continue
        is_new = room.pop(node.name, None) is not None
        # The fullest that has room, for it will be given back last.
        other = next((each for each in reversed(busy) if each.name in room and room[each.name].fits(_used(node))), None)
        if other is None:
            return  # the work of the others is even more
        room[other.name] = room[other.name].less(_used(node))
        stays.add(other.name)
        if is_new:
            yield Goal(node.name, Want.DRAINED, f"it is being emptied: what it runs would fit on {other.name}")


def _serves(node: Node) -> bool:
    """True if the node is up and nothing but its load decides what becomes of it."""
    return node.power is Power.ON and fit.is_coming_or_up(node) and not (node.sick or node.notice or node.reserved)


def _emptying(node: Node) -> bool:
    """True if the node was up and has been drained by us since; one that has just joined is drained as it was off."""
    return node.drained_by_us and node.reason != OFF_REASON


def _up_s(view: Snapshot, node: Node) -> float:
    return view.now - node.up_since if node.up_since is not None else 0.0


def _used(node: Node) -> Shape:
    return node.shape.less(node.free)


def _used_share(node: Node) -> float:
    used, whole = _used(node), node.shape
    shares = ((used.cpus, whole.cpus), (used.mem_mb, whole.mem_mb), (used.gpus, whole.gpus))
    return max((part / of for part, of in shares if of), default=0.0)
