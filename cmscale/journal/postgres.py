"""How is a PostgreSQL server asked, so that one that is silent or slow never holds a tick?

Everything has a limit: connecting, each statement at the server, and each answer here, for a server that is frozen
heeds no limit of its own. Passwords are libpq's affair (a passfile, PGPASSFILE): none is in our URL.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event

from cmscale.ports import Misconfigured

if TYPE_CHECKING:
    import psycopg

DRIVER = "postgresql+psycopg"

ANSWER_LIMIT_S = 5.0
"""How long a statement may take; no statement of ours takes a tenth of that on a server that is well."""

FROZEN_LIMIT_S = ANSWER_LIMIT_S + 1
"""How long we wait for an answer at all: the server itself should have given up before."""

UPGRADE_LIMIT_S = 600.0
"""How long a step from one version's tables to the next may take: an index over years of operations is not made at
once."""

AT_ONCE = 20
"""Connections of one process at most: a tick makes 16 calls at once, each with its outcome to write."""


def server(url: URL, *, read_only: bool) -> Engine:
    """The database of this URL; not asked yet. Raises Misconfigured if the driver is missing."""
    try:
        connection = _limited()
    except ImportError:
        raise Misconfigured(
            f"the journal {url} needs psycopg, which is not installed: pip install 'cm-scale[postgres]'"
        ) from None
    limits = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    options = [f"{limit}={ANSWER_LIMIT_S * 1000:.0f}" for limit in limits]
    options += ["default_transaction_read_only=on"] * read_only
    engine = create_engine(
        url.set(drivername=DRIVER),
        connect_args={
            "connect_timeout": round(ANSWER_LIMIT_S),
            "options": " ".join(f"-c {option}" for option in options),
            "application_name": "cm-scale",
        },
        pool_pre_ping=True,
        pool_size=AT_ONCE,
        max_overflow=0,
        pool_timeout=ANSWER_LIMIT_S,
    )

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, words: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return connection.connect(*words, **options)

    return engine


@contextmanager
def alone(db: Connection) -> Iterator[None]:
    """Let nobody else change the tables until this transaction ends; and let it take its time."""
    connection: Any = db.connection.driver_connection
    connection.limit_s = UPGRADE_LIMIT_S + 1
    try:
        db.exec_driver_sql(f"SET LOCAL statement_timeout = '{UPGRADE_LIMIT_S:.0f}s'")
        db.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('cm-scale journal'))")
        yield
    finally:
        connection.limit_s = FROZEN_LIMIT_S


def _limited() -> type[psycopg.Connection[Any]]:
    import psycopg

    class Limited(psycopg.Connection[Any]):
        """A connection that is given up when the server does not answer in time."""

        limit_s = FROZEN_LIMIT_S

        def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
            kwargs["timeout"] = min(kwargs.get("timeout") or self.limit_s, self.limit_s)
            try:
                return super().wait(gen, *args, **kwargs)
            except psycopg.errors.OperationalError as error:
                if error.sqlstate is None and self.pgconn.transaction_status == psycopg.pq.TransactionStatus.ACTIVE:
                    # What it answers later would be taken for the answer to something else.
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server has not answered within {self.limit_s:g} s") from None
                raise

        def __del__(self, *_: Any) -> None:
            # A pool that is disposed of does not close what is lent out of it at that moment.
            self.close()

    return Limited
