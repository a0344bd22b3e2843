"""What the shell needs from the world, and how the world says that it cannot be reached.

Lists go in, one outcome per item comes out; nothing raises for one item. What raises is the whole world:

    Unavailable         the other side does not answer, or refuses us; nothing is known and nothing was done
    ├── Misconfigured   it will not answer until a person changes something; the message says what
    └── Deposed         it does not hear us, for another daemon leads by now

Their messages are one sentence for an admin, naming the command, file or address.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from cmscale.model import (
    Closure,
    Cost,
    Creations,
    Event,
    Fact,
    FactKind,
    Job,
    JobId,
    Launch,
    Leftover,
    Life,
    Machine,
    MachineId,
    NodeName,
    NodeRecord,
    Notice,
    Operation,
    OpId,
    Outcome,
    Override,
    Plan,
    PoolName,
    Reservation,
    SiteName,
    Snapshot,
    Use,
)

T = TypeVar("T")


class Unavailable(Exception):
    """The other side does not answer, or refuses us."""


class Misconfigured(Unavailable):
    """It will not answer until a person changes something."""


class Deposed(Unavailable):
    """Another daemon leads, or may: nothing of ours is written, and nothing done."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What was read, and one sentence for each record that could not be."""

    items: tuple[T, ...]
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a failed machine wrote to its console before it was given up."""

    node: NodeName
    machine: MachineId
    at: float
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class Backend:
    """By which way Slurm is read, and why by this one."""

    name: str
    why: str


class Scheduler(Protocol):
    """Slurm, as far as we need it. Every call ends within a set time.

    Reading raises Unavailable if slurmctld is silent; acting then answers `transient` for each item.
    """

    def nodes(self) -> Reading[NodeRecord]:
        """Every node Slurm knows."""

    def jobs(self) -> Reading[Job]:
        """Every job in the queue: pending, running, completing."""

    def backend(self) -> Backend:
        """How the two above are read now. Raises nothing."""

    def drain(self, nodes: Sequence[NodeName], reason: str, *, off: bool = False) -> Mapping[NodeName, Outcome]:
        """Keep jobs off the nodes. With `off` also mark them DOWN: only the registration of a new machine counts."""

    def resume(self, addresses: Mapping[NodeName, str]) -> Mapping[NodeName, Outcome]:
        """Hand nodes to Slurm, each at its address (empty: as configured)."""

    def say(self, comments: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        """Set the comments of jobs, whole."""

    def reservations(self) -> Reading[Reservation]:
        """Every reservation that has not ended."""

    def requeue(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        """End running jobs and put them back into the queue; `bad-request` for one that may not run again."""

    def release(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        """Let requeued jobs start at once: neither held nor put off."""

    def pin(self, constraints: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        """Set the --constraint of pending jobs, whole; empty: none."""


class Provider(Protocol):
    """The machines of one site. Calls are idempotent by operation id."""

    @property
    def site(self) -> SiteName: ...

    def list(self) -> tuple[Machine, ...]:
        """All machines of our cluster that exist, half-made ones too; never anyone else's. Raises Unavailable."""

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        """Create or power on. The same operation again gives the same machines, also after a crash of ours."""

    def stop(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        """Power off, keeping the machine; its system is asked to shut down first, unless `hard`."""

    def delete(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        """Remove for good; a machine that is gone already is ok. `hard` as above, where the cloud knows it."""

    def leftovers(self) -> tuple[Leftover, ...]:
        """Parts of ours that belong to no machine any more; `delete` takes their ids, too. Raises Unavailable."""

    def notices(self) -> Mapping[MachineId, Sequence[Notice]]:
        """What the cloud announces of machines of ours, for each the earliest first. Raises Unavailable."""

    def expires(self) -> float | None:
        """When the credentials that are used end for good; None if they do not, or nobody knows. Asks nobody."""

    def evidence(self, machine: MachineId) -> str:
        """What the machine wrote to its console, as far as the cloud kept it; empty if nothing. Raises Unavailable."""

    def problems(self) -> Sequence[str]:
        """What an admin must change before this site can work, a sentence each; touches nothing."""


class Market(Protocol):
    """What the machines of one site cost, and how many of them its account may have. All raises Unavailable.

    Slow, and asked beside the ticks only.
    """

    def prices(self, pools: Collection[PoolName]) -> Mapping[PoolName, float]:
        """What a machine of each of these pools costs an hour; without those whose price nobody knows."""

    def cpus(self, pools: Collection[PoolName]) -> Mapping[PoolName, int]:
        """What a machine of each of these pools counts against the quota of its family, as far as that is known."""

    def quotas(self) -> Mapping[str, int]:
        """How much of each family the account may have at the site, as far as that is known."""


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

    def shift(self, by_s: float, now: float) -> None:
        """The clock jumped to now: what has lasted so long, or shall last so long, goes on as if it had not."""

    def creations(self, submitted: Mapping[JobId, float]) -> Mapping[JobId, Creations]:
        """What was started for these jobs since they were submitted."""

    def launches(self, since: float) -> tuple[Launch, ...]:
        """The launch calls since then, oldest first."""

    def jobs_of(self, ops: Collection[OpId]) -> Mapping[tuple[OpId, NodeName], JobId]:
        """For which job each node of these starts was started."""

    def used_s(self, since: float, now: float) -> Mapping[NodeName, float]:
        """For how long each node had a machine since then."""

    # --- what machines cost

    def lives(self) -> tuple[Life, ...]:
        """The stretches of machines that were paid for when the bill was written last."""

    def put_spending(self, lives: Collection[Life], bill: Mapping[Use, int]) -> None:
        """Keep the lives that go on, these and no others, and add to the bill, both or neither."""

    def bill(self, begin: float, end: float) -> Mapping[Use, int]:
        """The lines of the bill whose hours, or days, began then, with their milliseconds."""

    def costs(self, begin: float, end: float) -> tuple[Cost, ...]:
        """What each payer has spent in each pool in hours that began then; jobs are not told apart."""

    def given_back(self, machines: Collection[MachineId]) -> Mapping[MachineId, tuple[float, ...]]:
        """When calls that powered off or deleted each of these machines had ended, oldest first."""

    def roll_up(self, now: float, day_of: Callable[[float], float]) -> None:
        """Make days of hours that are long past, and of days that are longer past forget their jobs."""

    # --- dated facts

    def put_fact(self, fact: Fact) -> None:
        """Remember; a fact of the same kind and subject is replaced."""

    def drop_fact(self, kind: FactKind, subject: str) -> None: ...

    def facts(self, now: float) -> tuple[Fact, ...]:
        """Those that have not ended."""

    def override(self, override: Override) -> None:
        """Change facts as a person says, and remember that; all of it or nothing."""

    # --- what was seen and decided

    def put_busy(self, busy: Mapping[PoolName, int], now: float) -> None:
        """Remember how many nodes of each pool were busy in this hour; the most counts."""

    def usual(self, at: float) -> Mapping[PoolName, float]:
        """How many nodes were busy at that hour of the week: the mean over the last four weeks that are known."""

    def tell(self, events: Sequence[Event]) -> None:
        """Remember what happened."""

    def events(self, since: float) -> tuple[Event, ...]:
        """What happened since then, oldest first."""

    def keep_evidence(self, node: NodeName, machine: MachineId, at: float, why: str, text: str) -> None:
        """Keep what a failed machine wrote to its console."""

    def evidence(self, node: NodeName) -> tuple[Evidence, ...]:
        """What is kept of a node's failed machines, the last one first."""

    def record(self, view: Snapshot, plan: Plan) -> None:
        """Keep the snapshot and its plan if they say anything that the last ones did not."""

    def snapshots(self, since: float, until: float) -> Iterator[Snapshot]:
        """The snapshots that were kept, oldest first."""


class Clock(Protocol):
    def now(self) -> float: ...

    def steady(self) -> float:
        """Seconds that pass as they do, whatever is done to the clock; only their differences mean anything."""

    def utc_offset_s(self) -> float:
        """What the site's clock is ahead of UTC now."""

    def wait(self, seconds: float) -> bool:
        """Wait; True if the wait was cut short because we are asked to end."""
