"""Leave machines that the cloud takes back, before it takes them.

Nothing new starts there once the end is near. What still runs shortly before it is requeued, so that it starts
elsewhere at once instead of being lost with the machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.hours import moment
from cmscale.model import Goal, NodeName, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    drain_before_s: float = 3600.0
    """A notice can come days ahead: until so long before the end, jobs that end in time may still start."""
    requeue_before_s: float = 30.0
    """How long before the cloud takes a machine its jobs are requeued: time to end them and to delete the machine."""


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    for node in view.nodes.values():
        if node.name in claimed or node.notice is None:
            continue
        if node.notice.deadline - view.now <= settings.drain_before_s:
            when = moment(node.notice.deadline, view.utc_offset_s)
            reason = f"the cloud takes its machine back on {when} ({node.notice.why})"
            yield Goal(node.name, Want.GONE, reason, by=node.notice.deadline - settings.requeue_before_s)
