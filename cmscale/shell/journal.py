"""What must survive us: operations under way, dated facts, past decisions.

SQLite in WAL mode with full synchronisation: an operation is on disk before its call is made, so that after a kill at
any instruction the same operation is repeated under the same id instead of a second machine being made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.exc import DatabaseError, OperationalError

from cmscale.model import (
    Closure,
    Creations,
    JobId,
    Machine,
    MachineId,
    MachineState,
    NodeName,
    Operation,
    OpId,
    Outcome,
    Plan,
    PoolName,
    Result,
    Snapshot,
    Verb,
)
from cmscale.ports import Misconfigured

KEPT_S = 30 * 86400.0
"""How long finished operations and past decisions are kept."""

_tables = MetaData()

_operations = Table(
    "operations",
    _tables,
    Column("id", String, primary_key=True),
    Column("verb", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("all_or_none", Boolean, nullable=False),
    Column("reason", String, nullable=False),
    Column("began", Float, nullable=False, index=True),
    Column("ended", Float, index=True),
)
_items = Table(
    "operation_nodes",
    _tables,
    Column("op", String, primary_key=True),
    Column("node", String, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("job", String, index=True),
    Column("need", Integer, nullable=False),
    Column("machine", String),
    Column("result", String),
    Column("detail", String),
)
_idle = Table("idle", _tables, Column("node", String, primary_key=True), Column("since", Float, nullable=False))
_closures = Table(
    "closures",
    _tables,
    Column("pool", String, primary_key=True),
    Column("until", Float, nullable=False),
    Column("result", String, nullable=False),
    Column("why", String, nullable=False),
    Column("strikes", Integer, nullable=False),
)
_plans = Table(
    "plans",
    _tables,
    Column("tick", String, primary_key=True),
    Column("at", Float, nullable=False, index=True),
    Column("plan", String, nullable=False),
)


class SqlJournal:
    """The journal in one SQLite file (None: in memory, for a look that must leave no trace).

    With `read_only` nothing is written, so that somebody who may only read the daemon's journal can look at it.
    """

    def __init__(self, path: Path | None, *, read_only: bool = False) -> None:
        try:
            self._engine = _readable(path) if path and read_only else _writable(path)
        except (OSError, DatabaseError) as error:
            cause = getattr(error, "orig", None) or error
            raise Misconfigured(f"{path}: the journal can't be opened ({cause}); see [cluster] state_dir") from None
        self._last = ""

    def dispose(self) -> None:
        self._engine.dispose()

    # --- operations

    def begin(self, operations: Sequence[Operation]) -> None:
        with self._engine.begin() as db:
            for operation in operations:
                db.execute(
                    insert(_operations).values(
                        id=operation.id,
                        verb=operation.verb.value,
                        pool=operation.pool,
                        all_or_none=operation.all_or_none,
                        reason=operation.reason,
                        began=operation.began,
                    )
                )
                rows = zip_longest(operation.nodes, operation.jobs, operation.needs, operation.machines)
                db.execute(
                    insert(_items),
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
        with self._engine.begin() as db:
            for node, outcome in outcomes.items():
                values: dict[str, Any] = {"result": outcome.result.value, "detail": outcome.detail}
                if outcome.machine:
                    values["machine"] = outcome.machine
                db.execute(update(_items).where(_items.c.op == op, _items.c.node == node).values(**values))
            db.execute(update(_operations).where(_operations.c.id == op).values(ended=now))

    def under_way(self) -> tuple[Operation, ...]:
        with self._engine.connect() as db:
            rows = db.execute(select(_operations).where(_operations.c.ended.is_(None)).order_by(_operations.c.began))
            return tuple(self._operation(db, row) for row in rows)

    def _operation(self, db: Connection, row: Any) -> Operation:
        items = db.execute(select(_items).where(_items.c.op == row.id).order_by(_items.c.place)).all()
        return Operation(
            id=OpId(row.id),
            verb=Verb(row.verb),
            pool=PoolName(row.pool),
            nodes=tuple(NodeName(item.node) for item in items),
            began=row.began,
            reason=row.reason,
            jobs=tuple(JobId(item.job) if item.job else None for item in items),
            needs=tuple(item.need for item in items),
            all_or_none=row.all_or_none,
            machines=tuple(MachineId(item.machine) for item in items if item.machine),
        )

    def fresh(self, since: float) -> tuple[Machine, ...]:
        """Machines that a call made since then and no later call deleted, though a listing may not show them yet."""
        deleted = (
            select(_items.c.machine)
            .join(_operations, _operations.c.id == _items.c.op)
            .where(_operations.c.verb == Verb.DELETE.value, _items.c.machine.is_not(None))
        )
        made = (
            select(_items.c.machine, _items.c.node, _operations.c.began, _operations.c.id)
            .join(_operations, _operations.c.id == _items.c.op)
            .where(
                _operations.c.verb == Verb.START.value,
                _operations.c.began >= since,
                _items.c.result == Result.OK.value,
                _items.c.machine.is_not(None),
                _items.c.machine.not_in(deleted),
            )
        )
        with self._engine.connect() as db:
            return tuple(
                Machine(MachineId(row.machine), NodeName(row.node), MachineState.STARTING, "", row.began, OpId(row.id))
                for row in db.execute(made)
            )

    def creations(self, submitted: Mapping[JobId, float]) -> Mapping[JobId, Creations]:
        """What was started for these jobs since they were submitted: Slurm uses a job id again one day."""
        query = (
            select(_items.c.job, _items.c.need, _operations.c.began)
            .join(_operations, _operations.c.id == _items.c.op)
            .where(_operations.c.verb == Verb.START.value, _items.c.job.is_not(None), _made())
        )
        counts: dict[JobId, Creations] = {}
        with self._engine.connect() as db:
            for name, need, began in db.execute(query):
                job = JobId(name)
                if job in submitted and began >= submitted[job]:
                    before = counts.get(job, Creations(0, 0))
                    counts[job] = Creations(before.machines + 1, max(before.need, need))
        return counts

    def starts(self, since: float) -> tuple[float, ...]:
        query = (
            select(_operations.c.began)
            .join(_items, _items.c.op == _operations.c.id)
            .where(_operations.c.verb == Verb.START.value, _operations.c.began > since, _made())
            .order_by(_operations.c.began)
        )
        with self._engine.connect() as db:
            return tuple(db.execute(query).scalars())

    # --- dated facts

    def put_idle(self, since: Mapping[NodeName, float | None]) -> None:
        with self._engine.begin() as db:
            for node, at in since.items():
                db.execute(delete(_idle).where(_idle.c.node == node))
                if at is not None:
                    db.execute(insert(_idle).values(node=node, since=at))

    def idle(self) -> Mapping[NodeName, float]:
        with self._engine.connect() as db:
            return {NodeName(row.node): row.since for row in db.execute(select(_idle))}

    def close(self, pool: PoolName, closure: Closure | None) -> None:
        with self._engine.begin() as db:
            db.execute(delete(_closures).where(_closures.c.pool == pool))
            if closure:
                values = {"until": closure.until, "result": closure.result.value, "why": closure.why}
                db.execute(insert(_closures).values(pool=pool, strikes=closure.strikes, **values))

    def closed(self) -> Mapping[PoolName, Closure]:
        with self._engine.connect() as db:
            rows = db.execute(select(_closures))
            return {PoolName(row.pool): Closure(row.until, Result(row.result), row.why, row.strikes) for row in rows}

    # --- past decisions

    def record(self, view: Snapshot, plan: Plan) -> None:
        """Keep the plan if it says anything that the last one did not."""
        text = json.dumps(_told(plan), sort_keys=True)
        if text == self._last:
            return
        self._last = text
        with self._engine.begin() as db:
            db.execute(upsert(_plans).values(tick=plan.tick, at=view.now, plan=text).on_conflict_do_nothing())
            self._prune(db, view.now - KEPT_S)

    def plans(self, since: float) -> Iterator[tuple[float, dict[str, Any]]]:
        """(time, plan) of recorded plans, oldest first."""
        with self._engine.connect() as db:
            for row in db.execute(select(_plans).where(_plans.c.at >= since).order_by(_plans.c.at)):
                yield row.at, json.loads(row.plan)

    def history(self, *, job: JobId | None = None, node: NodeName | None = None) -> tuple[dict[str, Any], ...]:
        """What was done for a job or with a node, oldest first: operations with their outcomes."""
        query = (
            select(_operations, _items.c.job, _items.c.node, _items.c.machine, _items.c.result, _items.c.detail)
            .join(_items, _items.c.op == _operations.c.id)
            .order_by(_operations.c.began, _items.c.place)
        )
        if job:
            query = query.where(_items.c.job == job)
        if node:
            query = query.where(_items.c.node == node)
        with self._engine.connect() as db:
            return tuple(dict(row._mapping) for row in db.execute(query))  # noqa: SLF001 - as above

    @staticmethod
    def _prune(db: Connection, before: float) -> None:
        old = select(_operations.c.id).where(_operations.c.ended < before)
        db.execute(delete(_items).where(_items.c.op.in_(old)))
        db.execute(delete(_operations).where(_operations.c.ended < before))
        db.execute(delete(_plans).where(_plans.c.at < before))


def _made() -> Any:
    """A machine was made, or may have been: the call ended well, or we do not know yet."""
    return (_items.c.result == Result.OK.value) | _items.c.result.is_(None)


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


def _writable(path: Path | None) -> Engine:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(f"sqlite:///{path}" if path else "sqlite://", connect_args={"timeout": 10})
    event.listen(engine, "connect", _durable)
    _tables.create_all(engine)
    return engine


def _readable(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///file:{path}?mode=ro&uri=true")
    try:
        with engine.connect() as db:
            db.execute(select(_plans).limit(1))
    except OperationalError:
        # A reader of a WAL needs its index, which the writer keeps while it runs and takes away when it ends. Without
        # it nobody writes, and the file may be read as it lies.
        engine.dispose()
        return create_engine(f"sqlite:///file:{path}?mode=ro&immutable=1&uri=true")
    return engine


def _durable(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()
