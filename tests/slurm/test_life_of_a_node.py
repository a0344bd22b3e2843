"""A node from its first declaration to the end of its machine, twice: the way cm-scale owns power."""

from __future__ import annotations

import pytest

from cmscale.model import Help, NodeName, Result
from tests.slurm.conftest import POOL, Cluster

_NODE = NodeName("t4-1")
_OFF = "cm-scale: off"


@pytest.mark.slow
def test_a_node_is_handed_over_and_taken_back_twice(cluster: Cluster) -> None:
    assert cluster.node(_NODE).states >= {"IDLE", "CLOUD", "POWERED_DOWN"}
    drained = cluster.slurm.drain(POOL.nodes, _OFF, off=True)
    assert {outcome.result for outcome in drained.values()} == {Result.OK}
    assert cluster.node(_NODE).states >= {"DRAIN", "DOWN"}
    for _ in range(2):
        number = cluster.submit("-p", "cloud", "-w", _NODE, "--gpus=1", script="sleep 60")
        _hand_over(cluster, number)
        _take_back(cluster, number)


def _hand_over(cluster: Cluster, number: str) -> None:
    cluster.wait(lambda: cluster.job(number).help is Help.NODES)
    cluster.boot(_NODE)
    cluster.wait(lambda: "IDLE" in cluster.node(_NODE).states)
    registered = cluster.node(_NODE)
    assert "DRAIN" in registered.states
    assert not registered.states & {"POWERED_DOWN", "DOWN"}
    # Slurm itself forgets the reason when a node that was POWERED_DOWN registers, and keeps it later on.
    assert registered.reason == _OFF
    assert cluster.job(number).pending
    assert cluster.slurm.resume({_NODE: "127.0.0.1"})[_NODE].ok
    cluster.wait(lambda: cluster.job(number).state == "RUNNING")
    assert cluster.job(number).nodes == frozenset({_NODE})
    assert cluster.node(_NODE).free.gpus == 0
    # A node that is no longer drained is where we want it.
    assert cluster.slurm.resume({_NODE: ""})[_NODE].ok


def _take_back(cluster: Cluster, number: str) -> None:
    cluster.run("scancel", number)
    cluster.wait(lambda: "IDLE" in cluster.node(_NODE).states)
    assert cluster.slurm.drain([_NODE], "cm-scale: idle")[_NODE].ok
    assert cluster.node(_NODE).reason == "cm-scale: idle"
    cluster.kill(_NODE)
    assert cluster.slurm.drain([_NODE], _OFF, off=True)[_NODE].ok
    gone = cluster.node(_NODE)
    assert gone.states >= {"DOWN", "DRAIN"}
    assert gone.reason == _OFF


def test_one_wrong_name_spoils_no_other(cluster: Cluster) -> None:
    nodes = [NodeName("t4-1"), NodeName("nowhere"), NodeName("t4-2")]
    outcomes = cluster.slurm.drain(nodes, _OFF, off=True)
    assert [outcomes[node].result for node in nodes] == [Result.OK, Result.BAD_REQUEST, Result.OK]
    assert "DRAIN" in cluster.node("t4-2").states


def test_each_node_has_its_own_address(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, _OFF)
    addresses = {NodeName("t4-3"): "127.0.0.3", NodeName("t4-2"): "127.0.0.2"}
    assert all(outcome.ok for outcome in cluster.slurm.resume(addresses).values())
    assert {node: cluster.node(node).address for node in addresses} == addresses
