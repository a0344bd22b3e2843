"""keep, drain-site and clear: what is typed, what is said, what is in the journal. No Slurm is needed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cmscale.model import Closure, Event, EventKind, Fact, FactKind, PoolName, Result
from cmscale.shell import config, wiring
from tests.cli.program import Said, Say, documented_keys, saying

FILE = """
[cluster]
name = "c1"
mode = "act"
state_dir = "state"

[sites.east]
kind = "aws"
region = "us-east-1"

[pools.t4]
site = "east"
nodes = "t4-[1-8]"
cpus = 4
mem_mb = 15000
partitions = ["batch"]

[pools.t4.aws]
instance_type = "g4dn.xlarge"
image = "ami-1"
subnet = "subnet-1"
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cmscale.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def say(path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Say:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("SUDO_USER", raising=False)
    return saying("-c", path, monkeypatch=monkeypatch, capfd=capfd)


def facts(path: Path) -> list[Fact]:
    with wiring.journal(config.load(path)) as journal:
        return list(journal.facts(time.time()))


def events(path: Path) -> list[Event]:
    with wiring.journal(config.load(path)) as journal:
        return list(journal.events(0))


def told(said: Said) -> dict[str, Any]:
    assert said.status == 0, said.err
    loaded: dict[str, Any] = json.loads(said.out)
    return loaded


KEEP = ("keep", "t4-[1-3]", "--for", "2h", "--why", "the driver is debugged")
DRAIN = ("drain-site", "east", "--for", "1d", "--why", "the link is repaired")


# --- keep and drain-site ---------------------------------------------------------------------------------------------


def test_a_keep_says_until_when_how_it_ends_earlier_and_that_it_starts_nothing(say: Say, path: Path) -> None:
    first, second = say(*KEEP).out.splitlines()
    assert first.startswith("t4-[1-3]: kept until 2")
    assert first.endswith(" (the driver is debugged). To end it earlier: cm-scale clear 't4-[1-3]'")
    assert second == "A keep starts nothing: what is off stays off until a job needs it."
    assert [(fact.kind, fact.subject, fact.until - fact.at, fact.by) for fact in facts(path)] == [
        (FactKind.KEEP, f"t4-{number}", 7200, "root") for number in (1, 2, 3)
    ]


def test_several_hostlists_may_be_given_and_a_node_twice(say: Say, path: Path) -> None:
    say("keep", "t4-[1-2]", "t4-2,t4-5", "--for", "2h", "--why", "x")
    assert [fact.subject for fact in facts(path)] == ["t4-1", "t4-2", "t4-5"]


def test_a_drained_site_says_until_when_and_how_it_ends_earlier(say: Say, path: Path) -> None:
    (line,) = say(*DRAIN).out.splitlines()
    assert line.startswith("east: drained until 2")
    assert line.endswith(" (the link is repaired). To end it earlier: cm-scale clear east")
    assert [(fact.kind, fact.subject, fact.until - fact.at) for fact in facts(path)] == [
        (FactKind.DRAIN_SITE, "east", 86400)
    ]


def test_without_its_policy_a_drained_site_says_that_only_starts_stop(say: Say, path: Path) -> None:
    path.write_text(FILE.replace('mode = "act"', 'mode = "act"\npolicies = ["serve_queue"]'), encoding="utf-8")
    _, line = say(*DRAIN).out.splitlines()
    assert line == (
        f"Only starts stop: policy drain_sites, which gives machines back, is not among cluster.policies in {path}."
    )


@pytest.mark.parametrize("command", ["keep", "drain-site"])
def test_a_program_reads_overrides_with_the_keys_of_the_reference(say: Say, command: str) -> None:
    answer = told(say(*(KEEP if command == "keep" else DRAIN), "--json"))
    assert set(answer) == documented_keys(command)
    assert set(answer["overrides"][0]) == documented_keys("keep", "overrides")
    assert answer["overrides"][0]["kind"] == command


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("keep", "--for", "2h", "--why", "x"), "Missing argument 'NODE...'"),
        (("keep", "t4-1", "--why", "x"), "Missing option '--for'"),
        (("keep", "t4-1", "--for", "2h"), "Missing option '--why'"),
        (("keep", "t4-[1", "--for", "2h", "--why", "x"), 'expected node names such as "t4-[1-16]"'),
        (("keep", "t4-1", "--for", "two hours", "--why", "x"), 'expected a duration such as "30s", "10m" or "2h"'),
        (("drain-site", "east", "--for", "0s", "--why", "x"), "expected more than 0"),
        (("drain-site", "east", "west", "--for", "1h", "--why", "x"), "unexpected extra argument (west)"),
        (("clear", "t4-1", "--only", "kep"), 'nothing of the kind "kep" can be cleared; did you mean "keep"?'),
    ],
)
def test_what_is_typed_wrongly_is_told_by_its_usage(say: Say, argv: tuple[str, ...], why: str) -> None:
    said = say(*argv)
    assert (said.status, said.out) == (2, "")
    assert why in said.err


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("keep", "t4-1", "t4-11", "--for", "2h", "--why", "x"), 'no pool has a node "t4-11"; did you mean "t4-1"?'),
        (("drain-site", "easd", "--for", "2h", "--why", "x"), 'there is no site "easd"; did you mean "east"?'),
        (("clear", "eastt"), 'there is no node, pool or site "eastt"; did you mean "east"?'),
        (
            ("keep", "t4-1", "--for", "2h", "--why", "  "),
            "expected a reason of 1 to 1000 letters (--why), for those who meet this later",
        ),
        (
            ("pause", "--for", "999999999d", "x"),
            "expected an end after 365d at most, got 8.64e+13 s; what shall last is a setting",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(say: Say, path: Path, argv: tuple[str, ...], problem: str) -> None:
    said = say(*argv)
    assert (said.status, said.out, said.problems) == (2, "", [problem])
    assert (facts(path), events(path)) == ([], [])


# --- clear -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def standing(say: Say, path: Path) -> Mapping[str, float]:
    """A keep, a pause, a drained site, a quarantine and pools that refused."""
    now = time.time()
    with wiring.journal(config.load(path)) as journal:
        journal.put_fact(Fact(FactKind.QUARANTINE, "t4-7", now, now + 600, "it never joined", "cm-scale"))
        journal.put_fact(Fact(FactKind.STOPPED, "t4-7", now, now + 600, "its disk is kept", "cm-scale"))
        journal.close(PoolName("t4"), Closure(now - 1, Result.CAPACITY, "none left"))
    for argv in (KEEP, DRAIN, ("pause", "the switch is moved")):
        say(*argv)
    return {"now": now}


@pytest.mark.parametrize("argv", [(), ("--list",)], ids=["no name", "--list"])
def test_what_can_be_cleared_is_listed_with_its_end_its_author_and_its_reason(
    say: Say, standing: Mapping[str, float], argv: tuple[str, ...]
) -> None:
    heading, *rows, how = say("clear", *argv).out.splitlines()
    assert heading.split() == ["what", "name", "until", "by", "why"]
    assert [row.split()[0] for row in rows] == ["pause", "drain-site", "keep", "quarantine", "closed"]
    assert rows[2].split()[1] == "t4-[1-3]"
    assert rows[2].endswith("root      the driver is debugged")
    assert rows[4].split()[:4] == ["closed", "t4", "a", "try"]
    assert how == "To end one before its time: cm-scale clear NAME, or cm-scale clear --pause"


def test_what_can_be_cleared_can_be_listed_by_kind(say: Say, standing: Mapping[str, float]) -> None:
    assert len(say("clear", "--only", "keep").out.splitlines()) == 3


def test_nothing_that_could_be_cleared_is_told(say: Say) -> None:
    assert say("clear").out == "Nothing stands that could be cleared.\n"


def test_what_is_named_is_cleared_and_the_rest_stands(say: Say, path: Path, standing: Mapping[str, float]) -> None:
    assert say("clear", "t4-[2-7]", "t4").out.splitlines() == [
        "Cleared: keep t4-[2-3] (by root: the driver is debugged)",
        "Cleared: quarantine t4-7 (by cm-scale: it never joined)",
        "Cleared: closed t4 (by cm-scale: capacity: none left)",
    ]
    assert {(fact.kind, fact.subject) for fact in facts(path)} == {
        (FactKind.KEEP, "t4-1"),
        (FactKind.DRAIN_SITE, "east"),
        (FactKind.PAUSE, ""),
        (FactKind.STOPPED, "t4-7"),
    }


def test_a_site_serves_again_when_it_is_cleared_and_a_pause_ends_when_it_is(
    say: Say, path: Path, standing: Mapping[str, float]
) -> None:
    assert say("clear", "east", "--pause").out.splitlines() == [
        "Cleared: pause (by root: the switch is moved)",
        "Cleared: drain-site east (by root: the link is repaired)",
    ]
    assert say("resume").out == "Nothing is paused. Next: cm-scale status\n"


def test_nothing_to_clear_is_told_and_no_error(say: Say, path: Path) -> None:
    said = say("clear", "t4-1")
    assert (said.status, said.out) == (
        0,
        "There is nothing of it to clear. What can be cleared: cm-scale clear --list\n",
    )
    assert events(path) == []


def test_a_program_reads_what_was_cleared_and_what_stands_with_the_keys_of_the_reference(
    say: Say, standing: Mapping[str, float]
) -> None:
    listed = told(say("clear", "--json"))
    assert set(listed) == documented_keys("clear")
    assert set(listed["standing"][0]) == documented_keys("clear", "standing") == documented_keys("clear", "cleared")
    assert (len(listed["standing"]), listed["cleared"]) == (7, [])
    cleared = told(say("clear", "t4", "--json"))
    assert [hold["kind"] for hold in cleared["cleared"]] == ["closed"]
    assert len(cleared["standing"]) == 6


# --- the trail -------------------------------------------------------------------------------------------------------


def test_every_word_is_among_the_events_of_its_kind(say: Say, path: Path, standing: Mapping[str, float]) -> None:
    say("clear", "t4-1")
    lines = [
        line.partition(": ")[2].partition(": ")[2] for line in say("events", "--kind", "override").out.splitlines()
    ]
    assert lines == [
        "keep t4-[1-3] for 2h: the driver is debugged",
        "drain-site east for 1d: the link is repaired",
        "pause for 1h: the switch is moved",
        "clear keep t4-1 (by root: the driver is debugged)",
    ]
    assert {event.kind for event in events(path)} == {EventKind.OVERRIDE}
