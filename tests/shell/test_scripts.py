"""Prolog and epilog: what they are told, and how their failures are."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cmscale.lab.processes import wait_until
from cmscale.model import JobId, NodeName, PoolName, SiteName
from cmscale.shell.scripts import Call, Kind, Scripts, run_script

CALL = Call(Kind.PROLOG, NodeName("t4-1"), PoolName("t4"), SiteName("east"), JobId("17"), "physics")

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(body: str) -> Path:
        path = tmp_path / "script"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


def test_a_pool_has_a_script_for_each_kind_or_none() -> None:
    scripts = Scripts(prolog=Path("/before"))
    assert scripts.of(Kind.PROLOG) == Path("/before")
    assert scripts.of(Kind.EPILOG) is None


def test_a_script_that_ends_well_says_nothing(write: Write) -> None:
    assert run_script(write("echo done"), CALL, limit_s=10) == ""


def test_a_script_is_told_what_it_runs_for(write: Write, tmp_path: Path) -> None:
    assert run_script(write(f"env > {tmp_path}/seen"), CALL, limit_s=10) == ""
    lines = (tmp_path / "seen").read_text().splitlines()
    assert {line for line in lines if line.startswith(("CMSCALE_", "AS_"))} == {
        "CMSCALE_CLUSTER=physics",
        "CMSCALE_SITE=east",
        "CMSCALE_POOL=t4",
        "CMSCALE_NODE=t4-1",
        "CMSCALE_JOB=17",
        "CMSCALE_SCRIPT=prolog",
        "AS_NODE=t4-1",
        "AS_SCRIPT_TYPE=prolog",
        "AS_RESOURCE_PROVIDER=t4",
        "AS_ENGINE=slurm",
    }
    assert any(line.startswith("PATH=") for line in lines)


def test_without_a_job_no_engine_is_named() -> None:
    call = Call(Kind.EPILOG, NodeName("t4-1"), PoolName("t4"), SiteName("east"))
    assert (call.environment["CMSCALE_JOB"], call.environment["AS_ENGINE"]) == ("", "unknown")


def test_a_script_has_no_input(write: Write) -> None:
    assert run_script(write("cat"), CALL, limit_s=10) == ""


def test_a_failure_is_told_with_the_last_line(write: Write) -> None:
    path = write("echo first; echo no licence is free >&2; echo; exit 3")
    assert run_script(path, CALL, limit_s=10) == f"the prolog {path} ended with status 3 for t4-1: no licence is free"


def test_a_script_that_is_killed_is_a_failure(write: Write) -> None:
    path = write("kill -9 $$")
    assert run_script(path, CALL, limit_s=10) == f"the prolog {path} was ended by signal 9 for t4-1"


def test_what_cannot_be_run_is_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "none"
    told = f"the prolog {path} can't be run for t4-1 (No such file or directory)"
    assert run_script(path, CALL, limit_s=10) == told


def test_past_its_limit_a_script_ends_with_its_children(write: Write, tmp_path: Path) -> None:
    path = write(f"echo waiting; sleep 60 & echo $! > {tmp_path}/child; wait")
    began = time.monotonic()
    said = run_script(path, CALL, limit_s=0.5)
    assert said == f"the prolog {path} was ended after its limit of 0.5 s for t4-1: waiting"
    assert time.monotonic() - began < 5
    child = Path("/proc", (tmp_path / "child").read_text().strip())
    assert wait_until(lambda: not child.exists() or "(zombie)" in (child / "status").read_text(), 5)


def test_a_child_that_outlives_a_script_is_not_waited_for(write: Write, tmp_path: Path) -> None:
    began = time.monotonic()
    path = write(f"sleep 5 & echo $! > {tmp_path}/child")
    assert run_script(path, CALL, limit_s=60) == ""
    assert time.monotonic() - began < 4
