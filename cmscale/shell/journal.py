"""What must survive us: operations under way, dated facts, what happened, what it cost, past decisions.

All of it is in one SQLite file. Each part says itself what it is for; dated facts and what happened stand here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from sqlalchemy import Connection, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DatabaseError

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
from cmscale.ports import Evidence, Misconfigured
from cmscale.shell.accounts import Accounts
from cmscale.shell.decisions import Decisions
from cmscale.shell.operations import Operations
from cmscale.shell.tables import BUSY, CLOSURES, EVENTS, EVIDENCE, FACTS, IDLE, KEPT_S, readable, writable

SAME_AGAIN_S = 3600.0
"""An event that says what one before it said is not kept again this soon."""

HOUR_S = 3600
WEEK_H = 7 * 24
WEEKS_KEPT = 5
WEEKS_COUNTED = 4

EVIDENCE_CHARS = 64 * 1024
"""The end of a console is kept up to here; EC2 itself keeps no more."""


class SqlJournal(Operations, Decisions, Accounts):
    """The journal in one SQLite file (None: in memory, for a look that must leave no trace).

    With `read_only` nothing is written, so that somebody who may only read the daemon's journal can look at it.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        try:
            super().__init__(readable(path) if path and read_only else writable(path))
        except (OSError, DatabaseError) as error:
            cause = getattr(error, "orig", None) or error
            raise Misconfigured(f"{path}: the journal can't be opened ({cause}); see [cluster] state_dir") from None
        self._busy: dict[PoolName, tuple[int, int]] = {}

    # --- dated facts

    def put_idle(self, since: Mapping[NodeName, float | None]) -> None:
        with self._engine.begin() as db:
            for node, at in since.items():
                db.execute(delete(IDLE).where(IDLE.c.node == node))
                if at is not None:
                    db.execute(insert(IDLE).values(node=node, since=at))

    def idle(self) -> Mapping[NodeName, float]:
        with self._engine.connect() as db:
            return {NodeName(row.node): row.since for row in db.execute(select(IDLE))}

    def close(self, pool: PoolName, closure: Closure | None) -> None:
        with self._engine.begin() as db:
            db.execute(delete(CLOSURES).where(CLOSURES.c.pool == pool))
            if closure:
                values = {"until": closure.until, "result": closure.result.value, "why": closure.why}
                db.execute(insert(CLOSURES).values(pool=pool, strikes=closure.strikes, **values))

    def closed(self) -> Mapping[PoolName, Closure]:
        with self._engine.connect() as db:
            rows = db.execute(select(CLOSURES))
            return {PoolName(row.pool): Closure(row.until, Result(row.result), row.why, row.strikes) for row in rows}

    def shift(self, by_s: float, now: float) -> None:
        """The clock jumped to now: what has lasted so long, or shall last so long, goes on as if it had not."""
        before = now - by_s
        with self._engine.begin() as db:
            db.execute(update(IDLE).values(since=IDLE.c.since + by_s))
            db.execute(update(CLOSURES).where(CLOSURES.c.until > 0).values(until=CLOSURES.c.until + by_s))
            lasting = update(FACTS).where(FACTS.c.until > before)
            db.execute(lasting.values(at=FACTS.c.at + by_s, until=FACTS.c.until + by_s))

    def put_fact(self, fact: Fact) -> None:
        with self._engine.begin() as db:
            _put_fact(db, fact)

    def drop_fact(self, kind: FactKind, subject: str) -> None:
        with self._engine.begin() as db:
            db.execute(delete(FACTS).where(FACTS.c.kind == kind.value, FACTS.c.subject == subject))

    def facts(self, now: float) -> tuple[Fact, ...]:
        query = select(FACTS).where(FACTS.c.until > now).order_by(FACTS.c.at, FACTS.c.kind, FACTS.c.subject)
        with self._engine.connect() as db:
            return tuple(
                Fact(FactKind(row.kind), row.subject, row.at, row.until, row.why, row.by) for row in db.execute(query)
            )

    def override(self, override: Override) -> None:
        with self._engine.begin() as db:
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
        write = upsert(BUSY)
        write = write.on_conflict_do_update(set_={"most": func.max(BUSY.c.most, write.excluded.most)})
        with self._engine.begin() as db:
            db.execute(write, [{"hour": hour, "pool": pool, "most": most} for pool, most in news.items()])
            db.execute(delete(BUSY).where(BUSY.c.hour < hour - WEEKS_KEPT * WEEK_H))
        self._busy |= {pool: (hour, most) for pool, most in news.items()}

    def usual(self, at: float) -> Mapping[PoolName, float]:
        """How many nodes were busy at that hour of the week: the mean over the last four weeks that are known."""
        hours = [int(at // HOUR_S) - week * WEEK_H for week in range(1, WEEKS_KEPT + 1)]
        query = select(BUSY).where(BUSY.c.hour.in_(hours)).order_by(BUSY.c.hour.desc())
        known: dict[PoolName, list[int]] = {}
        with self._engine.connect() as db:
            for row in db.execute(query):
                known.setdefault(PoolName(row.pool), []).append(row.most)
        return {pool: fmean(counts[:WEEKS_COUNTED]) for pool, counts in known.items()}

    def tell(self, events: Sequence[Event]) -> None:
        """Remember what happened; the same is not told twice within an hour."""
        if not events:
            return
        with self._engine.begin() as db:
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
        with self._engine.connect() as db:
            return tuple(Event(row.at, EventKind(row.kind), row.subject, row.text) for row in db.execute(query))

    def keep_evidence(self, node: NodeName, machine: MachineId, at: float, why: str, text: str) -> None:
        """Keep what a failed machine wrote to its console, its last lines if that is long."""
        with self._engine.begin() as db:
            db.execute(delete(EVIDENCE).where(EVIDENCE.c.machine == machine))
            values = {"at": at, "why": why, "text": text[-EVIDENCE_CHARS:]}
            db.execute(insert(EVIDENCE).values(machine=machine, node=node, **values))

    def evidence(self, node: NodeName) -> tuple[Evidence, ...]:
        """What is kept of a node's failed machines, the last one first."""
        query = select(EVIDENCE).where(EVIDENCE.c.node == node).order_by(EVIDENCE.c.at.desc())
        with self._engine.connect() as db:
            return tuple(
                Evidence(NodeName(row.node), MachineId(row.machine), row.at, row.why, row.text)
                for row in db.execute(query)
            )

    def _prune(self, db: Connection, now: float) -> None:
        super()._prune(db, now)
        db.execute(delete(EVENTS).where(EVENTS.c.at < now - KEPT_S))
        db.execute(delete(EVIDENCE).where(EVIDENCE.c.at < now - KEPT_S))


def _put_fact(db: Connection, fact: Fact) -> None:
    db.execute(delete(FACTS).where(FACTS.c.until <= fact.at))
    db.execute(delete(FACTS).where(FACTS.c.kind == fact.kind.value, FACTS.c.subject == fact.subject))
    values = {"at": fact.at, "until": fact.until, "why": fact.why, "by": fact.by}
    db.execute(insert(FACTS).values(kind=fact.kind.value, subject=fact.subject, **values))


def _put_event(db: Connection, event: Event) -> None:
    values = {"kind": event.kind.value, "subject": event.subject, "text": event.text}
    db.execute(insert(EVENTS).values(at=event.at, **values))
