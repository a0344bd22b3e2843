"""Give back machines that nobody needs: idle for long enough, with no waiting job for them.

Where machines are paid for in whole quanta, an idle one is kept until the last call of the quantum that is paid for
already: it costs nothing more until then, and a job may still come.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.model import Goal, Node, NodeName, Pool, Power, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    idle_s: float = 300.0
    """How long a node may be idle, with no waiting job for it, before its machine is given back."""
    last_call_s: float = 180.0
    """How long before the end of a paid quantum a machine is given back: enough to drain, stop and tick in between."""


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    for node in view.nodes.values():
        # A helper runs no jobs, so it always seems idle; start_helpers knows when it is needed.
        if node.pool is None or node.name in claimed or node.outside or node.idle_since is None:
            continue
        pool = view.pools[node.pool]
        idle_s = view.now - node.idle_since
        if node.power is not Power.ON or idle_s < settings.idle_s or node.name in pool.keep_running:
            continue
        if node.drained or _last_call(view, node, pool, settings.last_call_s):
            yield Goal(node.name, Want.GONE, f"idle for {idle_s:.0f} s and no waiting job needs it")


def _last_call(view: Snapshot, node: Node, pool: Pool, last_call_s: float) -> bool:
    """True if the quantum that is paid for is about to end: (now - start) mod quantum, in its last stretch."""
    if not pool.billing_quantum_s or node.up_since is None:
        return True
    return pool.billing_quantum_s - (view.now - node.up_since) % pool.billing_quantum_s <= last_call_s
