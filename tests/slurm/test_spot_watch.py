"""What a spot machine tells a real Slurm when EC2 takes it back."""

from __future__ import annotations

import subprocess

import pytest

from cmscale.model import NodeName
from cmscale.shell.shipped import share_dir
from tests.adapters.imds import imds
from tests.slurm.conftest import Cluster

_SAID = "cm-scale: notice by 08:22:00 UTC: spot interruption"


@pytest.mark.slow
def test_a_machine_drains_its_own_node_and_leaves_one_that_a_person_has_drained(cluster: Cluster) -> None:
    cluster.lab.command("scontrol", "update", "nodename=t4-2", "state=drain", "reason=bad fan")
    with imds({"spot/instance-action": '{"action": "terminate", "time": "2026-01-05T08:22:00Z"}'}) as metadata:
        environment = {**cluster.lab.env, "IMDS": metadata.url, "EVERY_S": "0.05"}
        for node in ("t4-1", "t4-2", "t4-1"):
            watch = ["sh", str(share_dir("etc") / "aws" / "node.sh"), "watch", node]
            done = subprocess.run(watch, env=environment, capture_output=True, text=True, timeout=30)
            assert done.returncode == 0, done.stderr
    drained = {name: cluster.node(NodeName(name)) for name in ("t4-1", "t4-2", "t4-3")}
    assert {name: "DRAIN" in node.states for name, node in drained.items()} == {
        "t4-1": True,
        "t4-2": True,
        "t4-3": False,
    }
    assert drained["t4-1"].reason == _SAID
    assert drained["t4-2"].reason == "bad fan"
