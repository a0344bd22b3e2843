"""replay: what other policies would have decided on what was seen. Only the journal and policies are needed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from cmscale.model import Action, Node, NodeName, OpId, Plan, PoolName, Power, Verb
from cmscale.shell import config, wiring
from tests.builders import IDLE, machine, node, pool, view
from tests.cli.program import Said, Say, documented_keys, saying

NOW = time.time()
T4 = pool(price_hour=2.0)
STARTS = Action(Verb.START, NodeName("t4-1"), "job 17 waits", OpId("op-1"), PoolName("t4"))

EAGER = '''
"""Keeps t4-1 and t4-2 up."""
from cmscale.model import Goal, Want

def propose(view, claimed, settings):
    for node in list(view.nodes.values())[:2]:
        yield Goal(node.name, Want.UP, "one may need it")
'''


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A configuration that decides nothing by itself."""
    path = tmp_path / "cmscale.toml"
    path.write_text('[cluster]\nname = "test"\nstate_dir = "state"\npolicies = ["keep_warm"]\n', encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "eager.py").write_text(EAGER, encoding="utf-8")
    return folder


@pytest.fixture
def say(path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Say:
    """Call cm-scale replay as the shell does."""
    return saying("-c", path, "replay", monkeypatch=monkeypatch, capfd=capfd)


@pytest.fixture
def record(path: Path) -> Callable[..., None]:
    """Let the journal have seen these nodes so many minutes ago, and decided this."""

    def record(minutes_ago: float, *actions: Action, nodes: Iterable[Node] = ()) -> None:
        at, tick = NOW - minutes_ago * 60, f"d-{minutes_ago}"
        with wiring.journal(config.load(path)) as journal:
            journal.record(view([T4], nodes, now=at, tick=tick), Plan(tick, at, actions))

    return record


Record = Callable[..., None]


def told(said: Said) -> dict[str, Any]:
    assert (said.status, said.err) == (0, "")
    loaded: dict[str, Any] = json.loads(said.out)
    return loaded


def test_the_same_policies_decide_the_same(say: Say, record: Record) -> None:
    record(30)
    record(10)
    assert say().out == "2 ticks compared, none differ.\n"


def test_what_only_one_side_does_is_told_with_its_price_and_ticks_that_differ_alike_are_told_once(
    say: Say, record: Record, folder: Path
) -> None:
    for minutes_ago in (90, 60, 30):
        record(minutes_ago)
    first, starts, price, total = say("--policy-dir", folder, "--policies", "eager").out.splitlines()
    assert first.endswith(", 3 ticks alike, the first d-90")
    assert starts == "  only now: start t4-[1-2]: one may need it (2 nodes)"
    assert price == "  now: $4.00 more an hour"
    assert total == "3 ticks compared, 3 differ. Estimate for the period: $4.00 more with the policies of now."


def test_what_was_done_then_and_would_not_be_done_now_is_saved(say: Say, record: Record) -> None:
    up = node(power=Power.ON, of=T4, states=IDLE, machine=machine("t4-1", launched=NOW - 3500))
    record(60, STARTS)
    record(30, nodes=[up])
    lines = say().out.splitlines()
    assert lines[0].endswith(" d-60")
    assert lines[1:] == [
        "  only then: start t4-1: job 17 waits",
        "  now: $2.00 less an hour",
        "2 ticks compared, 1 differs. Estimate for the period: $1.00 less with the policies of now.",
    ]


def test_only_the_period_that_is_named_is_decided_again(say: Say, record: Record) -> None:
    for minutes_ago in (180, 100, 50):
        record(minutes_ago)
    assert told(say("--json"))["ticks"] == 2
    assert told(say("--json", "--since", "4h", "--until", "90m"))["ticks"] == 2
    assert told(say("--json", "--since", "4h"))["ticks"] == 3


def test_a_folder_is_searched_before_the_configured_one_and_the_shipped_policies(
    say: Say, record: Record, folder: Path
) -> None:
    record(30)
    (folder / "keep_warm.py").write_text(EAGER, encoding="utf-8")
    assert told(say("--json"))["differ"] == 0
    assert told(say("--json", "--policy-dir", folder))["differ"] == 1
    assert told(say("--json", "--policy-dir", folder, "--policies", "release_idle"))["differ"] == 0


def test_a_program_reads_a_replay_with_the_keys_of_the_reference(say: Say, record: Record) -> None:
    record(60, STARTS)
    replayed = told(say("--json"))
    assert set(replayed) == documented_keys("replay")
    assert (replayed["ticks"], replayed["differ"], replayed["price_hour"]) == (1, 1, -2.0)
    (difference,) = replayed["differences"]
    assert set(difference) == documented_keys("replay", "differences")
    assert (difference["tick"], difference["now"], difference["price_hour"]) == ("d-60", [], -2.0)
    assert difference["then"][0]["verb"] == "start"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ((), "no snapshot is kept from "),
        (("--since", "1h", "--until", "1h"), "--until 1h is no later than --since 1h"),
        (("--policies", "keep_worm"), '--policies: there is no policy "keep_worm"; did you mean "keep_warm"?'),
        (("--since", "2"), "expected a duration"),
        (("--policy-dir", "/nowhere"), "'/nowhere' does not exist"),
    ],
    ids=["nothing", "period", "policy", "duration", "folder"],
)
def test_what_a_person_must_mend_is_told_in_one_sentence(say: Say, argv: tuple[str, ...], sentence: str) -> None:
    said = say(*argv)
    assert (said.status, said.out) == (2, "")
    assert sentence in said.err
