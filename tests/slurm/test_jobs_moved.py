"""Jobs of a real Slurm that are put back into the queue, let go again, and kept to a site."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cmscale.model import JobId, NodeName, Result
from tests.slurm.conftest import POOL, Cluster

_OFF = "cm-scale: off"
_HOME = NodeName("op1")
_CLOUD = NodeName("t4-1")
_GONE = JobId("4711")


@pytest.fixture
def hybrid(cluster: Cluster) -> Cluster:
    """One node at home and one in the cloud can run jobs."""
    cluster.slurm.drain(POOL.nodes, _OFF, off=True)
    cluster.boot(_CLOUD)
    cluster.wait(lambda: "IDLE" in cluster.node(_CLOUD).states)
    assert cluster.slurm.resume({_CLOUD: "127.0.0.1"})[_CLOUD].ok
    return cluster


@pytest.mark.slow
def test_a_requeued_job_is_put_off_and_starts_elsewhere_once_released(hybrid: Cluster) -> None:
    job = JobId(hybrid.submit("-t", "10", "--deadline=now+2hours"))
    hybrid.wait(lambda: hybrid.job(job).nodes == {_HOME})
    running = hybrid.job(job)
    assert running.started == pytest.approx(time.time(), abs=10)
    assert running.ask.deadline == pytest.approx(time.time() + 7200, abs=10)
    assert (running.ask.limit_s, running.requeue) == (600, True)

    hybrid.slurm.drain([_HOME], "cm-scale: taken back")
    outcomes = hybrid.slurm.requeue([job, _GONE])
    assert (outcomes[job].result, outcomes[_GONE].result) == (Result.OK, Result.GONE)
    hybrid.wait(lambda: hybrid.job(job).pending)
    waiting = hybrid.job(job)
    assert (waiting.reason, waiting.started) == ("BeginTime", None)
    assert waiting.begin is not None
    assert waiting.begin > time.time() + 100

    outcomes = hybrid.slurm.release([job, _GONE])
    assert (outcomes[job].result, outcomes[_GONE].result) == (Result.OK, Result.GONE)
    hybrid.wait(lambda: hybrid.job(job).nodes == {_CLOUD}, limit_s=10)
    assert hybrid.slurm.release([job])[job].ok


@pytest.mark.slow
def test_a_job_whose_last_run_does_not_end_is_released_later(cluster: Cluster, tmp_path: Path) -> None:
    cluster.slurm.drain(POOL.nodes, _OFF, off=True)
    trapped = tmp_path / "trapped"
    job = JobId(cluster.submit(script=f"trap '' TERM; touch {trapped}; sleep 600 & wait; sleep 600"))
    cluster.wait(trapped.exists)
    assert cluster.slurm.requeue([job])[job].ok
    assert cluster.slurm.release([job])[job].result is Result.TRANSIENT
    cluster.wait(lambda: cluster.slurm.release([job])[job].ok)
    cluster.wait(lambda: cluster.job(job).state == "RUNNING", limit_s=10)


def test_a_job_that_may_not_run_again_keeps_running(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, _OFF, off=True)
    once, other = JobId(cluster.submit("--no-requeue")), JobId(cluster.submit())
    cluster.wait(lambda: {cluster.job(once).state, cluster.job(other).state} == {"RUNNING"})
    assert not cluster.job(once).requeue
    outcomes = cluster.slurm.requeue([once, other])
    assert (outcomes[once].result, outcomes[other].result) == (Result.BAD_REQUEST, Result.OK)
    assert outcomes[once].detail == "Requested operation is presently disabled"
    assert cluster.job(once).state == "RUNNING"


def test_a_job_that_has_ended_is_not_run_again_and_one_that_is_held_stays_held(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, _OFF, off=True)
    done, held = JobId(cluster.submit(script="true")), JobId(cluster.submit("-H"))
    cluster.wait(lambda: [job.id for job in cluster.slurm.jobs().items] == [held])
    assert cluster.slurm.requeue([done])[done].result is Result.GONE
    assert cluster.slurm.release([held])[held].result is Result.BAD_REQUEST
    assert [(job.id, job.reason) for job in cluster.slurm.jobs().items] == [(held, "JobHeldUser")]


def test_a_pin_decides_where_a_job_runs_and_can_be_taken_back(hybrid: Cluster) -> None:
    pinned, unpinned = JobId(hybrid.submit("-H")), JobId(hybrid.submit("-H"))
    outcomes = hybrid.slurm.pin(dict.fromkeys((pinned, unpinned, _GONE), "gpu&aws-us-east-1"))
    assert [outcomes[job].result for job in (pinned, unpinned, _GONE)] == [Result.OK, Result.OK, Result.GONE]
    assert hybrid.job(pinned).ask.constraint.text == "gpu&aws-us-east-1"
    assert hybrid.slurm.pin({unpinned: ""})[unpinned].ok
    assert hybrid.job(unpinned).ask.constraint.text == ""
    wrong = hybrid.slurm.pin({pinned: "no-such-feature"})[pinned]
    assert (wrong.result, wrong.detail) == (Result.BAD_REQUEST, "Invalid feature specification")
    hybrid.lab.command("scontrol", "release", f"{pinned},{unpinned}")
    hybrid.wait(lambda: hybrid.job(pinned).nodes == {_CLOUD} and hybrid.job(unpinned).nodes == {_HOME})
    assert hybrid.slurm.pin({pinned: ""})[pinned].result is Result.BAD_REQUEST
