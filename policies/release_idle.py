"""Give back machines that nobody needs: idle for long enough, or never going to serve."""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.model import Goal, NodeName, Power, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    idle_s: float = 300.0
    """How long a node may be idle, with no waiting job for it, before its machine is given back."""


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    for node in view.nodes.values():
        if node.pool is None or node.name in claimed or node.power not in {Power.ON, Power.STARTING}:
            continue
        if node.sick and not node.busy:
            yield Goal(node.name, Want.GONE, node.sick)
        elif node.idle_since is not None and view.now - node.idle_since >= settings.idle_s:
            idle_s = view.now - node.idle_since
            yield Goal(node.name, Want.GONE, f"idle for {idle_s:.0f} s and no waiting job needs it")
