"""Which of the lab's instances pass the filters of a Describe call?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from cmscale.lab.instances import Instance, Refused, Times

Filters = Mapping[str, Sequence[str]]
"""Wanted values by a filter's name; of several filters all must be met."""


def passes(instance: Instance, filters: Filters, times: Times, now: float) -> bool:
    """Does DescribeInstances, or DescribeInstanceStatus, show it?"""
    return all(_shows(_of_instance(instance, name, times, now), wanted) for name, wanted in filters.items())


def request_passes(instance: Instance, filters: Filters, times: Times, now: float) -> bool:
    """Does DescribeSpotInstanceRequests show its request?"""
    return all(_shows(_of_request(instance, name, times, now), wanted) for name, wanted in filters.items())


def _shows(has: Sequence[str], wanted: Sequence[str]) -> bool:
    # EC2 knows * and ?, not [a-z]
    return any(fnmatchcase(each, want.replace("[", "[[]")) for each in has for want in wanted)


def _of_instance(instance: Instance, name: str, times: Times, now: float) -> Sequence[str]:
    """What an instance has to show for a filter's name."""
    if name.startswith("tag:"):
        value = instance.tags.get(name.removeprefix("tag:"))
        return [] if value is None else [value]
    launch, state = instance.launch, instance.state(now, times)
    return _known(
        name,
        {
            "instance-state-name": [state.value[0]],
            "instance-state-code": [str(state.value[1])],
            "instance-id": [instance.id],
            "instance-type": [launch.type],
            "image-id": [launch.image],
            "availability-zone": [launch.zone],
            "subnet-id": [launch.subnet],
            "vpc-id": [launch.vpc],
            "client-token": [launch.token],
            "reservation-id": [instance.reservation],
            "private-ip-address": [instance.address],
            "launch-index": [str(instance.index)],
            "tag-key": list(instance.tags),
            "event.code": [event.code for event in instance.events],
        },
    )


def _of_request(instance: Instance, name: str, times: Times, now: float) -> Sequence[str]:
    """What a spot request has to show for a filter's name."""
    request = instance.request_state(now, times)
    return _known(
        name,
        {
            "instance-id": [instance.id],
            "spot-instance-request-id": [instance.request],
            "state": [request.state],
            "status-code": [request.code],
        },
    )


def _known(name: str, words: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if name not in words:
        raise Refused("InvalidParameterValue", f"The filter '{name}' is invalid")
    return words[name]
