"""What stands in the journal?

A module that keeps a part of it adds its tables here, how older journals come by them to `migrations`, and a class that
derives from `database.Part` to `SqlJournal`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Select,
    String,
    Table,
    TypeDecorator,
    delete,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

KEPT_S = 30 * 86400.0
"""How long is kept what is over: finished operations, events, evidence, and what plans said."""

FORGOTTEN_AT_ONCE = 5000
"""Rows at most: however much there is to be forgotten after a long rest, no tick waits for all of it."""

_tables = MetaData()


class Words(TypeDecorator[str]):
    """What others wrote (clouds, consoles, people), with what no database takes for text replaced: NUL, half a
    character."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, _dialect: Dialect) -> str | None:
        return value and value.replace("\0", "\ufffd").encode(errors="replace").decode()


OPERATIONS = Table(
    "operations",
    _tables,
    Column("id", String, primary_key=True),
    Column("verb", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("all_or_none", Boolean, nullable=False),
    Column("reason", Words, nullable=False),
    Column("began", Float, nullable=False, index=True),
    Column("ended", Float, index=True),
    Column("tags", String),
)
ITEMS = Table(
    "operation_nodes",
    _tables,
    Column("op", String, primary_key=True),
    Column("node", String, primary_key=True),
    Column("place", Integer, nullable=False),
    Column("job", String, index=True),
    Column("need", Integer, nullable=False),
    Column("machine", String, index=True),
    Column("result", String),
    Column("detail", Words),
)

IDLE = Table("idle", _tables, Column("node", String, primary_key=True), Column("since", Float, nullable=False))
CLOSURES = Table(
    "closures",
    _tables,
    Column("pool", String, primary_key=True),
    Column("until", Float, nullable=False),
    Column("result", String, nullable=False),
    Column("why", Words, nullable=False),
    Column("strikes", Integer, nullable=False),
)
FACTS = Table(
    "facts",
    _tables,
    Column("kind", String, primary_key=True),
    Column("subject", Words, primary_key=True),
    Column("at", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("why", Words, nullable=False),
    Column("by", Words, nullable=False),
)

BUSY = Table(
    "busy",
    _tables,
    Column("hour", Integer, primary_key=True),
    Column("pool", String, primary_key=True),
    Column("most", Integer, nullable=False),
)
EVENTS = Table(
    "events",
    _tables,
    Column("id", Integer, primary_key=True),
    Column("at", Float, nullable=False, index=True),
    Column("kind", String, nullable=False),
    Column("subject", Words, nullable=False),
    Column("text", Words, nullable=False),
)
EVIDENCE = Table(
    "evidence",
    _tables,
    Column("machine", String, primary_key=True),
    Column("node", String, nullable=False, index=True),
    Column("at", Float, nullable=False),
    Column("why", Words, nullable=False),
    Column("text", Words, nullable=False),
)

PLANS = Table(
    "plans",
    _tables,
    Column("tick", String, primary_key=True),
    Column("at", Float, nullable=False, index=True),
    Column("plan", String, nullable=False),
)
SNAPSHOTS = Table(
    "snapshots",
    _tables,
    Column("tick", String, primary_key=True),
    Column("at", Float, nullable=False),
    Column("bytes", Integer, nullable=False),
    Column("view", LargeBinary, nullable=False),
    Column("plan", LargeBinary, nullable=False),
    Index("snapshots_by_age", "at", "bytes"),
)


LIVES = Table(
    "machine_lives",
    _tables,
    Column("machine", String, primary_key=True),
    Column("node", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("running", Boolean, nullable=False),
    Column("launched", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("paid_ms", BigInteger, nullable=False),
    Column("price", BigInteger, nullable=False),
    Column("user", String, nullable=False),
    Column("account", String, nullable=False),
    Column("job", String, nullable=False),
)
USES = Table(
    "uses",
    _tables,
    Column("hour", BigInteger, primary_key=True),
    Column("pool", String, primary_key=True),
    Column("spending", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("account", String, primary_key=True),
    Column("job", String, primary_key=True),
    Column("price", BigInteger, primary_key=True),
    Column("ms", BigInteger, nullable=False),
)

LEASE = Table(
    "lease",
    _tables,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("term", Integer, nullable=False),
    Column("host", String, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("life", String, nullable=False),
    Column("since", Float, nullable=False),
    Column("until", Float, nullable=False),
)


def oldest(table: Table, at: Column[Any], before: float, most: int | None = None) -> Select[Any]:
    """The keys of rows to be forgotten: from before then, or more than so many; the oldest first, not all at once."""
    (key,) = table.primary_key
    over: ColumnElement[bool] = at < before
    if most is not None:
        over |= at <= select(at).order_by(at.desc()).offset(most).limit(1).scalar_subquery()
    return select(key).where(over).order_by(at, key).limit(FORGOTTEN_AT_ONCE)


def forget(db: Connection, table: Table, before: float, most: int) -> None:
    """Forget what has its time in `at` and is too old or too much."""
    (key,) = table.primary_key
    db.execute(delete(table).where(key.in_(oldest(table, table.c.at, before, most))))


def upsert(db: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that may be told what to do where there is such a row already."""
    return postgresql.insert(table) if db.dialect.name == "postgresql" else sqlite.insert(table)
