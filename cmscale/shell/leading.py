"""What may the leader of two daemons do that a standby may not, and how does one become the other?

The leader's world asks for the lease before everything that it changes, and its clock ends the run when the lease is
lost. A standby looks at nothing but the lease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from cmscale.model import (
    Event,
    EventKind,
    Job,
    JobId,
    Machine,
    MachineId,
    NodeName,
    NodeRecord,
    Notice,
    Operation,
    Outcome,
    Reservation,
    SiteName,
)
from cmscale.ports import Clock, Provider, Reading, Scheduler, Unavailable
from cmscale.shell.lease import RENEWALS, TRIES, Lease, Term, last_term
from cmscale.shell.observe import World


def lead_in_turn(
    lease: Lease, clock: Clock, lead: Callable[[Term | None], None], stand_by: Callable[[Term | Unavailable], None]
) -> None:
    """Lead whenever the lease is free, until the clock says that we are asked to end.

    `lead` is told of the term before, and returns when the lease is lost or we are asked to end. `stand_by` is told, at
    every try, who leads, or why that can't be known.
    """
    while not clock.wait(0):
        try:
            last = last_term(lease.database, lease.now)
            ours = (last is None or not last.holds or last.holder == lease.holder) and lease.take()
        except Unavailable as error:
            ours = False
            stand_by(error)
        else:
            if last and not ours:
                stand_by(last)
        if ours:
            with lease.kept():
                lead(last)
        elif clock.wait(lease.lasts_s / TRIES):
            return


def change(lease: Lease, last: Term | None, now: float) -> Event:
    """What admins are told when we begin to lead."""
    before = f", after {last.holder}" if last else ""
    return Event(now, EventKind.LEADER, lease.holder.host, f"{lease.holder} leads now{before}, in term {lease.term}")


def led(world: World, lease: Lease) -> World:
    """The world as the leader may touch it."""
    return replace(
        world,
        scheduler=LeadersScheduler(world.scheduler, lease),
        providers=MappingProxyType({name: LeadersProvider(each, lease) for name, each in world.providers.items()}),
        clock=LeadersClock(world.clock, lease),
    )


@dataclass(frozen=True, slots=True)
class LeadersClock:
    """A clock by which we are asked to end also when the lease is lost."""

    inner: Clock
    lease: Lease

    def now(self) -> float:
        return self.inner.now()

    def utc_offset_s(self) -> float:
        return self.inner.utc_offset_s()

    def wait(self, seconds: float) -> bool:
        until = self.lease.steady() + seconds
        look_s = self.lease.lasts_s / RENEWALS
        while self.lease.holds:
            left_s = max(until - self.lease.steady(), 0.0)
            if self.inner.wait(min(left_s, look_s)):
                return True
            if left_s <= look_s:
                return not self.lease.holds
        return True


@dataclass(frozen=True, slots=True)
class LeadersScheduler:
    """A Scheduler that changes nothing without the lease."""

    inner: Scheduler
    lease: Lease

    def nodes(self) -> Reading[NodeRecord]:
        return self.inner.nodes()

    def jobs(self) -> Reading[Job]:
        return self.inner.jobs()

    def reservations(self) -> Reading[Reservation]:
        return self.inner.reservations()

    def drain(self, nodes: Sequence[NodeName], reason: str, *, off: bool = False) -> Mapping[NodeName, Outcome]:
        self.lease.check()
        return self.inner.drain(nodes, reason, off=off)

    def resume(self, addresses: Mapping[NodeName, str]) -> Mapping[NodeName, Outcome]:
        self.lease.check()
        return self.inner.resume(addresses)

    def say(self, comments: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        self.lease.check()
        return self.inner.say(comments)

    def requeue(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        self.lease.check()
        return self.inner.requeue(jobs)

    def release(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        self.lease.check()
        return self.inner.release(jobs)

    def pin(self, constraints: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        self.lease.check()
        return self.inner.pin(constraints)


@dataclass(frozen=True, slots=True)
class LeadersProvider:
    """A Provider that changes nothing without the lease."""

    inner: Provider
    lease: Lease

    @property
    def site(self) -> SiteName:
        return self.inner.site

    def list(self) -> tuple[Machine, ...]:
        return self.inner.list()

    def notices(self) -> Mapping[MachineId, Notice]:
        return self.inner.notices()

    def evidence(self, machine: MachineId) -> str:
        return self.inner.evidence(machine)

    def problems(self) -> Sequence[str]:
        return self.inner.problems()

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        self.lease.check()
        return self.inner.start(operation)

    def stop(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        self.lease.check()
        return self.inner.stop(machines, hard=hard)

    def delete(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        self.lease.check()
        return self.inner.delete(machines, hard=hard)
