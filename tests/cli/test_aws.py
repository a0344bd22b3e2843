"""`aws setup`, `aws teardown`, `aws policy`: an account is set up, looked at and cleared by what an admin types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Program, documented_keys

SITE = "aws-us-east-1"


@pytest.fixture
def cleared(cm_scale: Program) -> Iterator[Program]:
    yield cm_scale
    cm_scale("aws", "teardown")


def config(cm_scale: Program, folder: Path, sites: str) -> Path:
    """The lab's configuration with other words for its sites; `[sites.X]` becomes `[sites.X]` and these."""
    text = cm_scale.lab.config.read_text(encoding="utf-8")
    path = folder / "cmscale.toml"
    path.write_text(text.replace('kind = "aws"', f'kind = "aws"\n{sites}'), encoding="utf-8")
    return path


def lines(cm_scale: Program, *words: str) -> list[str]:
    said = cm_scale(*words)
    assert (said.status, said.err) == (0, "")
    return said.out.splitlines()


def test_an_account_is_set_up_once_and_cleared_again(cleared: Program) -> None:
    name = json.loads(cleared("aws", "setup", "--dry-run", "--json").out)["sites"][0]["queue"]
    what = [f"queue {name}", f"rule {name}", f"queue policy {name}", "target cm-scale"]
    *told, last = lines(cleared, "aws", "setup", "--dry-run", "--site", SITE)
    assert told == [f"{SITE}: {each} would be made" for each in what]
    assert last == "To do so, type it without --dry-run."
    *told, last = lines(cleared, "aws", "setup", "--site", SITE)
    assert told == [f"{SITE}: {each} is made" for each in what]
    assert last.endswith("Next: cm-scale aws policy, then cm-scale check")
    assert lines(cleared, "aws", "setup", "--site", SITE) == [f"{SITE}: {each} is there" for each in what]
    assert cleared("check").status == 0
    gone = [f"{SITE}: target cm-scale", f"{SITE}: rule {name}", f"{SITE}: queue {name}"]
    assert lines(cleared, "aws", "teardown", "--site", SITE, "--dry-run") == [
        f"{each} would be removed" for each in gone
    ]
    assert lines(cleared, "aws", "teardown", "--site", SITE) == [f"{each} is removed" for each in gone]
    assert lines(cleared, "aws", "teardown", "--site", SITE) == [f"{each} is not there" for each in gone[1:]]


def test_what_is_done_is_told_in_json_with_the_documented_keys(cleared: Program) -> None:
    for command, first in (("setup", "made"), ("teardown", "removed")):
        done = json.loads(cleared("aws", command, "--json").out)
        assert set(done) == documented_keys(f"aws {command}")
        for site in done["sites"]:
            assert set(site) == documented_keys(f"aws {command}", "sites")
            assert {key for deed in site["deeds"] for key in deed} == documented_keys(f"aws {command}", "deeds")
            assert site["deeds"][0]["did"] == first
        assert done["dry_run"] is False


def statements(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {statement["Sid"]: statement for statement in document["Statement"]}


def test_the_policy_is_printed_ready_to_be_pasted_or_on_one_line(cm_scale: Program) -> None:
    said, in_json = cm_scale("aws", "policy"), cm_scale("aws", "policy", "--json")
    assert json.loads(said.out) == json.loads(in_json.out)
    assert len(in_json.out.splitlines()) == 1 < len(said.out.splitlines())
    document = json.loads(said.out)
    assert set(document) == documented_keys("aws policy")
    keys = {key for statement in document["Statement"] for key in statement}
    assert keys == documented_keys("aws policy", "Statement")
    assert set(statements(json.loads(cm_scale("aws", "policy", "--setup").out))) == {"Queue", "Rule"}


def test_the_policy_of_one_site_is_for_its_region_alone(cm_scale: Program) -> None:
    of_all = statements(json.loads(cm_scale("aws", "policy", "--json").out))
    of_one = statements(json.loads(cm_scale("aws", "policy", "--site", SITE, "--json").out))
    assert of_one["Look"]["Condition"] == {"StringEquals": {"aws:RequestedRegion": ["us-east-1"]}}
    assert set(of_one["ChangeOurs"]["Resource"]) <= set(of_all["ChangeOurs"]["Resource"])


@pytest.mark.parametrize("command", ["setup", "teardown", "policy"])
def test_a_site_that_is_not_there_is_told_with_the_nearest(cm_scale: Program, command: str) -> None:
    said = cm_scale("aws", command, "--site", "aws-us-esat-1")
    assert said.status == 2
    (problem,) = said.problems
    assert problem.startswith('there is no site "aws-us-esat-1" of kind = "aws" in ')
    assert f'did you mean "{SITE}"' in problem


def test_a_queue_that_is_not_ours_to_make_is_told(cm_scale: Program, tmp_path: Path) -> None:
    none = config(cm_scale, tmp_path, 'notices_queue = ""')
    assert lines(cm_scale, "-c", str(none), "aws", "setup") == [
        'Nothing is to be done: every site has notices_queue = "" or the URL of a queue.'
    ]
    said = cm_scale("-c", str(none), "aws", "setup", "--site", SITE)
    assert (said.status, said.out) == (2, "")
    assert said.problems == [
        f'site {SITE}: notices_queue is "", so there is nothing to set up; take the key away, or name a queue'
    ]


def test_what_is_no_queue_s_name_is_a_mistake(cm_scale: Program, tmp_path: Path) -> None:
    said = cm_scale("-c", str(config(cm_scale, tmp_path, 'notices_queue = "a queue"')), "check")
    assert said.status == 2
    assert 'notices_queue: expected "auto", the name of a queue or its URL, got "a queue"' in said.err
