"""What stands in the journal of what machines cost?

The lives of machines that are paid for now, and the bill: milliseconds by hour, pool, purpose, payer and price. Both
are written in one transaction, so each moment of a life is in the bill once, wherever we are killed. Money is never
written down: it is time times price, exactly. Hours that are days past become days; days long past forget their jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from cmscale.journal.database import Part
from cmscale.journal.tables import ITEMS, LIVES, OPERATIONS, USES
from cmscale.model import (
    Cost,
    Life,
    MachineId,
    NodeName,
    Payer,
    PoolName,
    Result,
    Spending,
    Use,
    Verb,
)

HOURS_KEPT_S = 3 * 86400.0
"""How long the bill is kept by the hour."""

JOBS_KEPT_S = 100 * 86400.0
"""How long the bill is kept by the job: this month, and the three before it."""

AT_ONCE = 500
"""Values in one query: some databases take a thousand."""


class Accounts(Part):
    """The part of the journal that holds what machines cost."""

    def lives(self) -> tuple[Life, ...]:
        with self._database.reading() as db:
            return tuple(
                Life(
                    MachineId(row.machine),
                    NodeName(row.node),
                    PoolName(row.pool),
                    row.running,
                    row.launched,
                    row.until,
                    row.paid_ms,
                    row.price,
                    Payer(row.user, row.account, row.job),
                )
                for row in db.execute(select(LIVES).order_by(LIVES.c.machine))
            )

    def put_spending(self, lives: Collection[Life], bill: Mapping[Use, int]) -> None:
        """Keep the lives that go on, these and no others, and add to the bill, both or neither."""
        with self._database.writing() as db:
            db.execute(delete(LIVES))
            if lives:
                db.execute(insert(LIVES), [_row_of(life) for life in lives])
            _add(db, bill)

    def bill(self, begin: float, end: float) -> Mapping[Use, int]:
        """The lines whose hours, or days, began then, with their milliseconds."""
        with self._database.reading() as db:
            rows = db.execute(select(USES).where(USES.c.hour >= begin, USES.c.hour < end).order_by(USES.c.hour))
            return {_use(row): row.ms for row in rows}

    def costs(self, begin: float, end: float) -> tuple[Cost, ...]:
        """What each payer has spent in each pool in hours that began then; jobs are not told apart."""
        keys = (USES.c.pool, USES.c.user, USES.c.account)
        query = (
            select(*keys, USES.c.price, func.sum(USES.c.ms).label("ms"))
            .where(USES.c.hour >= begin, USES.c.hour < end)
            .group_by(*keys, USES.c.price)
        )
        amounts: Counter[tuple[PoolName, Payer]] = Counter()
        with self._database.reading() as db:
            for row in db.execute(query):
                # In Python, whose numbers have no end.
                amounts[PoolName(row.pool), Payer(row.user, row.account)] += int(row.ms) * row.price
        return tuple(Cost(pool, payer, amount) for (pool, payer), amount in amounts.items())

    def given_back(self, machines: Collection[MachineId]) -> Mapping[MachineId, tuple[float, ...]]:
        """When calls that powered off or deleted each of these machines had ended, oldest first."""
        found: dict[MachineId, list[float]] = {}
        query = (
            select(ITEMS.c.machine, OPERATIONS.c.ended)
            .join(OPERATIONS, OPERATIONS.c.id == ITEMS.c.op)
            .where(
                OPERATIONS.c.verb.in_((Verb.STOP.value, Verb.DELETE.value)),
                ITEMS.c.result == Result.OK.value,
                OPERATIONS.c.ended.is_not(None),
            )
            .order_by(OPERATIONS.c.ended)
        )
        names = sorted(machines)
        with self._database.reading() as db:
            for first in range(0, len(names), AT_ONCE):
                for row in db.execute(query.where(ITEMS.c.machine.in_(names[first : first + AT_ONCE]))):
                    found.setdefault(MachineId(row.machine), []).append(row.ended)
        return {machine: tuple(times) for machine, times in found.items()}

    def roll_up(self, now: float, day_of: Callable[[float], float]) -> None:
        """Make days of hours that are long past, and of days that are longer past forget their jobs."""
        with self._database.writing() as db:
            hours = db.execute(select(USES.c.hour).where(USES.c.hour < now - HOURS_KEPT_S).distinct()).scalars()
            past = [hour for hour in hours if hour != day_of(hour)]
            for old in _in_parts(past):
                _replace(db, USES.c.hour.in_(old), lambda use: _on(use, day_of(use.hour)))
            _replace(
                db,
                (USES.c.hour < now - JOBS_KEPT_S) & (USES.c.job != ""),
                lambda use: Use(use.hour, use.pool, use.spending, _without_job(use.payer), use.price),
            )


def _row_of(life: Life) -> dict[str, object]:
    return {
        "machine": life.machine,
        "node": life.node,
        "pool": life.pool,
        "running": life.running,
        "launched": life.launched,
        "until": life.until,
        "paid_ms": life.paid_ms,
        "price": life.price,
        "user": life.owner.user,
        "account": life.owner.account,
        "job": life.owner.job,
    }


def _key(use: Use) -> dict[str, object]:
    return {
        "hour": use.hour,
        "pool": use.pool,
        "spending": use.spending.value,
        "user": use.payer.user,
        "account": use.payer.account,
        "job": use.payer.job,
        "price": use.price,
    }


def _use(row: Any) -> Use:
    payer = Payer(row.user, row.account, row.job)
    return Use(row.hour, PoolName(row.pool), Spending(row.spending), payer, row.price)


def _add(db: Connection, bill: Mapping[Use, int]) -> None:
    for use, ms in bill.items():
        key = _key(use)
        line = [USES.c[name] == value for name, value in key.items()]
        if not db.execute(update(USES).where(*line).values(ms=USES.c.ms + ms)).rowcount:
            db.execute(insert(USES).values(**key, ms=ms))


def _replace(db: Connection, which: ColumnElement[bool], other: Callable[[Use], Use]) -> None:
    """Say these lines otherwise, those that are then alike together."""
    rows = db.execute(select(USES).where(which)).all()
    if not rows:
        return
    db.execute(delete(USES).where(which))
    again: Counter[Use] = Counter()
    for row in rows:
        again[other(_use(row))] += row.ms
    _add(db, again)


def _on(use: Use, day: float) -> Use:
    return Use(int(day), use.pool, use.spending, use.payer, use.price)


def _without_job(payer: Payer) -> Payer:
    return Payer(payer.user, payer.account)


def _in_parts(hours: list[int]) -> Iterable[list[int]]:
    return (hours[first : first + AT_ONCE] for first in range(0, len(hours), AT_ONCE))
