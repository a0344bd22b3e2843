"""What is EC2 asked for when machines of a pool are launched?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from cmscale.adapters.aws.userdata import user_data
from cmscale.model import Shape

CLUSTER_TAG = "cm-scale:cluster"
NODE_TAG = "cm-scale:node"
OPERATION_TAG = "cm-scale:operation"
IMAGE_TAG = "cm-scale:image"

_NOTHING = Shape(0, 0)


class Offer(NamedTuple):
    """One of the ways in which EC2 can make a machine: its capacity comes and goes by itself."""

    instance_type: str
    subnet: str
    market: str

    def __str__(self) -> str:
        return f"{self.instance_type} in {self.subnet}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What EC2 knows of the image and the types of a pool, and a launch must name."""

    root_device: str
    """The name under which the image finds its root volume; empty: it has none that could be encrypted."""
    efa: int
    """How many EFA interfaces a machine gets."""


@dataclass(frozen=True, slots=True)
class AwsPool:
    """What the configuration says of a pool's machines, in EC2's words."""

    instance_types: tuple[str, ...]
    image: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...] = ()
    key_name: str = ""
    instance_profile: str = ""
    user_data: Path | None = None
    """A script; @CLUSTER@, @NODES@ and @CONF_SERVER@ in it become the cluster, the folded list of the nodes launched
    together, and `conf_server`."""
    conf_server: str = ""
    """Where a slurmd gets its configuration; empty: from its image."""
    market: str = "on-demand"
    promised: Shape = _NOTHING
    """What Slurm is told a node has; compared with the instance types' room by `problems`."""
    allocation_strategy: str = "prioritized"
    """How a fleet picks among several offers."""
    placement_group: str = ""
    capacity_reservation: str = ""
    capacity_block: bool = False
    """The reservation is a capacity block, which is a market of its own."""
    efa: bool | int = False
    """How many EFA interfaces; True: as many as the types have."""
    public_address: bool = False
    volume_gb: int = 0
    """The size of the root volume; 0: as the image has it."""
    volume_type: str = "gp3"

    @property
    def goods(self) -> str:
        """What its machines are on the market."""
        return f"{self.market} {'|'.join(self.instance_types)} in {'|'.join(self.subnets)}"

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The best first: each type in all subnets before the next type."""
        return tuple(Offer(kind, subnet, self.market) for kind, subnet in product(self.instance_types, self.subnets))

    @property
    def spot(self) -> bool:
        return self.market == "spot"

    def machine(self, facts: Facts, script: str | bytes, subnet: str = "") -> dict[str, Any]:
        """What every machine of the pool is, as both RunInstances and a launch template take it; a template leaves the
        subnet open."""
        request: dict[str, Any] = {
            "ImageId": self.image,
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
            "NetworkInterfaces": self._interfaces(facts.efa, subnet),
        }
        if facts.root_device:
            disk: dict[str, Any] = {"Encrypted": True, "VolumeType": self.volume_type, "DeleteOnTermination": True}
            if self.volume_gb:
                disk["VolumeSize"] = self.volume_gb
            request["BlockDeviceMappings"] = [{"DeviceName": facts.root_device, "Ebs": disk}]
        if self.key_name:
            request["KeyName"] = self.key_name
        if self.instance_profile:
            request["IamInstanceProfile"] = {"Name": self.instance_profile}
        if script:
            request["UserData"] = script
        return request

    def request(self, facts: Facts, script: bytes, tags: Mapping[str, str]) -> dict[str, Any]:
        """All of RunInstances but its counts and its token, for a pool of one offer."""
        (offer,) = self.offers
        request = self.machine(facts, script, offer.subnet)
        request |= {
            "InstanceType": offer.instance_type,
            "TagSpecifications": tagged(tags, "instance", "volume", "network-interface"),
        }
        if self.placement_group:
            request["Placement"] = {"GroupName": self.placement_group}
        if self.capacity_reservation:
            target = {"CapacityReservationId": self.capacity_reservation}
            request["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
        if self.spot or self.capacity_block:
            request["InstanceMarketOptions"] = {"MarketType": "spot" if self.spot else "capacity-block"}
        return request

    def script(self, cluster: str, label: str) -> bytes:
        """The user data of one launch, empty if there is none; Misconfigured if it will not do."""
        if self.user_data is None:
            return b""
        return user_data(self.user_data, {"CLUSTER": cluster, "NODES": label, "CONF_SERVER": self.conf_server})

    def _interfaces(self, efa: int, subnet: str) -> list[dict[str, Any]]:
        first: dict[str, Any] = {"DeviceIndex": 0, "DeleteOnTermination": True}
        if efa < 2:  # of several interfaces none gets a public address, and EC2 refuses the word
            first["AssociatePublicIpAddress"] = self.public_address
        # Only the first is at index 0; the others are the second device of a network card of their own.
        further = [{"DeviceIndex": 1, "NetworkCardIndex": card, "DeleteOnTermination": True} for card in range(1, efa)]
        common: dict[str, Any] = {"Groups": list(self.security_groups)} if self.security_groups else {}
        if subnet:
            common["SubnetId"] = subnet
        if efa:
            common["InterfaceType"] = "efa"
        return [each | common for each in (first, *further)]


def tagged(tags: Mapping[str, str], *kinds: str) -> list[dict[str, Any]]:
    """Tags for resources of these kinds."""
    listed = [{"Key": key, "Value": value} for key, value in tags.items()]
    return [{"ResourceType": kind, "Tags": listed} for kind in kinds]
