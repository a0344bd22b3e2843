"""What somebody new sees first: `cm-scale demo`, as a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.e2e.daemon import PACKAGE, PROGRAM

pytestmark = pytest.mark.slow

LIMIT_S = 120


class Shown(NamedTuple):
    status: int
    out: str
    err: str


def end(demo: subprocess.Popen[str]) -> None:
    """End it if it has not; it ends its lab."""
    if demo.poll() is None:
        demo.send_signal(signal.SIGINT)
        try:
            demo.wait(20)
        except subprocess.TimeoutExpired:
            demo.kill()


@pytest.fixture(scope="module")
def shown() -> Iterator[tuple[Shown, Shown]]:
    """What the demo says, for people and in JSON: two at once, side by side."""
    with ExitStack() as ended:
        both = []
        for more in ((), ("--json",)):
            demo = subprocess.Popen(
                [*PROGRAM, "demo", *more],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, **PACKAGE},
                start_new_session=True,
            )
            ended.enter_context(demo)
            ended.callback(end, demo)
            both.append(demo)
        said = [demo.communicate(timeout=LIMIT_S) for demo in both]
        lines, in_json = (Shown(demo.returncode, *each) for demo, each in zip(both, said, strict=True))
        yield lines, in_json


def one_object(text: str) -> dict[str, Any]:
    """The only line of the text, which is a JSON object."""
    assert text.count("\n") == 1
    told: dict[str, Any] = json.loads(text)
    return told


def test_the_demo_prints_exactly_one_json_object_with_its_figures(shown: tuple[Shown, Shown]) -> None:
    status, out, err = shown[1]
    assert (status, err) == (0, "")
    told = one_object(out)
    assert told.keys() == {
        "ok",
        "jobs",
        "instances_created",
        "instances_left",
        "launch_calls",
        "reaction_s",
        "never_fit",
    }
    assert {tuple(each) for each in told["jobs"]} == {("id", "state", "submitted", "started", "ended", "nodes")}


def test_in_the_demo_every_job_that_can_run_runs_and_no_machine_is_left(shown: tuple[Shown, Shown]) -> None:
    told = one_object(shown[1].out)
    assert told["ok"] is True
    assert told["instances_left"] == 0
    can_run = [job for job in told["jobs"] if job["id"] not in told["never_fit"]]
    assert len(can_run) == 1 + 1 + 1 + 20
    assert {job["state"] for job in can_run} == {"COMPLETED"}
    for job in can_run:
        assert int(job["submitted"]) <= job["started"] <= job["ended"], job
        assert job["nodes"]


def test_in_the_demo_many_machines_are_made_by_few_calls_soon_after_sbatch(shown: tuple[Shown, Shown]) -> None:
    told = one_object(shown[1].out)
    assert told["instances_created"] >= 12
    assert 1 <= told["launch_calls"] <= told["instances_created"] / 3
    assert 0 <= told["reaction_s"] < 2


def test_in_the_demo_a_job_that_can_never_fit_is_named_and_told_so_in_its_comment(shown: tuple[Shown, Shown]) -> None:
    told = one_object(shown[1].out)
    (number,) = told["never_fit"]
    (job,) = (job for job in told["jobs"] if job["id"] == number)
    assert job["state"] == "PENDING"
    # The demo takes this text from squeue's comment of the job, not from the daemon.
    assert told["never_fit"][number] == (
        "cm-scale: no pool can ever serve this job: aws-us-east-1 has at most 8 nodes that fit, 10 are needed"
    )


def test_for_people_the_demo_tells_its_decisions_and_ends_with_ok_and_what_to_do_next(
    shown: tuple[Shown, Shown],
) -> None:
    status, out, err = shown[0]
    assert (status, err) == (0, "")
    *_, figures, ok, following = out.splitlines()
    assert figures.endswith("(median).")
    assert ", 0 are left;" in figures
    assert ok == "ok"
    assert following.startswith("Next: ")
    decisions = out.partition("What was decided, and why\n")[2]
    for verb in ("start t4-", "resume t4-", "drain t4-", "delete t4-"):
        assert f" {verb}" in decisions
