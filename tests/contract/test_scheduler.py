"""What every scheduler promises, in memory and with a real slurmctld."""

import pytest

from cmscale.model import JobId, NodeName, NodeRecord, Result
from tests.builders import T4
from tests.contract.conftest import POOL, Cluster

NODE = NodeName("t4-1")
OFF = "cm-scale: off"


def record(cluster: Cluster) -> NodeRecord:
    return next(each for each in cluster.scheduler.nodes().items if each.name == NODE)


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
