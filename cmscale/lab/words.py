"""How does EC2 word what it knows of an instance?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from cmscale.lab.instances import Instance, Region, State


def at(seconds: float) -> str:
    """A time as EC2 writes it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def instance(one: Instance, region: Region, now: float) -> dict[str, Any]:
    """An item of DescribeInstances."""
    launch, state = one.launch, one.state(now, region.times)
    there = state is not State.TERMINATED
    return {
        "instanceId": one.id,
        "imageId": launch.image,
        "instanceState": state.words,
        "privateDnsName": f"ip-{one.address.replace('.', '-')}.ec2.internal" if there else "",
        "dnsName": "",
        "reason": "User initiated" if one.course is not State.PENDING else "",
        "keyName": launch.key_name or None,
        "amiLaunchIndex": one.index,
        "instanceType": launch.type,
        "launchTime": at(one.launched),
        "placement": {"availabilityZone": launch.zone, "tenancy": "default"},
        "subnetId": launch.subnet if there else None,
        "vpcId": launch.vpc if there else None,
        "privateIpAddress": one.address if there else None,
        "groupSet": [{"groupId": group} for group in launch.groups],
        "architecture": "x86_64",
        "instanceLifecycle": "spot" if launch.spot else None,
        "spotInstanceRequestId": one.request or None,
        "clientToken": launch.token,
        "tagSet": [{"key": key, "value": value} for key, value in one.tags.items()] or None,
    }


def status(one: Instance, region: Region, now: float) -> dict[str, Any]:
    """An item of DescribeInstanceStatus."""
    passed = {"status": "ok", "details": [{"name": "reachability", "status": "passed"}]}
    events = [
        {
            "instanceEventId": event.id,
            "code": event.code,
            "description": event.described(now),
            "notBefore": at(event.not_before),
        }
        for event in one.events
    ]
    return {
        "instanceId": one.id,
        "availabilityZone": one.launch.zone,
        "eventsSet": events or None,
        "instanceState": one.state(now, region.times).words,
        "systemStatus": passed,
        "instanceStatus": passed,
    }


def spot_request(one: Instance, region: Region, now: float) -> dict[str, Any]:
    """An item of DescribeSpotInstanceRequests."""
    request = one.request_state(now, region.times)
    return {
        "spotInstanceRequestId": one.request,
        "type": "one-time",
        "state": request.state,
        "status": {"code": request.code, "message": request.code, "updateTime": at(request.since)},
        "instanceId": one.id,
        "createTime": at(one.made),
        "launchedAvailabilityZone": one.launch.zone,
        "instanceInterruptionBehavior": "terminate",
    }
