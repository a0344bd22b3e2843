"""How does EC2 word what it knows of an instance? In boto3's words; `wire` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cmscale.lab.faults import CHECKS
from cmscale.lab.instance import Instance, State
from cmscale.lab.instances import Region
from cmscale.lab.market import ON_DEMAND
from cmscale.lab.parts import Card, Disk
from cmscale.lab.surroundings import ACCOUNT


def reservation(instances: Sequence[Instance], region: Region, now: float) -> dict[str, Any]:
    """Instances that were launched together: an item of DescribeInstances, and all of RunInstances."""
    return {
        "ReservationId": instances[0].reservation,
        "OwnerId": ACCOUNT,
        "Instances": [instance(each, region, now) for each in instances],
    }


def instance(one: Instance, region: Region, now: float) -> dict[str, Any]:
    """One of them."""
    launch, state = one.launch, one.state(now, region.times)
    there = state is not State.TERMINATED
    return {
        "InstanceId": one.id,
        "ImageId": launch.image,
        "State": state.words,
        "PrivateDnsName": f"ip-{one.address.replace('.', '-')}.ec2.internal" if there else "",
        "PublicDnsName": "",
        "StateTransitionReason": "User initiated" if one.course is not State.PENDING else "",
        "KeyName": launch.key_name or None,
        "AmiLaunchIndex": one.index,
        "InstanceType": launch.type,
        "LaunchTime": one.launched,
        "Placement": {"AvailabilityZone": launch.zone, "GroupName": launch.group, "Tenancy": "default"},
        "SubnetId": launch.subnet if there else None,
        "VpcId": launch.vpc if there else None,
        "PrivateIpAddress": one.address if there else None,
        "PublicIpAddress": (one.cards[0].public or None) if there else None,
        "NetworkInterfaces": [_card_of(each) for each in one.cards if each.instance],
        "BlockDeviceMappings": [_disk_of(each) for each in one.disks if each.instance],
        "RootDeviceName": launch.parts.root,
        "RootDeviceType": "ebs",
        "IamInstanceProfile": {"Arn": f"arn:aws:iam::{ACCOUNT}:instance-profile/{launch.profile}"}
        if launch.profile
        else None,
        "MetadataOptions": {"State": "applied", **launch.metadata} if launch.metadata else None,
        "CapacityReservationId": launch.reservation or None,
        "SecurityGroups": [{"GroupId": group} for group in launch.groups],
        "Architecture": "x86_64",
        "InstanceLifecycle": launch.market if launch.market != ON_DEMAND else None,
        "SpotInstanceRequestId": one.request or None,
        "ClientToken": launch.token,
        "Tags": tags(one.tags),
    }


def tags(words: Mapping[str, str]) -> list[dict[str, str]] | None:
    return [{"Key": key, "Value": value} for key, value in words.items()] or None


def status(one: Instance, region: Region, now: float) -> dict[str, Any]:
    """An item of DescribeInstanceStatus."""
    events = [
        {
            "InstanceEventId": event.id,
            "Code": event.code,
            "Description": event.described(now),
            "NotBefore": event.not_before,
        }
        for event in one.events
    ]
    return {
        "InstanceId": one.id,
        "AvailabilityZone": one.launch.zone,
        "Events": events or None,
        "InstanceState": one.state(now, region.times).words,
        **{part: _check(one, part, region, now) for part in CHECKS},
    }


def _check(one: Instance, part: str, region: Region, now: float) -> dict[str, Any]:
    """What a check says of it."""
    status = one.check(part, now, region.times)
    words = {"ok": "passed", "impaired": "failed", "initializing": "initializing"}
    if status not in words:
        return {"Status": status}
    since = one.impaired[part] if status == "impaired" else None
    return {"Status": status, "Details": [{"Name": "reachability", "Status": words[status], "ImpairedSince": since}]}


def spot_request(one: Instance, region: Region, now: float) -> dict[str, Any]:
    """An item of DescribeSpotInstanceRequests."""
    request = one.request_state(now, region.times)
    return {
        "SpotInstanceRequestId": one.request,
        "Type": "one-time",
        "State": request.state,
        "Status": {"Code": request.code, "Message": request.code, "UpdateTime": request.since},
        "InstanceId": one.id,
        "CreateTime": one.made,
        "LaunchedAvailabilityZone": one.launch.zone,
        "InstanceInterruptionBehavior": "terminate",
    }


def volume(one: Disk) -> dict[str, Any]:
    """An item of DescribeVolumes."""
    attached = {
        "VolumeId": one.id,
        "InstanceId": one.instance,
        "Device": one.device,
        "State": "attached",
        "AttachTime": one.made,
        "DeleteOnTermination": one.ends_with_it,
    }
    return {
        "VolumeId": one.id,
        "Size": one.size_gb,
        "VolumeType": one.kind,
        "Encrypted": one.encrypted,
        "KmsKeyId": one.key or None,
        "Iops": one.iops,
        "Throughput": one.throughput,
        "SnapshotId": one.snapshot,
        "AvailabilityZone": one.zone,
        "State": "in-use" if one.instance else "available",
        "CreateTime": one.made,
        "Attachments": [attached] if one.instance else [],
        "MultiAttachEnabled": False,
        "Tags": tags(one.tags),
    }


def interface(one: Card) -> dict[str, Any]:
    """An item of DescribeNetworkInterfaces."""
    shared = _card_of(one)
    attached = {**shared.pop("Attachment"), "InstanceId": one.instance, "InstanceOwnerId": ACCOUNT}
    return {
        **shared,
        "Attachment": attached if one.instance else None,
        "AvailabilityZone": one.zone,
        "RequesterManaged": False,
        "TagSet": tags(one.tags) or [],
    }


def _card_of(one: Card) -> dict[str, Any]:
    """An interface, as it is told with its instance."""
    public = {"PublicIp": one.public, "PublicDnsName": "", "IpOwnerId": "amazon"} if one.public else None
    own = {"Primary": True, "PrivateIpAddress": one.address, "Association": public}
    return {
        "NetworkInterfaceId": one.id,
        "InterfaceType": one.kind,
        "Attachment": {
            "AttachmentId": one.id.replace("eni-", "eni-attach-"),
            "AttachTime": one.made,
            "DeviceIndex": one.device,
            "NetworkCardIndex": one.card,
            "DeleteOnTermination": one.ends_with_it,
            "Status": "attached",
        },
        "Association": public,
        "Description": one.description,
        "Groups": [{"GroupId": each} for each in one.groups],
        "MacAddress": one.mac,
        "OwnerId": ACCOUNT,
        "PrivateIpAddress": one.address or None,
        "PrivateIpAddresses": [own] if one.address else [],
        "SourceDestCheck": True,
        "Status": "in-use" if one.instance else "available",
        "SubnetId": one.subnet,
        "VpcId": one.vpc,
    }


def _disk_of(one: Disk) -> dict[str, Any]:
    """A volume, as it is told with its instance."""
    return {
        "DeviceName": one.device,
        "Ebs": {
            "VolumeId": one.id,
            "Status": "attached",
            "DeleteOnTermination": one.ends_with_it,
            "AttachTime": one.made,
        },
    }
