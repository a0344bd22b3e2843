from __future__ import annotations

import re
import sys
import textwrap
import tomllib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from cmscale.model import Goal, NodeName, Snapshot, Want
from cmscale.shell import policies
from cmscale.shell.policies import Overran, Policy, PolicyError
from cmscale.shell.shipped import share_dir

VIEW = Snapshot(now=0.0, tick="t1")
NOBODY: frozenset[NodeName] = frozenset()

ONE_GOAL = '''
"""Wishes one node up.

More words.
"""
from cmscale.model import Goal, NodeName, Want

def propose(view, claimed, settings):
    yield Goal(NodeName("n1"), Want.UP, "because")
'''

WITH_SETTINGS = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True, slots=True)
class Settings:
    idle_s: float = 60.0
    share: float = 0.5
    count: int = 1
    fast: bool = False
    word: str = "a"
    words: tuple[str, ...] = ()

    def __post_init__(self):
        if self.count < 0:
            raise ValueError("count is below 0")

def propose(view, claimed, settings):
    return iter(())
"""

Load = Callable[..., Policy]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a policy "mine" of this text, with this table."""

    def load(text: str, table: dict[str, Any] | None = None, limit_s: float = policies.LIMIT_S) -> Policy:
        (tmp_path / "mine.py").write_text(textwrap.dedent(text))
        (policy,) = policies.load(("mine",), tmp_path, {"mine": table or {}}, limit_s=limit_s)
        return policy

    return load


def test_a_policy_is_found_and_asked(load: Load, tmp_path: Path) -> None:
    policy = load(ONE_GOAL)
    assert (policy.name, policy.path, policy.doc) == ("mine", tmp_path / "mine.py", "Wishes one node up.")
    assert list(policy.propose(VIEW, NOBODY)) == [Goal(NodeName("n1"), Want.UP, "because")]


def test_the_shipped_policies_load_in_their_order() -> None:
    names = ("serve_queue", "keep_warm", "release_idle")
    loaded = policies.load(names, None, {"release_idle": {"idle": "7m"}})
    assert tuple(policy.name for policy in loaded) == names
    assert loaded[2].settings.idle_s == 420
    assert all(policy.doc for policy in loaded)
    assert all(list(policy.propose(VIEW, NOBODY)) == [] for policy in loaded)


def test_the_example_file_names_every_setting_with_its_default() -> None:
    tables = tomllib.loads((share_dir("etc") / "cmscale.toml").read_text())["policy"]
    names = tuple(sorted(path.stem for path in share_dir("policies").glob("*.py")))
    assert sorted(tables) == list(names)
    for policy in policies.load(names, None, tables):
        assert policy.settings == type(policy.settings)()
        assert {key.removesuffix("_s") for key in policy.settings.__dataclass_fields__} == set(tables[policy.name])


def test_a_policy_of_the_site_takes_the_place_of_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "release_idle.py").write_text(ONE_GOAL)
    (policy,) = policies.load(("release_idle",), tmp_path, {})
    assert policy.path.parent == tmp_path


def test_a_changed_policy_is_read_again_and_leaves_nothing_behind(load: Load, tmp_path: Path) -> None:
    load(ONE_GOAL)
    (changed,) = load(ONE_GOAL.replace("n1", "n2")).propose(VIEW, NOBODY)
    assert changed == Goal(NodeName("n2"), Want.UP, "because")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
    assert "mine" not in sys.modules


def test_settings_are_filled_from_the_table(load: Load) -> None:
    table = {"idle": "5m", "share": 1, "count": 3, "fast": True, "word": "b", "words": ["c", "d"]}
    settings = load(WITH_SETTINGS, table).settings
    assert (settings.idle_s, settings.share, settings.count) == (300.0, 1.0, 3)
    assert (settings.fast, settings.word, settings.words) == (True, "b", ("c", "d"))
    assert load(WITH_SETTINGS).settings.idle_s == 60.0


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"idel": "5m"}, 'policy.mine.idel: unknown key; did you mean "idle"?'),
        ({"idle_s": 300.0}, 'policy.mine.idle_s: unknown key; did you mean "idle"?'),
        ({"idle": 300}, 'policy.mine.idle: expected a duration such as "30s", "10m" or "2h"; add a unit'),
        ({"share": "x"}, 'policy.mine.share: expected a number, got "x"'),
        ({"count": True}, "policy.mine.count: expected a whole number, got true"),
        ({"count": 1.5}, "policy.mine.count: expected a whole number, got 1.5"),
        ({"fast": 1}, "policy.mine.fast: expected true or false, got 1"),
        ({"word": ["a"]}, 'policy.mine.word: expected a text in quotes, got ["a"]'),
        ({"words": "a"}, 'policy.mine.words: expected a list such as ["a", "b"], got "a"'),
        ({"count": -1}, "policy.mine: count is below 0"),
    ],
)
def test_a_wrong_setting_is_told_with_what_was_expected(
    load: Load, table: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(PolicyError) as caught:
        load(WITH_SETTINGS, table)
    assert str(caught.value).startswith(expected)
    assert str(caught.value).endswith(f"(Settings of {tmp_path}/mine.py:6)")


def test_a_policy_without_settings_takes_no_table(load: Load) -> None:
    with pytest.raises(PolicyError, match=r"policy\.mine\.x: unknown key; there is none"):
        load(ONE_GOAL, {"x": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ndef propose(:\n", "2: not valid Python: "),
        ("\nimport nowhere_to_be_found\n", "2: loading the policy raised ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\nf()\n", "2: loading the policy raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "1: loading the policy raised SystemExit: 3"),
        ("x = 1\n", "1: there is no function propose(view, claimed, settings)"),
        ("propose = 3\n", "1: there is no function propose(view, claimed, settings)"),
        (
            "\ndef propose(view):\n    yield\n",
            "2: expected propose(view, claimed, settings), got propose(view)",
        ),
        (
            "class Settings:\n    pass\ndef propose(a, b, c):\n    yield\n",
            "1: Settings is not a frozen dataclass",
        ),
    ],
)
def test_a_broken_policy_is_told_with_file_and_line(load: Load, tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load(text)
    assert str(caught.value).startswith(f"{tmp_path}/mine.py:{expected}")
    assert "\n" not in str(caught.value)


def test_an_unknown_policy_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    expected = rf"cluster\.policies: there is no serve_queu\.py in {tmp_path} and .*; did you mean \"serve_queue\"\?"
    with pytest.raises(PolicyError, match=expected):
        policies.load(("serve_queu",), tmp_path, {})


def test_a_table_of_a_policy_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(
        PolicyError, match=r'policy\.keep_wram: there is no policy of this name; did you mean "keep_warm"'
    ):
        policies.load((), None, {"keep_wram": {}, "release_idle": {"idle": "5m"}})


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=re.escape(f"cluster.policy_dir: there is no folder {tmp_path}/none")):
        policies.load((), tmp_path / "none", {})


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    with pytest.raises(PolicyError) as caught:
        policies.load(("a", "b", "release_idle"), tmp_path, {"c": {}, "release_idle": {"x": 1, "y": 2}})
    assert len(caught.value.problems) == 5


def test_a_policy_that_takes_too_long_is_stopped_between_two_goals(load: Load) -> None:
    slow = "import time\n" + ONE_GOAL.replace("    yield", "    while True: time.sleep(0.02); yield")
    goals = load(slow, limit_s=0.05).propose(VIEW, NOBODY)
    with pytest.raises(Overran, match=r"policy mine took 0\.\d s, more than the 0\.05 s it may"):
        list(islice(goals, 10))


def test_what_is_no_goal_is_refused(load: Load) -> None:
    with pytest.raises(TypeError, match="policy mine proposed 'n1', which is neither a Goal nor a Wait"):
        list(load("def propose(view, claimed, settings):\n    yield 'n1'\n").propose(VIEW, NOBODY))


def test_a_policy_may_return_a_list(load: Load) -> None:
    text = ONE_GOAL.replace("yield Goal", "return [Goal").replace('"because")', '"because")]')
    assert len(list(load(text).propose(VIEW, NOBODY))) == 1


def test_the_shipped_folders_are_found() -> None:
    assert (share_dir("policies") / "serve_queue.py").is_file()
    assert (share_dir("etc") / "cmscale.toml").is_file()
