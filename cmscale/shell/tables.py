"""What stands in the journal's file, and how is it opened?

SQLite in WAL mode with full synchronisation: what is written is on disk before anything is done. A file of an earlier
version is given the tables and indices that it lacks; whoever may only read it sees such tables as empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    select,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateTable

KEPT_S = 30 * 86400.0
"""How long is kept what is over: finished operations, events, evidence, and what plans said."""

_tables = MetaData()

OPERATIONS = Table(
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
    Column("detail", String),
)

IDLE = Table("idle", _tables, Column("node", String, primary_key=True), Column("since", Float, nullable=False))
CLOSURES = Table(
    "closures",
    _tables,
    Column("pool", String, primary_key=True),
    Column("until", Float, nullable=False),
    Column("result", String, nullable=False),
    Column("why", String, nullable=False),
    Column("strikes", Integer, nullable=False),
)
FACTS = Table(
    "facts",
    _tables,
    Column("kind", String, primary_key=True),
    Column("subject", String, primary_key=True),
    Column("at", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("why", String, nullable=False),
    Column("by", String, nullable=False),
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
    Column("subject", String, nullable=False),
    Column("text", String, nullable=False),
)
EVIDENCE = Table(
    "evidence",
    _tables,
    Column("machine", String, primary_key=True),
    Column("node", String, nullable=False, index=True),
    Column("at", Float, nullable=False),
    Column("why", String, nullable=False),
    Column("text", String, nullable=False),
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


class Part:
    """One part of the journal; all of them are in one file."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def dispose(self) -> None:
        self._engine.dispose()

    def _prune(self, db: Connection, now: float) -> None:
        """Forget what is too old or too much; each part forgets its own."""


def writable(path: Path | None) -> Engine:
    """The file, made if there is none; None: in memory."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(f"sqlite:///{path}" if path else "sqlite://", connect_args={"timeout": 10})
    event.listen(engine, "connect", _durable)
    _tables.create_all(engine)
    for table in _tables.tables.values():
        for index in table.indexes:
            index.create(engine, checkfirst=True)
    return engine


def readable(path: Path) -> Engine:
    """The file as it is; nothing in it can be changed."""
    engine = _only_reading(path, "mode=ro")
    try:
        with engine.connect() as db:
            db.execute(select(PLANS).limit(1))
    except OperationalError:
        # A reader of a WAL needs its index, which the writer keeps while it runs and takes away when it ends. Without
        # it nobody writes, and the file may be read as it lies.
        engine.dispose()
        return _only_reading(path, "mode=ro&immutable=1")
    return engine


def _only_reading(path: Path, how: str) -> Engine:
    engine = create_engine(f"sqlite:///file:{path}?{how}&uri=true")
    event.listen(engine, "connect", _complete)
    return engine


def _durable(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _complete(connection: Any, _: object) -> None:
    """Give a reader the tables that the file lacks: temporary ones, which are never part of the file."""
    cursor = connection.cursor()
    there = {name for (name,) in cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    cursor.execute("PRAGMA temp_store=MEMORY")
    for name, table in _tables.tables.items():
        if name not in there:
            cursor.execute(str(CreateTable(table)).replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
    cursor.close()
