"""Who may launch where others may not: placement groups and capacity reservations."""

from __future__ import annotations

from typing import Any

from cmscale.lab import words
from cmscale.lab.ec2.calls import Answer, Scene
from cmscale.lab.ec2.launching import tags_for
from cmscale.lab.ec2.looking import filters_of, paged
from cmscale.lab.filters import of_tags, suits
from cmscale.lab.instance import Refused
from cmscale.lab.reserved import Group, Reservation
from cmscale.lab.surroundings import ACCOUNT

# --- placement groups ------------------------------------------------------------------------------------------------


def create_placement_group(scene: Scene) -> Answer:
    name, strategy = scene.asked.get("GroupName", ""), scene.asked.get("Strategy", "cluster")
    if not name:
        raise Refused("MissingParameter", "The request must contain the parameter GroupName")
    if strategy not in {"cluster", "spread", "partition"}:
        raise Refused("InvalidParameterValue", f"Invalid value '{strategy}' for Strategy.")
    if name in scene.region.groups:
        raise Refused("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    scene.stop_here_if_dry()
    tags = tags_for("placement-group", scene.asked.get("TagSpecifications", ()))
    group = Group(name, strategy, partitions=scene.asked.get("PartitionCount"), tags=tags)
    scene.region.groups[name] = group
    return scene.told({"PlacementGroup": _group(scene, group)})


def describe_placement_groups(scene: Scene) -> Answer:
    scene.stop_here_if_dry()
    groups, names = scene.region.groups, scene.asked.get("GroupNames", [])
    for each in names:
        if each not in groups:
            raise _unknown(each)
    ids = scene.asked.get("GroupIds", [])
    found = [
        each
        for each in groups.values()
        if (not names or each.name in names)
        and (not ids or each.id in ids)
        and suits(
            {
                "group-name": [each.name],
                "group-arn": [_arn(scene, "placement-group", each.name)],
                "state": ["available"],
                "strategy": [each.strategy],
                **of_tags(each.tags),
            },
            filters_of(scene),
        )
    ]
    return scene.told({"PlacementGroups": [_group(scene, each) for each in found]})


def delete_placement_group(scene: Scene) -> Answer:
    name = scene.asked.get("GroupName", "")
    if name not in scene.region.groups:
        raise _unknown(name)
    if scene.region.uses_group(name, scene.now):
        raise Refused("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted.")
    scene.stop_here_if_dry()
    del scene.region.groups[name]
    return scene.told({})


def _unknown(name: str) -> Refused:
    return Refused("InvalidPlacementGroup.Unknown", f"The Placement Group '{name}' is unknown.")


def _arn(scene: Scene, kind: str, id_: str) -> str:
    return f"arn:aws:ec2:{scene.region.name}:{ACCOUNT}:{kind}/{id_}"


def _group(scene: Scene, group: Group) -> dict[str, Any]:
    return {
        "GroupName": group.name,
        "GroupId": group.id,
        "GroupArn": _arn(scene, "placement-group", group.name),
        "State": "available",
        "Strategy": group.strategy,
        "PartitionCount": group.partitions,
        "Tags": words.tags(group.tags),
    }


# --- capacity reservations -------------------------------------------------------------------------------------------


def create_capacity_reservation(scene: Scene) -> Answer:
    asked = scene.asked
    for name in ("InstanceType", "InstancePlatform", "InstanceCount"):
        if name not in asked:
            raise Refused("MissingParameter", f"The request must contain the parameter {name}")
    zone = asked.get("AvailabilityZone", "")
    if zone not in scene.moto.homes[scene.region.name]["subnets"]:
        raise Refused("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    if not scene.moto.knows_type(asked["InstanceType"]):
        raise Refused("InvalidParameterValue", f"Invalid value '{asked['InstanceType']}' for InstanceType.")
    scene.stop_here_if_dry()
    wanted = Reservation(
        type=asked["InstanceType"],
        zone=zone,
        count=asked["InstanceCount"],
        made=scene.now,
        starts=scene.now,
        ends=asked.get("EndDate"),
        platform=asked["InstancePlatform"],
        match=asked.get("InstanceMatchCriteria", "open"),
        tags=tags_for("capacity-reservation", asked.get("TagSpecifications", ())),
    )
    token = asked.get("ClientToken", "")
    made = scene.region.once(token, scene.call.params, lambda: scene.region.reserve(wanted, scene.now))
    return scene.told({"CapacityReservation": _reservation(scene, made)})


def describe_capacity_reservations(scene: Scene) -> Answer:
    scene.stop_here_if_dry()
    list(scene.region.described((), scene.now))  # what has ended by now gives its room back
    known, ids = scene.region.reservations, scene.asked.get("CapacityReservationIds", [])
    for each in ids:
        scene.region.reservation(each)
    found = [
        each
        for each in known.values()
        if (not ids or each.id in ids)
        and suits(
            {
                "instance-type": [each.type],
                "availability-zone": [each.zone],
                "state": [each.state(scene.now)],
                "instance-platform": [each.platform],
                "instance-match-criteria": [each.match],
                "reservation-type": [each.kind],
                **of_tags(each.tags),
            },
            filters_of(scene),
        )
    ]
    page, more = paged(scene, found)
    return scene.told({"CapacityReservations": [_reservation(scene, each) for each in page], "NextToken": more})


def cancel_capacity_reservation(scene: Scene) -> Answer:
    found = scene.region.reservation(scene.asked.get("CapacityReservationId", ""))
    scene.stop_here_if_dry()
    scene.region.unreserve(found, scene.now)
    return scene.told({"Return": True})


def _reservation(scene: Scene, one: Reservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": one.id,
        "CapacityReservationArn": _arn(scene, "capacity-reservation", one.id),
        "OwnerId": ACCOUNT,
        "InstanceType": one.type,
        "InstancePlatform": one.platform,
        "AvailabilityZone": one.zone,
        "Tenancy": "default",
        "TotalInstanceCount": one.count,
        "AvailableInstanceCount": one.count - one.used,
        "State": one.state(scene.now),
        "StartDate": one.starts,
        "EndDate": one.ends,
        "EndDateType": "unlimited" if one.ends is None else "limited",
        "InstanceMatchCriteria": one.match,
        "CreateDate": one.made,
        "ReservationType": one.kind,
        "Tags": words.tags(one.tags),
    }
