"""A running daemon takes up its configuration anew, whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cmscale.journal.sql import SqlJournal
from cmscale.model import PoolName
from cmscale.shell import config, presence, wiring
from cmscale.shell.config import ConfigError
from cmscale.shell.reload import Configured

FILE = """\
[cluster]
name = "c1"
mode = "act"
state_dir = "state"
policies = ["release_idle"]
policy_dir = "own"

[limits]
answer = "5s"

[sites.east]
kind = "aws"
region = "us-east-1"

[pools.t4]
site = "east"
nodes = "t4-[1-16]"
cpus = 4
mem_mb = 15000
partitions = ["cloud"]
aws = { instance_type = "g4dn.xlarge", image = "ami-1", subnet = "subnet-1" }
"""

Change = Callable[..., None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "state").mkdir()
    file = tmp_path / "x.toml"
    file.write_text(FILE)
    return file


@pytest.fixture
def change(path: Path) -> Change:
    def change(old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


@pytest.fixture
def configured(path: Path) -> Configured:
    loaded = config.load(path)
    daemon = wiring.daemon(loaded, SqlJournal(None), wiring.SystemClock(), may_act=True)
    return Configured(loaded, daemon, only_observe=False)


def test_what_was_changed_is_in_effect(configured: Configured, change: Change) -> None:
    daemon = configured.daemon
    memory, beside, journal = daemon.memory, daemon.world.beside, daemon.world.journal
    change("t4-[1-16]", "t4-[1-4]")
    change('"act"', '"observe"')
    change('policies = ["release_idle"]', 'policies = ["serve_queue", "release_idle"]')
    change('"5s"', '"7s"\nstarts_per_minute = 3\ntick = "2s"')
    configured.reload()
    assert not configured.troubles
    assert len(daemon.world.pools[PoolName("t4")].nodes) == 4
    assert not daemon.may_act
    assert [policy.name for policy in daemon.policies] == ["serve_queue", "release_idle"]
    assert (daemon.limits.starts_per_minute, daemon.tick_s, beside.answer_s) == (3, 2.0, 7.0)
    assert (daemon.memory, daemon.world.beside, daemon.world.journal) == (memory, beside, journal)


def test_who_only_observes_goes_on_observing_whatever_the_mode(path: Path, change: Change) -> None:
    loaded = config.load(path)
    daemon = wiring.daemon(loaded, SqlJournal(None), wiring.SystemClock(), may_act=False)
    configured = Configured(loaded, daemon, only_observe=True)
    change("t4-[1-16]", "t4-[1-4]")
    configured.reload()
    assert not daemon.may_act
    assert not configured.troubles


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("cpus = 4", "cpus = four", r"x\.toml:18: not valid TOML"),
        ("cpus = 4", "cpu = 4", r"x\.toml:\d+: pools\.t4\.cpu: unknown key; did you mean \"cpus\"\?"),
        ('["release_idle"]', '["no_such"]', r"x\.toml:5: cluster\.policies: there is no no_such\.py"),
        ('["release_idle"]', '["broken"]', r"own/broken\.py:1: loading the policy raised ZeroDivisionError"),
        ('"c1"', '"c2"', r"x\.toml:2: cluster\.name: it can't change while the daemon runs, from c1 to c2; restart"),
        ('"state"', '"other"', r"x\.toml:4: cluster\.state_dir: it can't change while the daemon runs, from .*state"),
    ],
    ids=["no TOML", "an unknown key", "an unknown policy", "a broken policy", "another cluster", "another journal"],
)
def test_what_cannot_be_taken_up_leaves_everything_as_it_was_and_is_told(
    configured: Configured, change: Change, *, path: Path, old: str, new: str, told: str
) -> None:
    (path.parent / "own" / "broken.py").write_text("1 / 0\n")
    daemon = configured.daemon
    before = (daemon.world, daemon.policies, daemon.limits, daemon.may_act)
    change("t4-[1-16]", "t4-[1-4]")
    change(old, new)
    configured.reload()
    assert (daemon.world, daemon.policies, daemon.limits, daemon.may_act) == before
    (trouble,) = configured.troubles
    assert trouble.startswith("the last good configuration stays in effect: ")
    assert re.search(told, trouble), trouble
    path.write_text(FILE)
    configured.reload()
    assert not configured.troubles


def test_others_see_what_is_in_effect_while_the_file_cannot_be_used(
    configured: Configured, change: Change, path: Path
) -> None:
    with presence.only_daemon(configured.config):
        change("cpus = 4", "cpus = [")
        with pytest.raises(ConfigError):
            config.load(path)
        in_effect = presence.in_effect(path)
        assert in_effect
        assert in_effect == configured.config
    assert presence.in_effect(path) is None


@pytest.mark.parametrize("text", ["", "state_dir = 3", "[cluster]\nstate_dir = 'unfinished"])
def test_where_the_journal_is_can_be_guessed_from_any_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    assert config.state_dir_despite(path) == Path("/var/lib/cm-scale")
    assert config.state_dir_despite(tmp_path / "none") == Path("/var/lib/cm-scale")
