"""Where is the journal, and what if it can't be reached?

A file of SQLite by its path, or a PostgreSQL database by its URL. Every transaction of the journal goes through here:
whatever keeps one from being read or written becomes one sentence, `Unavailable`, on which nothing is begun; the next
transaction tries afresh. It is opened at its first use, and again after each failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as NoneFree

from cmscale.ports import Misconfigured, Unavailable
from cmscale.shell import postgres, sqlite
from cmscale.shell.tables import create, lacking

FAILURES = (DBAPIError, NoneFree, OSError)
"""What keeps a transaction from being made, wherever the journal is."""


class Database:
    """The journal's database; None: in memory, for a look that must leave no trace."""

    def __init__(
        self,
        where: Path | URL | None,
        *,
        read_only: bool = False,
        fence: Callable[[Connection], None] | None = None,
    ) -> None:
        """`fence` is asked at the beginning of every transaction that writes, and raises if we may not."""
        self._where = where
        self._read_only = read_only
        self._fence = fence
        self._engine: Engine | None = None
        self._opening = Lock()

    def __str__(self) -> str:
        return str(self._where or "in memory")

    def open(self) -> None:
        """Open it, if it is not; raises Unavailable, or Misconfigured if only a person can change that."""
        self._opened()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A look at one moment of the journal."""
        with self._told("read"), self._opened().connect() as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A change: the whole of it is durable when this ends, or nothing of it was made."""
        with self._told("written"), self._opened().execution_options(**{sqlite.WRITES: True}).begin() as db:
            if self._fence:
                self._fence(db)
            yield db

    def dispose(self) -> None:
        with self._opening:
            self._close()

    def _opened(self) -> Engine:
        with self._opening:
            if self._engine is None:
                self._engine = self._open()
            return self._engine

    def _open(self) -> Engine:
        try:
            return self._ready(self._reach())
        except FAILURES as error:
            said = f"{self}: the journal can't be opened ({_cause(error)})"
            if isinstance(self._where, Path):
                raise Misconfigured(f"{said}; see [cluster] journal and state_dir") from None
            raise (Unavailable if isinstance(error, OperationalError | NoneFree) else Misconfigured)(said) from None

    def _reach(self) -> Engine:
        if isinstance(self._where, URL):
            return postgres.server(self._where, read_only=self._read_only)
        if self._where and self._read_only:
            return sqlite.readable(self._where)
        return sqlite.writable(self._where)

    def _ready(self, engine: Engine) -> Engine:
        """The database with every table. Whoever may only read sees those that it lacks as empty, in a copy."""
        try:
            if self._read_only:
                with engine.connect() as db:
                    whole = not lacking(db)
                    copy = None if whole else sqlite.copied(db)
                if copy is None:
                    return engine
                engine.dispose()
                engine = copy
            with engine.execution_options(**{sqlite.WRITES: True}).begin() as db:
                create(db)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    @contextmanager
    def _told(self, how: str) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            if self._where is not None:
                self.dispose()
            raise Unavailable(f"{self}: the journal can't be {how} ({_cause(error)})") from None


def _cause(error: BaseException) -> str:
    """What went wrong, in the database's own first words."""
    told = str(getattr(error, "orig", None) or error).strip()
    return told.partition("\n")[0] or type(error).__name__


class Part:
    """One part of the journal; all of them are in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def dispose(self) -> None:
        self._database.dispose()

    def _prune(self, db: Connection, now: float) -> None:
        """Forget what is too old or too much; each part forgets its own."""
