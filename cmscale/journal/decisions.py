"""Which decisions were made, on what sight of the world, and how does one find them again?

What each plan said is kept as a short text for a month. The snapshot that it was made of and the whole plan are kept
for two days and 500 MB at most: when the plan says something new, and every five minutes. Writing a snapshot may cost
a fiftieth of our time, so on a large cluster some are left out: one that takes 0.2 s is followed by none for 10 s.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from sqlalchemy import Connection, delete, func, select

from cmscale.core import compare
from cmscale.journal import stored
from cmscale.journal.database import Database, Part
from cmscale.journal.tables import KEPT_S, PLANS, SNAPSHOTS, forget, upsert
from cmscale.model import Plan, Snapshot
from cmscale.ports import Misconfigured

SNAPSHOTS_KEPT_S = 2 * 86400.0
MOST_PLANS = 250_000
"""A new one every ten seconds for a month."""

MOST_BYTES = 500 * 10**6
AT_LEAST_EVERY_S = 300.0
REST_PER_WRITING = 50.0
PRUNED_EVERY_S = 600.0
LAST = "last"

log = logging.getLogger(__name__)


class Decisions(Part):
    """The part of the journal that holds plans and snapshots."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._said: frozenset[object] | None = None
        self._stored: frozenset[object] | None = None
        self._stored_at = self._rest_until = self._pruned_at = float("-inf")

    def record(self, view: Snapshot, plan: Plan) -> None:
        """Keep the snapshot and its plan if they say anything that the last ones did not."""
        said = compare.said(plan)
        due = said != self._stored or view.now - self._stored_at >= AT_LEAST_EVERY_S
        store = due and view.now >= self._rest_until
        if said == self._said and not store:
            return
        with self._database.writing() as db:
            text = json.dumps(_told(plan), sort_keys=True)
            db.execute(upsert(db, PLANS).values(tick=plan.tick, at=view.now, plan=text).on_conflict_do_nothing())
            if store:
                cost_s = _store(db, view, plan)
                self._rest_until = view.now + REST_PER_WRITING * cost_s
            if view.now - self._pruned_at >= PRUNED_EVERY_S:
                self._prune(db, view.now)
                self._pruned_at = view.now
        self._said = said
        if store:
            self._stored, self._stored_at = said, view.now

    def snapshots(self, since: float, until: float) -> Iterator[Snapshot]:
        """The snapshots that were kept, oldest first."""
        return (view for view, _ in self.decided(since, until))

    def decided(self, since: float, until: float) -> Iterator[tuple[Snapshot, Plan]]:
        """The snapshots that were kept, each with what was decided then, oldest first."""
        query = select(SNAPSHOTS.c.tick).where(SNAPSHOTS.c.at.between(since, until)).order_by(SNAPSHOTS.c.at)
        with self._database.reading() as db:
            ticks = db.execute(query).scalars().all()
        # One at a time: a day of them may be more than there is memory, and the daemon goes on writing meanwhile.
        for tick in ticks:
            if found := self._read(tick):
                yield found

    def stored(self, tick: str) -> tuple[Snapshot, Plan] | None:
        """What was seen and decided in one tick, named by its id, the beginning or the last number of it, or "last";
        None if it is not kept. Raises Misconfigured if the name fits several."""
        query = select(SNAPSHOTS.c.tick).order_by(SNAPSHOTS.c.at.desc(), SNAPSHOTS.c.tick)
        with self._database.reading() as db:
            names = db.execute(query).scalars().all()
        if tick in names:
            fitting = [tick]
        elif tick == LAST:
            fitting = list(names[:1])
        elif tick.isdigit():
            # Not a beginning: each id begins with a date.
            fitting = [name for name in names if name.endswith(f"-{tick}")]
        else:
            fitting = [name for name in names if name.startswith(tick)]
        if len(fitting) > 1:
            told = ", ".join(fitting[:3]) + (", ..." if len(fitting) > 3 else "")
            raise Misconfigured(f"{len(fitting)} ticks fit {tick}: {told}; name one of them whole")
        return self._read(fitting[0]) if fitting else None

    def snapshot_of(self, tick: str) -> Snapshot | None:
        """What was seen in one tick, named as above."""
        found = self.stored(tick)
        return found[0] if found else None

    def ticks(self, since: float) -> tuple[tuple[float, str, str], ...]:
        """When, under which id and with how many steps decided: the ticks whose snapshots are kept, oldest first."""
        query = (
            select(SNAPSHOTS.c.at, SNAPSHOTS.c.tick, PLANS.c.plan)
            .join(PLANS, PLANS.c.tick == SNAPSHOTS.c.tick)
            .where(SNAPSHOTS.c.at >= since)
            .order_by(SNAPSHOTS.c.at)
        )
        with self._database.reading() as db:
            return tuple((row.at, row.tick, _summary(json.loads(row.plan))) for row in db.execute(query))

    def plans(self, since: float) -> Iterator[tuple[float, dict[str, Any]]]:
        """(time, what the plan said) of recorded plans, oldest first."""
        with self._database.reading() as db:
            for row in db.execute(select(PLANS).where(PLANS.c.at >= since).order_by(PLANS.c.at)):
                yield row.at, json.loads(row.plan)

    def _read(self, tick: str) -> tuple[Snapshot, Plan] | None:
        with self._database.reading() as db:
            row = db.execute(select(SNAPSHOTS.c.view, SNAPSHOTS.c.plan).where(SNAPSHOTS.c.tick == tick)).first()
        if row is None:
            return None
        try:
            return stored.decode(Snapshot, row.view), stored.decode(Plan, row.plan)
        except stored.Unreadable as error:
            log.warning("tick %s is left out: %s", tick, error)
            return None

    def _prune(self, db: Connection, now: float) -> None:
        super()._prune(db, now)
        forget(db, PLANS, now - KEPT_S, MOST_PLANS)
        db.execute(delete(SNAPSHOTS).where(SNAPSHOTS.c.at < now - SNAPSHOTS_KEPT_S))
        newer = func.sum(SNAPSHOTS.c.bytes).over(order_by=SNAPSHOTS.c.at.desc()).label("bytes")
        sizes = select(SNAPSHOTS.c.tick, newer).subquery()
        db.execute(
            delete(SNAPSHOTS).where(SNAPSHOTS.c.tick.in_(select(sizes.c.tick).where(sizes.c.bytes > MOST_BYTES)))
        )


def _store(db: Connection, view: Snapshot, plan: Plan) -> float:
    """Write a snapshot with its plan; the seconds that it took."""
    began = perf_counter()
    seen, decided = stored.encode(view), stored.encode(plan)
    values = {"at": view.now, "bytes": len(seen) + len(decided), "view": seen, "plan": decided}
    db.execute(upsert(db, SNAPSHOTS).values(tick=plan.tick, **values).on_conflict_do_nothing())
    return perf_counter() - began


def _told(plan: Plan) -> dict[str, Any]:
    return {
        "idle_because": plan.idle_because,
        "actions": [
            [action.verb.value, action.node, action.reason, action.pool, action.job, action.op]
            for action in plan.actions
        ],
        "refused": sorted({(refusal.goal.node, refusal.guard) for refusal in plan.refused}),
        "failed": [[failure.policy, failure.why] for failure in plan.failed],
        "never": dict(plan.never),
    }


def _summary(told: dict[str, Any]) -> str:
    """What a plan said in a few words: 2 start, 1 drain, 3 refused."""
    counts = Counter(action[0] for action in told["actions"])
    counts |= Counter({word: len(told[word]) for word in ("refused", "failed")})
    return told["idle_because"] or ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing"
