"""What is one instance of the lab's EC2, and in which state is it at a given time?

A state follows from time, which is a parameter: what an instance was sent into, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from cmscale.lab.faults import WARNING_S
from cmscale.lab.market import ON_DEMAND, SPOT
from cmscale.lab.parts import Card, Disk, Wanted


class Refused(Exception):
    """EC2 says no, in its own words."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


class State(Enum):
    """EC2's states with their codes."""

    PENDING = ("pending", 0)
    RUNNING = ("running", 16)
    SHUTTING_DOWN = ("shutting-down", 32)
    TERMINATED = ("terminated", 48)
    STOPPING = ("stopping", 64)
    STOPPED = ("stopped", 80)

    @property
    def words(self) -> dict[str, object]:
        return {"Code": self.value[1], "Name": self.value[0]}


TAKES_ROOM = frozenset({State.PENDING, State.RUNNING, State.STOPPING, State.SHUTTING_DOWN})


@dataclass(frozen=True, slots=True)
class Times:
    """How long each passing state lasts, in seconds."""

    pending_s: float = 0.5
    stopping_s: float = 0.5
    ending_s: float = 0.5
    forget_s: float = 60.0
    """How long a terminated instance is still described (EC2: about an hour)."""
    checks_s: float = 0.0
    """How long the checks of a running instance are "initializing" (EC2: some minutes)."""
    unseen_s: float = 0.0
    """How long a new instance is not described yet (EC2 is eventually consistent)."""
    tags_unseen_s: float = 0.0
    """How long a new instance cannot be tagged yet, nor ended: InvalidInstanceID.NotFound."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What like instances are launched as, checked and complete."""

    image: str
    type: str
    zone: str
    subnet: str
    vpc: str
    groups: tuple[str, ...] = ()
    key_name: str = ""
    token: str = ""
    market: str = ON_DEMAND
    """"spot" is by a one-time request, which is terminated when it is interrupted."""
    tags: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    """Its placement group."""
    reservation: str = ""
    """The capacity reservation, or block, that it is launched into."""
    profile: str = ""
    """The name of its IAM instance profile."""
    parts: Wanted = field(default_factory=Wanted)
    user_data: str = ""
    """In base64, as it is handed on."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """MetadataOptions, as asked."""

    @property
    def spot(self) -> bool:
        return self.market == SPOT


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that EC2 has scheduled for an instance."""

    id: str
    code: str
    description: str
    not_before: float

    @property
    def cancelled(self) -> bool:
        return self.description.startswith("[Canceled]")

    def described(self, now: float) -> str:
        over = now >= self.not_before and not self.cancelled
        return f"[Completed] {self.description}" if over else self.description


@dataclass(frozen=True, slots=True)
class RequestState:
    """How a spot request stands, in EC2's words."""

    state: str
    code: str
    since: float


@dataclass(slots=True)
class Instance:
    """One instance; `course` is the passing state it was sent into at `since`."""

    id: str
    serial: int
    reservation: str
    index: int
    launch: Launch
    tags: dict[str, str]
    made: float
    launched: float
    """When it was started last, as EC2 has it."""
    course: State
    since: float
    cards: list[Card]
    disks: list[Disk]
    request: str = ""
    """The id of its spot request; empty for an on-demand instance."""
    taken_at: float | None = None
    """When EC2 takes it back, once it is marked."""
    rebalance_at: float | None = None
    """When EC2 recommended to move off it."""
    events: list[Event] = field(default_factory=list)
    impaired: dict[str, float] = field(default_factory=dict)
    """The checks that fail, with since when."""
    told: State | None = None
    """The last state that EventBridge was told."""
    takes_room: bool = True
    """False once it has stopped or ended."""

    @property
    def address(self) -> str:
        """That of its first interface, which stays its name when it has ended."""
        return self.cards[0].address

    def state(self, now: float, times: Times) -> State:
        passed = now - self.since
        if self.course is State.PENDING:
            return State.RUNNING if passed >= times.pending_s else State.PENDING
        if self.course is State.STOPPING:
            return State.STOPPED if passed >= times.stopping_s else State.STOPPING
        return State.TERMINATED if passed >= times.ending_s else State.SHUTTING_DOWN

    def check(self, part: str, now: float, times: Times) -> str:
        """What a check says: ok, impaired, initializing or not-applicable."""
        if self.state(now, times) is not State.RUNNING:
            return "not-applicable"
        if part in self.impaired:
            return "impaired"
        return "initializing" if now - self.since < times.pending_s + times.checks_s else "ok"

    def described(self, now: float, times: Times) -> bool:
        return now - self.made >= times.unseen_s and not self.forgotten(now, times)

    def forgotten(self, now: float, times: Times) -> bool:
        return self.course is State.SHUTTING_DOWN and now - self.since >= times.ending_s + times.forget_s

    def request_state(self, now: float, times: Times) -> RequestState:
        if self.state(now, times) in {State.SHUTTING_DOWN, State.TERMINATED}:
            by = "no-capacity" if self.since == self.taken_at else "by-user"
            return RequestState("closed", f"instance-terminated-{by}", self.since)
        if self.taken_at is not None:
            return RequestState("active", "marked-for-termination", self.taken_at - WARNING_S)
        return RequestState("active", "fulfilled", self.made)


def changed(times: Times, values: Mapping[str, float]) -> Times:
    """The times with some of them changed."""
    return replace(times, **values)
