"""Presence: the files by which a daemon shows itself are never links to somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cmscale.model import Plan, Snapshot
from cmscale.ports import Misconfigured
from cmscale.shell import config as configuration
from cmscale.shell import presence
from cmscale.shell.config import Config
from cmscale.shell.loop import Look

LOOK = Look(Snapshot(1000.0, "x-1"), Plan("x-1", 1000.0), 0.5)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "cmscale.toml"
    path.write_text('[cluster]\nname = "c1"\nstate_dir = "state"\n', encoding="utf-8")
    config = configuration.load(path)
    config.state_dir.mkdir()
    return config


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file that others would like the daemon to write over."""
    path = tmp_path / "precious"
    path.write_text("4711", encoding="utf-8")
    return path


def test_a_daemon_that_holds_the_lock_is_known_by_its_process(config: Config) -> None:
    assert presence.running_daemon(config) is None
    with presence.only_daemon(config):
        assert presence.running_daemon(config) == os.getpid()
    assert presence.running_daemon(config) is None


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_stays(config: Config, precious: Path) -> None:
    (config.state_dir / "daemon.lock").symlink_to(precious)
    refused = pytest.raises(Misconfigured, match=r"can't be written \(daemon.lock is a symbolic link\)")
    with refused, presence.only_daemon(config):
        raise AssertionError("it was taken for a lock")
    assert precious.read_text() == "4711"
    assert presence.running_daemon(config) is None


def test_the_last_tick_is_written_beside_a_link_that_lies_in_its_way(config: Config, precious: Path) -> None:
    (config.state_dir / "last-tick.new").symlink_to(precious)
    presence.note_tick(config, LOOK, may_act=True)
    assert precious.read_text() == "4711"
    assert presence.last_tick(config)["tick"] == "x-1"


def test_a_last_tick_that_is_a_link_is_not_read_and_is_replaced(config: Config, precious: Path) -> None:
    last = config.state_dir / "last-tick.json"
    last.symlink_to(precious)
    assert presence.last_tick(config) == {}
    presence.note_tick(config, LOOK, may_act=True)
    assert not last.is_symlink()
    assert precious.read_text() == "4711"
