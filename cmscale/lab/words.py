"""How does EC2 word what it knows of an instance? In boto3's words; `wire` writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cmscale.lab.instances import Instance, Region, State
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
        "Placement": {"AvailabilityZone": launch.zone, "Tenancy": "default"},
        "SubnetId": launch.subnet if there else None,
        "VpcId": launch.vpc if there else None,
        "PrivateIpAddress": one.address if there else None,
        "SecurityGroups": [{"GroupId": group} for group in launch.groups],
        "Architecture": "x86_64",
        "InstanceLifecycle": "spot" if launch.spot else None,
        "SpotInstanceRequestId": one.request or None,
        "ClientToken": launch.token,
        "Tags": tags(one.tags),
    }


def tags(words: Mapping[str, str]) -> list[dict[str, str]] | None:
    return [{"Key": key, "Value": value} for key, value in words.items()] or None


def status(one: Instance, region: Region, now: float) -> dict[str, Any]:
    """An item of DescribeInstanceStatus."""
    passed = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
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
        "SystemStatus": passed,
        "InstanceStatus": passed,
    }


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
