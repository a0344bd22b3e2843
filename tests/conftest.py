"""What holds in every test, and what every test may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import URL

from cmscale.journal import decisions
from tests.postgres.server import Server
from tests.storms.table import HEADING, STORM


@pytest.fixture(autouse=True)
def _writing_a_snapshot_takes_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ticks are kept hangs on what writing one takes: a busy machine would keep others than the test wrote."""
    moments = count()
    monkeypatch.setattr(decisions, "perf_counter", lambda: next(moments) * 1e-5)


@pytest.fixture(scope="session")
def _postgres() -> Iterator[Server]:
    server = Server()
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres(_postgres: Server) -> Server:
    """A PostgreSQL server that answers, whatever the test before did to it."""
    _postgres.start()
    _postgres.recycle()
    return _postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Path | URL:
    """Where a new journal may be: a test that asks for it is made with each database."""
    if request.param == "sqlite":
        return tmp_path / "state" / "journal.db"
    server: Server = request.getfixturevalue("postgres")
    return server.database()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Here, and by the reports: tests of a folder of their own may all have run in other processes.
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.getreports(kind)]
    told = [str(value) for each in reports for name, value in each.user_properties if name == STORM]
    if told:
        terminalreporter.section("storms")
        for line in (*HEADING, *dict.fromkeys(told)):
            terminalreporter.write_line(line)
