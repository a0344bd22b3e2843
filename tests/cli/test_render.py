"""What is told, of a plan and in a table, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cmscale.cli import render
from cmscale.cli.shared import date
from cmscale.model import Action, Goal, JobId, NodeName, OpId, Plan, PolicyFailure, Refusal, Snapshot, Verb, Want

GOAL = Goal(NodeName("t4-1"), Want.GONE, "idle for 300 s")
ACTION = Action(Verb.DELETE, NodeName("t4-2"), "idle for 300 s and no waiting job needs it", OpId("x-1"))
PLAN = Plan(
    "x",
    1000.0,
    actions=(ACTION,),
    refused=(Refusal(GOAL, "minimum_up_time", "it has been up for 30 s; limits.min_up is 60 s"),),
    failed=(PolicyFailure("mine", "ValueError: no"),),
    never={JobId("17"): "too large"},
)
VIEW = Snapshot(1000.0, "x")


def test_what_was_told_is_no_news_although_its_figures_change() -> None:
    later = replace(
        PLAN,
        actions=(replace(ACTION, reason="idle for 301 s and no waiting job needs it", op=OpId("x-2")),),
        refused=(Refusal(GOAL, "minimum_up_time", "it has been up for 31 s; limits.min_up is 60 s"),),
    )
    assert render.facts(VIEW, later) == render.facts(VIEW, PLAN)
    assert render.plan_lines(render.only_news(later, render.facts(VIEW, PLAN))) == []


def test_what_is_new_is_told_without_what_was() -> None:
    other = replace(ACTION, node=NodeName("t4-3"))
    news = render.only_news(replace(PLAN, actions=(ACTION, other)), render.facts(VIEW, PLAN))
    assert render.plan_lines(news, "would ") == [f"would delete t4-3: {ACTION.reason}"]


def test_a_plan_is_told_whole() -> None:
    assert render.plan_lines(PLAN) == [
        "delete t4-2: idle for 300 s and no waiting job needs it",
        "refused by minimum_up_time: t4-1: it has been up for 30 s; limits.min_up is 60 s",
        "policy mine failed: ValueError: no",
        "no pool can ever serve job 17: too large",
    ]


def test_a_sentence_in_a_table_wraps_and_takes_no_other_columns_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sick = "machine i-1 has not joined Slurm within 900 s and this goes on for longer than a line is wide"
    row: dict[str, Any] = {"name": "t4-1", "pool": "t4", "site": "s", "power": "starting", "slurm": ["DOWN"]}
    row |= {"machine": "i-1", "up_since": 100.0, "idle_s": None, "jobs": ["17"], "sick": sick}
    render.node_lines([row], 1000.0, render.console())
    heading, *lines, left_out = capsys.readouterr().out.splitlines()
    assert heading.split() == ["node", "pool", "power", "slurm", "machine", "jobs", "trouble"]
    assert left_out == "Left out at this width: site, age; --json has all."
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert " ".join(line[heading.index("trouble") :].strip() for line in lines) == sick


def test_brackets_are_text() -> None:
    assert render.decisions([replace(ACTION, node=NodeName(f"t4-{n}")) for n in (1, 2)])[0].startswith(
        "delete t4-[1-2]"
    )


@pytest.mark.parametrize(("count", "told"), [(0, "0 pools"), (1, "1 pool"), (2, "2 pools")])
def test_numbers_agree_with_their_words(count: int, told: str) -> None:
    assert render.number(count, "pool") == told


ALONE = {
    "running": True,
    "pid": 7,
    "mode": "act",
    "age_s": None,
    "leader": None,
    "leader_since": None,
    "standby": False,
}
LED = ALONE | {"leader": "head2 (process 9)", "leader_since": 0.0}


@pytest.mark.parametrize(
    ("daemon", "line"),
    [
        (ALONE, "running as process 7, mode act"),
        (ALONE | {"running": False}, "not running (mode act); start it with: cm-scale run"),
        (LED, f"running as process 7, mode act, leads since {date(0)}"),
        (LED | {"standby": True}, f"running as process 7, standby; head2 (process 9) leads since {date(0)}"),
        (LED | {"running": False}, f"not running here; head2 (process 9) leads since {date(0)}"),
        (ALONE | {"standby": True}, "running as process 7, standby; nobody leads"),
    ],
)
def test_status_says_who_leads(daemon: dict[str, object], line: str) -> None:
    assert render._daemon(daemon) == line
