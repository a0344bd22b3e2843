"""What happens in one tick, and how do ticks follow one another?

Observe, decide, record, act: the same four steps in production, in `--once` and in a simulation; only the world and
the clock differ.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from cmscale.core import budgets, consequences, expiry
from cmscale.core.decide import Policy, decide
from cmscale.model import Limits, MachineId, Plan, Snapshot, Verb
from cmscale.ports import Clock, Deposed, Unavailable
from cmscale.shell import logs, reaping, spending
from cmscale.shell.act import act, resume_operations
from cmscale.shell.isolation import LeftOut, decided
from cmscale.shell.observe import Memory, World, idle_changes, observe
from cmscale.shell.timekeeping import move_along

REST_PER_LOOK = 10.0
"""A look may cost Slurm and the clouds a tenth of our time at most: a small cluster is looked at every second, and
one where a look takes 2 s is looked at every 20 s. But where nodes were drained so that their machines can go, one more
look follows at once and gives them back: a thousand idle machines cost more than a look."""

REST_PER_VAIN_LOOK = 1.0
"""Whoever does not answer bears no load, and may be back the next moment with nodes to be parked at once. The first
look that is answered again spent its time waiting for that, so it tells nothing of the load either."""

BROKEN_REST_S = 10.0

BETWEEN_S = 20.0
"""A rest is interrupted as often, to look whether there is something else to do, and to say that we live."""

END_S = 4.0
"""How long calls under way may take to end when we do; what does not end is in the journal, and taken up again."""

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
    left_out: LeftOut = field(default_factory=LeftOut)
    ticks: int = 0
    broken: str = ""
    """Why the last tick broke off; empty if it did not."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """What is wrong with ourselves, a sentence each; what is wrong with the world is in the snapshot."""
        jump = self.memory.time.recent(self.world.clock)
        return tuple(filter(None, (self.broken, str(jump or ""), *self.world.beside.troubles())))


@dataclass(frozen=True, slots=True)
class Look:
    """What one tick saw and decided, and what seeing it cost."""

    view: Snapshot
    plan: Plan
    observe_s: float


def tick(daemon: Daemon) -> Look:
    """One tick, whole. Raises nothing for a world that does not answer, be it the journal; but Deposed, if another
    daemon leads by now."""
    daemon.ticks += 1
    name = f"{daemon.name}-{daemon.ticks}"
    with logs.about(tick=name):
        return _tick(daemon, name)


def _tick(daemon: Daemon, name: str) -> Look:
    world = daemon.world
    began = world.clock.steady()
    view = observe(world, name, daemon.memory, _doubt(daemon))
    observe_s = world.clock.steady() - began
    view, plan = decided(
        view, partial(decide, policies=daemon.policies, limits=daemon.limits), daemon.left_out, world.clock.steady()
    )
    try:
        _note(view, plan, daemon)
        asked_to_end = world.clock.wait(0)
        if daemon.may_act and not plan.idle_because and not asked_to_end:
            unseen = [pool.name for pool in view.pools.values() if view.sites[pool.site].unseen]
            resume_operations(world, daemon.memory, unseen)
            act(view, plan, world, daemon.memory, daemon.limits)
            daemon.memory.ending = {MachineId(action.arg) for action in plan.actions if action.verb is Verb.DELETE}
            daemon.memory.search.forget(daemon.memory.ending)
    except Deposed:
        raise
    except Unavailable as error:
        # Only the journal's failures come this far. What was begun is in it, and taken up when it can be read again.
        view = replace(view, unrecorded=str(error))
        plan = decide(view, daemon.policies, daemon.limits)
    return Look(view, plan, observe_s)


def _doubt(daemon: Daemon) -> str:
    """Why this tick had better do nothing: the clock jumped since the last one. What is known by its date follows."""
    world, memory = daemon.world, daemon.memory
    try:
        jump = memory.time.look(world.clock, world.journal)
        if jump is None:
            return ""
        move_along(world.journal, jump, world.clock.now())
    except Unavailable as error:
        return str(error)
    memory.stopping = {machine: at + jump.by_s for machine, at in memory.stopping.items()}
    memory.time.settled(jump)
    return str(jump)


def _note(view: Snapshot, plan: Plan, daemon: Daemon) -> None:
    """What later ticks and forecasts need, and what admins are told of; before anything is done."""
    if view.unrecorded:
        return
    if changes := idle_changes(view, daemon.world.journal.idle()):
        daemon.world.journal.put_idle(changes)
    daemon.world.journal.record(view, plan)
    journal, memory = daemon.world.journal, daemon.memory
    spending.write(memory.ledger, journal, daemon.world.rules.periods, view.now)
    if view.unseen:
        return
    # Pools with nobody busy as well: a quiet hour is an hour to be known.
    busy = dict.fromkeys(view.pools, 0) | Counter(node.pool for node in view.nodes.values() if node.pool and node.busy)
    journal.put_busy(busy, view.now)
    events = [*consequences.closure_events(memory.closed, view), *budgets.events(memory.budgets, view)]
    events += expiry.events(memory.expiry, view)
    events += reaping.note(view, journal, memory.search)
    if daemon.may_act:
        events += consequences.events(view, plan)
    if events:
        journal.tell(events)
    memory.closed = view.closed
    memory.expiry = expiry.stages(memory.expiry, view)
    memory.budgets = budgets.told(view)


def run(daemon: Daemon, told: Callable[[Look], None], between: Callable[[], None] = lambda: None) -> None:
    """Tick after tick until the clock says that we are asked to end. A tick that breaks is told; the next one comes.

    What there is to do between two ticks is done after each, and again and again during a long rest. Raises Deposed if
    another daemon leads by now.
    """
    vain_before = hurried = False
    while True:
        rest_s = daemon.tick_s
        try:
            look = tick(daemon)
            told(look)
            vain = _is_vain(look)
            hurried = daemon.may_act and _gives_back_next(look) and not hurried
            if not hurried:
                rest_s = max(rest_s, look.observe_s * (REST_PER_VAIN_LOOK if vain or vain_before else REST_PER_LOOK))
            vain_before = vain
        except Deposed:  # another daemon goes on from here
            raise
        except Exception as error:  # one surprise must not end reconciliation for good; the journal has what was begun
            log.exception("this tick broke off; the next one starts from a fresh look")
            daemon.broken = f"the last tick broke off: {type(error).__name__}: {error}"
            rest_s = max(rest_s, BROKEN_REST_S)
        else:
            daemon.broken = ""
        if _rest(daemon.world.clock, rest_s, between):
            break
    daemon.world.beside.wait_for_all(END_S)


def _rest(clock: Clock, seconds: float, between: Callable[[], None]) -> bool:
    """Wait; True if we are asked to end."""
    until = clock.steady() + seconds
    while (left := until - clock.steady()) > 0:
        between()
        if clock.wait(min(left, BETWEEN_S)):
            return True
    return False


def _gives_back_next(look: Look) -> bool:
    return any(action.verb is Verb.DRAIN and action.arg != "off" for action in look.plan.actions)


def _is_vain(look: Look) -> bool:
    return bool(look.view.unseen or look.view.unrecorded or any(site.unseen for site in look.view.sites.values()))
