"""What happens in one tick, and how do ticks follow one another?

Observe, decide, record, act: the same four steps in production, in `--once` and in a simulation; only the world and
the clock differ.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cmscale.core import consequences
from cmscale.core.decide import Policy, decide
from cmscale.model import Limits, MachineId, Plan, Snapshot, Verb
from cmscale.ports import Unavailable
from cmscale.shell.act import act, resume_operations
from cmscale.shell.observe import Memory, World, idle_changes, observe

REST_PER_LOOK = 10.0
"""A look may cost Slurm and the clouds a tenth of our time at most: a small cluster is looked at every second, and
one where a look takes 2 s is looked at every 20 s."""

REST_PER_VAIN_LOOK = 1.0
"""Whoever does not answer bears no load, and may be back the next moment with nodes to be parked at once."""

BROKEN_REST_S = 10.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Daemon:
    """What is the same in every tick of one process."""

    world: World
    policies: Sequence[Policy]
    limits: Limits
    name: str
    """Begins the id of every tick; unique to this process, for operations are named after ticks."""
    tick_s: float = 1.0
    may_act: bool = False
    memory: Memory = field(default_factory=Memory)
    ticks: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """What one tick saw and decided, and what seeing it cost."""

    view: Snapshot
    plan: Plan
    observe_s: float


def tick(daemon: Daemon) -> Look:
    """One tick, whole. Raises nothing for a world that does not answer, be it the journal."""
    world = daemon.world
    daemon.ticks += 1
    began = world.clock.now()
    view = observe(world, f"{daemon.name}-{daemon.ticks}", daemon.memory)
    observe_s = world.clock.now() - began
    plan = decide(view, daemon.policies, daemon.limits)
    try:
        _note(view, plan, daemon)
        asked_to_end = world.clock.wait(0)
        if daemon.may_act and not plan.idle_because and not asked_to_end:
            unseen = [pool.name for pool in view.pools.values() if view.sites[pool.site].unseen]
            resume_operations(world, daemon.memory, unseen)
            act(view, plan, world, daemon.memory, daemon.limits)
            daemon.memory.ending = {MachineId(action.arg) for action in plan.actions if action.verb is Verb.DELETE}
    except Unavailable as error:
        # Only the journal's failures come this far. What was begun is in it, and taken up when it can be read again.
        view = replace(view, unrecorded=str(error))
        plan = decide(view, daemon.policies, daemon.limits)
    return Look(view, plan, observe_s)


def _note(view: Snapshot, plan: Plan, daemon: Daemon) -> None:
    """What later ticks and forecasts need, and what admins are told of; before anything is done."""
    if view.unrecorded:
        return
    if changes := idle_changes(view, daemon.world.journal.idle()):
        daemon.world.journal.put_idle(changes)
    daemon.world.journal.record(view, plan)
    if view.unseen:
        return
    journal, memory = daemon.world.journal, daemon.memory
    # Pools with nobody busy as well: a quiet hour is an hour to be known.
    busy = dict.fromkeys(view.pools, 0) | Counter(node.pool for node in view.nodes.values() if node.pool and node.busy)
    journal.put_busy(busy, view.now)
    events = [*consequences.closure_events(memory.closed, view)]
    if daemon.may_act:
        events += consequences.events(view, plan)
    if events:
        journal.tell(events)
    memory.closed = view.closed


def run(daemon: Daemon, told: Callable[[Look], None]) -> None:
    """Tick after tick until the clock says that we are asked to end. A tick that breaks is told; the next one comes."""
    while True:
        rest_s = daemon.tick_s
        try:
            look = tick(daemon)
            told(look)
            rest_s = max(rest_s, _rest_per_look(look) * look.observe_s)
        except Exception:  # one surprise must not end reconciliation for good; what was begun is in the journal
            log.exception("this tick broke off; the next one starts from a fresh look")
            rest_s = max(rest_s, BROKEN_REST_S)
        if daemon.world.clock.wait(rest_s):
            return


def _rest_per_look(look: Look) -> float:
    vain = look.view.unseen or look.view.unrecorded or any(site.unseen for site in look.view.sites.values())
    return REST_PER_VAIN_LOOK if vain else REST_PER_LOOK
