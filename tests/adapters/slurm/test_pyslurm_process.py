"""The process that has PySlurm: a real one, with a stand-in for PySlurm in it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cmscale.adapters.slurm.pyslurm.process import PROGRAM, Broken, Missing, PyslurmProcess
from cmscale.lab.processes import wait_until
from cmscale.ports import Unavailable
from tests.adapters.slurm.conftest import Standin
from tests.adapters.slurm.pyslurms import BOTH

Start = Callable[..., PyslurmProcess]


@pytest.fixture
def start(standin: Standin) -> Start:
    def start(time_limit_s: float = 20.0, **changes: object) -> PyslurmProcess:
        return PyslurmProcess(sys.executable, standin(**changes), time_limit_s)

    return start


def ended(process: PyslurmProcess) -> bool:
    return process._process.returncode is not None


def test_it_answers_again_and_again_whatever_the_library_prints(start: Start) -> None:
    process = start()
    assert process.ask("about")["version"] == "22.5.3"
    for _ in range(3):
        assert len(process.ask("jobs")["columns"]["JobID"]) == len(BOTH["jobs"])
    assert process.ask("nodes")["columns"]["NodeList"] == [node["name"] for node in BOTH["nodes"]]


def test_what_slurmctld_refuses_is_told_in_its_words_and_ends_the_process(start: Start) -> None:
    process = start(deed="refuse")
    sentence = r"^PySlurm got no answer from slurmctld: Unable to contact slurm controller \(connect failure\)$"
    with pytest.raises(Unavailable, match=sentence):
        process.ask("jobs")
    assert ended(process)
    with pytest.raises(Unavailable, match="ended by an error that it gave another call"):
        process.ask("jobs")


def test_a_call_that_overruns_is_ended_with_its_process(start: Start) -> None:
    process = start(time_limit_s=1.0, deed="hang")
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"^PySlurm gave no answer within 1 s$"):
        process.ask("jobs")
    assert time.monotonic() - began < 10
    assert ended(process)


def test_how_it_died_is_told_with_its_last_words(start: Start) -> None:
    with pytest.raises(Broken, match=r"ended by SIGSEGV: pyslurm: error: a word of libslurm$"):
        start(deed="crash").ask("jobs")


def test_an_error_that_is_not_slurms_is_no_word_about_slurm(start: Start) -> None:
    with pytest.raises(Broken, match=r"^PySlurm failed: TypeError: an integer is required$"):
        start(deed="fail").ask("jobs")


def test_a_python_without_pyslurm_says_so(start: Start) -> None:
    with pytest.raises(Missing, match=r"^libslurm\.so\.38: cannot open shared object file$"):
        start(import_error="libslurm.so.38: cannot open shared object file").ask("about")


def test_a_python_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="python could not be run"):
        PyslurmProcess(str(tmp_path / "python"), {}, 1.0)


def test_a_process_that_was_killed_meanwhile_is_broken(start: Start) -> None:
    process = start()
    process.ask("about")
    os.kill(process._process.pid, signal.SIGKILL)
    with pytest.raises(Broken, match="ended by SIGKILL"):
        process.ask("jobs")


def test_a_process_that_nobody_holds_any_more_is_ended(start: Start) -> None:
    process = start()
    inner = process._process
    process.ask("about")
    del process
    assert inner.returncode is not None


def alone(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The program, as someone else would run it."""
    return subprocess.Popen(
        [sys.executable, str(PROGRAM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )


def test_it_ends_itself_when_whoever_asks_is_gone(standin: Standin) -> None:
    with alone(standin()) as program:
        assert program.stdin
        program.stdin.close()
        assert wait_until(lambda: program.poll() == 0, 20)


def test_a_call_that_nobody_ends_is_ended_by_the_kernel(standin: Standin) -> None:
    with alone(standin(deed="hang")) as program:
        assert program.stdin
        program.stdin.write(b'{"ask": "jobs", "limit_s": 0.1}\n')
        program.stdin.flush()
        assert wait_until(lambda: program.poll() == -signal.SIGALRM, 20)
