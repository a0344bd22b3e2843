"""The daemon's journal goes away, fills its disk, breaks: the daemon stays, starts nothing, says why, and goes on."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.slurm import Home
from tests.e2e.daemon import ENDING_S, Daemon, beside, cm_scale, doubles, job, left, lives, soon, submit
from tests.postgres.server import Server

pytestmark = pytest.mark.slow


@contextmanager
def lab_in(directory: Path) -> Iterator[Lab]:
    with Lab(
        directory,
        pools=(LabPool("cpu", "cpu-[1-4]", 8, 15000, 0.34, "c5.2xlarge"),),
        home=Home(0),
        boot_s=(0.2, 0.5),
        times=Times(pending_s=0.2, ending_s=ENDING_S),
        slurm={"SchedulerParameters": "sched_interval=1,bf_interval=1"},
        limits={"min_up": "1s", "tick": "300ms"},
        policies={"release_idle": {"idle": "1s"}},
    ) as lab:
        yield lab


def status(lab: Lab) -> tuple[int, dict[str, Any], str]:
    """The exit status of cm-scale status, what it tells, and what it says on standard error."""
    said = cm_scale("status", "--json", env=lab.env)
    return said.returncode, json.loads(said.stdout), said.stderr


def doubts(lab: Lab, daemon: Daemon, why: str) -> None:
    """The daemon looks on, and starts nothing for a new job; status says why."""
    before = len(lives(lab))
    soon(lambda: why in status(lab)[1]["unseen"].get("journal", ""), what=f"status says: {why}")
    daemon.look_again(40)
    code, told, said = status(lab)
    assert code == 2
    assert why in said
    assert told["daemon"]["running"]
    assert len(lives(lab)) == before


def goes_on(lab: Lab, number: str) -> None:
    """The job is served, its machine given back, and none was made twice."""
    soon(lambda: job(lab, number) == "COMPLETED", 60, what="the job is done")
    soon(lambda: not left(lab), what="its machine is given back")
    assert not doubles(lives(lab))
    assert status(lab)[0] == 0


def test_a_daemon_outlives_its_postgresql(tmp_path: Path, postgres: Server) -> None:
    with lab_in(tmp_path) as lab, beside(lab) as daemon:
        text = lab.config.read_text(encoding="utf-8")
        url = postgres.database()
        lab.config.write_text(text.replace("[cluster]\n", f'[cluster]\njournal = "{url}"\n', 1), encoding="utf-8")
        daemon.start_and_look()
        assert cm_scale("check", env=lab.env).returncode == 0

        postgres.kill()
        number = submit(lab, "--partition=batch")
        doubts(lab, daemon, "the journal can't be opened (connection failed")
        assert "the journal can't be opened" in cm_scale("check", env=lab.env).stderr
        said = cm_scale("pause", env=lab.env)
        assert said.returncode == 2
        assert said.stderr.count("\n") == 1
        postgres.start()
        goes_on(lab, number)

        with postgres.read_only():
            number = submit(lab, "--partition=batch")
            doubts(lab, daemon, "the journal can't be written (cannot execute")
        goes_on(lab, number)


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A disk of 8 MiB for the daemon's state."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "cm-scale-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while filler.write(b"x" * 4096):
            pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk")
def test_a_daemon_outlives_a_full_disk_and_the_loss_of_its_file(tmp_path: Path) -> None:
    with lab_in(tmp_path) as lab, small_disk(tmp_path / "cm-scale") as disk, beside(lab) as daemon:
        daemon.start_and_look()
        fill(disk / "somebody-elses")
        number = submit(lab, "--partition=batch")
        doubts(lab, daemon, "(database or disk is full)")
        (disk / "somebody-elses").unlink()
        goes_on(lab, number)

        delete(disk / "journal.db")
        lost_and_found(lab, daemon, "it was deleted while the daemon ran")

        daemon.kill()
        delete(disk / "journal.db")
        (disk / "journal.db").write_bytes(b"this is no journal " * 1000)
        daemon.start_and_look()
        paused = status(lab)[1]["paused"]
        assert "it was broken (file is not a database) and is kept as" in paused["why"]
        assert len(list(disk.glob("journal.db.broken-*"))) == 1


def delete(journal: Path) -> None:
    for ending in ("", "-wal", "-shm"):
        journal.with_name(journal.name + ending).unlink(missing_ok=True)


def lost_and_found(lab: Lab, daemon: Daemon, why: str) -> None:
    """It says what was lost and rests; told to go on, it does."""
    soon(lambda: why in (status(lab)[1]["paused"] or {"why": ""})["why"], what=f"a pause because {why}")
    number = submit(lab, "--partition=batch")
    daemon.look_again()
    assert not left(lab)
    assert why in cm_scale("events", env=lab.env).stdout
    assert cm_scale("resume", env=lab.env).returncode == 0
    goes_on(lab, number)
