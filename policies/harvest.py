"""Give nodes that serve Slurm only in the hours of their pool back to their other role in time.

Before the hours end nothing new starts there, and free nodes go at once. What still runs shortly before the end is
requeued, so that the other role finds its node free. Outside the hours whatever is up goes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.hours import moment, open_until
from cmscale.model import Goal, NodeName, Pool, Power, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    drain_before_s: float = 3600.0
    """How long before the end of the hours nothing new starts on a node."""
    requeue: bool = True
    """Are jobs that still run at the end requeued? If not, a node goes back when they have ended."""
    stop_before_s: float = 600.0
    """How long before the end of the hours they are requeued."""

    def __post_init__(self) -> None:
        if self.stop_before_s > self.drain_before_s:
            raise ValueError("stop_before is longer than drain_before: jobs would be requeued before nodes are drained")


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    for pool in view.pools.values():
        end = _end(view, pool)
        if end - view.now > settings.drain_before_s:
            continue
        if end > view.now:
            reason, by = (
                f"the hours of {pool.name} end on {moment(end, view.utc_offset_s)}",
                end - settings.stop_before_s,
            )
        else:
            reason, by = f"it is outside the hours of {pool.name}", view.now
        for name in pool.nodes:
            node = view.nodes.get(name)
            if node and name not in claimed and node.power in {Power.ON, Power.STARTING}:
                yield Goal(name, Want.GONE, reason, by=by if settings.requeue else None)


def _end(view: Snapshot, pool: Pool) -> float:
    """When the hours of a pool end; now if they have, never if it has none."""
    end = open_until(pool.hours, view.now, view.utc_offset_s)
    return view.now if end is None else end
