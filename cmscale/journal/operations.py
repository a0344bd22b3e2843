"""Which calls to the clouds were begun, how did they end, and what follows from that?

An operation is on disk before its call is made, so that after a kill at any instruction the same operation is repeated
under the same id instead of a second machine being made.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, FromClause, case, cast, delete, func, insert, select, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import Select
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from cmscale.journal.database import Database, Part
from cmscale.journal.tables import ITEMS, KEPT_S, OPERATIONS, oldest
from cmscale.model import (
    Creations,
    JobId,
    Launch,
    Machine,
    MachineId,
    MachineState,
    NodeName,
    Operation,
    OpId,
    Outcome,
    PoolName,
    Result,
    Verb,
)

USED_REST_S = 60.0
"""How long the use of the nodes is told again before it is counted anew, which takes a look at months of operations."""

MADE = (ITEMS.c.result == Result.OK.value) | ITEMS.c.result.is_(None)
"""A machine was made, or may have been: the call ended well, or we do not know yet."""

REFUSED = ITEMS.c.result.not_in((Result.OK.value, Result.TRANSIENT.value))


class Operations(Part):
    """The part of the journal that holds operations."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._used: tuple[float, float, Mapping[NodeName, float]] | None = None

    def begin(self, operations: Sequence[Operation]) -> None:
        with self._database.writing() as db:
            for operation in operations:
                db.execute(
                    insert(OPERATIONS).values(
                        id=operation.id,
                        verb=operation.verb.value,
                        pool=operation.pool,
                        all_or_none=operation.all_or_none,
                        reason=operation.reason,
                        began=operation.began,
                        tags=json.dumps(dict(operation.tags)) if operation.tags else None,
                    )
                )
                rows = zip_longest(operation.nodes, operation.jobs, operation.needs, operation.machines)
                db.execute(
                    insert(ITEMS),
                    [
                        {
                            "op": operation.id,
                            "node": node,
                            "place": place,
                            "job": job,
                            "need": need or 1,
                            "machine": made,
                        }
                        for place, (node, job, need, made) in enumerate(rows)
                    ],
                )

    def finish(self, op: OpId, outcomes: Mapping[NodeName, Outcome], now: float) -> None:
        with self._database.writing() as db:
            for node, outcome in outcomes.items():
                values: dict[str, Any] = {"result": outcome.result.value, "detail": outcome.detail}
                if outcome.machine:
                    values["machine"] = outcome.machine
                db.execute(update(ITEMS).where(ITEMS.c.op == op, ITEMS.c.node == node).values(**values))
            db.execute(update(OPERATIONS).where(OPERATIONS.c.id == op).values(ended=now))

    def under_way(self) -> tuple[Operation, ...]:
        with self._database.reading() as db:
            rows = db.execute(select(OPERATIONS).where(OPERATIONS.c.ended.is_(None)).order_by(OPERATIONS.c.began))
            return tuple(self._operation(db, row) for row in rows)

    def _operation(self, db: Connection, row: Any) -> Operation:
        rows = db.execute(select(ITEMS).where(ITEMS.c.op == row.id).order_by(ITEMS.c.place)).all()
        return Operation(
            id=OpId(row.id),
            verb=Verb(row.verb),
            pool=PoolName(row.pool),
            nodes=tuple(NodeName(item.node) for item in rows),
            began=row.began,
            reason=row.reason,
            jobs=tuple(JobId(item.job) if item.job else None for item in rows),
            needs=tuple(item.need for item in rows),
            all_or_none=row.all_or_none,
            machines=tuple(MachineId(item.machine) for item in rows if item.machine),
            tags=json.loads(row.tags or "{}"),
        )

    def fresh(self, since: float) -> tuple[Machine, ...]:
        """Machines that a call made since then and no later call deleted, though a listing may not show them yet."""
        # Starts by their end, not their beginning: a call may have been made again for minutes before it took effect.
        starts, deletions = (
            _since(OPERATIONS.c.ended, since, Verb.START),
            _since(OPERATIONS.c.began, since, Verb.DELETE),
        )
        deleted = ITEMS.alias()
        query = (
            select(ITEMS.c.machine, ITEMS.c.node, OPERATIONS.c.ended, OPERATIONS.c.id)
            .join(OPERATIONS, OPERATIONS.c.id == ITEMS.c.op)
            .where(
                ITEMS.c.op.in_(starts),
                ITEMS.c.result == Result.OK.value,
                ITEMS.c.machine.is_not(None),
                ~select(deleted.c.op).where(deleted.c.machine == ITEMS.c.machine, deleted.c.op.in_(deletions)).exists(),
            )
        )
        with self._database.reading() as db:
            return tuple(
                Machine(MachineId(row.machine), NodeName(row.node), MachineState.STARTING, "", row.ended, OpId(row.id))
                for row in db.execute(query)
            )

    def creations(self, submitted: Mapping[JobId, float]) -> Mapping[JobId, Creations]:
        """What was started for these jobs since they were submitted: Slurm uses a job id again one day."""
        job = _each(submitted)
        query = (
            select(
                job.c.key,
                func.count(case((MADE, 1))).label("machines"),
                func.max(ITEMS.c.need).label("need"),
                func.min(OPERATIONS.c.began).label("first"),
                func.count(case((REFUSED, 1))).label("refused"),
            )
            .select_from(job)
            .join(ITEMS, ITEMS.c.job == job.c.key)
            .join(OPERATIONS, OPERATIONS.c.id == ITEMS.c.op)
            .where(OPERATIONS.c.verb == Verb.START.value, OPERATIONS.c.began >= cast(job.c.value, Float))
            .group_by(job.c.key)
        )
        with self._database.reading() as db:
            return {
                JobId(row.key): Creations(row.machines, row.need, row.first, row.refused) for row in db.execute(query)
            }

    def launches(self, since: float) -> tuple[Launch, ...]:
        """The launch calls since then of which a machine was made or may have been, oldest first."""
        query = (
            select(OPERATIONS.c.began, OPERATIONS.c.pool, func.count().label("machines"))
            .join(ITEMS, ITEMS.c.op == OPERATIONS.c.id)
            .where(OPERATIONS.c.verb == Verb.START.value, OPERATIONS.c.began > since, MADE)
            .group_by(OPERATIONS.c.id)
            .order_by(OPERATIONS.c.began, OPERATIONS.c.id)
        )
        with self._database.reading() as db:
            return tuple(Launch(row.began, PoolName(row.pool), row.machines) for row in db.execute(query))

    def jobs_of(self, ops: Collection[OpId]) -> Mapping[tuple[OpId, NodeName], JobId]:
        """For which job each node of these starts was started."""
        query = select(ITEMS.c.op, ITEMS.c.node, ITEMS.c.job).where(
            ITEMS.c.op.in_(select(_each(dict.fromkeys(ops)).c.key)), ITEMS.c.job.is_not(None)
        )
        with self._database.reading() as db:
            return {(OpId(row.op), NodeName(row.node)): JobId(row.job) for row in db.execute(query)}

    def used_s(self, since: float, now: float) -> Mapping[NodeName, float]:
        """For how long each node had a machine since then: from a start to whatever was done with the node next.

        The same is told again for a minute.
        """
        if self._used and self._used[0] == now - since and self._used[1] <= now < self._used[1] + USED_REST_S:
            return self._used[2]
        after = func.lead(OPERATIONS.c.began).over(partition_by=ITEMS.c.node, order_by=OPERATIONS.c.began)
        steps = (
            select(ITEMS.c.node, OPERATIONS.c.verb, OPERATIONS.c.began, func.coalesce(after, now).label("ended"))
            .join(OPERATIONS, OPERATIONS.c.id == ITEMS.c.op)
            .where(MADE)
            .subquery()
        )
        query = (
            select(steps.c.node, func.sum(steps.c.ended - _later(steps.c.began, since)).label("used_s"))
            .where(steps.c.verb == Verb.START.value, steps.c.ended > since)
            .group_by(steps.c.node)
        )
        with self._database.reading() as db:
            used = {NodeName(row.node): row.used_s for row in db.execute(query)}
        self._used = now - since, now, used
        return used

    def history(self, *, job: JobId | None = None, node: NodeName | None = None) -> tuple[dict[str, Any], ...]:
        """What was done for a job or with a node, oldest first: operations with their outcomes."""
        query = (
            select(OPERATIONS, ITEMS.c.job, ITEMS.c.node, ITEMS.c.machine, ITEMS.c.result, ITEMS.c.detail)
            .join(ITEMS, ITEMS.c.op == OPERATIONS.c.id)
            .order_by(OPERATIONS.c.began, ITEMS.c.place)
        )
        if job:
            query = query.where(ITEMS.c.job == job)
        if node:
            query = query.where(ITEMS.c.node == node)
        with self._database.reading() as db:
            return tuple(dict(row._mapping) for row in db.execute(query))  # noqa: SLF001 - SQLAlchemy's public name

    def _prune(self, db: Connection, now: float) -> None:
        super()._prune(db, now)
        over = oldest(OPERATIONS, OPERATIONS.c.ended, now - KEPT_S)
        db.execute(delete(ITEMS).where(ITEMS.c.op.in_(over)))
        db.execute(delete(OPERATIONS).where(OPERATIONS.c.id.in_(over)))


def _since(when: ColumnElement[float], since: float, verb: Verb) -> Select[tuple[str]]:
    """The ids of the calls of a kind that began or ended since then; in a subquery of its own, or SQLite would begin
    with all nodes."""
    return select(OPERATIONS.c.id).where(OPERATIONS.c.verb == verb.value, when >= since)


def _later(column: ColumnElement[float], since: float) -> ColumnElement[float]:
    return case((column > since, column), else_=since)


def _each(values: Mapping[JobId, float] | Mapping[OpId, None]) -> FromClause:
    """Our values as a table, with `key` and `value`: there may be more of them than a query takes as parameters."""
    return _Pairs(json.dumps(values)).table_valued("key", "value")


class _Pairs(FunctionElement[Any]):
    """The keys and values of a JSON object; each database has its own word for it."""

    inherit_cache = True


@compiles(_Pairs, "sqlite")
def _in_sqlite(pairs: _Pairs, compiler: SQLCompiler, **how: Any) -> str:
    return f"json_each({compiler.process(pairs.clauses, **how)})"


@compiles(_Pairs, "postgresql")
def _in_postgresql(pairs: _Pairs, compiler: SQLCompiler, **how: Any) -> str:
    return f"json_each_text(CAST({compiler.process(pairs.clauses, **how)} AS json))"
