"""What the shell needs from the world, and how the world says that it cannot be reached.

Lists go in, one outcome per item comes out; nothing raises for one item. What raises is the whole world:

    Unavailable         the other side does not answer, or refuses us; nothing is known and nothing was done
    └── Misconfigured   it will not answer until a person changes something; the message says what

Messages of both are one sentence for an admin, naming the command, file or address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cmscale.model import (
    Closure,
    Creations,
    Job,
    JobId,
    Machine,
    MachineId,
    NodeName,
    NodeRecord,
    Operation,
    OpId,
    Outcome,
    Plan,
    PoolName,
    SiteName,
    Snapshot,
)

T = TypeVar("T")


class Unavailable(Exception):
    """The other side does not answer, or refuses us."""


class Misconfigured(Unavailable):
    """It will not answer until a person changes something."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What was read, and one sentence for each record that could not be."""

    items: tuple[T, ...]
    unreadable: tuple[str, ...] = ()


class Scheduler(Protocol):
    """Slurm, as far as we need it. Every call ends within a set time.

    Reading raises Unavailable if slurmctld is silent; acting then answers `transient` for each item.
    """

    def nodes(self) -> Reading[NodeRecord]:
        """Every node Slurm knows."""

    def jobs(self) -> Reading[Job]:
        """Every job in the queue: pending, running, completing."""

    def drain(self, nodes: Sequence[NodeName], reason: str, *, off: bool = False) -> Mapping[NodeName, Outcome]:
        """Keep jobs off the nodes. With `off` also mark them DOWN: only the registration of a new machine counts."""

    def resume(self, addresses: Mapping[NodeName, str]) -> Mapping[NodeName, Outcome]:
        """Hand nodes to Slurm, each at its address (empty: as configured)."""

    def say(self, comments: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        """Set the comments of jobs, whole."""


class Provider(Protocol):
    """The machines of one site. Calls are idempotent by operation id."""

    site: SiteName

    def list(self) -> tuple[Machine, ...]:
        """All machines of our cluster that exist, half-made ones too; never anyone else's. Raises Unavailable."""

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        """Create or power on. The same operation again gives the same machines, also after a crash of ours."""

    def stop(self, machines: Sequence[MachineId]) -> Mapping[MachineId, Outcome]:
        """Power off, keeping the machine."""

    def delete(self, machines: Sequence[MachineId]) -> Mapping[MachineId, Outcome]:
        """Remove for good; a machine that is gone already is ok."""

    def problems(self) -> Sequence[str]:
        """What an admin must change before this site can work, a sentence each; touches nothing."""


class Journal(Protocol):
    """What can't be observed: operations under way, dated facts, past decisions."""

    def begin(self, operations: Sequence[Operation]) -> None:
        """Record, durably, what is about to be done."""

    def finish(self, op: OpId, outcomes: Mapping[NodeName, Outcome], now: float) -> None: ...

    def under_way(self) -> tuple[Operation, ...]:
        """Operations begun and not finished, oldest first."""

    def fresh(self, since: float) -> tuple[Machine, ...]:
        """Machines that a call made since then and no later call deleted, though a listing may not show them yet."""

    def put_idle(self, since: Mapping[NodeName, float | None]) -> None:
        """Remember since when nodes are idle; None forgets."""

    def idle(self) -> Mapping[NodeName, float]: ...

    def close(self, pool: PoolName, closure: Closure | None) -> None:
        """Remember what stands against a pool; None: nothing."""

    def closed(self) -> Mapping[PoolName, Closure]: ...

    def creations(self, submitted: Mapping[JobId, float]) -> Mapping[JobId, Creations]:
        """What was started for these jobs since they were submitted."""

    def starts(self, since: float) -> tuple[float, ...]:
        """When machines were started, one entry a machine, oldest first."""

    def record(self, view: Snapshot, plan: Plan) -> None: ...


class Clock(Protocol):
    def now(self) -> float: ...

    def wait(self, seconds: float) -> bool:
        """Wait; True if the wait was cut short because we are asked to end."""
