"""What do EC2's words about a machine mean: that it is taken back, that it may be, that it does not work?

Of a spot machine EC2 says two minutes ahead that it takes it back, in the status of its request and by an event. Of any
machine it says, mostly days ahead, that it has scheduled something for it: its host is retired, or must be restarted.
And it checks each minute whether a machine, its host and its volumes answer.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Any

from cmscale.model import MachineId, Means, Notice

SPOT_WARNING_S = 120.0
"""AWS documentation, "Spot Instance interruption notices": a mark comes two minutes before the interruption."""

MARKS = ("marked-for-stop", "marked-for-termination")
"""The status codes of a spot request whose instance is taken back."""

EVENTS = ("instance-reboot", "instance-retirement", "instance-stop", "system-maintenance", "system-reboot")
"""The codes of scheduled events; each interrupts what runs."""

INTERRUPTION = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
"""The detail types of EventBridge that tell us anything. Changes of state don't: each look lists all states anyway."""

CHECKS: Mapping[str, str] = {
    "SystemStatus": "its host",
    "InstanceStatus": "the machine itself",
    "AttachedEbsStatus": "one of its volumes",
}
"""What EC2 checks, by the part of a status that tells it."""

IMPAIRED_S = 300.0
"""A check that has failed for less may pass again: a reboot takes a minute or two."""

_OVER = ("[Completed]", "[Canceled]")
"""How EC2 begins the description of an event that is over; it is shown for a week more."""

Told = tuple[MachineId, Notice]


def of_requests(requests: Iterable[Mapping[str, Any]]) -> Iterator[Told]:
    """What spot requests say of their instances."""
    for each in requests:
        status = each["Status"]
        if status["Code"] in MARKS:
            deadline = status["UpdateTime"].timestamp() + SPOT_WARNING_S
            yield MachineId(each["InstanceId"]), _taken(deadline, status["Code"])


def of_statuses(statuses: Iterable[Mapping[str, Any]], now: float) -> Iterator[Told]:
    """What the statuses of instances say of scheduled events and of failed checks."""
    for each in statuses:
        machine = MachineId(each["InstanceId"])
        for event in each.get("Events", ()):
            description = event.get("Description", "")
            if event["Code"] in EVENTS and "NotBefore" in event and not description.startswith(_OVER):
                why = f"EC2 has scheduled: {event['Code']}" + (f" ({description})" if description else "")
                yield machine, Notice(event["NotBefore"].timestamp(), why)
        for part, what in CHECKS.items():
            since = _impaired_since(each.get(part, {}))
            if since is not None and now - since >= IMPAIRED_S:
                yield machine, Notice(inf, f"EC2's checks say that {what} does not answer", Means.SICK)


def of_event(text: str) -> Told:
    """What an event of EventBridge says; ValueError if it is none of those that tell us anything."""
    try:
        event = json.loads(text)
        kind, detail, at = event["detail-type"], event["detail"], datetime.fromisoformat(event["time"]).timestamp()
        machine = MachineId(str(detail["instance-id"]))
        if kind == INTERRUPTION:
            return machine, _taken(at + SPOT_WARNING_S, detail.get("instance-action", "terminate"))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ValueError("it is no event of EC2") from error
    if kind == REBALANCE:
        return machine, Notice(inf, "EC2 recommends to rebalance the spot instance", Means.AT_RISK)
    raise ValueError(f"it is an event of another kind: {kind}")


def by_machine(told: Iterable[Told]) -> dict[MachineId, Sequence[Notice]]:
    """What is said of each machine, each thing once, the earliest first."""
    said: dict[MachineId, set[Notice]] = defaultdict(set)
    for machine, notice in told:
        said[machine].add(notice)
    return {machine: sorted(notices, key=lambda each: (each.deadline, each.why)) for machine, notices in said.items()}


def _taken(deadline: float, how: str) -> Notice:
    return Notice(deadline, f"EC2 takes the spot instance back ({how})")


def _impaired_since(status: Mapping[str, Any]) -> float | None:
    """Since when a check fails; None if none does."""
    if status.get("Status") != "impaired":
        return None
    since = [detail["ImpairedSince"].timestamp() for detail in status.get("Details", ()) if "ImpairedSince" in detail]
    return min(since, default=None)
