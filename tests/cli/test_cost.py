"""cost: what a month, a day or an hour has cost, and whom. Only the journal is needed where there are no budgets."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from cmscale.model import Payer, PoolName, Spending, Use
from cmscale.shell import config, wiring
from tests.cli.program import Say, documented_keys, saying

MARCH = 1_772_366_400
"""The first of March 2026, 12:00 UTC."""
DAY_S = 86400
HOUR_MS = 3_600_000
ADA, BOB = Payer("ada", "physics", "17"), Payer("bob", "physics", "18")
T4 = PoolName("t4")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cmscale.toml"
    path.write_text('[cluster]\nname = "test"\nstate_dir = "state"\n[cost]\ntime_zone = "UTC"\n', encoding="utf-8")
    return path


@pytest.fixture
def say(path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Say:
    """Call cm-scale cost as the shell does."""
    return saying("-c", path, "cost", monkeypatch=monkeypatch, capfd=capfd)


@pytest.fixture
def spent(path: Path) -> None:
    bill = {
        Use(MARCH, T4, Spending.JOB, ADA, 526_000): 10 * HOUR_MS,
        Use(MARCH, T4, Spending.BOOT, ADA, 526_000): HOUR_MS // 20,
        Use(MARCH + DAY_S, T4, Spending.IDLE, BOB, 526_000): HOUR_MS,
        Use(MARCH + DAY_S, PoolName("cpu"), Spending.JOB, BOB, 340_000): 20 * HOUR_MS,
        Use(MARCH + 40 * DAY_S, T4, Spending.JOB, BOB, 526_000): HOUR_MS,
        Use(int(time.time()) // 3600 * 3600, T4, Spending.JOB, BOB, 526_000): 100 * HOUR_MS,
    }
    with wiring.journal(config.load(path)) as journal:
        journal.put_spending((), bill)


def test_a_month_is_told_by_user_with_boots_idle_time_and_jobs_that_add_up(say: Say, spent: None) -> None:
    assert say("--month", "2026-03").out.splitlines() == [
        "USD, by user:",
        "user    boot  idle   jobs  total",
        "bob     0.00  0.52   6.80   7.32",
        "ada     0.03  0.00   5.26   5.29",
        "in all  0.03  0.52  12.06  12.61",
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("pool", ["cpu", "t4"]),
        ("job", ["18", "17"]),
        ("account", ["physics"]),
        ("day", ["2026-03-01", "2026-03-02"]),
        ("site", ["-"]),
    ],
)
def test_the_sum_is_the_same_cents_whatever_the_lines_are_for(say: Say, spent: None, by: str, names: list[str]) -> None:
    rows = [line.split() for line in say("--month", "2026-03", "--by", by).out.splitlines()]
    assert [row[0] for row in rows[2:-1]] == names
    assert rows[-1] == ["in", "all", "0.03", "0.52", "12.06", "12.61"]


def test_a_day_and_the_last_hours_can_be_named(say: Say, spent: None) -> None:
    assert json.loads(say("--day", "2026-03-02", "--json").out)["sum"]["total"] == 7.326
    told = json.loads(say("--since", "2h", "--json").out)
    assert told["sum"] == {"name": "", "boot": 0.0, "idle": 0.0, "jobs": 52.6, "total": 52.6}


def test_a_program_reads_the_bill_with_the_keys_of_the_reference(say: Say, spent: None) -> None:
    told = json.loads(say("--month", "2026-03", "--json").out)
    assert set(told) == documented_keys("cost")
    assert all(set(row) == documented_keys("cost", "rows") for row in (*told["rows"], told["sum"]))
    assert told["budgets"] == []


def test_what_is_not_known_is_said(say: Say) -> None:
    assert say("--month", "2025-01").out.startswith("Nothing was spent from 2025-01-01 ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--month", "2026-13"), 'expected --month 2026-03, got "2026-13"'),
        (("--day", "2026-03"), 'expected --day 2026-03-31, got "2026-03"'),
        (("--day", "2026-03-01", "--since", "2h"), "--since and --day name different times; give one of them"),
        (("--by", "moon"), "'moon' is not one of"),
    ],
)
def test_what_is_misspelt_is_told_with_what_was_expected(say: Say, words: tuple[str, ...], expected: str) -> None:
    said = say(*words)
    assert said.status == 2
    assert expected in said.err
