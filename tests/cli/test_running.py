"""cm-scale run: what it says and does, once and until it is told to end."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cmscale.lab.lab import Lab
from cmscale.lab.processes import wait_until
from cmscale.shell import admins
from cmscale.shell import config as configuration
from cmscale.shell.overrides import Do, Word
from tests.cli.program import Program, documented_keys


@pytest.fixture(scope="module", autouse=True)
def job(lab: Lab) -> str:
    number = lab.command("sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:t4:1", "--wrap", "sleep 60").strip()
    assert wait_until(lambda: "None" not in lab.command("squeue", "-h", "-o", "%r"), 10)
    return number


LOOKS = {"DescribeInstances", "DescribeInstanceTypes", "ListServiceQuotas"}
"""What is asked of a cloud where nothing is changed."""


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
    assert {call["action"] for call in lab.call_log()[began:]} == LOOKS


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
    assert {call["action"] for call in lab.call_log()[began:]} == LOOKS


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


def test_the_daemon_hears_those_who_may_overrule_it_for_as_long_as_it_runs(cm_scale: Program, tmp_path: Path) -> None:
    path = fresh(cm_scale.lab, tmp_path)
    path.write_text(path.read_text().replace("[cluster]", '[cluster]\nadmins = "adm"', 1), encoding="utf-8")
    config = configuration.load(path)
    with daemon(cm_scale, "-c", path) as process:
        door = config.state_dir / admins.SOCKET
        assert wait_until(door.exists, 20)
        assert wait_until(lambda: bool(door.stat().st_mode & 0o002), 5)
        assert admins.ask(config, Word(Do.KEEP, ("t4-1",), 600.0, "the driver is debugged")).put
        (told,) = json.loads(cm_scale("status", "--json", "-c", path).out)["overrides"]
        assert (set(told), told["subject"]) == (documented_keys("status", "overrides"), "t4-1")
        assert "kept     t4-1 for another 10 min by root: the driver is debugged" in cm_scale("status", "-c", path).out
        assert "It is kept for another 10 min by root" in cm_scale("explain", "node", "t4-1", "-c", path).out
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 0
    assert not door.exists()


def test_every_line_of_json_is_a_plan_that_says_something_new(cm_scale: Program, tmp_path: Path) -> None:
    with daemon(cm_scale, "--json", "-c", fresh(cm_scale.lab, tmp_path)) as process:
        assert process.stdout
        first = json.loads(process.stdout.readline())
        time.sleep(2.5)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=10)
    assert first["actions"]
    assert len(out.splitlines()) <= 1


# --- a running daemon, its file and systemd --------------------------------------------------------------------------


def until(holds: Callable[[], object], what: str) -> None:
    assert wait_until(lambda: bool(holds()), 30), f"not within 30 s: {what}"


def troubles(cm_scale: Program, path: Path) -> list[str]:
    said = cm_scale("status", "--json", "-c", path)
    assert said.status == 0, said.err
    told: list[str] = json.loads(said.out)["daemon"]["troubles"]
    return told


@pytest.mark.slow
def test_a_changed_file_is_taken_up_on_sighup_and_a_bad_one_leaves_the_last_good_one_in_effect(
    cm_scale: Program, tmp_path: Path
) -> None:
    path = fresh(cm_scale.lab, tmp_path)
    good = path.read_text(encoding="utf-8")
    with daemon(cm_scale, "--log-format", "json", "--verbose", "-c", path) as process:
        assert process.stderr
        greeting = json.loads(process.stderr.readline())
        until(lambda: json.loads(cm_scale("status", "--json", "-c", path).out)["daemon"]["age_s"] is not None, "a look")
        path.write_text(good.replace("[cluster]", "[cluster]\ncolour = 3"), encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        problem = f'{path}:2: cluster.colour: unknown key; did you mean "'
        until(lambda: troubles(cm_scale, path), "the trouble")
        (trouble,) = troubles(cm_scale, path)
        in_lines = cm_scale("status", "-c", path)
        path.write_text(good.replace("[cluster]", '[cluster]\nmode = "paused"'), encoding="utf-8")
        process.send_signal(signal.SIGHUP)
        until(lambda: not troubles(cm_scale, path), "a good file")
        until(lambda: "mode paused" in cm_scale("status", "-c", path).out, "the new mode")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=10)
    assert process.returncode == 0
    assert trouble.startswith(f"the last good configuration stays in effect: {path}:2: cluster.colour: unknown key")
    assert problem.partition(";")[0] in in_lines.out
    assert f"running as process {process.pid}" in in_lines.out
    told = [greeting, *map(json.loads, err.splitlines())]
    assert {"at", "level", "logger", "message"} <= set.intersection(*(set(each) for each in told))
    assert f"{path} was read anew and is in effect" in {each["message"] for each in told}
    errors = [each["message"] for each in told if each["level"] == "error"]
    assert len(errors) == 2
    assert "stays in effect" in errors[1]


@pytest.mark.slow
def test_systemd_is_told_of_a_whole_life(cm_scale: Program, tmp_path: Path) -> None:
    path = fresh(cm_scale.lab, tmp_path)
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(30)

        def hear(word: str) -> None:
            while not any(word in each for each in heard):
                heard.append(listening.recv(4096).decode())

        cm_scale.environment({**cm_scale.lab.env, "NOTIFY_SOCKET": str(tmp_path / "notify")})
        env = {**cm_scale.env, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with subprocess.Popen(cm_scale.argv("run", "-c", path), env=env, stderr=subprocess.PIPE) as process:
            try:
                hear("WATCHDOG=1")
                assert heard[0] == "READY=1\nSTATUS=observing"
                hear(" pending")
                heard.clear()
                process.send_signal(signal.SIGHUP)
                hear("RELOADING=1")
                hear("READY=1")
                process.send_signal(signal.SIGTERM)
                hear("STOPPING=1")
                assert process.wait(10) == 0
            finally:
                process.kill()
    statuses = [each for each in heard if each.startswith("STATUS=")]
    assert all("observing" in each for each in statuses)
