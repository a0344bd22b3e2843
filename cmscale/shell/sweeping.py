"""How are machines deleted that nothing explains, while no daemon is at work? By the daemon's own rule alone.

Two looks, each remembered in the journal as the daemon's are, and one call for each site, in the journal before it is
made: killed in between, the next daemon goes on from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cmscale.core import consequences, orphans
from cmscale.model import MachineId, Plan, Reap, Snapshot
from cmscale.ports import Unavailable
from cmscale.shell import act, reaping
from cmscale.shell.loop import Daemon
from cmscale.shell.observe import observe

LATE_S = 1.0
"""The clock that dates looks and the one that waits may differ by a little."""

ENDS_IN_S = 60.0
"""How long calls are waited for that outlast their look."""

Left = Mapping[MachineId, str]
"""What is not deleted, and why."""


def sweep(daemon: Daemon, asked: Collection[MachineId]) -> Left:
    """Delete those that a person asks for, if both looks find them so; gives the others. What came of each call is in
    the journal. Raises Unavailable if a look can't be taken."""
    limits = replace(daemon.limits, reap=Reap.REPORT)  # what nobody has asked for stays
    world, journal = daemon.world, daemon.world.journal
    _look(daemon)
    world.clock.wait(limits.reap_after_s + LATE_S)
    view = _look(daemon)
    against = {orphan.id: why for orphan, why in orphans.judged(view, limits) if why and orphan.id in asked}
    due = tuple(each for each in orphans.deletions(view, limits) if each.arg in asked)
    if due:
        journal.tell([*consequences.events(view, Plan(view.tick, view.now, due))])
        act.delete(view, due, world)
        world.beside.wait_for_all(ENDS_IN_S)
    return against


def _look(daemon: Daemon) -> Snapshot:
    daemon.ticks += 1
    daemon.memory.search.at_once = True
    view = observe(daemon.world, f"{daemon.name}-{daemon.ticks}", daemon.memory)
    if why := view.unseen or view.unrecorded or next((site.unseen for site in view.sites.values() if site.unseen), ""):
        raise Unavailable(why)
    daemon.world.journal.tell(reaping.note(view, daemon.world.journal, daemon.memory.search))
    return view
