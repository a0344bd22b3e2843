"""Where is the journal, and what if it can't be used?

A file of SQLite by its path, or a PostgreSQL database by its URL. Every transaction of the journal goes through here:
whatever keeps one from being made becomes one sentence, `Unavailable`, on which nothing is begun; the next transaction
tries afresh. It is opened at its first use, and again after each failure.

Whoever keeps the journal, the daemon, also gets over the loss of it: a broken file is set aside, a deleted one is
missed, and a new journal is begun that says so. Machines are known by their tags; what is lost is history.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Lock

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.exc import TimeoutError as NoneFree

from cmscale.journal import migrations, postgres, sqlite
from cmscale.ports import Misconfigured, Unavailable

FAILURES = (DBAPIError, NoneFree, OSError, migrations.OtherVersion)
"""What keeps a transaction from being made, wherever the journal is."""

Lost = Callable[[Connection, str], None]
"""Told, within the transaction that makes its tables, of a journal that is begun anew, and why the one before is lost.
"""

log = logging.getLogger(__name__)


class Database:
    """The journal's database; None: in memory, for a look that must leave no trace."""

    def __init__(
        self,
        where: Path | URL | None,
        *,
        read_only: bool = False,
        keeps: bool = False,
        used: bool = False,
        lost: Lost = lambda db, why: None,  # noqa: ARG005 - it is told, and need not care
        fence: Callable[[Connection], None] | None = None,
    ) -> None:
        """With `keeps` it is the daemon's own, to be mended; `used` says that there was a journal before. `fence` is
        asked at the beginning of every transaction that writes, and raises if we may not."""
        self._where = where
        self._lost = lost
        self._read_only = read_only
        self._keeps = keeps
        self._used = used
        self._fence = fence
        self._engine: Engine | None = None
        self._opening = Lock()
        self._refused: Unavailable | None = None
        self._refusals = 0
        self._examined = False
        self._identity: sqlite.Identity | None = None
        self._broken = ""
        self._why_lost = ""

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
        with self._told("written"), _to_write(self._opened()).begin() as db:
            if self._fence:
                self._fence(db)
            yield db

    def dispose(self) -> None:
        with self._opening:
            self._close()

    @contextmanager
    def _told(self, how: str) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            self._note_if_broken(error)
            if self._where is not None:
                self.dispose()
            raise Unavailable(f"{self}: the journal can't be {how} ({_cause(error)})") from None

    # --- opening

    def _opened(self) -> Engine:
        before = self._refusals
        with self._opening:
            if self._refused and self._refusals != before:
                raise self._refused  # another call has just waited for an answer: one wait is enough
            if self._engine and self._gone():
                self._why_lost = "it was deleted while the daemon ran"
                self._close()
            if self._engine is None:
                self._engine = self._open()
            return self._engine

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _open(self) -> Engine:
        try:
            if not self._broken:
                try:
                    return self._reach()
                except DBAPIError as error:
                    self._note_if_broken(error)
                    if not self._broken:
                        raise
            self._set_aside()
            return self._reach()
        except FAILURES as error:
            self._refused = self._refusal(error)
            self._refusals += 1
            raise self._refused from None

    def _reach(self) -> Engine:
        if isinstance(self._where, URL):
            engine = postgres.server(self._where, read_only=self._read_only)
        elif self._where and self._read_only:
            engine = sqlite.readable(self._where)
        else:
            engine = sqlite.writable(self._where)
        try:
            return self._looked_at(engine) if self._read_only else self._of_this_version(engine)
        except BaseException:
            engine.dispose()
            raise

    def _looked_at(self, engine: Engine) -> Engine:
        """The journal as it is; one of an earlier version in a copy that is of this one, for nothing may be changed."""
        with engine.connect() as db:
            if migrations.current(db):
                return engine
            if isinstance(self._where, URL) and not migrations.empty(db):
                raise migrations.OtherVersion("an earlier version wrote it; the daemon of this one takes it over")
            copy = sqlite.copied(db)
        engine.dispose()
        with _to_write(copy).begin() as db:
            migrations.upgrade(db)
        return copy

    def _of_this_version(self, engine: Engine) -> Engine:
        with _to_write(engine).begin() as db:
            if self._keeps and self._file and not self._examined:
                sqlite.examine(db)
            if not migrations.current(db):
                self._upgrade(db)
        if self._file:
            self._identity = sqlite.identity(self._file)
        self._examined = self._used = True
        self._why_lost = ""
        return engine

    def _upgrade(self, db: Connection) -> None:
        with postgres.alone(db) if isinstance(self._where, URL) else nullcontext():
            new = migrations.empty(db)
            migrations.upgrade(db)
            if new and self._used:
                self._lost(db, self._why_lost or "it was gone")

    def _refusal(self, error: BaseException) -> Unavailable:
        said = f"{self}: the journal can't be opened ({_cause(error)})"
        if isinstance(error, migrations.OtherVersion):
            return Misconfigured(said)
        if isinstance(self._where, URL):
            return Misconfigured(said) if isinstance(error, ProgrammingError) else Unavailable(said)
        if sqlite.passing(error) or getattr(error, "errno", None) == errno.ENOSPC:
            return Unavailable(said)
        mend = (
            "the daemon sets it aside at its start" if sqlite.broken(error) else "see [cluster] journal and state_dir"
        )
        return Misconfigured(f"{said}; {mend}")

    # --- broken or gone

    @property
    def _file(self) -> Path | None:
        return self._where if isinstance(self._where, Path) else None

    def _gone(self) -> bool:
        """True if what we write to is no longer what the next process would find."""
        return self._keeps and self._file is not None and sqlite.identity(self._file) != self._identity

    def _note_if_broken(self, error: BaseException) -> None:
        if self._keeps and self._file and sqlite.broken(error):
            self._broken = _cause(error)

    def _set_aside(self) -> None:
        if self._file is None:
            return
        aside = sqlite.set_aside(self._file)
        self._why_lost = f"it was broken ({self._broken}) and is kept as {aside}"
        self._broken = ""


def _to_write(engine: Engine) -> Engine:
    return engine.execution_options(**{sqlite.WRITES: True})


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
