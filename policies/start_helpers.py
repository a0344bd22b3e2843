"""Keep helpers up for the machines that need them: a licence server, a director.

A pool names its helpers. They are started before its first machine and given back some time after its last one; a
helper may have helpers itself. Comes after the policies that start machines, for it looks at what those have claimed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.model import Goal, NodeName, PoolName, Power, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    idle_s: float = 3600.0
    """How long a helper stays after the last machine that needed it is gone."""


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    needed = _needed(view, claimed)
    for name, pool in needed.items():
        yield Goal(name, Want.UP, f"machines of {pool} need it")
    for node in view.nodes.values():
        if node.outside and node.name not in needed and node.idle_since is not None:
            idle_s = view.now - node.idle_since
            if idle_s >= settings.idle_s:
                yield Goal(node.name, Want.GONE, f"no machine has needed it for {idle_s:.0f} s")


def _needed(view: Snapshot, claimed: frozenset[NodeName]) -> dict[NodeName, PoolName]:
    """The helpers that are needed now, each with a pool that needs it; those of helpers included."""
    needed: dict[NodeName, PoolName] = {}
    using = [pool for pool in view.pools.values() if pool.helpers and _in_use(view, claimed, pool.nodes)]
    while using:
        pool = using.pop()
        for name in pool.helpers:
            if name in view.nodes and name not in needed:
                needed[name] = pool.name
                of = view.nodes[name].pool
                if of:
                    using.append(view.pools[of])
    return needed


def _in_use(view: Snapshot, claimed: frozenset[NodeName], names: tuple[NodeName, ...]) -> bool:
    return any(
        name in claimed or view.nodes[name].power not in {Power.GONE, Power.OFF} for name in names if name in view.nodes
    )
