"""The worlds on which the contracts of the ports are proved: in memory, and real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from getpass import getuser
from pathlib import Path
from typing import Protocol

import pytest

from cmscale.adapters.aws import AwsPool, AwsSite
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.processes import wait_until
from cmscale.lab.slurm import Home
from cmscale.model import (
    LeftoverKind,
    Machine,
    MachineId,
    NodeName,
    Operation,
    OpId,
    Pool,
    PoolName,
    Reservation,
    SiteName,
    Verb,
)
from cmscale.ports import Provider, Scheduler
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud
from cmscale.sim.slurm import Slurm
from tests import ways
from tests.builders import EAST, T4

POOL = Pool(
    PoolName("t4"),
    SiteName("aws-us-east-1"),
    T4,
    tuple(NodeName(f"t4-{number}") for number in range(1, 9)),
    ("batch",),
    frozenset({"aws-us-east-1", "gpu"}),
)
_LAB_POOL = LabPool("t4", "t4-[1-8]", 4, 15000, 0.5, "g4dn.xlarge", gpus=1, gpu_type="t4", features=("gpu",))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), pools=[_LAB_POOL], home=Home(count=0), boot_s=(0.1, 0.3)) as lab:
        yield lab


SPOT = PoolName("t4-spot")
"""A pool of the same machines at the same site, which the cloud may take back."""


def launch(op: str, *nodes: str, all_or_none: bool = False, pool: PoolName = POOL.name) -> Operation:
    names = tuple(NodeName(node) for node in nodes)
    return Operation(OpId(op), Verb.START, pool, names, began=0.0, all_or_none=all_or_none)


def power_on(op: str, **machines: MachineId) -> Operation:
    """Of each node, named with _ for -, the machine."""
    names = tuple(NodeName(node.replace("_", "-")) for node in machines)
    return Operation(OpId(op), Verb.START, POOL.name, names, began=0.0, machines=tuple(machines.values()))


@dataclass
class Site:
    """A provider, and a hand on its world."""

    provider: Provider
    other_cluster: Provider
    leave_room_for: Callable[[int], None]
    settle: Callable[[Callable[[], bool]], bool]
    """Let the world go on until something holds."""
    reclaim: Callable[[Machine, float], None]
    """Take a machine of the pool SPOT back, after so many seconds."""
    now: Callable[[], float]
    leave_behind: Callable[[], set[MachineId]]
    """Let a volume and a network interface of a machine outlive it; their ids."""


_clusters = iter(f"contract{number}" for number in range(10**6))


@pytest.fixture(params=["in memory", "EC2", "EC2 with a choice"])
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    if request.param == "in memory":
        yield _in_memory()
        return
    lab: Lab = request.getfixturevalue("lab")
    for name, value in lab.variables.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    home = lab.regions["us-east-1"]
    types = (_LAB_POOL.instance_type,)
    subnets = tuple(home["subnets"].values()) if request.param == "EC2 with a choice" else (home["subnet"],)
    pool = AwsPool(types, home["image"], subnets)
    pools = {POOL.name: pool, SPOT: replace(pool, market="spot", allocation_strategy="price-capacity-optimized")}

    def connect() -> AwsSite:
        return AwsSite(next(_clusters), POOL.site, "us-east-1", pools, endpoint_url=lab.endpoint)

    def leave_room_for(machines: int) -> None:
        def there() -> list[str]:
            return [each["state"] for each in lab.instances() if each["state"] != "terminated"]

        assert wait_until(lambda: "shutting-down" not in there(), 10)  # they take room until they are gone
        lab.control.set_capacity({_LAB_POOL.instance_type: len(there()) + machines})

    def reclaim(machine: Machine, in_s: float) -> None:
        lab.control.interrupt(machine.id, in_s)

    provider = connect()

    def leave_behind() -> set[MachineId]:
        words = {"cm-scale:cluster": provider._cluster, "cm-scale:node": "t4-1", "cm-scale:operation": "old"}
        tags = [{"Key": key, "Value": value} for key, value in words.items()]
        ec2 = lab.ec2()
        volume = ec2.create_volume(
            AvailabilityZone="us-east-1a", Size=1, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
        )
        interface = ec2.create_network_interface(
            SubnetId=home["subnet"], TagSpecifications=[{"ResourceType": "network-interface", "Tags": tags}]
        )
        ec2.close()
        return {volume["VolumeId"], interface["NetworkInterface"]["NetworkInterfaceId"]}

    yield Site(
        provider, connect(), leave_room_for, lambda holds: wait_until(holds, 10), reclaim, time.time, leave_behind
    )
    lab.control.set_capacity({_LAB_POOL.instance_type: None})
    provider.delete([machine.id for machine in provider.list()])


def _in_memory() -> Site:
    clock = VirtualClock()
    cloud = Cloud(EAST, clock)

    def settle(holds: Callable[[], bool]) -> bool:
        clock.wait(1000)
        return holds()

    def leave_room_for(machines: int) -> None:
        cloud.capacity = len(cloud.machines) + machines

    def reclaim(machine: Machine, in_s: float) -> None:
        cloud.reclaim(machine.node, in_s)

    def leave_behind() -> set[MachineId]:
        for kind in LeftoverKind:
            cloud.leave_behind(MachineId(f"{kind.value}-1"), kind, NodeName("t4-1"))
        return set(cloud.left)

    return Site(cloud, Cloud(EAST, clock), leave_room_for, settle, reclaim, clock.now, leave_behind)


class Submit(Protocol):
    def __call__(self, *, requeue: bool = True, held: bool = False) -> str:
        """Queue a job that wants one GPU node; gives its id."""


@dataclass
class Cluster:
    """A scheduler with POOL declared, and a hand on its world."""

    scheduler: Scheduler
    submit: Submit
    reserve: Callable[[str, str, bool], None]
    """Make a reservation of this name, for this node, from now on; with or without the flag MAINT."""
    boot: Callable[[str], None]
    settle: Callable[[Callable[[], bool]], bool]


@pytest.fixture(params=["in memory", *ways.WAYS])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "in memory":
        yield _slurm_in_memory()
        return
    if request.param == ways.PYSLURM:
        ways.skip_without_pyslurm()
    with Lab(tmp_path / "lab", pools=[_LAB_POOL], home=Home(count=0), boot_s=(0.1, 0.3)) as lab:
        ec2 = lab.ec2()
        home = lab.regions["us-east-1"]

        def boot(node: str) -> None:
            tags = [{"ResourceType": "instance", "Tags": [{"Key": "cm-scale:node", "Value": node}]}]
            what = {"ImageId": home["image"], "SubnetId": home["subnet"], "InstanceType": _LAB_POOL.instance_type}
            ec2.run_instances(MinCount=1, MaxCount=1, TagSpecifications=tags, **what)

        def submit(*, requeue: bool = True, held: bool = False) -> str:
            options = ["--requeue" if requeue else "--no-requeue", *(["--hold"] if held else [])]
            what = ["--parsable", "-o/dev/null", "--gres=gpu:t4:1", "--wrap=sleep 60"]
            return lab.command("sbatch", *options, *what).strip()

        def reserve(name: str, node: str, maintenance: bool) -> None:
            words = [f"reservationname={name}", f"nodes={node}", "starttime=now", "duration=60", f"users={getuser()}"]
            lab.command("scontrol", "create", "reservation", *words, *(["flags=maint"] if maintenance else []))

        slurm = ways.scheduler(request.param, lab.slurm_conf)
        yield Cluster(slurm, submit, reserve, boot, lambda holds: wait_until(holds, 20, every=0.2))
        ec2.close()


def _slurm_in_memory() -> Cluster:
    from tests.builders import ask

    clock = VirtualClock()
    cloud = Cloud(POOL.site, clock)
    slurm = Slurm.declaring([POOL], clock, [cloud])
    slurm.drain(POOL.nodes, "cm-scale: off")
    numbers = iter(range(1, 100))

    def settle(holds: Callable[[], bool]) -> bool:
        for _ in range(10):
            clock.wait(10)
            slurm.step()
            if holds():
                return True
        return False

    def boot(node: str) -> None:
        cloud.start(launch(f"by-hand-{node}", node))

    def submit(*, requeue: bool = True, held: bool = False) -> str:
        return slurm.submit(next(numbers), ask(gpu_type="t4"), requeue=requeue, held=held)

    def reserve(name: str, node: str, maintenance: bool) -> None:
        now = clock.now()
        slurm.reserve(Reservation(name, now, now + 3600, frozenset({NodeName(node)}), maintenance))

    return Cluster(slurm, submit, reserve, boot, settle)
