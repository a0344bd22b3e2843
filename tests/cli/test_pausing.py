"""pause and resume: what they write into the journal, and what they say. No Slurm is needed."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cmscale.cli import cm_scale
from cmscale.model import Event, EventKind, Fact, FactKind
from cmscale.shell import config, wiring
from tests.cli.program import Said, documented_keys

Say = Callable[..., Said]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cmscale.toml"
    path.write_text(f'[cluster]\nname = "c1"\nmode = "act"\nstate_dir = "{tmp_path}/state"\n')
    return path


@pytest.fixture
def say(path: Path) -> Say:
    def say(*argv: str) -> Said:
        done = CliRunner(env={"SUDO_USER": "anna"}).invoke(cm_scale.cm_scale, [*argv, "-c", str(path)])
        return Said(done.exit_code, done.stdout, done.stderr)

    return say


def facts(path: Path) -> tuple[Fact, ...]:
    with wiring.journal(config.load(path)) as journal:
        return journal.facts(time.time())


def events(path: Path) -> list[Event]:
    with wiring.journal(config.load(path)) as journal:
        return list(journal.events(0))


def told(said: Said) -> dict[str, Any]:
    assert said.status == 0, said.err
    loaded: dict[str, Any] = json.loads(said.out)
    return loaded


def test_a_pause_is_a_dated_fact_with_a_reason_and_an_author(say: Say, path: Path) -> None:
    said = say("pause", "--for", "30m", "the", "switch", "is", "moved")
    (fact,) = facts(path)
    assert (fact.kind, fact.subject, fact.why, fact.by) == (FactKind.PAUSE, "", "the switch is moved", "anna as root")
    assert fact.until - fact.at == 1800
    assert said.out.startswith("Paused until 2")
    assert said.out.endswith(": the switch is moved. To go on earlier: cm-scale resume\n")


def test_a_pause_by_itself_lasts_an_hour(say: Say, path: Path) -> None:
    say("pause")
    (fact,) = facts(path)
    assert (fact.until - fact.at, fact.why) == (3600, "paused by hand")


def test_a_second_pause_replaces_the_first(say: Say, path: Path) -> None:
    say("pause", "--for", "2h", "first")
    say("pause", "--for", "1m", "second")
    assert [fact.why for fact in facts(path)] == ["second"]


def test_resume_ends_a_pause(say: Say, path: Path) -> None:
    say("pause")
    assert say("resume").out == "Resumed. Next: cm-scale status\n"
    assert facts(path) == ()


def test_resume_says_if_nothing_is_paused(say: Say, path: Path) -> None:
    assert say("resume").out == "Nothing is paused. Next: cm-scale status\n"
    assert events(path) == []


def test_the_reason_may_be_given_as_an_option_as_for_other_overrides(say: Say, path: Path) -> None:
    say("pause", "--why", "the switch is moved")
    assert [fact.why for fact in facts(path)] == ["the switch is moved"]


def test_both_are_overrides_among_the_events_however_often_they_are_typed(say: Say, path: Path) -> None:
    for _ in range(2):
        say("pause", "moving")
        say("resume")
    told = events(path)
    assert {event.kind for event in told} == {EventKind.OVERRIDE}
    here = f"anna as root on {socket.gethostname()}"
    assert [event.text for event in told] == 2 * [
        f"{here}: pause for 1h: moving",
        f"{here}: clear pause (by anna as root: moving)",
    ]


def test_json_has_the_keys_of_the_reference(say: Say) -> None:
    paused = told(say("pause", "--json", "--for", "1h", "moving"))
    assert set(paused) == documented_keys("pause") == documented_keys("resume")
    assert (paused["paused"], paused["why"], paused["by"]) == (True, "moving", "anna as root")
    assert told(say("resume", "--json")) == {"paused": False, "until": None, "why": "", "by": ""}


def test_a_file_that_pauses_is_told_by_resume(say: Say, path: Path) -> None:
    path.write_text(path.read_text().replace('"act"', '"paused"'))
    said = say("resume")
    assert said.out.startswith(f'Paused without an end: cluster.mode is "paused" in {path}.')
    assert told(say("resume", "--json"))["paused"]
    assert told(say("pause", "--json", "more"))["until"] is None


@pytest.mark.parametrize(
    ("length", "why"),
    [("2 moons", "expected a duration"), ("5", "expected a duration"), ("0s", "expected more than 0")],
)
def test_a_length_that_is_none_is_told(say: Say, path: Path, length: str, why: str) -> None:
    said = say("pause", "--for", length)
    assert said.status == 2
    assert f"Invalid value for '--for': {why}" in said.err


def test_a_journal_that_cannot_be_written_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(path.read_text().replace("/state", "/cmscale.toml/state"))
    for command in ("pause", "resume"):
        monkeypatch.setattr("sys.argv", ["cm-scale", command, "-c", str(path)])
        with pytest.raises(SystemExit) as ended:
            cm_scale.main()
        assert ended.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"cm-scale: {path}:4: cluster.state_dir: {path}/state can't be written")
