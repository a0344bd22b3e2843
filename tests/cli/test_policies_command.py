"""policies list, check and new: which policies there are, what is wrong with them, and a file to start one's own from.

Neither Slurm nor a cloud is needed: a configuration file and a folder are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cmscale.cli import cm_scale
from cmscale.shell.schema import ClusterTable
from cmscale.shell.shipped import share_dir
from cmscale.shell.values import as_duration, duration
from tests.cli.program import Said, Say, documented_keys, saying

SHIPPED = sorted(path.stem for path in share_dir("policies").glob("*.py"))
DECIDING = ClusterTable(name="test").policies
"""The policies that decide where nothing else is said."""

EXAMPLE = '''
"""Wishes nothing.

More words.
"""
from dataclasses import dataclass

@dataclass(frozen=True)
class Settings:
    idle_s: float = 300.0
    words: tuple[str, ...] = ("a",)

def propose(view, claimed, settings):
    yield from ()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The site's own folder of policies."""
    own = tmp_path / "own"
    own.mkdir()
    return own


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., Path]:
    """Write the configuration: lines of [cluster], and further tables."""

    def configure(cluster: str = 'policy_dir = "own"', tables: str = "") -> Path:
        path = tmp_path / "cmscale.toml"
        path.write_text(f'[cluster]\nname = "test"\n{cluster}\n{tables}\n', encoding="utf-8")
        return path

    return configure


@pytest.fixture
def say(tmp_path: Path, configure: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capfd: Any) -> Say:
    """Call cm-scale policies as the shell does."""
    configure()
    return saying("-c", tmp_path / "cmscale.toml", "policies", monkeypatch=monkeypatch, capfd=capfd)


def in_json(said: Said) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(said.out)
    return told


# --- list ------------------------------------------------------------------------------------------------------------


def test_the_shipped_policies_are_listed_in_the_order_in_which_they_decide(
    say: Say, configure: Callable[..., Path]
) -> None:
    configure("")
    said = say("list")
    assert (said.status, said.err) == (0, "")
    heads = [line for line in said.out.splitlines() if not line.startswith(" ")]
    assert [head.partition(":")[0] for head in heads] == [f"{at}. {name}" for at, name in enumerate(DECIDING, 1)]
    assert f"   {share_dir('policies')}/keep_warm.py (shipped)" in said.out.splitlines()


def test_settings_are_listed_as_the_file_writes_them_with_their_defaults(
    say: Say, configure: Callable[..., Path]
) -> None:
    configure("", '[policy.release_idle]\nidle = "600s"')
    lines = say("list").out.splitlines()
    assert '   idle = "10m" (default "5m")' in lines
    assert '   last_call = "3m" (the default)' in lines


def test_those_that_decide_come_first_then_the_sites_own_then_the_shipped(
    say: Say, configure: Callable[..., Path], folder: Path
) -> None:
    configure('policy_dir = "own"\npolicies = ["release_idle", "zebra"]')
    for name in ("aardvark", "zebra"):
        (folder / f"{name}.py").write_text(EXAMPLE)
    rows = in_json(say("list", "--json"))["policies"]
    assert [(row["name"], row["place"], row["shipped"]) for row in rows] == [
        ("release_idle", 1, True),
        ("zebra", 2, False),
        ("aardvark", None, False),
        *((name, None, True) for name in SHIPPED if name != "release_idle"),
    ]
    said = say("list").out
    assert "not active: aardvark: Wishes nothing.\n" in said
    assert said.splitlines()[-1].startswith("To let one of the others decide, add it to policies under [cluster] in ")


def test_a_file_that_takes_the_place_of_a_shipped_one_is_told(say: Say, folder: Path) -> None:
    (folder / "release_idle.py").write_text(EXAMPLE)
    assert f"   {folder}/release_idle.py (the site's own, in place of the shipped one)" in say("list").out.splitlines()
    rows = {row["name"]: row for row in in_json(say("list", "--json"))["policies"]}
    assert rows["release_idle"] == {
        "name": "release_idle",
        "place": DECIDING.index("release_idle") + 1,
        "path": f"{folder}/release_idle.py",
        "shipped": False,
        "doc": "Wishes nothing.",
        "settings": {"idle": "5m", "words": ["a"]},
    }


def test_the_list_has_the_keys_of_the_reference(say: Say, folder: Path) -> None:
    told = in_json(say("list", "--json"))
    assert set(told) == documented_keys("policies list")
    assert set(told["policies"][0]) == documented_keys("policies list", "policies")


def test_a_policy_that_cannot_be_used_is_listed_and_its_problem_told(say: Say, folder: Path) -> None:
    (folder / "mine.py").write_text("x = 1\n")
    said = say("list")
    assert said.status == 2
    assert "not active: mine: it can't be used\n" in said.out
    assert said.problems == [f"{folder}/mine.py:1: there is no function propose(view, claimed, settings)"]


def test_a_folder_that_is_not_there_hides_no_shipped_policy(say: Say, tmp_path: Path) -> None:
    said = say("list")
    assert said.status == 2
    assert ". keep_warm: Keep as many" in said.out
    assert said.problems == [f"{tmp_path}/cmscale.toml:3: cluster.policy_dir: there is no folder {tmp_path}/own"]


def test_a_policy_that_shall_decide_and_is_not_there_is_told(say: Say, configure: Callable[..., Path]) -> None:
    path = configure('policies = ["keep_warn"]')
    said = say("list")
    assert said.status == 2
    (problem,) = said.problems
    assert problem.startswith(f"{path}:3: cluster.policies: there is no keep_warn.py in ")
    assert problem.endswith('did you mean "keep_warm"?')


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.5, "500ms"), (1.5, "1500ms"), (90, "90s"), (300, "5m"), (5400, "90m"), (7200, "2h"), (86400, "1d")],
)
def test_a_duration_is_written_as_it_is_read(seconds: float, text: str) -> None:
    assert as_duration(seconds) == text
    assert duration(text) == seconds


# --- check -----------------------------------------------------------------------------------------------------------


def test_policies_that_are_in_order_are_counted(say: Say, folder: Path) -> None:
    assert say("check") == Said(0, f"{len(SHIPPED)} policies are in order.\n", "")
    (folder / "mine.py").write_text(EXAMPLE)
    assert say("check") == Said(0, f"{len(SHIPPED) + 1} policies are in order.\n", "")
    assert say("check", "mine") == Said(0, "1 policy is in order.\n", "")


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        (
            "def propose(view, claimed, settings):\n    for node in view.nodes.values():\n        yield node.nmae\n",
            3,
            (
                "asked about a made-up snapshot of a few nodes and jobs, "
                "propose raised AttributeError: 'Node' object has no attribute 'nmae'"
            ),
        ),
        (
            (
                "def propose(view, claimed, settings):\n    yield from inner(view)\n"
                "def inner(view):\n    yield view.nonsense\n"
            ),
            4,
            (
                "asked about an empty snapshot, "
                "propose raised AttributeError: 'Snapshot' object has no attribute 'nonsense'"
            ),
        ),
        (
            "def propose(view, claimed, settings):\n    return [view.pools[n.pool] for n in view.nodes.values()]\n",
            2,
            "asked about a made-up snapshot of a few nodes and jobs, propose raised KeyError: None",
        ),
        (
            "def propose(view, claimed, settings):\n    x = 1\n    yield 'n1'\n",
            3,
            "asked about an empty snapshot, policy mine proposed 'n1', which is neither a Goal nor a Wait",
        ),
        (
            "x = 1\ndef propose(view, claimed, settings):\n    pass\n",
            2,
            (
                "asked about an empty snapshot, propose returned None where goals were expected: "
                "yield each, or return a list of them"
            ),
        ),
        (
            "from cmscale.model import Goal\ndef propose(view, claimed, settings):\n    yield Goal('n1', 'up', 'x')\n",
            3,
            (
                "asked about an empty snapshot, the goal for n1 wants 'up'; "
                "expected Want.UP or Want.DRAINED or Want.OFF or Want.GONE"
            ),
        ),
        (
            (
                "from cmscale.model import Goal, Want\ndef propose(view, claimed, settings):\n"
                "    yield from (Goal(node, Want.UP, 'x') for node in view.nodes.values())\n"
            ),
            3,
            "asked about a made-up snapshot of a few nodes and jobs, the node of a goal is Node(name='made-up-1'",
        ),
        (
            "def propose(view, claimed, settings):\n    raise SystemExit(3)\n",
            2,
            "asked about an empty snapshot, propose raised SystemExit: 3",
        ),
        ("def propose(view:\n", 1, "not valid Python: "),
        ("def propose(view):\n    yield\n", 1, "expected propose(view, claimed, settings), got propose(view)"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_line(say: Say, folder: Path, text: str, line: int, told: str) -> None:
    (folder / "mine.py").write_text(text)
    said = say("check")
    assert (said.status, said.out) == (2, "")
    (problem,) = said.problems
    assert problem.startswith(f"{folder}/mine.py:{line}: {told}")


def test_a_wrong_setting_is_told_at_its_line_of_the_configuration(say: Say, configure: Callable[..., Path]) -> None:
    path = configure("", '[policy.release_idle]\nidle = "soon"')
    (problem,) = say("check", "release_idle").problems
    assert problem.startswith(f'{path}:5: policy.release_idle.idle: expected a duration such as "30s", "10m" or "2h"')


def test_every_problem_is_told_once_and_only_of_what_is_named(say: Say, folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.py").write_text("x = 1\n")
    assert [problem.partition(":")[0] for problem in say("check").problems] == [f"{folder}/a.py", f"{folder}/b.py"]
    assert [problem.partition(":")[0] for problem in say("check", "b", "b").problems] == [f"{folder}/b.py"]
    assert say("check", "keep_warm").status == 0


def test_a_policy_that_is_not_there_is_told_with_the_nearest(say: Say, folder: Path) -> None:
    said = say("check", "keep_wrm")
    expected = f'there is no policy "keep_wrm" in {folder} and {share_dir("policies")}; did you mean "keep_warm"?'
    assert (said.status, said.problems) == (2, [expected])


def test_a_table_without_a_policy_is_told_when_all_are_checked(say: Say, configure: Callable[..., Path]) -> None:
    path = configure("", "[policy.keep_wram]")
    assert say("check").problems == [
        f'{path}:4: policy.keep_wram: there is no policy of this name; did you mean "keep_warm"?'
    ]
    assert say("check", "keep_warm").status == 0


def test_a_file_that_no_configuration_can_name_is_told(say: Say, folder: Path) -> None:
    (folder / "Mine.py").write_text(EXAMPLE)
    (problem,) = say("check").problems
    assert problem.startswith(f"{folder}/Mine.py:1: no configuration can name this file; a policy's name is of lower")


def test_the_result_in_json_has_the_keys_of_the_reference(say: Say, folder: Path) -> None:
    (folder / "mine.py").write_text("x = 1\n")
    said = say("check", "--json", "mine", "keep_warm")
    assert (said.status, said.err) == (2, "")
    told = in_json(said)
    assert set(told) == documented_keys("policies check")
    assert (told["ok"], told["policies"], len(told["problems"])) == (False, ["mine", "keep_warm"], 1)
    assert in_json(say("check", "--json", "keep_warm")) == {"ok": True, "policies": ["keep_warm"], "problems": []}


# --- new -------------------------------------------------------------------------------------------------------------


def test_a_new_policy_is_in_order_and_says_what_to_do_next(say: Say, tmp_path: Path, folder: Path) -> None:
    said = say("new", "mine")
    config = tmp_path / "cmscale.toml"
    assert said == Said(
        0,
        f"{folder}/mine.py is written. Its settings go under [policy.mine] in {config}.\n"
        "Next: make it yours, then: cm-scale policies check mine\n"
        f'To let it decide, add "mine" to policies under [cluster] in {config}.\n',
        "",
    )
    assert "NAME" not in (folder / "mine.py").read_text()
    assert say("check", "mine").status == 0


def test_the_example_does_what_its_docstring_says(say: Say, configure: Callable[..., Path], folder: Path) -> None:
    say("new", "mine")
    configure('policy_dir = "own"', '[policy.mine]\nnodes = ["made-up-1"]')
    assert say("check", "mine").status == 0
    assert '   nodes = ["made-up-1"] (default [])' in say("list").out.splitlines()
    assert "not active: mine: Keep the nodes up that `nodes` names." in say("list").out


@pytest.mark.parametrize("source", SHIPPED)
def test_a_shipped_policy_is_copied_as_it_is(say: Say, folder: Path, source: str) -> None:
    assert in_json(say("new", "mine", "--from", source, "--json")) == {"path": f"{folder}/mine.py"}
    assert (folder / "mine.py").read_bytes() == (share_dir("policies") / f"{source}.py").read_bytes()
    assert say("check", "mine").status == 0
    assert documented_keys("policies new") == {"path"}


def test_a_copy_under_its_own_name_decides_at_once(say: Say, folder: Path) -> None:
    said = say("new", "release_idle", "--from", "release_idle")
    assert f"It is at place {DECIDING.index('release_idle') + 1} of cluster.policies already" in said.out
    assert f"{folder}/release_idle.py (the site's own, in place of the shipped one)" in say("list").out


@pytest.mark.parametrize("argv", [("keep_warm",), ("keep_warm", "--from", "release_idle")])
def test_a_shipped_policy_is_not_replaced_by_something_else(say: Say, folder: Path, argv: tuple[str, ...]) -> None:
    said = say("new", *argv)
    assert said.status == 2
    assert said.problems == [
        (
            "keep_warm is a shipped policy, and yours would take its place; "
            "to copy it: cm-scale policies new keep_warm --from keep_warm"
        )
    ]
    assert not list(folder.iterdir())


def test_a_file_that_is_there_is_left_as_it_is(say: Say, folder: Path) -> None:
    (folder / "mine.py").write_text("precious")
    said = say("new", "mine")
    assert said.status == 2
    assert said.problems == [f"{folder}/mine.py: the file is there already, and is left as it is; choose another name"]
    assert (folder / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["Mine", "my-policy", "1st", "a/b", "../x", "mine.py", "", "mine\n"])
def test_what_cannot_be_a_name_is_refused(say: Say, tmp_path: Path, folder: Path, name: str) -> None:
    said = say("new", name)
    assert said.status == 2
    (problem,) = said.problems
    assert problem.startswith(f"{json.dumps(name)} can't be the name of a policy: a policy's name is of lower-case")
    assert {path.name for path in tmp_path.rglob("*")} == {"own", "cmscale.toml"}


def test_an_unknown_source_is_told_with_the_nearest(say: Say, folder: Path) -> None:
    said = say("new", "mine", "--from", "serve_que")
    assert said.problems == ['there is no shipped policy "serve_que"; did you mean "serve_queue"?']
    assert not list(folder.iterdir())


def test_without_a_folder_of_ones_own_the_key_is_named(say: Say, configure: Callable[..., Path]) -> None:
    path = configure("")
    said = say("new", "mine")
    assert said.status == 2
    (problem,) = said.problems
    assert problem.startswith(f"{path}:1: cluster.policy_dir: it is not set; name a folder for your own policies there")


def test_a_folder_is_made_if_only_it_is_missing(say: Say, configure: Callable[..., Path], tmp_path: Path) -> None:
    assert not (tmp_path / "own").exists()
    assert say("new", "mine").status == 0
    assert (tmp_path / "own" / "mine.py").is_file()
    path = configure('policy_dir = "far/away"')
    assert say("new", "mine").problems == [
        (
            f"{path}:3: cluster.policy_dir: neither {tmp_path}/far/away nor the folder above it exists; "
            "make it, or name another"
        )
    ]


def test_a_file_in_the_place_of_the_folder_is_told(say: Say, tmp_path: Path) -> None:
    (tmp_path / "own").write_text("")
    assert say("new", "mine").problems == [
        f"{tmp_path}/cmscale.toml:3: cluster.policy_dir: the folder {tmp_path}/own can't be made (File exists)"
    ]


@pytest.mark.parametrize("command", ["", "list", "check", "new"])
def test_the_help_fits_eighty_columns(command: str) -> None:
    said = CliRunner().invoke(cm_scale.cm_scale, ["policies", *command.split(), "--help"], terminal_width=80)
    assert said.exit_code == 0
    assert max(map(len, said.output.splitlines())) <= 80
    assert not any(line.endswith("...") for line in said.output.splitlines()[1:])
