"""Which volumes and network interfaces does an instance have, and which of them outlive it?"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROOT_GB = 8
"""The size of the lab's image."""


@dataclass(slots=True)
class Disk:
    """A volume."""

    id: str
    device: str
    size_gb: int
    kind: str
    encrypted: bool
    key: str
    iops: int | None
    throughput: int | None
    snapshot: str
    zone: str
    made: float
    ends_with_it: bool
    """DeleteOnTermination."""
    tags: dict[str, str]
    instance: str = ""
    """Empty once it is free."""


@dataclass(slots=True)
class Card:
    """A network interface."""

    id: str
    device: int
    card: int
    kind: str
    """interface, efa or efa-only."""
    address: str
    """None of its own has efa-only."""
    public: str
    mac: str
    groups: tuple[str, ...]
    subnet: str
    vpc: str
    zone: str
    made: float
    ends_with_it: bool
    description: str
    tags: dict[str, str]
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a launch asks for in this, in boto3's words."""

    root: str = "/dev/sda1"
    """The device that the image boots from."""
    disks: Sequence[Mapping[str, Any]] = ()
    cards: Sequence[Mapping[str, Any]] = ()
    disk_tags: Mapping[str, str] = field(default_factory=dict)
    card_tags: Mapping[str, str] = field(default_factory=dict)


def disks(wanted: Wanted, zone: str, now: float) -> list[Disk]:
    """The root volume, as the image has it or as the launch says, and all others that the launch names."""
    named = {each["DeviceName"]: each for each in wanted.disks if "DeviceName" in each}
    asked = {wanted.root: {"DeviceName": wanted.root, "Ebs": {}}, **named}
    return [
        _disk(device, each["Ebs"], wanted.disk_tags, zone, now)
        for device, each in asked.items()
        if "Ebs" in each and "NoDevice" not in each
    ]


def _disk(device: str, ebs: Mapping[str, Any], tags: Mapping[str, str], zone: str, now: float) -> Disk:
    kind = ebs.get("VolumeType", "gp3")
    return Disk(
        id=f"vol-{secrets.token_hex(9)[:17]}",
        device=device,
        size_gb=ebs.get("VolumeSize", ROOT_GB),
        kind=kind,
        encrypted=ebs.get("Encrypted", False),
        key=ebs.get("KmsKeyId", ""),
        iops=ebs.get("Iops", 3000 if kind == "gp3" else None),
        throughput=ebs.get("Throughput", 125 if kind == "gp3" else None),
        snapshot=ebs.get("SnapshotId", ""),
        zone=zone,
        made=now,
        ends_with_it=ebs.get("DeleteOnTermination", True),
        tags=dict(tags),
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance is."""

    zone: str
    subnet: str
    vpc: str
    groups: tuple[str, ...]


def cards(wanted: Wanted, place: Place, take_address: Callable[[str], str], serial: int, now: float) -> list[Card]:
    """All interfaces that a launch names, or a plain one; a public address has only one that asks for it."""
    found = []
    for position, each in enumerate(wanted.cards or ({},)):
        kind, subnet = each.get("InterfaceType", "interface"), each.get("SubnetId", place.subnet)
        found.append(
            Card(
                id=f"eni-{secrets.token_hex(9)[:17]}",
                device=each.get("DeviceIndex", position),
                card=each.get("NetworkCardIndex", 0),
                kind=kind,
                address="" if kind == "efa-only" else take_address(subnet),
                public=f"198.51.{100 + serial // 250 % 100}.{serial % 250 + 1}"
                if each.get("AssociatePublicIpAddress")
                else "",
                mac=f"02:{':'.join(secrets.token_hex(1) for _ in range(5))}",
                groups=tuple(each.get("Groups", place.groups)),
                subnet=subnet,
                vpc=place.vpc,
                zone=place.zone,
                made=now,
                ends_with_it=each.get("DeleteOnTermination", True),
                description=each.get("Description", ""),
                tags=dict(wanted.card_tags),
            )
        )
    return found
