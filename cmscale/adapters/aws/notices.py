"""How does EC2 tell that it will take a machine back?

Of a spot instance in the status of its request, two minutes ahead; of any other by an event that it schedules for it,
mostly days ahead: its host is retired, or must be restarted. Both can be read for all machines in one call each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cmscale.model import MachineId, Notice

SPOT_WARNING_S = 120.0
"""AWS documentation, "Spot Instance interruption notices": a mark comes two minutes before the interruption."""

MARKS = ("marked-for-stop", "marked-for-termination")
"""The status codes of a spot request whose instance is taken back."""

EVENTS = ("instance-reboot", "instance-retirement", "instance-stop", "system-maintenance", "system-reboot")
"""The codes of scheduled events; each interrupts what runs."""

_OVER = ("[Completed]", "[Canceled]")
"""How EC2 begins the description of an event that is over; it is shown for a week more."""

Told = tuple[MachineId, Notice]


def of_requests(requests: Iterable[Mapping[str, Any]]) -> Iterator[Told]:
    """What spot requests say of their instances."""
    for each in requests:
        status = each["Status"]
        if status["Code"] in MARKS:
            deadline = status["UpdateTime"].timestamp() + SPOT_WARNING_S
            yield (
                MachineId(each["InstanceId"]),
                Notice(deadline, f"EC2 takes the spot instance back ({status['Code']})"),
            )


def of_statuses(statuses: Iterable[Mapping[str, Any]]) -> Iterator[Told]:
    """What the statuses of instances say of scheduled events."""
    for each in statuses:
        for event in each.get("Events", ()):
            description = event.get("Description", "")
            if event["Code"] in EVENTS and "NotBefore" in event and not description.startswith(_OVER):
                why = f"EC2 has scheduled: {event['Code']}" + (f" ({description})" if description else "")
                yield MachineId(each["InstanceId"]), Notice(event["NotBefore"].timestamp(), why)


def earliest(told: Iterable[Told]) -> dict[MachineId, Notice]:
    """One notice a machine: of several, the one that comes first."""
    return dict(sorted(told, key=lambda each: each[1].deadline, reverse=True))
