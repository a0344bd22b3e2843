"""What shall go wrong at the lab's EC2: which calls, how and how often, and which machines are taken back?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
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
    retry_after_s: int | None = None
    """What the answer's header Retry-After says."""
    delay_s: float = 0.0
    """How long the call waits, before or after its effect."""
    after: bool = False
    """True: the call takes effect and goes wrong then (the caller doesn't know); False: it has no effect."""
    cut: bool = False
    """The connection is closed without an answer."""
    every: int = 1
    """It hits every n-th of the calls it is meant for: 3 spares two and hits the third."""
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


CHECKS = ("SystemStatus", "InstanceStatus", "AttachedEbsStatus")

LAUNCHES = frozenset({"RunInstances", "CreateFleet"})
"""These draw on one bucket for the machines they ask for."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket, as EC2 throttles by: at most so many calls, or instances in calls, in a region."""

    per_s: float
    burst: float
    action: str = ""
    """The calls that are counted; empty: all."""
    machines: bool = False
    """A call costs as many tokens as it asks for instances; launches of both kinds share a bucket."""
    together: bool = False
    """All calls that are counted share one bucket; otherwise each action has its own."""
    region: str = ""

    def counts(self, action: str, region: str) -> bool:
        return self.action in {"", action} and self.region in {"", region}


DOCUMENTED = (
    Rate(2, 1000, "RunInstances", machines=True),
    Rate(2, 1000, "CreateFleet", machines=True),
    Rate(20, 1000, "TerminateInstances", machines=True),
    Rate(2, 1000, "StartInstances", machines=True),
    Rate(20, 1000, "StopInstances", machines=True),
    Rate(2, 5, "RunInstances"),
    Rate(2, 5, "StartInstances"),
    Rate(5, 50, "CreateFleet"),
    Rate(5, 50, "CreateTags"),
    Rate(5, 50, "TerminateInstances"),
    Rate(20, 100, "DescribeInstances"),
    Rate(20, 100, "DescribeInstanceStatus"),
    Rate(20, 100, "DescribeSpotInstanceRequests"),
)
"""The buckets of the EC2 Developer Guide (request throttling) that matter here."""

WARNING_S = 120.0
"""How long ahead EC2 warns that it takes a spot instance back."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """EC2 takes a spot instance back: its request is marked, and after the warning the instance is ended."""

    instance: str
    warning_s: float = WARNING_S
    """With less than EC2's own, the mark is dated as much earlier: its promise holds."""


@dataclass(frozen=True, slots=True)
class Rebalance:
    """EC2 recommends to move off a spot instance, which it may take back soon, or never."""

    instance: str


@dataclass(frozen=True, slots=True)
class Impairment:
    """A check of EC2's fails for an instance, or passes again."""

    instance: str
    part: str = "SystemStatus"
    """SystemStatus is the host, InstanceStatus the machine itself, AttachedEbsStatus its volumes."""
    since_s: float = 0.0
    """For how long it has failed already."""
    mended: bool = False

    def __post_init__(self) -> None:
        if self.part not in CHECKS:
            raise ValueError(f"{self.part} is no check; there are {', '.join(CHECKS)}")


@dataclass(frozen=True, slots=True)
class Scheduled:
    """EC2 schedules an event for an instance; instance-stop and instance-retirement stop it when the time comes."""

    instance: str
    code: str = "instance-retirement"
    """instance-reboot, instance-retirement, instance-stop, system-maintenance, system-reboot."""
    in_s: float = 86400.0
    description: str = "The instance is running on degraded hardware"
    """One that begins with [Canceled] is not going to happen."""


@dataclass(slots=True)
class _Set:
    """A fault that is set."""

    fault: Fault
    left: int
    met: int = 0
    """How many calls it was meant for."""


class Faults:
    """The faults that are set, oldest first: the first that fits a call hits it. Rates are looked at before."""

    def __init__(self) -> None:
        self._set: list[_Set] = []
        self._rates: list[Rate] = []
        self._buckets: dict[tuple[Rate, str, str], tuple[float, float]] = {}
        """By rate, action and region: how many tokens there were, and when."""

    def add(self, fault: Fault) -> None:
        if fault.every < 1:
            raise ValueError("every must be at least 1")
        self._set.append(_Set(fault, fault.times))

    def add_rate(self, rate: Rate) -> None:
        self._rates.append(rate)

    def clear(self) -> None:
        self._set.clear()

    def clear_rates(self) -> None:
        self._rates.clear()
        self._buckets.clear()

    def take(self, action: str, region: str, params: Mapping[str, str], now: float = 0.0) -> Fault | None:
        """The fault that hits this call; counted."""
        if not self._drawn(action, region, params, now):
            return THROTTLE
        for each in self._set:
            if each.fault.hits(action, region, params):
                each.met += 1
                if each.met % each.fault.every == 0:
                    if each.left == 1:
                        self._set.remove(each)
                    each.left -= 1
                    return each.fault
        return None

    def _drawn(self, action: str, region: str, params: Mapping[str, str], now: float) -> bool:
        """Take the call's tokens from all its buckets, or from none if one has too few."""
        left: dict[tuple[Rate, str, str], tuple[float, float]] = {}
        for rate in self._rates:
            if rate.counts(action, region):
                shared = "" if rate.together else action
                if rate.machines and action in LAUNCHES:
                    rate, shared = replace(rate, action=""), "launches"  # noqa: PLW2901 - both kinds share a bucket
                tokens, since = self._buckets.get((rate, shared, region), (rate.burst, now))
                tokens = min(rate.burst, tokens + (now - since) * rate.per_s)
                cost = machines_in(action, params) if rate.machines else 1
                if tokens < cost:
                    return False
                left[rate, shared, region] = tokens - cost, now
        self._buckets |= left
        return True

    def listed(self) -> list[dict[str, Any]]:
        return [asdict(each.fault) | {"times": max(0, each.left)} for each in self._set]

    def rates(self) -> list[dict[str, Any]]:
        return [asdict(each) for each in self._rates]


THROTTLE = Fault("", "RequestLimitExceeded", "Request limit exceeded.", status=503)


def machines_in(action: str, params: Mapping[str, str]) -> int:
    """How many instances a call asks for, or names."""
    asked = {"RunInstances": "MaxCount", "CreateFleet": "TargetCapacitySpecification.TotalTargetCapacity"}
    if action in asked:
        count = params.get(asked[action], "1")
        return int(count) if count.isdigit() else 1
    return sum(key.startswith("InstanceId.") for key in params)
