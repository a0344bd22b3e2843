"""A real PostgreSQL server for tests: on 127.0.0.1, in a folder of its own, ended by its process id.

It may be killed, started again, made read-only, or frozen; a lock on a table makes it slow.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import URL

from cmscale.lab.processes import Running, alive, descendants, last_lines, look, wait_until

ADMIN = "cmscale"
STARTS_IN_S = 60.0
ENDS_IN_S = 20.0


class Server:
    """One server; it can be asked for databases while it runs."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cm-scale-postgres-"))
        self.port = _free_port()
        self._user = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self._names = count(1)
        self._lent: list[str] = []
        self._free: list[str] = []
        if self._user:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        words = ["--username", ADMIN, "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(
            self._as_nobody("initdb", "--pgdata", str(self._data), *words),
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    # --- its life

    def start(self) -> None:
        """Start it, unless it runs; it answers."""
        if self.running:
            return
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            # What is written survives the death of the server; that of the whole machine is not for this test.
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._as_nobody("postgres", "-D", str(self._data), "-p", str(self.port), *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )
        assert wait_until(self._answers, STARTS_IN_S), f"PostgreSQL did not start: {last_lines(self._log)}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """End it as its init script would: whoever is connected is sent away."""
        if self._process:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(ENDS_IN_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL, all of it at once."""
        everybody = self._processes()
        self._signal(everybody, signal.SIGKILL)
        if self._process:
            self._process.wait(ENDS_IN_S)
        self._process = None
        assert wait_until(lambda: not any(map(alive, everybody)), ENDS_IN_S)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It accepts connections and answers nothing."""
        everybody = self._processes()
        self._signal(everybody, signal.SIGSTOP)
        try:
            yield
        finally:
            self._signal(everybody, signal.SIGCONT)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Nothing can be written, as on a standby."""
        self.sql("ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
        assert wait_until(lambda: self._shows("default_transaction_read_only") == "on", 10)
        try:
            yield
        finally:
            self.sql("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
            assert wait_until(lambda: self._shows("default_transaction_read_only") == "off", 10)

    @contextmanager
    def locked(self, url: URL, table: str) -> Iterator[None]:
        """Somebody holds a table: whoever asks for it waits."""
        with self._connect(str(url.database), autocommit=False) as db:
            db.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(table)))
            yield
            db.rollback()

    def remove(self) -> None:
        """End it and leave nothing."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what is in it

    def database(self) -> URL:
        """An empty database, which is nobody else's until `recycle`."""
        if self._free:
            name = self._free.pop()
            self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
            again = ("CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO PUBLIC")
            self.sql("DROP SCHEMA public CASCADE", *again, database=name)
        else:
            name = f"journal_{next(self._names)}"
            self.sql(f"CREATE DATABASE {name}")
        self._lent.append(name)
        return URL.create("postgresql", ADMIN, host="127.0.0.1", port=self.port, database=name)

    def recycle(self) -> None:
        """The databases that were asked for are no longer needed; to make them takes longer than to empty them."""
        self._free += self._lent
        self._lent.clear()

    def sql(self, *statements: str, database: str = "postgres") -> None:
        with self._connect(database) as db:
            for statement in statements:
                db.execute(statement.encode())

    def asked(self, query: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with self._connect(database) as db:
            return db.execute(query.encode()).fetchall()

    # --- within

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _connect(self, database: str, *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
        address = f"host=127.0.0.1 port={self.port} user={ADMIN} connect_timeout=5"
        # Whatever the server is like for others, its administrator may write.
        own = "-c default_transaction_read_only=off"
        return psycopg.connect(address, dbname=database, options=own, autocommit=autocommit)

    def _answers(self) -> bool:
        assert self.running, f"PostgreSQL ended: {last_lines(self._log)}"
        with suppress(psycopg.OperationalError):
            self.sql("SELECT 1")
            return True
        return False

    def _shows(self, setting: str) -> str:
        """What a session that sets nothing itself is given."""
        with psycopg.connect(f"host=127.0.0.1 port={self.port} user={ADMIN} dbname=postgres", autocommit=True) as db:
            row = db.execute(f"SHOW {setting}".encode()).fetchone()
        return str(row and row[0])

    def _as_nobody(self, program: str, *words: str) -> Sequence[str]:
        """A server refuses to run as root; and it ends with whoever runs the tests."""
        who = ["--reuid", str(self._user.pw_uid), "--regid", str(self._user.pw_gid)] if self._user else []
        return ["setpriv", "--pdeathsig", "INT", *who, *(["--clear-groups"] if who else []), _binary(program), *words]

    def _processes(self) -> list[Running]:
        pid = self._process.pid if self._process else 0
        own = look(pid)
        return [*([own] if own else []), *descendants([pid])] if pid else []

    def _signal(self, processes: Sequence[Running], number: int) -> None:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)


def _unprivileged() -> pwd.struct_passwd | None:
    """Who runs the server; None: whoever runs the tests."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _binary(name: str) -> str:
    """Debian keeps the server's programs out of PATH, a folder for each version."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"{name} is missing: make setup installs the Debian package postgresql"
    return path


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
