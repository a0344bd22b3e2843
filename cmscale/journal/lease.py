"""Which of two daemons leads? The one that holds the lease: its name stands in one row of the journal that they share.

The lease ends by the database's clock unless its holder renews it in time, and whoever takes it next leads under a
higher term. The holder measures by a clock that nobody sets, and stops acting earlier than the database lets go.

What the leader writes is written in a transaction that has found its term in that row and holds the row until it ends
(`fence`). So nothing gets into the journal that a former leader wakes up to write, and what it did write is there
before the next one reads.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Float, cast, func, select, update
from sqlalchemy.sql.elements import ColumnElement

from cmscale.journal.database import Database
from cmscale.journal.tables import LEASE, upsert
from cmscale.ports import Deposed, Unavailable

ACTED_WITHIN = 0.8
"""The share of the lease within which its holder acts. The rest is for calls that were just made to get out, and for
clocks that go unlike."""

RENEWALS = 4
"""How often it is renewed in its time: a renewal or two may fail."""

TRIES = 10
"""How often a standby tries to take it in its time."""

ONLY = 1
"""The number of the only row."""

NEVER = float("-inf")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """One process that may lead; `life` tells it from any other of its number."""

    host: str
    pid: int
    life: str

    def __str__(self) -> str:
        return f"{self.host} (process {self.pid})"

    def is_here(self, pid: int) -> bool:
        """True if it is this process of this machine."""
        return (self.host, self.pid) == (socket.gethostname(), pid)


def this_process() -> Holder:
    return Holder(socket.gethostname(), os.getpid(), secrets.token_hex(8))


@dataclass(frozen=True, slots=True)
class Term:
    """Who leads or led last, as the journal tells it."""

    number: int
    holder: Holder
    since: float
    left_s: float
    """For how long it still holds unless it is renewed; nobody leads if nothing is left."""

    @property
    def holds(self) -> bool:
        return self.left_s > 0


def shared_clock() -> ColumnElement[float]:
    """Now by the database's clock, which is one for all."""
    return cast(func.extract("epoch", func.clock_timestamp()), Float(53))


def steady_clock() -> float:
    """Seconds by a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease, as one process sees it."""

    database: Database
    """A way of its own to the journal's database: whoever renews waits for no other transaction of ours."""
    lasts_s: float
    holder: Holder = field(default_factory=this_process)
    now: Callable[[], ColumnElement[float]] = shared_clock
    steady: Callable[[], float] = steady_clock

    def last(self) -> Term | None:
        """Who led last, and may still lead; None if nobody ever did. Raises Unavailable."""
        return last_term(self.database, self.now)

    def take(self) -> Tenure | None:
        """Lead, unless another one does. In one statement, so that of two who try at once one succeeds."""
        now = self.now()
        told: dict[str, Any] = {"host": self.holder.host, "pid": self.holder.pid, "life": self.holder.life}
        told |= {"since": now, "until": now + self.lasts_s}
        free = (LEASE.c.until <= now) | (LEASE.c.life == self.holder.life)
        asked = self.steady()
        with self.database.writing() as db:
            write = upsert(db, LEASE).values(id=ONLY, term=1, **told)
            again = {**told, "term": LEASE.c.term + 1}
            write = write.on_conflict_do_update(index_elements=[LEASE.c.id], set_=again, where=free)
            term = db.execute(write.returning(LEASE.c.term)).scalar()
        return None if term is None else Tenure(self, term, self.acted_until(asked))

    def acted_until(self, asked: float) -> float:
        """Until when its holder acts that has asked for it then, on the steady clock."""
        return asked + self.lasts_s * ACTED_WITHIN


@dataclass(slots=True)
class Tenure:
    """One term of ours. May be asked from several threads; once lost it never comes back."""

    lease: Lease
    term: int
    _acts_until: float

    @property
    def holds(self) -> bool:
        return self.lease.steady() < self._acts_until

    def check(self) -> None:
        """Raise Deposed unless we may act now; to be asked before each act."""
        if not self.holds:
            raise Deposed("our lease has ended, so another daemon may lead by now")

    def fence(self, db: Connection) -> None:
        """Raise Deposed unless this transaction is the leader's; nobody takes the lease before it has ended."""
        ours = select(LEASE.c.term).where(*self._ours)
        if db.execute(ours.with_for_update(read=True)).first() is None:
            self._acts_until = NEVER
            raise Deposed("another daemon leads by now")

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the lease as long as this lasts, beside whatever is done."""
        ended = threading.Event()
        beside = threading.Thread(target=self._renew_until, args=(ended,), name="lease", daemon=True)
        beside.start()
        try:
            yield
        finally:
            ended.set()
            beside.join(self.lease.lasts_s)

    def _renew_until(self, ended: threading.Event) -> None:
        while self.holds and not ended.wait(self.lease.lasts_s / RENEWALS):
            try:
                self.renew()
            except Unavailable as error:
                log.warning("the lease could not be renewed: %s", error)

    def renew(self) -> None:
        """Go on leading; if another one leads, we know it from now on."""
        asked = self.lease.steady()
        with self.lease.database.writing() as db:
            ours = db.execute(update(LEASE).where(*self._ours).values(until=self.lease.now() + self.lease.lasts_s))
        if not ours.rowcount:
            self._acts_until = NEVER
        elif self.holds:
            self._acts_until = self.lease.acted_until(asked)

    def give_back(self) -> None:
        """Lead no more; another one may at once."""
        self._acts_until = NEVER
        # A database that can't be told now gives it away by itself when its time is over.
        with suppress(Unavailable), self.lease.database.writing() as db:
            db.execute(update(LEASE).where(*self._ours).values(until=self.lease.now()))

    @property
    def _ours(self) -> tuple[ColumnElement[bool], ...]:
        return LEASE.c.term == self.term, LEASE.c.life == self.lease.holder.life


def last_term(database: Database, now: Callable[[], ColumnElement[float]] = shared_clock) -> Term | None:
    """Who led last, and may still lead; None if nobody ever did. Raises Unavailable."""
    with database.reading() as db:
        row = db.execute(select(LEASE, (LEASE.c.until - now()).label("left_s"))).first()
    return Term(row.term, Holder(row.host, row.pid, row.life), row.since, row.left_s) if row else None
