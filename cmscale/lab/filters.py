"""What passes the filters of a Describe call?

A filter names one of the words that a thing can be asked for, and some values, of which one must fit; a `*` stands for
any letters and a `?` for one, as EC2 has it, unless a backslash stands before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache

from cmscale.lab.instances import Instance, Refused, RequestState, State
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


INSTANCE: Mapping[str, Callable[[Instance, State], Sequence[str]]] = {
    "instance-state-name": lambda _, state: [state.value[0]],
    "instance-state-code": lambda _, state: [str(state.value[1])],
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
    "event.code": lambda one, _: [event.code for event in one.events],
    "tag-key": lambda one, _: list(one.tags),
}
"""What DescribeInstances and DescribeInstanceStatus can be asked for."""

REQUEST: Mapping[str, Callable[[Instance, RequestState], Sequence[str]]] = {
    "instance-id": lambda one, _: [one.id],
    "spot-instance-request-id": lambda one, _: [one.request],
    "state": lambda _, request: [request.state],
    "status-code": lambda _, request: [request.code],
}
"""What DescribeSpotInstanceRequests can be asked for."""


def of_instance(one: Instance, filters: Filters, state: State) -> Words:
    return of_tags(one.tags) | {name: show(one, state) for name, show in INSTANCE.items() if name in filters}


def of_request(one: Instance, filters: Filters, request: RequestState) -> Words:
    return of_tags(one.tags) | {name: show(one, request) for name, show in REQUEST.items() if name in filters}


def check(filters: Filters, known: Collection[str]) -> None:
    """Refuse a filter that there is not, though there may be nothing to look at."""
    for name in filters:
        if name not in known and not name.startswith("tag:"):
            raise Refused("InvalidParameterValue", f"The filter '{name}' is invalid")
