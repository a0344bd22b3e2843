"""What must survive us: operations under way, dated facts, what happened, what it cost, past decisions.

All of it is in one database. Each part says itself what it is for; dated facts and what happened stand here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from sqlalchemy import URL, Connection, case, delete, insert, select, update

from cmscale.journal.accounts import Accounts
from cmscale.journal.database import Database
from cmscale.journal.decisions import Decisions
from cmscale.journal.operations import Operations
from cmscale.journal.tables import BUSY, CLOSURES, EVENTS, EVIDENCE, FACTS, IDLE, KEPT_S, forget, upsert
from cmscale.model import (
    Closure,
    Event,
    EventKind,
    Fact,
    FactKind,
    MachineId,
    NodeName,
    Override,
    PoolName,
    Result,
)
from cmscale.ports import Evidence, Misconfigured, Unavailable

SAME_AGAIN_S = 3600.0
"""An event that says what one before it said is not kept again this soon."""

MOST_EVENTS = 100_000
MOST_EVIDENCE = 1000

HOUR_S = 3600
WEEK_H = 7 * 24
WEEKS_KEPT = 5
WEEKS_COUNTED = 4

LOST_REST_S = 300.0
"""How long we pause when a journal was lost: a launch of ours may still be on its way into the cloud's listings."""

EVIDENCE_CHARS = 64 * 1024
"""The end of a console is kept up to here; EC2 itself keeps no more."""

log = logging.getLogger(__name__)


class SqlJournal(Operations, Decisions, Accounts):
    """The journal in a SQLite file, or in the PostgreSQL database of a URL; None: in memory, for a look that must
    leave no trace.

    Raises Misconfigured if only a person can make it usable. A database that does not answer is no reason to raise:
    whoever uses the journal is told then. With `read_only` nothing is written, so that somebody who may only read the
    daemon's journal can look at it. The daemon `keeps` it; `used` says that one was at work here before, so that a
    journal which is not there is one that was lost. `fence` keeps a daemon that does not lead from writing.
    """

    def __init__(
        self,
        where: Path | URL | None,
        *,
        read_only: bool = False,
        keeps: bool = False,
        used: bool = False,
        now: Callable[[], float] = time.time,
        fence: Callable[[Connection], None] | None = None,
    ) -> None:
        super().__init__(
            Database(where, read_only=read_only, keeps=keeps, used=used, lost=self._tell_of_loss, fence=fence)
        )
        self._now = now
        self._busy: dict[PoolName, tuple[int, int]] = {}
        try:
            self._database.open()
        except Misconfigured:
            raise
        except Unavailable:
            pass  # it may answer by the time it is used

    def _tell_of_loss(self, db: Connection, why: str) -> None:
        """Nothing is started until listings show every machine of which only the lost journal knew."""
        now = self._now()
        told = f"the journal was lost and is begun anew: {why}"
        log.error("%s", told)
        pause = {"kind": FactKind.PAUSE.value, "subject": "", "at": now, "until": now + LOST_REST_S}
        db.execute(insert(FACTS).values(**pause, why=told, by="cm-scale"))
        db.execute(insert(EVENTS).values(at=now, kind=EventKind.JOURNAL_LOST.value, subject="", text=told))

    # --- dated facts

    def put_idle(self, since: Mapping[NodeName, float | None]) -> None:
        with self._database.writing() as db:
            for node, at in since.items():
                db.execute(delete(IDLE).where(IDLE.c.node == node))
                if at is not None:
                    db.execute(insert(IDLE).values(node=node, since=at))

    def idle(self) -> Mapping[NodeName, float]:
        with self._database.reading() as db:
            return {NodeName(row.node): row.since for row in db.execute(select(IDLE))}

    def close(self, pool: PoolName, closure: Closure | None) -> None:
        with self._database.writing() as db:
            db.execute(delete(CLOSURES).where(CLOSURES.c.pool == pool))
            if closure:
                values = {"until": closure.until, "result": closure.result.value, "why": closure.why}
                db.execute(insert(CLOSURES).values(pool=pool, strikes=closure.strikes, **values))

    def closed(self) -> Mapping[PoolName, Closure]:
        with self._database.reading() as db:
            rows = db.execute(select(CLOSURES))
            return {PoolName(row.pool): Closure(row.until, Result(row.result), row.why, row.strikes) for row in rows}

    def shift(self, by_s: float, now: float) -> None:
        """The clock jumped to now: what has lasted so long, or shall last so long, goes on as if it had not."""
        before = now - by_s
        with self._database.writing() as db:
            db.execute(update(IDLE).values(since=IDLE.c.since + by_s))
            db.execute(update(CLOSURES).where(CLOSURES.c.until > 0).values(until=CLOSURES.c.until + by_s))
            lasting = update(FACTS).where(FACTS.c.until > before)
            db.execute(lasting.values(at=FACTS.c.at + by_s, until=FACTS.c.until + by_s))

    def put_fact(self, fact: Fact) -> None:
        with self._database.writing() as db:
            _put_fact(db, fact)

    def drop_fact(self, kind: FactKind, subject: str) -> None:
        with self._database.writing() as db:
            db.execute(delete(FACTS).where(FACTS.c.kind == kind.value, FACTS.c.subject == subject))

    def facts(self, now: float) -> tuple[Fact, ...]:
        query = select(FACTS).where(FACTS.c.until > now).order_by(FACTS.c.at, FACTS.c.kind, FACTS.c.subject)
        with self._database.reading() as db:
            return tuple(
                Fact(FactKind(row.kind), row.subject, row.at, row.until, row.why, row.by) for row in db.execute(query)
            )

    def override(self, override: Override) -> None:
        with self._database.writing() as db:
            for fact in override.drop:
                # Just this one: it may have been replaced since it was read.
                same = (FACTS.c.kind == fact.kind.value, FACTS.c.subject == fact.subject, FACTS.c.at == fact.at)
                db.execute(delete(FACTS).where(*same))
            for pool in override.opened:
                db.execute(delete(CLOSURES).where(CLOSURES.c.pool == pool))
            for fact in override.put:
                _put_fact(db, fact)
            _put_event(db, override.event)

    # --- what was seen

    def put_busy(self, busy: Mapping[PoolName, int], now: float) -> None:
        """Remember how many nodes of each pool were busy in this hour; the most counts."""
        hour = int(now // HOUR_S)
        # Called every tick: only what is news is worth a write.
        news = {pool: most for pool, most in busy.items() if self._busy.get(pool, (hour, -1)) < (hour, most)}
        if not news:
            return
        with self._database.writing() as db:
            write = upsert(db, BUSY)
            most = case((write.excluded.most > BUSY.c.most, write.excluded.most), else_=BUSY.c.most)
            write = write.on_conflict_do_update(index_elements=[BUSY.c.hour, BUSY.c.pool], set_={"most": most})
            db.execute(write, [{"hour": hour, "pool": pool, "most": most} for pool, most in news.items()])
            db.execute(delete(BUSY).where(BUSY.c.hour < hour - WEEKS_KEPT * WEEK_H))
        self._busy |= {pool: (hour, most) for pool, most in news.items()}

    def usual(self, at: float) -> Mapping[PoolName, float]:
        """How many nodes were busy at that hour of the week: the mean over the last four weeks that are known."""
        hours = [int(at // HOUR_S) - week * WEEK_H for week in range(1, WEEKS_KEPT + 1)]
        query = select(BUSY).where(BUSY.c.hour.in_(hours)).order_by(BUSY.c.hour.desc())
        known: dict[PoolName, list[int]] = {}
        with self._database.reading() as db:
            for row in db.execute(query):
                known.setdefault(PoolName(row.pool), []).append(row.most)
        return {pool: fmean(counts[:WEEKS_COUNTED]) for pool, counts in known.items()}

    def tell(self, events: Sequence[Event]) -> None:
        """Remember what happened; the same is not told twice within an hour."""
        if not events:
            return
        with self._database.writing() as db:
            for event in events:
                same = (
                    EVENTS.c.kind == event.kind.value,
                    EVENTS.c.subject == event.subject,
                    EVENTS.c.text == event.text,
                )
                if not db.execute(select(EVENTS.c.id).where(EVENTS.c.at > event.at - SAME_AGAIN_S, *same)).first():
                    _put_event(db, event)

    def events(self, since: float) -> tuple[Event, ...]:
        query = select(EVENTS).where(EVENTS.c.at >= since).order_by(EVENTS.c.at, EVENTS.c.id)
        with self._database.reading() as db:
            return tuple(Event(row.at, EventKind(row.kind), row.subject, row.text) for row in db.execute(query))

    def keep_evidence(self, node: NodeName, machine: MachineId, at: float, why: str, text: str) -> None:
        """Keep what a failed machine wrote to its console, its last lines if that is long."""
        with self._database.writing() as db:
            db.execute(delete(EVIDENCE).where(EVIDENCE.c.machine == machine))
            values = {"at": at, "why": why, "text": text[-EVIDENCE_CHARS:]}
            db.execute(insert(EVIDENCE).values(machine=machine, node=node, **values))

    def evidence(self, node: NodeName) -> tuple[Evidence, ...]:
        """What is kept of a node's failed machines, the last one first."""
        query = select(EVIDENCE).where(EVIDENCE.c.node == node).order_by(EVIDENCE.c.at.desc())
        with self._database.reading() as db:
            return tuple(
                Evidence(NodeName(row.node), MachineId(row.machine), row.at, row.why, row.text)
                for row in db.execute(query)
            )

    def _prune(self, db: Connection, now: float) -> None:
        super()._prune(db, now)
        db.execute(delete(FACTS).where(FACTS.c.until <= now))
        forget(db, EVENTS, now - KEPT_S, MOST_EVENTS)
        forget(db, EVIDENCE, now - KEPT_S, MOST_EVIDENCE)


def _put_fact(db: Connection, fact: Fact) -> None:
    db.execute(delete(FACTS).where(FACTS.c.until <= fact.at))
    db.execute(delete(FACTS).where(FACTS.c.kind == fact.kind.value, FACTS.c.subject == fact.subject))
    values = {"at": fact.at, "until": fact.until, "why": fact.why, "by": fact.by}
    db.execute(insert(FACTS).values(kind=fact.kind.value, subject=fact.subject, **values))


def _put_event(db: Connection, event: Event) -> None:
    values = {"kind": event.kind.value, "subject": event.subject, "text": event.text}
    db.execute(insert(EVENTS).values(at=event.at, **values))
