"""What if deciding breaks on one node or one job?

Then that one is found, by deciding about ever smaller parts of what was seen, and left out: whatever is wrong with it
costs itself. It is told as a record that can't be read is told, and tried again after a while.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cmscale.model import JobId, NodeName, Plan, Snapshot

MOST = 5
"""If it takes more to be left out, something else is wrong."""

TRIED_AGAIN_S = 300.0

Item = tuple[str, NodeName | JobId]
"""("node" or "job", its name)."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LeftOut:
    """What one process leaves out of its decisions, and until when by the steady clock."""

    why: dict[Item, str] = field(default_factory=dict)
    until: float = 0.0


def decided(
    view: Snapshot, decide: Callable[[Snapshot], Plan], left_out: LeftOut, steady: float
) -> tuple[Snapshot, Plan]:
    """The plan, and what of the snapshot it was decided on. Raises what `decide` does if no single item is at fault."""
    if steady >= left_out.until:
        left_out.why.clear()
    found = dict(left_out.why)
    while True:
        part = _without(view, found)
        try:
            plan = decide(part)
        except Exception as error:
            culprit = _culprit(part, decide) if len(found) < MOST else None
            if culprit is None:
                raise
            kind, name = culprit
            found[culprit] = f"{kind} {name} is left out: deciding about it raised {type(error).__name__}: {error}"
            log.debug("%s", found[culprit], exc_info=error)
            left_out.until = steady + TRIED_AGAIN_S
            continue
        left_out.why = found
        return replace(part, unreadable=(*part.unreadable, *found.values())) if found else part, plan


def _culprit(view: Snapshot, decide: Callable[[Snapshot], Plan]) -> Item | None:
    """The one item on which deciding breaks, whatever else is there; None if it takes several."""
    items: Sequence[Item] = [*(("node", name) for name in view.nodes), *(("job", job.id) for job in view.jobs)]

    def breaks(some: Iterable[Item]) -> bool:
        kept = set(some)
        try:
            decide(_without(view, [item for item in items if item not in kept]))
        except Exception:  # noqa: BLE001 - that it breaks is all that is asked
            return True
        return False

    some = () if breaks(()) else items
    while len(some) > 1:
        half = len(some) // 2
        some = next((part for part in (some[:half], some[half:]) if breaks(part)), ())
    return some[0] if some and breaks(some) else None


def _without(view: Snapshot, items: Iterable[Item]) -> Snapshot:
    left_out = dict.fromkeys(items)
    if not left_out:
        return view
    return replace(
        view,
        nodes=MappingProxyType({name: node for name, node in view.nodes.items() if ("node", name) not in left_out}),
        jobs=tuple(job for job in view.jobs if ("job", job.id) not in left_out),
    )
