"""Keep as many machines of each pool up as its `keep` says, whatever the queue does."""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale import fit
from cmscale.model import Goal, Node, NodeName, Pool, Power, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    pass


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:  # noqa: ARG001
    for pool in view.pools.values():
        for node in _warmest(view, pool, claimed)[: _missing(view, pool, claimed)]:
            yield Goal(node.name, Want.UP, f"{pool.name} keeps {pool.keep} up")


def _missing(view: Snapshot, pool: Pool, claimed: frozenset[NodeName]) -> int:
    """How many more nodes must stay or come up besides those that an earlier policy holds up."""
    held = sum(
        1 for name in pool.nodes if name in claimed and name in view.nodes and fit.is_coming_or_up(view.nodes[name])
    )
    return max(pool.keep - held, 0)


def _warmest(view: Snapshot, pool: Pool, claimed: frozenset[NodeName]) -> list[Node]:
    """The pool's nodes, those that are up first, then those that are coming, then those that could be started."""
    order = {Power.ON: 0, Power.STARTING: 1, Power.OFF: 2, Power.GONE: 3}
    nodes = [view.nodes[name] for name in pool.nodes if name in view.nodes and name not in claimed]
    usable = [node for node in nodes if not node.sick and (fit.is_coming_or_up(node) or fit.is_startable(view, node))]
    return sorted(usable, key=lambda node: order[node.power])
