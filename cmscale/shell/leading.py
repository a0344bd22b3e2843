"""How does one of two daemons come to lead, and how does it end?

A standby looks at nothing but the lease. Whoever has taken it begins as after a restart: with nothing in memory, from
the journal and a fresh look. It ends when it is asked to, or with `Deposed` wherever it finds that the lease is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cmscale.journal.lease import TRIES, Lease, Tenure, Term
from cmscale.model import Event, EventKind
from cmscale.ports import Clock, Journal, Unavailable
from cmscale.shell.beside import Beside
from cmscale.shell.loop import Daemon, Look, run
from cmscale.shell.observe import Memory

Lead = Callable[[Tenure, Term | None], None]
"""Told who led before; returns when we are asked to end, raises Unavailable when we can't go on."""


def in_turn(lease: Lease, clock: Clock, lead: Lead, stand_by: Callable[[Term | Unavailable], None]) -> None:
    """Lead whenever the lease is free, until the clock says that we are asked to end.

    `stand_by` is told at every other try who leads, or why we can't.
    """
    while not clock.wait(0):
        try:
            last = lease.last()
            tenure = None if last and last.holds and last.holder != lease.holder else lease.take()
            if tenure:
                with tenure.renewed():
                    lead(tenure, last)
            elif last:
                stand_by(last)
        except Unavailable as error:
            stand_by(error)
        if clock.wait(lease.lasts_s / TRIES):
            return


def begin(daemon: Daemon, tenure: Tenure, last: Term | None, journal: Journal) -> None:
    """Forget what an earlier term has seen and begun, and tell who leads."""
    world = daemon.world
    daemon.memory = Memory()
    daemon.world = replace(world, journal=journal, beside=Beside(world.beside.answer_s), check_lease=tenure.check)
    who, before = tenure.lease.holder, f", after {last.holder}" if last else ""
    text = f"{who} leads now{before}, in term {tenure.term}"
    journal.tell([Event(world.clock.now(), EventKind.LEADER, who.host, text)])


def run_as_leader(daemon: Daemon, tenure: Tenure, told: Callable[[Look], None], between: Callable[[], None]) -> None:
    """Run until we are asked to end; raises Deposed if we lead no more before that."""

    def between_ticks() -> None:
        tenure.check()
        between()

    run(daemon, told, between_ticks)
    # A call that outlasts us had better have taken effect when the next one looks: the lease ends by itself.
    if not daemon.world.beside.doing():
        tenure.give_back()
