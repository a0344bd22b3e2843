"""How is the journal kept in one file, and how is such a file read by somebody who may not write?

SQLite in WAL mode with full synchronisation: what is written is on disk before anything is done.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool

WRITES = "cmscale_writes"
"""The execution option of a transaction that will write."""

BUSY_LIMIT_S = 5.0
"""How long one transaction waits for another one's to end."""


def writable(path: Path | None) -> Engine:
    """The file, made if there is none; None: in memory."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(f"sqlite:///{path}" if path else "sqlite://", connect_args={"timeout": BUSY_LIMIT_S})
    event.listen(engine, "connect", _durable)
    return _in_whole_transactions(engine)


def readable(path: Path) -> Engine:
    """The file as it is; nothing in it can be changed."""
    engine = _only_reading(path, "mode=ro")
    try:
        with engine.connect() as db:
            db.exec_driver_sql("SELECT 1 FROM sqlite_master LIMIT 1")
    except OperationalError:
        # A reader of a WAL needs its index, which the writer keeps while it runs and takes away when it ends. Without
        # it nobody writes, and the file may be read as it lies.
        engine.dispose()
        return _only_reading(path, "mode=ro&immutable=1")
    return engine


def copied(db: Connection) -> Engine:
    """What a file holds, in memory, where it may be changed; of a database that is no file, nothing."""
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    held = db.connection.driver_connection
    if isinstance(held, sqlite3.Connection):
        held.backup(copy)
    return _in_whole_transactions(create_engine("sqlite://", creator=lambda: copy, poolclass=StaticPool))


def _only_reading(path: Path, how: str) -> Engine:
    connect_args = {"timeout": BUSY_LIMIT_S}
    return _in_whole_transactions(create_engine(f"sqlite:///file:{path}?{how}&uri=true", connect_args=connect_args))


def _durable(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _in_whole_transactions(engine: Engine) -> Engine:
    """Begin transactions ourselves: Python's sqlite3 would begin them late, and change tables outside of them."""
    event.listen(engine, "connect", _leave_transactions_to_us)
    event.listen(engine, "begin", _begin)
    return engine


def _leave_transactions_to_us(connection: Any, _: object) -> None:
    connection.isolation_level = None


def _begin(db: Connection) -> None:
    # Whoever will write says so at once: a reader that turns writer is refused if another wrote meanwhile.
    db.exec_driver_sql("BEGIN IMMEDIATE" if db.get_execution_options().get(WRITES) else "BEGIN")
