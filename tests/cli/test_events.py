"""events: what is told of what happened. Only the journal is needed."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from cmscale.model import Event, EventKind
from cmscale.shell import config, wiring
from tests.cli.program import Say, documented_keys, saying

NOW = time.time()
CLOSED = Event(NOW - 60, EventKind.CLOSED, "t4", "pool t4 is closed for 5 min (capacity): none left")
PAUSED = Event(NOW - 7200, EventKind.OVERRIDE, "", "paused by anna until tomorrow: the switch is moved")
LONG_AGO = Event(NOW - 3 * 86400, EventKind.REQUEUED, "17", "job 17 is requeued from t4-1: the cloud takes it back")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cmscale.toml"
    path.write_text('[cluster]\nname = "test"\nstate_dir = "state"\n', encoding="utf-8")
    return path


@pytest.fixture
def say(path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Say:
    """Call cm-scale events as the shell does."""
    return saying("-c", path, "events", monkeypatch=monkeypatch, capfd=capfd)


@pytest.fixture
def happened(path: Path) -> None:
    with wiring.journal(config.load(path)) as journal:
        journal.tell([CLOSED, PAUSED, LONG_AGO])


def test_what_happened_in_the_last_day_is_told_the_newest_last(say: Say, happened: None) -> None:
    first, last = say().out.splitlines()
    assert first.endswith(" override: paused by anna until tomorrow: the switch is moved")
    assert last.endswith(" closed t4: pool t4 is closed for 5 min (capacity): none left")
    assert last.startswith(time.strftime("%Y-%m-%d %H:%M:%S ", time.localtime(CLOSED.at)))


def test_how_far_to_look_back_can_be_told(say: Say, happened: None) -> None:
    assert len(say("--since", "1h").out.splitlines()) == 1
    assert len(say("--since", "7d").out.splitlines()) == 3


def test_events_of_some_kinds_alone_can_be_asked_for(say: Say, happened: None) -> None:
    (line,) = say("--kind", "override").out.splitlines()
    assert line.endswith(" override: paused by anna until tomorrow: the switch is moved")
    both = json.loads(say("--kind", "closed", "--kind", "requeued", "--since", "7d", "--json").out)["events"]
    assert [event["kind"] for event in both] == ["requeued", "closed"]


def test_a_kind_that_is_none_is_told_with_the_nearest(say: Say) -> None:
    said = say("--kind", "overide")
    assert said.status == 2
    assert 'there are no events of kind "overide"; did you mean "override"?' in said.err


def test_pauses_that_an_older_version_has_told_are_overrides(say: Say, path: Path, happened: None) -> None:
    with closing(sqlite3.connect(path.parent / "state" / "journal.db")) as db, db:
        db.execute("UPDATE events SET kind = 'paused' WHERE kind = 'override'")
    assert len(say("--kind", "override").out.splitlines()) == 1


def test_nothing_is_told_as_such(say: Say) -> None:
    assert say("--since", "1h").out.startswith("Nothing happened since 2")


def test_a_program_reads_events_with_the_keys_of_the_reference(say: Say, happened: None) -> None:
    told = json.loads(say("--json").out)
    assert set(told) == documented_keys("events")
    assert told["events"][-1] == {"at": CLOSED.at, "kind": "closed", "subject": "t4", "text": CLOSED.text}
    assert set(told["events"][0]) == documented_keys("events", "events")


def test_a_time_that_is_none_is_told_with_what_was_expected(say: Say) -> None:
    said = say("--since", "yesterday")
    assert said.status == 2
    assert 'expected a duration such as "30s", "10m" or "2h", got "yesterday"' in said.err
