"""What has a machine of an instance type, and in which zones can it be had?"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cmscale.adapters.aws.connection import Connection

_GPU_WORDS: Mapping[str, str] = {
    "rtx pro server 6000": "rtx_pro_6000",
    "radeon pro v520": "v520",
    "gaudi hl-205": "gaudi",
}
"""For the names that would make no good word by themselves."""


_ACCELERATORS = ("GpuInfo", "FpgaInfo", "InferenceAcceleratorInfo", "NeuronInfo", "MediaAcceleratorInfo")


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What a machine of one type has."""

    name: str
    cpus: int
    mem_mb: int
    gpus: int = 0
    gpu_type: str = ""
    """As Slurm's Gres would name it: h100."""
    gpu_mem_mb: int = 0
    """Of each GPU."""
    efa: int = 0
    """How many EFA interfaces it may have."""
    network_cards: int = 1
    markets: frozenset[str] = frozenset()
    """Where it is sold: "on-demand", "spot", "capacity-block"."""
    accelerated: bool = False
    """It has a GPU, or a share of one, or another thing that computes."""


def gpu_word(name: str) -> str:
    """EC2's name of a GPU as a word of Slurm's Gres: lower case, without its maker's family."""
    lower = " ".join(name.lower().split())
    short = _GPU_WORDS.get(lower) or re.sub(r"^(nvidia|amd|tesla) ", "", lower)
    return re.sub(r"[^a-z0-9.]+", "_", short)


def as_type(told: Mapping[str, Any]) -> InstanceType:
    """An item of DescribeInstanceTypes; what is not told counts as not there."""
    # A share of a GPU has a count of 0: it is no whole one, which is what jobs ask for.
    gpus = [gpu for gpu in told.get("GpuInfo", {}).get("Gpus", []) if gpu.get("Count")]
    network = told.get("NetworkInfo", {})
    return InstanceType(
        name=told["InstanceType"],
        cpus=told["VCpuInfo"]["DefaultVCpus"],
        mem_mb=told["MemoryInfo"]["SizeInMiB"],
        gpus=sum(gpu["Count"] for gpu in gpus),
        gpu_type=gpu_word(gpus[0].get("Name", "")) if gpus else "",
        gpu_mem_mb=gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0) if gpus else 0,
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        network_cards=network.get("MaximumNetworkCards", 1),
        markets=frozenset(told.get("SupportedUsageClasses", ())),
        accelerated=any(key in told for key in _ACCELERATORS),
    )


def ordinary_types(ec2: Connection, architecture: str) -> Iterator[InstanceType]:
    """The types of the region that are not of the past, nor bare metal, nor burstable."""
    wanted = {
        "bare-metal": "false",
        "burstable-performance-supported": "false",
        "current-generation": "true",
        "processor-info.supported-architecture": architecture,
    }
    client: Any = ec2.client
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    for page in client.get_paginator("describe_instance_types").paginate(Filters=filters):
        yield from map(as_type, page["InstanceTypes"])


def types_named(ec2: Connection, names: Collection[str]) -> Mapping[str, InstanceType]:
    """These types; without those that the region does not have."""
    wanted = [{"Name": "instance-type", "Values": sorted(names)}]
    client: Any = ec2.client
    pages = client.get_paginator("describe_instance_types").paginate(Filters=wanted)
    return {each.name: each for page in pages for each in map(as_type, page["InstanceTypes"])} if names else {}


def zones_of(ec2: Connection, names: Collection[str]) -> Mapping[str, tuple[str, ...]]:
    """For each type the zones of the region that offer it."""
    client: Any = ec2.client
    found: dict[str, list[str]] = defaultdict(list)
    pages = client.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": sorted(names)}]
    )
    for page in pages if names else ():
        for each in page["InstanceTypeOfferings"]:
            found[each["InstanceType"]].append(each["Location"])
    return {name: tuple(sorted(zones)) for name, zones in found.items()}


def subnet_zones(ec2: Connection, subnets: Collection[str]) -> Mapping[str, str]:
    """The zone of each of these subnets; without those that don't exist."""
    wanted = {"subnet-id": sorted(subnets)}
    found = ec2.pages("describe_subnets", "Subnets", wanted) if subnets else ()
    return {each["SubnetId"]: each["AvailabilityZone"] for each in found}
