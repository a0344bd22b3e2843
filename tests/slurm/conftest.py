"""A real Slurm for the tests here: the lab with one node at home and four in the cloud, and no daemon of ours."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.slurm import Home
from cmscale.model import Job, NodeName, NodeRecord, Pool, PoolName, Shape, SiteName
from tests import ways

POOL = Pool(
    PoolName("t4"),
    SiteName("aws-us-east-1"),
    Shape(4, 15000, 1, "t4"),
    tuple(NodeName(f"t4-{number}") for number in range(1, 5)),
    ("cloud",),
    frozenset({"gpu"}),
)

_LAB_POOL = LabPool("t4", "t4-[1-4]", 4, 15000, 0.5, "g4dn.xlarge", gpus=1, gpu_type="t4", features=("gpu",))


class Cluster:
    """Slurm on loopback. Nodes of POOL exist in its configuration alone until `boot`."""

    def __init__(self, lab: Lab, way: str = ways.COMMANDS) -> None:
        self.lab = lab
        self.conf = lab.slurm_conf
        self.way = way
        self.slurm = ways.scheduler(way, self.conf)

    def boot(self, name: str) -> None:
        """A machine of this name starts, and its slurmd with it."""
        home = self.lab.regions["us-east-1"]
        tags = [{"Key": "cm-scale:node", "Value": name}]
        ec2 = self.lab.ec2()
        ec2.run_instances(
            ImageId=home["image"],
            SubnetId=home["subnet"],
            InstanceType=_LAB_POOL.instance_type,
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
        )
        ec2.close()

    def kill(self, name: str) -> None:
        """The machine is gone from one moment to the next."""
        ec2 = self.lab.ec2()
        mine = [each["id"] for each in self.lab.instances() if each["tags"].get("cm-scale:node") == name]
        ec2.terminate_instances(InstanceIds=mine)
        ec2.close()
        self.wait(lambda: not any(each["id"] in mine and each["state"] == "running" for each in self.lab.instances()))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.lab.env, cwd=self.lab.directory, capture_output=True, text=True, timeout=30
        )

    def submit(self, *options: str, script: str = "sleep 600") -> str:
        done = self.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number: str) -> Job:
        return next(job for job in self.slurm.jobs().items if job.id == number)

    def node(self, name: str) -> NodeRecord:
        return next(node for node in self.slurm.nodes().items if node.name == name)

    def wait(self, claim: Callable[[], object], limit_s: float = 30) -> None:
        end = time.monotonic() + limit_s
        while not claim():
            assert time.monotonic() < end, f"not within {limit_s} s; see {self.lab.directory}/log"
            time.sleep(0.05)


@pytest.fixture(params=ways.WAYS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """A running Slurm as it is right after its first start: the cloud nodes declared, and nothing drained."""
    if request.param == ways.PYSLURM:
        ways.skip_without_pyslurm()
    slurm = {"Licenses": "matlab:4", "PartitionName": "cloud Nodes=cmscale_t4 State=UP"}
    with Lab(tmp_path / "lab", pools=[_LAB_POOL], home=Home(count=1), boot_s=(0.1, 0.2), slurm=slurm) as lab:
        lab.command("scontrol", "update", "nodename=t4-[1-4]", "state=resume")
        yield Cluster(lab, request.param)
