"""How is the journal kept in one file, and what if that file is broken or gone?

SQLite in WAL mode with full synchronisation: what is written is on disk before anything is done. A file that is no
journal any more is set aside under a dated name, never deleted.
"""

from __future__ import annotations

import sqlite3
import time
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import StaticPool

WRITES = "cmscale_writes"
"""The execution option of a transaction that will write."""

BUSY_LIMIT_S = 5.0
"""How long one transaction waits for another one's to end."""

LOG_BYTES = 64 * 2**20
"""The write-ahead log is cut down to this when it has been written back."""

_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PASSING = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

Identity = tuple[int, int]


# --- opening ---------------------------------------------------------------------------------------------------------


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
    """What a file holds, in memory, where it may be changed; of a database elsewhere, nothing."""
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
    cursor.execute(f"PRAGMA journal_size_limit={LOG_BYTES}")
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


# --- broken or gone --------------------------------------------------------------------------------------------------


def broken(error: BaseException) -> bool:
    """True if this says that the file is no journal any more."""
    return _code(error) in _BROKEN


def passing(error: BaseException) -> bool:
    """True if what keeps the file from being used may pass by itself: a full disk, a busy file."""
    return _code(error) in _PASSING


def _code(error: BaseException) -> int | None:
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return None if code is None else code & 0xFF  # the rest says more than we ask


def examine(db: Connection) -> None:
    """Raise what `broken` knows if the file has torn pages, wherever in it they are."""
    found = db.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":
        torn = sqlite3.DatabaseError(str(found).strip().rpartition("\n")[2])
        torn.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise DatabaseError(None, None, torn)


def identity(path: Path) -> Identity | None:
    """What tells the file from another one of its name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def set_aside(path: Path) -> Path:
    """Give the file, and what belongs to it, a dated name; returns that. Raises OSError."""
    name = f"{path.name}.broken-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (path.with_name(name if number == 1 else f"{name}-{number}") for number in count(1))
    dated = next(each for each in names if not each.exists())
    for ending in ("-shm", "-wal", ""):  # the file itself last: until then it is the journal
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(dated.with_name(dated.name + ending))
    return dated
