"""Jobs and nodes by PySlurm are those by the commands. A stand-in tells what a real PySlurm 22.5.3 told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.model import Job, JobId, NodeName, NodeRecord
from cmscale.ports import Reading, Unavailable
from tests.adapters.slurm.conftest import Standin
from tests.adapters.slurm.pyslurms import ATTRIBUTES, Recorded


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A Python of the name of no other, so that it is asked itself whether it has PySlurm."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o755)
    return path


def jobs(reading: Reading[Job]) -> dict[JobId, Job]:
    assert not reading.unreadable
    return {job.id: job for job in reading.items}


def nodes(reading: Reading[NodeRecord]) -> dict[NodeName, NodeRecord]:
    assert not reading.unreadable
    return {node.name: node for node in reading.items}


@pytest.mark.parametrize("release", ATTRIBUTES)
def test_in_every_release_the_jobs_are_those_of_squeue(standin: Standin, python: Path, release: str) -> None:
    major, minor, _ = release.split(".")
    slurm = Recorded(standin(release), f"{major}.{minor:0>2}.8", python=python)
    told = jobs(slurm.jobs())
    assert slurm.backend().name == "pyslurm"
    assert len(told) > 30
    assert told == jobs(SlurmCommands.jobs(slurm))
    assert nodes(slurm.nodes()) == nodes(SlurmCommands.nodes(slurm))


def test_squeue_and_sinfo_are_asked_for_nothing_but_what_pyslurm_cannot_tell(standin: Standin, python: Path) -> None:
    slurm = Recorded(standin(), python=python)
    slurm.jobs()
    slurm.nodes()
    (squeue, _, of_jobs), (sinfo, options, of_nodes) = slurm.asked
    assert (squeue, sinfo) == ("squeue", "sinfo")
    assert [field for field in of_jobs if "tres" not in field] == ["JobID"]
    assert of_nodes == ("NodeList", "Gres", "GresUsed")
    assert "-N" not in options


def test_what_a_release_has_no_attribute_for_is_asked_of_squeue(standin: Standin, python: Path) -> None:
    attributes = ATTRIBUTES["22.5.3"] | {"Job": [each for each in ATTRIBUTES["22.5.3"]["Job"] if each != "deadline"]}
    slurm = Recorded(standin(attributes=attributes), python=python)
    assert jobs(slurm.jobs()) == jobs(SlurmCommands.jobs(slurm))
    assert "Deadline" in slurm.asked[0][2]


def test_a_job_that_only_one_of_the_two_shows_is_left_for_the_next_look(
    standin: Standin, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = Recorded(standin(), python=python)
    whole = jobs(slurm.jobs())
    rows = slurm.rows
    monkeypatch.setattr(slurm, "rows", lambda *asked: [row for row in rows(*asked) if row[0] != "1"])
    assert whole.keys() - jobs(slurm.jobs()).keys() == {"1"}


@pytest.mark.parametrize("deed", ["crash", "fail"])
def test_a_pyslurm_that_breaks_costs_no_look(standin: Standin, python: Path, deed: str) -> None:
    slurm = Recorded(standin(deed=deed), python=python)
    assert jobs(slurm.jobs()) == jobs(SlurmCommands.jobs(slurm))
    backend = slurm.backend()
    assert backend.name == "commands"
    assert backend.why.endswith("; it is tried again after 10 min")


def test_a_silent_slurmctld_is_unavailable_by_either_way(standin: Standin, python: Path) -> None:
    slurm = Recorded(standin(deed="refuse"), python=python)
    with pytest.raises(Unavailable, match="PySlurm got no answer from slurmctld: Unable to contact slurm controller"):
        slurm.jobs()
    # It is back, and so are we.
    slurm.environment().update(standin())
    assert jobs(slurm.jobs())
    assert slurm.backend().name == "pyslurm"


def test_without_a_pyslurm_the_commands_read(python: Path, standin: Standin) -> None:
    slurm = Recorded(standin(import_error="No module named 'pyslurm'"), python=python)
    assert slurm.backend().why == f"PySlurm cannot be imported by {python} (No module named 'pyslurm')"
    assert jobs(slurm.jobs()) == jobs(SlurmCommands.jobs(slurm))


@pytest.mark.parametrize(("insist", "name"), [(True, "pyslurm"), (False, "commands")])
def test_saying_how_slurm_is_read_raises_nothing(
    standin: Standin, python: Path, monkeypatch: pytest.MonkeyPatch, insist: bool, name: str
) -> None:
    def silent() -> Any:
        raise Unavailable("scontrol got no answer from slurmctld: Unable to contact slurm controller")

    slurm = Recorded(standin(), python=python, insist=insist)
    monkeypatch.setattr(slurm, "settings", silent)
    assert slurm.backend().name == name
    assert "Unable to contact" in slurm.backend().why
