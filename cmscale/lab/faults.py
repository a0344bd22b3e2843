"""What shall go wrong at the lab's EC2: which calls, how and how often, and which machines are taken back?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a call goes wrong. With neither `code` nor `cut` the call is only slow."""

    action: str = ""
    """The call: RunInstances, DescribeInstances, GetCallerIdentity...; empty: any."""
    code: str = ""
    """EC2's error code to answer with: InsufficientInstanceCapacity, RequestLimitExceeded, UnauthorizedOperation..."""
    message: str = "A fault of the lab."
    status: int = 400
    """The HTTP status of that answer; EC2 gives 500 for a lack of capacity, 503 for a throttle."""
    delay_s: float = 0.0
    """How long the call waits, before or after its effect."""
    after: bool = False
    """True: the call takes effect and goes wrong then (the caller doesn't know); False: it has no effect."""
    cut: bool = False
    """The connection is closed without an answer."""
    times: int = 1
    """How many calls it hits; 0: all, until faults are cleared."""
    region: str = ""
    """Only calls to this region; empty: to any."""
    match: Mapping[str, str] = field(default_factory=dict)
    """Only calls with these flat parameters, e.g. {"InstanceType": "g4dn.xlarge"}."""

    def hits(self, action: str, region: str, params: Mapping[str, str]) -> bool:
        return (
            self.action in {"", action}
            and self.region in {"", region}
            and all(params.get(key) == value for key, value in self.match.items())
        )

    @property
    def prevents(self) -> bool:
        """The call has no effect."""
        return not self.after and (self.cut or bool(self.code))

    @property
    def spoils(self) -> bool:
        """The caller does not get the true answer."""
        return self.cut or bool(self.code)


WARNING_S = 120.0
"""How long ahead EC2 warns that it takes a spot instance back."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """EC2 takes a spot instance back: its request is marked, and after the warning the instance is ended."""

    instance: str
    warning_s: float = WARNING_S
    """With less than EC2's own, the mark is dated as much earlier: its promise holds."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """EC2 schedules an event for an instance; instance-stop and instance-retirement stop it when the time comes."""

    instance: str
    code: str = "instance-retirement"
    """instance-reboot, instance-retirement, instance-stop, system-maintenance, system-reboot."""
    in_s: float = 86400.0
    description: str = "The instance is running on degraded hardware"
    """One that begins with [Canceled] is not going to happen."""


class Faults:
    """The faults that are set, oldest first: the first that fits a call hits it."""

    def __init__(self) -> None:
        self._left: list[tuple[Fault, int]] = []

    def add(self, fault: Fault) -> None:
        self._left.append((fault, fault.times))

    def clear(self) -> None:
        self._left.clear()

    def take(self, action: str, region: str, params: Mapping[str, str]) -> Fault | None:
        """The fault that hits this call; counted."""
        for position, (fault, left) in enumerate(self._left):
            if fault.hits(action, region, params):
                if left == 1:
                    del self._left[position]
                elif left > 1:
                    self._left[position] = (fault, left - 1)
                return fault
        return None

    def listed(self) -> list[dict[str, Any]]:
        return [asdict(fault) | {"times": left} for fault, left in self._left]
