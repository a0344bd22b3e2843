"""Keep as many machines of each pool up as its `keep` says, or a share of what is usual at this hour.

Whatever the queue does: a job then starts at once instead of waiting for a boot. Nodes that serve jobs count as kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from cmscale import fit
from cmscale.hours import open_until, windows
from cmscale.model import Goal, Node, NodeName, Pool, Power, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    hours: tuple[str, ...] = ()
    """When machines are kept up, such as "mon-fri 08:00-18:00"; empty: always."""
    forecast: float = 0.0
    """Which share, 0 to 1, of the nodes that are usually busy at this hour of the week is kept up; 0: none."""
    only_pools: tuple[str, ...] = ()
    """The pools whose machines are kept up; empty: all."""

    def __post_init__(self) -> None:
        windows(self.hours)
        if not 0 <= self.forecast <= 1:
            raise ValueError(f"forecast is {self.forecast:g}; expected a share from 0 to 1")


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    if open_until(windows(settings.hours), view.now, view.utc_offset_s) is None:
        return
    for pool in view.pools.values():
        if not settings.only_pools or pool.name in settings.only_pools:
            count, reason = _wanted(view, pool, settings.forecast)
            missing = max(count - _held(view, pool, claimed), 0)
            for node in _warmest(view, pool, claimed)[:missing] if missing else ():
                yield Goal(node.name, Want.UP, reason)


def _wanted(view: Snapshot, pool: Pool, share: float) -> tuple[int, str]:
    """How many machines shall be up, and why."""
    usual = view.usual.get(pool.name, 0.0)
    forecast = ceil(round(share * usual, 6))  # rounded: 0.1 * 30 is a little more than 3
    if forecast > pool.keep:
        return min(forecast, pool.most), f"{pool.name} has usually {usual:g} busy nodes at this hour"
    return pool.keep, f"{pool.name} keeps {pool.keep} up"


def _held(view: Snapshot, pool: Pool, claimed: frozenset[NodeName]) -> int:
    """How many an earlier policy holds up already; what has to go soon is not held."""
    nodes = [view.nodes[name] for name in pool.nodes if name in claimed and name in view.nodes]
    return sum(fit.is_coming_or_up(node) and _may_stay(node) for node in nodes)


def _warmest(view: Snapshot, pool: Pool, claimed: frozenset[NodeName]) -> list[Node]:
    """The pool's nodes: those that are up, then those that are coming, then those that could be started. One that is
    drained comes behind others that are up, so that what is being given back goes on being given back."""
    order = {Power.ON: 0, Power.STARTING: 1, Power.OFF: 2, Power.GONE: 3}
    nodes = [view.nodes[name] for name in pool.nodes if name in view.nodes and name not in claimed]
    usable = [node for node in nodes if _may_stay(node) and (fit.is_coming_or_up(node) or fit.is_startable(view, node))]
    return sorted(usable, key=lambda node: (order[node.power], node.power is Power.ON and node.drained))


def _may_stay(node: Node) -> bool:
    return not (node.sick or node.notice)
