"""A journal becomes one of this version, whatever wrote it, and is never half of it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, inspect

from cmscale.journal import migrations, postgres, sqlite
from cmscale.journal.sql import SqlJournal
from cmscale.journal.tables import OPERATIONS
from cmscale.model import Creations, Fact, FactKind, JobId, NodeName, Plan
from cmscale.ports import Misconfigured
from tests.builders import NOW, view
from tests.postgres.server import Server

ONE = NodeName("t4-1")
FIRST = (Path(__file__).parent / "journal-0.1.0.sql").read_text(encoding="utf-8")


@contextmanager
def database(where: Path | URL) -> Iterator[Connection]:
    """The tables themselves, to be changed."""
    if isinstance(where, Path):
        where.parent.mkdir(exist_ok=True)
    engine = postgres.server(where, read_only=False) if isinstance(where, URL) else sqlite.writable(where)
    try:
        with engine.execution_options(**{sqlite.WRITES: True}).begin() as db:
            yield db
    finally:
        engine.dispose()


def disagreements(where: Path | URL) -> list[object]:
    """What Alembic would change in the database to make it as `tables.py` has it."""
    with database(where) as db:
        context = MigrationContext.configure(db, opts={"compare_type": True, "compare_server_default": True})
        return list(compare_metadata(context, OPERATIONS.metadata))


def written_by_the_first(where: Path | URL) -> Path | URL:
    """A journal as version 0.1.0 wrote it, or would have written it to PostgreSQL."""
    with database(where) as db:
        for statement in FIRST.replace("'t4',1,'job", "'t4',true,'job").split(";\n")[1:-2]:
            db.exec_driver_sql(statement.replace("%", "%%"))
    return where


def test_the_steps_make_the_tables_that_the_program_knows(where: Path | URL) -> None:
    SqlJournal(where).dispose()
    assert disagreements(where) == []


def test_the_steps_follow_one_another_in_the_order_of_their_files() -> None:
    scripts = ScriptDirectory(migrations.FOLDER)
    assert [step.revision for step in scripts.walk_revisions()][::-1] == list(migrations.steps())
    assert scripts.get_heads() == [migrations.steps()[-1]]


def test_a_journal_of_the_first_version_goes_on_with_what_it_lacks(where: Path | URL) -> None:
    journal = SqlJournal(written_by_the_first(where))
    assert journal.creations({JobId("17"): 0.0}) == {"17": Creations(1, need=2, first=NOW, refused=1)}
    journal.put_fact(Fact(FactKind.PAUSE, "", NOW, NOW + 60, "why"))
    journal.record(view(), Plan("t2", NOW))
    assert len(journal.facts(NOW)) == len(journal.ticks(0)) == 1
    journal.dispose()
    assert disagreements(where) == []


def test_a_journal_of_this_version_is_opened_again_without_a_change(where: Path | URL) -> None:
    journal = SqlJournal(where)
    journal.put_idle({ONE: NOW})
    journal.dispose()
    again = SqlJournal(where)
    assert again.idle() == {ONE: NOW}
    again.dispose()


def test_of_several_who_open_a_new_journal_at_once_one_makes_it(where: Path | URL) -> None:
    with ThreadPoolExecutor(4) as threads:
        journals = list(threads.map(lambda _: SqlJournal(where), range(4)))
    for journal in journals:
        assert journal.under_way() == ()
        journal.dispose()
    assert disagreements(where) == []


def test_whoever_may_only_read_a_journal_of_the_first_version_sees_what_it_lacks_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FIRST)
    before = path.read_bytes()
    reader = SqlJournal(path, read_only=True)
    assert len(reader.history(node=ONE)) == len(list(reader.plans(0))) == 1
    assert not any((reader.facts(NOW), reader.events(0), reader.evidence(ONE), reader.ticks(0), reader.usual(NOW)))
    assert reader.stored("last") is None
    reader.dispose()
    assert path.read_bytes() == before


def test_a_database_of_the_first_version_is_not_read_before_the_daemon_took_it_over(postgres: Server) -> None:
    url = written_by_the_first(postgres.database())
    with pytest.raises(Misconfigured, match="an earlier version wrote it; the daemon of this one takes it over"):
        SqlJournal(url, read_only=True)
    SqlJournal(url).dispose()
    SqlJournal(url, read_only=True).dispose()


def test_a_database_without_tables_is_read_as_an_empty_journal(postgres: Server) -> None:
    url = postgres.database()
    reader = SqlJournal(url, read_only=True)
    assert not any((reader.under_way(), reader.idle(), reader.events(0)))
    reader.dispose()
    with database(url) as db:
        assert migrations.empty(db)


# --- steps of another version ----------------------------------------------------------------------------------------

Later = Callable[..., Path]

STEP = """
import os
from alembic import op
from sqlalchemy import Column, String
revision, down_revision = "9999", "{last}"
def upgrade():
    op.create_table("of_later", Column("id", String, primary_key=True))
    op.add_column("operations", Column("of_later", String))
    {more}
"""


@pytest.fixture
def later(tmp_path: Path) -> Later:
    """The steps of a version after this one, whose last step also does this."""

    def write(more: str = "") -> Path:
        folder = tmp_path / "later"
        shutil.copytree(migrations.FOLDER, folder)
        text = STEP.format(last=migrations.steps()[-1], more=more)
        (folder / "versions" / "v9999_later.py").write_text(text, encoding="utf-8")
        return folder

    return write


def test_a_journal_of_a_later_version_is_refused_in_a_sentence(where: Path | URL, later: Later) -> None:
    SqlJournal(where).dispose()
    with database(where) as db:
        migrations.upgrade(db, later())
    for read_only in (False, True):
        told = (
            r"the journal can't be opened \(a later version wrote it: its tables are of step \"9999\", we know .*\"\)$"
        )
        with pytest.raises(Misconfigured, match=told):
            SqlJournal(where, read_only=read_only)


def test_a_step_that_fails_leaves_the_journal_as_it_was(where: Path | URL, later: Later) -> None:
    SqlJournal(where).dispose()
    with pytest.raises(RuntimeError, match="half way"), database(where) as db:
        migrations.upgrade(db, later('raise RuntimeError("half way")'))
    with database(where) as db:
        assert not inspect(db).has_table("of_later")
        assert migrations.current(db)
    assert disagreements(where) == []


KILLED = """
import sys
from pathlib import Path
from sqlalchemy import create_engine, make_url
from cmscale.journal import migrations, sqlite
engine = sqlite.writable(Path(sys.argv[1]))
with engine.execution_options(**{sqlite.WRITES: True}).begin() as db:
    migrations.upgrade(db, Path(sys.argv[2]))
"""


def test_killed_in_the_midst_of_its_steps_a_file_is_what_it_was(tmp_path: Path, later: Later) -> None:
    path = tmp_path / "journal.db"
    journal = SqlJournal(path)
    journal.put_idle({ONE: NOW})
    journal.dispose()
    words = [sys.executable, "-c", KILLED, str(path), str(later("os.kill(os.getpid(), 9)"))]
    assert subprocess.run(words, cwd=Path(__file__).parents[2], timeout=60).returncode == -9
    again = SqlJournal(path)
    assert again.idle() == {ONE: NOW}
    again.dispose()
    assert disagreements(path) == []
