"""What passes the filters of a Describe call?

A filter names one of the words that a thing can be asked for, and some values, of which one must fit; a `*` stands for
any letters and a `?` for one, as EC2 has it, unless a backslash stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from cmscale.lab.instances import Instance, Refused, Times

Filters = Mapping[str, Sequence[str]]
"""Wanted values by a filter's name; of several filters all must be met."""

Words = Mapping[str, Sequence[str]]
"""All that something can be asked for, with what it has to show."""


def suits(words: Words, filters: Filters) -> bool:
    """Is it wanted? Refuses a filter that there is not. A tag that it lacks is no flaw of the filter."""
    for name, wanted in filters.items():
        if name not in words and not name.startswith("tag:"):
            raise Refused("InvalidParameterValue", f"The filter '{name}' is invalid")
        if not any(_pattern(want).fullmatch(each) for each in words.get(name, ()) for want in wanted):
            return False
    return True


@cache
def _pattern(want: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", want, re.DOTALL)
    jokers = {"*": ".*", "?": "."}
    return re.compile("".join(jokers.get(each) or re.escape(each[-1]) for each in parts), re.DOTALL)


def of_tags(tags: Mapping[str, str]) -> Words:
    return {
        "tag-key": list(tags),
        "tag-value": list(tags.values()),
        **{f"tag:{key}": [value] for key, value in tags.items()},
    }


def of_instance(one: Instance, times: Times, now: float) -> Words:
    """For DescribeInstances and DescribeInstanceStatus."""
    launch, state = one.launch, one.state(now, times)
    return {
        "instance-state-name": [state.value[0]],
        "instance-state-code": [str(state.value[1])],
        "instance-id": [one.id],
        "instance-type": [launch.type],
        "instance-lifecycle": [launch.market] if launch.market != "on-demand" else [],
        "image-id": [launch.image],
        "availability-zone": [launch.zone],
        "subnet-id": [launch.subnet],
        "vpc-id": [launch.vpc],
        "client-token": [launch.token],
        "reservation-id": [one.reservation],
        "private-ip-address": [one.address],
        "launch-index": [str(one.index)],
        "placement-group-name": [launch.group] if launch.group else [],
        "capacity-reservation-id": [launch.reservation] if launch.reservation else [],
        "spot-instance-request-id": [one.request] if one.request else [],
        "event.code": [event.code for event in one.events],
        **of_tags(one.tags),
    }


def of_request(one: Instance, times: Times, now: float) -> Words:
    """For DescribeSpotInstanceRequests."""
    request = one.request_state(now, times)
    return {
        "instance-id": [one.id],
        "spot-instance-request-id": [one.request],
        "state": [request.state],
        "status-code": [request.code],
    }
