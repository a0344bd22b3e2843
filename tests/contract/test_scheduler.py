"""What every scheduler promises, in memory and with a real slurmctld."""

import pytest

from cmscale.model import ANYWHERE, Job, JobId, NodeName, NodeRecord, Result
from tests.builders import T4
from tests.contract.conftest import POOL, Cluster

NODE = NodeName("t4-1")
OFF = "cm-scale: off"


def record(cluster: Cluster) -> NodeRecord:
    return next(each for each in cluster.scheduler.nodes().items if each.name == NODE)


def job_of(cluster: Cluster, number: str) -> Job:
    return next(each for each in cluster.scheduler.jobs().items if each.id == number)


def run_on_node(cluster: Cluster, number: str) -> None:
    """Hand NODE to Slurm with a machine, and let the job start there."""
    cluster.scheduler.drain(POOL.nodes, OFF, off=True)
    cluster.boot(NODE)
    assert cluster.settle(lambda: "DOWN" not in record(cluster).states)
    assert cluster.scheduler.resume({NODE: "127.0.0.1"})[NODE].ok
    assert cluster.settle(lambda: job_of(cluster, number).nodes == {NODE})


def test_how_it_reads_is_told_with_the_reason(cluster: Cluster) -> None:
    assert cluster.scheduler.backend().name in {"simulated", "commands", "pyslurm"}
    assert cluster.scheduler.backend().why


def test_declared_nodes_are_listed_with_their_room_features_and_partitions(cluster: Cluster) -> None:
    nodes = {each.name: each for each in cluster.scheduler.nodes().items}
    assert set(nodes) == set(POOL.nodes)
    assert nodes[NODE].shape == nodes[NODE].free == T4
    assert nodes[NODE].features == {"aws-us-east-1", "gpu"}
    assert nodes[NODE].partitions == ("batch",)


@pytest.mark.slow
def test_a_parked_node_stays_parked_until_its_machine_registers_and_runs_jobs_once_resumed(cluster: Cluster) -> None:
    assert cluster.scheduler.drain([NODE], OFF, off=True)[NODE].ok
    assert record(cluster).states >= {"DRAIN", "DOWN"}
    assert record(cluster).reason == OFF
    job = cluster.submit()
    cluster.boot(NODE)
    assert cluster.settle(lambda: "DOWN" not in record(cluster).states)
    assert "DRAIN" in record(cluster).states
    assert record(cluster).reason == OFF
    assert next(each for each in cluster.scheduler.jobs().items if each.id == job).pending
    assert cluster.scheduler.resume({NODE: "127.0.0.1"})[NODE].ok
    assert record(cluster).address == "127.0.0.1"

    def runs() -> bool:
        return any(each.id == job and each.nodes == {NODE} for each in cluster.scheduler.jobs().items)

    assert cluster.settle(runs)
    assert record(cluster).free.gpus == 0


def test_what_is_said_stands_in_the_comment_of_the_job_alone(cluster: Cluster) -> None:
    one, other = cluster.submit(), cluster.submit()
    assert cluster.scheduler.say({JobId(one): "cm-scale: soon"})[JobId(one)].ok
    comments = {each.id: each.comment for each in cluster.scheduler.jobs().items}
    assert comments == {one: "cm-scale: soon", other: ""}


def test_what_does_not_exist_gets_an_outcome_and_spoils_nothing(cluster: Cluster) -> None:
    nowhere, job = NodeName("t4-99"), cluster.submit()
    drained = cluster.scheduler.drain([nowhere, NODE], OFF)
    assert (drained[nowhere].result, drained[NODE].result) == (Result.BAD_REQUEST, Result.OK)
    said = cluster.scheduler.say({JobId("4711"): "cm-scale: soon", JobId(job): "cm-scale: soon"})
    assert (said[JobId("4711")].result, said[JobId(job)].result) == (Result.GONE, Result.OK)


@pytest.mark.slow
def test_a_requeued_job_is_put_off_until_it_is_released(cluster: Cluster) -> None:
    job, gone = JobId(cluster.submit()), JobId("4711")
    assert job_of(cluster, job).started is None
    run_on_node(cluster, job)
    assert job_of(cluster, job).started is not None
    outcomes = cluster.scheduler.requeue([job, gone])
    assert (outcomes[job].result, outcomes[gone].result) == (Result.OK, Result.GONE)
    assert cluster.settle(lambda: job_of(cluster, job).pending)
    waiting = job_of(cluster, job)
    assert (waiting.reason, waiting.started, waiting.nodes) == ("BeginTime", None, frozenset())
    outcomes = cluster.scheduler.release([job, gone])
    assert (outcomes[job].result, outcomes[gone].result) == (Result.OK, Result.GONE)
    assert cluster.settle(lambda: job_of(cluster, job).nodes == {NODE})
    assert cluster.scheduler.release([job])[job].ok


@pytest.mark.slow
def test_a_job_that_may_not_run_again_is_not_ended(cluster: Cluster) -> None:
    job = JobId(cluster.submit(requeue=False))
    assert not job_of(cluster, job).requeue
    run_on_node(cluster, job)
    assert cluster.scheduler.requeue([job])[job].result is Result.BAD_REQUEST
    assert job_of(cluster, job).nodes == {NODE}


def test_a_job_that_its_user_holds_is_not_released(cluster: Cluster) -> None:
    job = JobId(cluster.submit(held=True))
    assert cluster.scheduler.release([job])[job].result is Result.BAD_REQUEST
    assert job_of(cluster, job).reason == "JobHeldUser"


def test_a_pin_is_the_whole_constraint_of_a_pending_job_and_an_empty_one_is_none(cluster: Cluster) -> None:
    cluster.scheduler.drain(POOL.nodes, OFF, off=True)
    job, gone = JobId(cluster.submit()), JobId("4711")
    outcomes = cluster.scheduler.pin({job: "gpu&aws-us-east-1", gone: "gpu"})
    assert (outcomes[job].result, outcomes[gone].result) == (Result.OK, Result.GONE)
    assert job_of(cluster, job).ask.constraint.choices[0][0].any_of == (frozenset({"gpu", "aws-us-east-1"}),)
    assert cluster.scheduler.pin({job: ""})[job].ok
    assert job_of(cluster, job).ask.constraint == ANYWHERE


def test_reservations_are_listed_and_shown_on_their_nodes(cluster: Cluster) -> None:
    cluster.scheduler.drain(POOL.nodes, OFF, off=True)
    assert cluster.scheduler.reservations().items == ()
    cluster.reserve("course", "t4-2", False)
    cluster.reserve("service", NODE, True)
    course, service = sorted(cluster.scheduler.reservations().items, key=lambda each: each.name)
    assert course.nodes == {"t4-2"}
    assert service.nodes == {NODE}
    assert (course.maintenance, service.maintenance) == (False, True)
    assert service.end - service.start == 3600
    assert cluster.settle(lambda: record(cluster).states >= {"RESERVED", "MAINTENANCE"})
