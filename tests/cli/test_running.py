"""cm-scale run: what it says and does, once and until it is told to end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmscale.lab.lab import Lab
from cmscale.lab.processes import wait_until
from tests.cli.program import Program, documented_keys


@pytest.fixture(scope="module", autouse=True)
def job(lab: Lab) -> str:
    number = lab.command("sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:t4:1", "--wrap", "sleep 60").strip()
    assert wait_until(lambda: "None" not in lab.command("squeue", "-h", "-o", "%r"), 10)
    return number


def states(lab: Lab) -> str:
    return lab.command("sinfo", "-h", "-N", "-o", "%N %T %E")


def fresh(lab: Lab, folder: Path) -> Path:
    """A configuration that says nothing of the mode."""
    text = lab.config.read_text(encoding="utf-8").replace('mode = "act"\n', "")
    path = folder / "cmscale.toml"
    path.write_text(re.sub(r'(?m)^state_dir = ".*"', f'state_dir = "{folder}/state"', text), encoding="utf-8")
    assert "mode" not in path.read_text()
    return path


@contextmanager
def daemon(cm_scale: Program, *options: str | Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        cm_scale.argv("run", *options), env=cm_scale.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_once_observing_touches_nothing(cm_scale: Program) -> None:
    lab = cm_scale.lab
    before, began = states(lab), len(lab.call_log())
    said = cm_scale.apart("run", "--once", "--observe")
    assert (said.status, said.err) == (0, "")
    assert re.match(r"\d\d:\d\d:\d\d would drain cpu-\[1-4\],t4-\[1-12\],t4w-\[1-4\]: it has no machine", said.out)
    assert states(lab) == before
    assert {call["action"] for call in lab.call_log()[began:]} == {"DescribeInstances"}


def test_a_fresh_configuration_observes(cm_scale: Program, tmp_path: Path) -> None:
    lab = cm_scale.lab
    path = fresh(lab, tmp_path)
    before, began = states(lab), len(lab.call_log())
    said = cm_scale.apart("run", "--once", "-c", path)
    assert said.status == 0
    assert said.out
    assert all(" would " in line for line in said.out.splitlines())
    assert f'Next: set cluster.mode = "act" in {path}, then: cm-scale run' in cm_scale("plan", "-c", path).out
    assert states(lab) == before
    assert {call["action"] for call in lab.call_log()[began:]} == {"DescribeInstances"}


def test_once_in_json_is_the_plan_as_one_object(cm_scale: Program) -> None:
    said = cm_scale.apart("run", "--once", "--observe", "--json")
    assert said.status == 0
    assert set(json.loads(said.out)) == documented_keys("plan")


def test_each_decision_is_said_once(cm_scale: Program, job: str, tmp_path: Path) -> None:
    path = fresh(cm_scale.lab, tmp_path)
    with daemon(cm_scale, "-c", path) as process:
        assert process.stderr
        greeting = process.stderr.readline()
        time.sleep(2.5)
        told = json.loads(cm_scale("status", "--json", "-c", path).out)
        assert f"running as process {process.pid}, mode observe, last look" in cm_scale("status", "-c", path).out
        second = cm_scale("run", "--once", "-c", path)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=10)
    assert " NOTICE observing cluster lab, 3 pools at 2 sites: nothing is touched; to act, set" in greeting
    assert told["daemon"]["running"]
    assert told["daemon"]["pid"] == process.pid
    assert set(told["daemon"]) == documented_keys("status", "daemon")
    assert second.status == 2
    assert second.problems == [f"a daemon (process {process.pid}) runs already with the journal in {tmp_path}/state"]
    assert (process.returncode, err) == (0, "")
    lines = [line[9:] for line in out.splitlines()]
    assert len(lines) == len(set(lines)) <= 2


def test_every_line_of_json_is_a_plan_that_says_something_new(cm_scale: Program, tmp_path: Path) -> None:
    with daemon(cm_scale, "--json", "-c", fresh(cm_scale.lab, tmp_path)) as process:
        assert process.stdout
        first = json.loads(process.stdout.readline())
        time.sleep(2.5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=10)
    assert first["actions"]
    assert len(out.splitlines()) <= 1
