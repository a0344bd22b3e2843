"""What passes the filters of a Describe call?

A filter names one of the words that a thing can be asked for, and some values, of which one must fit; a `*` stands for
any letters and a `?` for one, as EC2 has it, unless a backslash stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from cmscale.lab.instance import Instance, Refused, Times
from cmscale.lab.market import ON_DEMAND

Filters = Mapping[str, Sequence[str]]
"""Wanted values by a filter's name; of several filters all must be met."""

Words = Mapping[str, Sequence[str]]
"""All that something can be asked for, with what it has to show."""


def suits(words: Words, filters: Filters) -> bool:
    """Is it wanted? Refuses a filter that there is not. A tag that it lacks is no flaw of the filter."""
    check(filters, words)
    for name, wanted in filters.items():
        if not any(_pattern(want).fullmatch(each) for each in words.get(name, ()) for want in wanted):
            return False
    return True


@cache
def _pattern(want: str) -> re.Pattern[str]:
    parts = re.findall(r"\\.|.", want, re.DOTALL)
    jokers = {"*": ".*", "?": "."}
    return re.compile("".join(jokers.get(each) or re.escape(each[-1]) for each in parts), re.DOTALL)


def of_tags(tags: Mapping[str, str]) -> dict[str, Sequence[str]]:
    return {
        "tag-key": list(tags),
        "tag-value": list(tags.values()),
        **{f"tag:{key}": [value] for key, value in tags.items()},
    }


Moment = tuple[float, Times]
"""By what an instance tells its state."""

Table = Mapping[str, Callable[[Instance, Moment], Sequence[str]]]
"""What an instance has to show, by a filter's name."""

INSTANCE: Table = {
    "instance-state-name": lambda one, at: [one.state(*at).value[0]],
    "instance-state-code": lambda one, at: [str(one.state(*at).value[1])],
    "instance-id": lambda one, _: [one.id],
    "instance-type": lambda one, _: [one.launch.type],
    "instance-lifecycle": lambda one, _: [one.launch.market] if one.launch.market != ON_DEMAND else [],
    "image-id": lambda one, _: [one.launch.image],
    "availability-zone": lambda one, _: [one.launch.zone],
    "subnet-id": lambda one, _: [one.launch.subnet],
    "vpc-id": lambda one, _: [one.launch.vpc],
    "client-token": lambda one, _: [one.launch.token],
    "reservation-id": lambda one, _: [one.reservation],
    "private-ip-address": lambda one, _: [one.address],
    "launch-index": lambda one, _: [str(one.index)],
    "placement-group-name": lambda one, _: [one.launch.group] if one.launch.group else [],
    "capacity-reservation-id": lambda one, _: [one.launch.reservation] if one.launch.reservation else [],
    "spot-instance-request-id": lambda one, _: [one.request] if one.request else [],
    "instance-status.status": lambda one, at: [one.check("InstanceStatus", *at)],
    "system-status.status": lambda one, at: [one.check("SystemStatus", *at)],
    "event.code": lambda one, _: [event.code for event in one.events],
    "tag-key": lambda one, _: list(one.tags),
}
"""What DescribeInstances and DescribeInstanceStatus can be asked for."""

REQUEST: Table = {
    "instance-id": lambda one, _: [one.id],
    "spot-instance-request-id": lambda one, _: [one.request],
    "state": lambda one, at: [one.request_state(*at).state],
    "status-code": lambda one, at: [one.request_state(*at).code],
}
"""What DescribeSpotInstanceRequests can be asked for."""


def wanted(one: Instance, filters: Filters, table: Table, at: Moment) -> bool:
    """Do the filters want an instance, by what this table shows of it?"""
    words = {name: show(one, at) for name, show in table.items() if name in filters}
    return suits(of_tags(one.tags) | words, filters)


def check(filters: Filters, known: Collection[str]) -> None:
    """Refuse a filter that there is not, though there may be nothing to look at."""
    for name in filters:
        if name not in known and not name.startswith("tag:"):
            raise Refused("InvalidParameterValue", f"The filter '{name}' is invalid")
