"""What the daemon leaves beside its journal for `status`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cmscale.model import Plan
from cmscale.shell import config, presence
from cmscale.shell.config import Config
from cmscale.shell.loop import Look
from tests.builders import view


@pytest.fixture
def loaded(tmp_path: Path) -> Config:
    path = tmp_path / "cmscale.toml"
    path.write_text('[cluster]\nname = "c1"\nstate_dir = "state"\n', encoding="utf-8")
    (tmp_path / "state").mkdir()
    return config.load(path)


def note(config: Config, why: str = "") -> None:
    presence.note_tick(config, Look(replace(view(), unrecorded=why), Plan("t1", 0.0), 0.5), may_act=True)


def test_the_last_tick_says_why_the_journal_could_not_be_used_while_its_daemon_runs(loaded: Config) -> None:
    note(loaded, "the disk is full")
    assert presence.journal_trouble(loaded) == ""
    with presence.only_daemon(loaded):
        assert presence.journal_trouble(loaded) == "the disk is full"
        note(loaded)
        assert presence.journal_trouble(loaded) == ""


def test_what_a_tick_leaves_takes_no_room_beyond_that_of_the_first(loaded: Config) -> None:
    file = loaded.state_dir / "last-tick.json"
    note(loaded)
    before = file.stat()
    note(loaded, "the disk is full " * 1000)
    after = file.stat()
    assert (before.st_ino, before.st_size, before.st_blocks) == (after.st_ino, after.st_size, after.st_blocks)
    assert presence.last_tick(loaded)["journal"].startswith("the disk is full")


def test_a_last_tick_that_cannot_be_left_is_no_reason_to_end(loaded: Config, caplog: pytest.LogCaptureFixture) -> None:
    (loaded.state_dir / "last-tick.json").mkdir()
    note(loaded)
    assert "last-tick.json can't be written" in caplog.text


def test_no_link_is_followed(loaded: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "precious").write_text("precious")
    (loaded.state_dir / "last-tick.json").symlink_to(tmp_path / "precious")
    note(loaded)
    assert (tmp_path / "precious").read_text() == "precious"
