"""What does EC2 show of the volumes and network interfaces of instances, and which of them can be deleted?

Those that nobody launched an instance with are moto's; an answer holds both.
"""

from __future__ import annotations

from typing import Any

from cmscale.lab import words
from cmscale.lab.ec2.calls import Answer, Scene
from cmscale.lab.ec2.looking import filters_of, paged
from cmscale.lab.filters import Words, of_tags, suits
from cmscale.lab.instance import Refused
from cmscale.lab.parts import Card, Disk


def describe_volumes(scene: Scene) -> Answer | None:
    filters = filters_of(scene)
    ours = {each.id: words.volume(each) for each in scene.region.disks(scene.now) if suits(_of_disk(each), filters)}
    return _with_motos(scene, "VolumeIds", "Volumes", ours)


def describe_network_interfaces(scene: Scene) -> Answer | None:
    filters = filters_of(scene)
    ours = {each.id: words.interface(each) for each in scene.region.cards(scene.now) if suits(_of_card(each), filters)}
    return _with_motos(scene, "NetworkInterfaceIds", "NetworkInterfaces", ours)


def _with_motos(scene: Scene, ids_name: str, name: str, ours: dict[str, dict[str, Any]]) -> Answer | None:
    ids = scene.asked.get(ids_name, [])
    if ids and not any(each in ours for each in ids):
        return None  # moto has them, or says that there are none
    found = [ours[each] for each in ids if each in ours] if ids else [*ours.values(), *scene.motos().get(name, ())]
    page, more = paged(scene, found)
    return scene.told({name: page, "NextToken": more})


def delete_volume(scene: Scene) -> Answer | None:
    return _deleted(scene, {each.id: each for each in scene.region.disks(scene.now)}, "VolumeId", "VolumeInUse")


def delete_network_interface(scene: Scene) -> Answer | None:
    cards = {each.id: each for each in scene.region.cards(scene.now)}
    return _deleted(scene, cards, "NetworkInterfaceId", "InvalidNetworkInterface.InUse")


def _deleted(scene: Scene, parts: dict[str, Any], id_name: str, in_use: str) -> Answer | None:
    part: Disk | Card | None = parts.get(scene.asked.get(id_name, ""))
    if part is None:
        return None
    if part.instance:
        raise Refused(in_use, f"{part.id} is currently attached to {part.instance}")
    scene.stop_here_if_dry()
    scene.region.discard(part)
    return scene.told({})


def _of_disk(one: Disk) -> Words:
    return {
        "volume-id": [one.id],
        "attachment.instance-id": [one.instance] if one.instance else [],
        "attachment.device": [one.device] if one.instance else [],
        "attachment.delete-on-termination": [str(one.ends_with_it).lower()] if one.instance else [],
        "availability-zone": [one.zone],
        "encrypted": [str(one.encrypted).lower()],
        "status": ["in-use" if one.instance else "available"],
        "volume-type": [one.kind],
        "size": [str(one.size_gb)],
        **of_tags(one.tags),
    }


def _of_card(one: Card) -> Words:
    return {
        "network-interface-id": [one.id],
        "attachment.instance-id": [one.instance] if one.instance else [],
        "availability-zone": [one.zone],
        "group-id": list(one.groups),
        "private-ip-address": [one.address] if one.address else [],
        "interface-type": [one.kind],
        "status": ["in-use" if one.instance else "available"],
        "subnet-id": [one.subnet],
        "vpc-id": [one.vpc],
        **of_tags(one.tags),
    }
