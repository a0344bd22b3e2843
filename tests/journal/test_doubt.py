"""The journal can't be used: nothing is started or given back, it is said why, and it goes on by itself."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import URL, make_url

from cmscale.journal import postgres as remote
from cmscale.journal import sqlite
from cmscale.journal.sql import LOST_REST_S, SqlJournal
from cmscale.model import EventKind, FactKind
from cmscale.ports import Misconfigured, Unavailable
from cmscale.shell.loop import Look
from tests.builders import ask, pool
from tests.postgres.server import Server
from tests.shell.cluster import Cluster, Fuse


def deeds(cluster: Cluster) -> tuple[list[str], object]:
    """The calls to the cloud that changed something, and what Slurm was told of the nodes."""
    changing = [call for call in cluster.cloud.calls if call.startswith(("start", "stop", "delete"))]
    return changing, {name: record.reason for name, record in cluster.slurm.records.items()}


def nothing_happens(cluster: Cluster, ticks: int = 3) -> Look:
    """Some ticks on doubt, after which nothing has changed; the last of them."""
    before = deeds(cluster)
    look = cluster.tick(ticks)
    assert deeds(cluster) == before
    assert look.view.unrecorded
    assert not look.plan.actions
    assert look.view.unrecorded in look.plan.idle_because
    return look


# --- PostgreSQL ------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that wait for a limit; the others must not find one on a busy machine."""
    monkeypatch.setattr(remote, "ANSWER_LIMIT_S", 1.0)
    monkeypatch.setattr(remote, "FROZEN_LIMIT_S", 1.5)


@pytest.fixture
def cluster(postgres: Server) -> Iterator[Cluster]:
    """A cluster whose journal is in PostgreSQL."""
    one = Cluster(postgres.database())
    one.tick(2)
    yield one
    postgres.start()
    one.journal.dispose()


def served(cluster: Cluster) -> None:
    """The job of each story ends, on one machine, and nothing is left."""
    cluster.run_until(lambda: cluster.finished, every_s=10)
    assert len(cluster.slurm.done) == 1
    assert len(cluster.cloud.made) == 1
    assert cluster.journal.under_way() == ()


def test_a_server_that_is_killed_stops_everything_until_it_is_back(cluster: Cluster, postgres: Server) -> None:
    cluster.slurm.submit(1, ask())
    postgres.kill()
    look = nothing_happens(cluster)
    assert "the journal can't be opened (connection failed" in look.view.unrecorded
    postgres.start()
    served(cluster)


def test_a_server_that_was_restarted_between_two_ticks_is_not_even_missed(cluster: Cluster, postgres: Server) -> None:
    cluster.slurm.submit(1, ask())
    postgres.stop()
    postgres.start()
    assert not cluster.tick().view.unrecorded
    served(cluster)


def test_a_server_that_only_lets_read_stops_everything_until_it_lets_write(cluster: Cluster, postgres: Server) -> None:
    cluster.slurm.submit(1, ask())
    with postgres.read_only():
        look = nothing_happens(cluster)
        assert "can't be written (cannot execute" in look.view.unrecorded
        assert "read-only" in look.view.unrecorded
    served(cluster)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("table", ["operations", "plans"])
def test_a_slow_answer_is_not_waited_for_longer_than_its_limit(cluster: Cluster, postgres: Server, table: str) -> None:
    assert isinstance(cluster.where, URL)
    cluster.slurm.submit(1, ask())
    with postgres.locked(cluster.where, table):
        look = nothing_happens(cluster, ticks=1)
        assert "timeout" in look.view.unrecorded
    served(cluster)


@pytest.mark.usefixtures("impatient")
def test_a_frozen_server_does_not_hold_the_tick(cluster: Cluster, postgres: Server) -> None:
    cluster.slurm.submit(1, ask())
    with postgres.frozen():
        began = time.monotonic()
        look = nothing_happens(cluster, ticks=1)
        assert time.monotonic() - began < 30
        assert re.search("has not answered within 1.5 s|timeout", look.view.unrecorded)
    served(cluster)


@dataclass
class Cutting:
    """A cloud in whose call something else happens."""

    inner: Any
    call: str
    then: Callable[[], object]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        if name != self.call:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            result = value(*args, **kwargs)
            self.then()
            return result

        return call


@pytest.mark.parametrize("call", ["start", "delete"])
def test_a_server_that_dies_during_a_call_leaves_an_operation_that_is_taken_up_again(
    cluster: Cluster, postgres: Server, call: str
) -> None:
    world = cluster.daemon.world
    cut = {name: Cutting(provider, call, postgres.kill) for name, provider in world.providers.items()}
    cluster.daemon.world = replace(world, providers=cut)
    cluster.slurm.submit(1, ask())
    cluster.run_until(lambda: not postgres.running)
    nothing_happens(cluster)
    cluster.daemon.world = world
    postgres.start()
    served(cluster)


@dataclass
class CutOff(Fuse):
    """The server dies in so many calls, and not the daemon."""

    server: Server | None = None

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0 and self.server:
            self.server.kill()


@pytest.mark.slow
def test_a_server_that_dies_at_any_call_again_and_again_costs_no_machine(cluster: Cluster, postgres: Server) -> None:
    chance = Random(4)
    cluster.fuse = CutOff(left=3, server=postgres)
    cluster.daemon = cluster.start()
    cluster.slurm.submit(1, ask(), run_s=5, count=2)
    cluster.slurm.submit(2, ask(nodes=2, tasks=2), run_s=5)
    deaths = 0
    for _ in range(200):
        if cluster.finished:
            break
        cluster.tick(every_s=10)
        if not postgres.running:
            deaths += 1
            nothing_happens(cluster, ticks=1)
            postgres.start()
            cluster.fuse.left = chance.randint(3, 90)
        named = [machine.node for machine in cluster.cloud.machines.values()]
        assert len(named) == len(set(named)), "two machines of one name"
    assert cluster.finished
    assert deaths >= 5
    assert len(cluster.slurm.done) == 3
    assert cluster.journal.under_way() == ()


def test_a_server_that_is_away_at_the_start_is_waited_for(postgres: Server) -> None:
    url = postgres.database()
    postgres.kill()
    cluster = Cluster(url)
    cluster.slurm.submit(1, ask())
    nothing_happens(cluster)
    postgres.start()
    served(cluster)
    cluster.journal.dispose()


def test_tables_that_somebody_dropped_are_made_anew_and_missed(cluster: Cluster, postgres: Server) -> None:
    assert isinstance(cluster.where, URL)
    cluster.slurm.submit(1, ask())
    postgres.sql("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", database=str(cluster.where.database))
    assert "does not exist" in cluster.tick().view.unrecorded
    look = cluster.tick(2)
    pause = look.view.fact(FactKind.PAUSE)
    assert pause
    assert "the journal was lost and is begun anew: it was gone" in pause.why
    cluster.run_until(lambda: cluster.finished, every_s=10)


def test_a_password_is_in_no_sentence(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    journal = SqlJournal(postgres.database().set(username="nobody-known", password="hunter2"))
    with pytest.raises(Unavailable, match=r"nobody-known.*role .* does not exist") as error:
        journal.idle()
    assert "hunter2" not in str(error.value)


def test_who_may_not_make_tables_is_told_so_by_the_server(postgres: Server) -> None:
    url = postgres.database()
    postgres.sql("DROP ROLE IF EXISTS guest", "CREATE ROLE guest LOGIN")
    with pytest.raises(Misconfigured, match="permission denied for schema public"):
        SqlJournal(url.set(username="guest"))


def test_where_the_driver_is_missing_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Misconfigured, match=r"needs psycopg, .*: pip install 'cm-scale\[postgres\]'$"):
        SqlJournal(make_url("postgresql://cm-scale@db.example.org/cm_scale"))


# --- SQLite ----------------------------------------------------------------------------------------------------------

Full = Callable[[Cluster], AbstractContextManager[None]]


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Full:
    """Within this the journal's file can't grow, as on a disk that is full."""

    @contextmanager
    def full(cluster: Cluster) -> Iterator[None]:
        usual = sqlite._durable

        def without_room(connection: Any, record: object) -> None:
            usual(connection, record)
            connection.execute("PRAGMA max_page_count = 1")  # SQLite makes this the pages there are

        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "_durable", without_room)
            cluster.journal.dispose()
            yield
        cluster.journal.dispose()

    return full


def test_a_full_disk_stops_everything_until_there_is_room(tmp_path: Path, full: Full) -> None:
    cluster = Cluster(tmp_path / "journal.db")
    cluster.tick(2)
    cluster.slurm.submit(1, ask())
    with full(cluster):
        look = nothing_happens(cluster)
        assert "the journal can't be written (database or disk is full)" in look.view.unrecorded
    served(cluster)


def test_a_file_that_another_process_holds_is_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_LIMIT_S", 0.3)
    cluster = Cluster(tmp_path / "journal.db")
    cluster.tick(2)
    cluster.slurm.submit(1, ask())
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "database is locked" in nothing_happens(cluster, ticks=1).view.unrecorded
    other.execute("ROLLBACK")
    other.close()
    served(cluster)


# --- a journal that is lost ------------------------------------------------------------------------------------------

Loss = Callable[[Path], object]


def replaced(path: Path) -> None:
    """Another file lies there, that is no database."""
    deleted(path)
    path.write_bytes(b"this is no journal " * 1000)


def torn(path: Path) -> None:
    """Pages of the file are overwritten where it lies; what its log held had been written back to it."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        for at in range(4096, path.stat().st_size, 4096):
            file.seek(at)
            file.write(b"\xff" * 512)


def deleted(path: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def without_its_log(path: Path) -> None:
    """Somebody deletes the one file that has the name."""
    path.unlink()


def emptied(path: Path) -> None:
    deleted(path)
    path.touch()


LOSSES = pytest.mark.parametrize("loss", [replaced, torn, deleted, without_its_log, emptied])


def in_the_midst(path: Path) -> Cluster:
    """A cluster where one job runs, and a machine for a second one is being made that no listing shows yet."""
    cluster = Cluster(path, pools=[pool(count=4)])
    cluster.slurm.submit(1, ask(), run_s=300)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    cluster.cloud.lag_s = 60.0
    cluster.slurm.submit(2, ask(), run_s=5)
    cluster.run_until(lambda: len(cluster.starts) == 2)
    return cluster


def gets_over_it(cluster: Cluster, path: Path) -> None:
    """Nothing is made twice nor left, it is said what was lost, and what was broken is kept."""
    look = cluster.tick(5)
    pause = look.view.fact(FactKind.PAUSE)
    assert pause
    assert pause.until - pause.at == LOST_REST_S
    assert [event.kind for event in cluster.journal.events(0) if event.text == pause.why] == [EventKind.JOURNAL_LOST]
    cluster.tick(20)
    assert len(cluster.starts) == 2
    cluster.run_until(lambda: cluster.finished, every_s=20)
    assert len(cluster.slurm.done) == len(cluster.cloud.made) == 2
    kept = list(path.parent.glob("journal.db.broken-*[0-9Z]"))
    assert bool(kept) == ("broken" in pause.why)
    assert all(str(each) in pause.why for each in kept if each.suffix not in {"-wal", "-shm"})


@LOSSES
def test_a_journal_lost_under_a_running_daemon_costs_its_history_and_no_machine(tmp_path: Path, loss: Loss) -> None:
    cluster = in_the_midst(tmp_path / "journal.db")
    loss(tmp_path / "journal.db")
    assert cluster.journal._database._engine
    cluster.journal._database._engine.dispose()  # its pages must be read again, as they must when there are many
    gets_over_it(cluster, tmp_path / "journal.db")


@LOSSES
def test_a_journal_lost_while_no_daemon_ran_costs_its_history_and_no_machine(tmp_path: Path, loss: Loss) -> None:
    cluster = in_the_midst(tmp_path / "journal.db")
    cluster.journal.dispose()
    loss(tmp_path / "journal.db")
    cluster.daemon = cluster.start()
    gets_over_it(cluster, tmp_path / "journal.db")


def test_a_command_leaves_a_broken_journal_to_the_daemon(tmp_path: Path) -> None:
    replaced(tmp_path / "journal.db")
    before = (tmp_path / "journal.db").read_bytes()
    for read_only in (False, True):
        with pytest.raises(Misconfigured, match=r"file is not a database\); the daemon sets it aside at its start"):
            SqlJournal(tmp_path / "journal.db", read_only=read_only)
    assert (tmp_path / "journal.db").read_bytes() == before


def test_files_that_break_within_one_second_are_all_kept(tmp_path: Path) -> None:
    for _ in range(3):
        replaced(tmp_path / "journal.db")
        SqlJournal(tmp_path / "journal.db", keeps=True).dispose()
    assert len(list(tmp_path.glob("journal.db.broken-*"))) == 3


def test_where_there_never_was_a_journal_none_is_missed(where: Path | URL) -> None:
    journal = SqlJournal(where, keeps=True)
    assert [*journal.facts(0), *journal.events(0)] == []
    journal.dispose()
