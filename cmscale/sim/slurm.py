"""How would Slurm behave, if it lived in memory and time were ours?

A `Slurm` is a Scheduler and obeys its contract: a controller with the pools' nodes declared, fed by `submit`, moved on
by `step`. What is ideal here: jobs start as soon as `step` is called, and a call takes no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cmscale.model import (
    ANYWHERE,
    HOME,
    INVALID_STATES,
    Ask,
    Constraint,
    Help,
    Job,
    JobId,
    MachineId,
    NodeName,
    NodeRecord,
    Outcome,
    Part,
    Pool,
    Reservation,
    Result,
    Shape,
)
from cmscale.ports import Backend, Reading, Unavailable
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud, Flaw
from cmscale.sim.placing import place

REQUEUED_FOR_S = 121.0
"""Slurm's own delay before a requeued job may start again."""

NOT_RESPONDING = "Not responding"
TOO_SMALL = "Low RealMemory"

_OK = Outcome(Result.OK)
_NO_NODE = Outcome(Result.BAD_REQUEST, "Invalid node name specified")
_NO_JOB = Outcome(Result.GONE, "Invalid job id specified")
_HELD = Outcome(Result.BAD_REQUEST, "held by its user")


def features_all(text: str) -> Constraint:
    """A --constraint of the plainest form, a&b: every node has them all."""
    return Constraint(text, ((Part(0, (frozenset(text.split("&")),)),),)) if text else ANYWHERE


@dataclass(slots=True)
class Running:
    job: Job
    shares: Mapping[NodeName, Shape]
    ends: float


@dataclass(slots=True)
class Slurm:
    """A controller and the slurmds of all machines that are alive."""

    clock: VirtualClock
    clouds: Sequence[Cloud]
    records: dict[NodeName, NodeRecord] = field(default_factory=dict)
    queue: dict[JobId, Job] = field(default_factory=dict)
    run_s: dict[JobId, float] = field(default_factory=dict)
    running: dict[JobId, Running] = field(default_factory=dict)
    done: dict[JobId, tuple[NodeName, ...]] = field(default_factory=dict)
    failed: dict[JobId, str] = field(default_factory=dict)
    """Jobs that ended without having run to their end, and why."""
    reserved: dict[str, Reservation] = field(default_factory=dict)
    held: set[JobId] = field(default_factory=set)
    passed_over: set[JobId] = field(default_factory=set)
    """Jobs that are never started, and no reason says why."""
    garbled: set[str] = field(default_factory=set)
    """Jobs and nodes whose records cannot be read."""
    unseen: str = ""
    registered: dict[NodeName, MachineId] = field(default_factory=dict)
    silent_since: dict[NodeName, float] = field(default_factory=dict)
    slurmd_timeout_s: float = 30.0
    read_constraint: Callable[[str], Constraint] = features_all

    @classmethod
    def declaring(cls, pools: Iterable[Pool], clock: VirtualClock, clouds: Sequence[Cloud]) -> Slurm:
        """With every node as a fresh slurmctld shows it: schedulable, although there is no machine."""
        states = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
        records = {
            name: NodeRecord(name, states, pool.shape, pool.shape, pool.features | {pool.site}, pool.partitions)
            for pool in pools
            if pool.partitions
            for name in pool.nodes
        }
        return cls(clock, clouds, records)

    # --- what people do

    def add_home(self, names: Iterable[NodeName], shape: Shape, partitions: tuple[str, ...]) -> None:
        """Nodes that the site runs by itself."""
        for name in names:
            idle = frozenset({"IDLE"})
            self.records[name] = NodeRecord(name, idle, shape, shape, frozenset({HOME}), partitions)

    def submit(
        self,
        number: int,
        ask: Ask,
        run_s: float = 60.0,
        count: int = 1,
        comment: str = "",
        *,
        user: str = "ada",
        account: str = "",
        priority: int | None = None,
        begin: float | None = None,
        held: bool = False,
        requeue: bool = True,
    ) -> JobId:
        """Queue a job (or an array of `count` tasks, as records of their own when they run)."""
        name = JobId(str(number))
        self.queue[name] = Job(
            name,
            ask,
            "PENDING",
            count=count,
            array=name if count > 1 else None,
            user=user,
            account=account,
            submit=self.clock.now(),
            begin=begin if begin is not None else self.clock.now(),
            priority=10**6 - number if priority is None else priority,
            comment=comment,
            requeue=requeue,
        )
        self.run_s[name] = run_s
        if held:
            self.held.add(name)
        self._give_reason(name)
        return name

    def cancel(self, job: JobId) -> None:
        """The user takes the job back, an array with all its tasks, whether it waits or runs."""
        for waiting in [each for each in self.queue.values() if job in {each.id, each.array}]:
            del self.queue[waiting.id]
            self.failed[waiting.id] = "cancelled"
        for running in [each for each in self.running.values() if job in {each.job.id, each.job.array}]:
            self._end(running)
            self.failed[running.job.id] = "cancelled"

    def unhold(self, job: JobId) -> None:
        """The user lets a job go that waited for that."""
        self.held.discard(job)
        self._give_reason(job)

    def let_go(self, job: JobId) -> None:
        """The user holds the job no longer."""
        self.held.discard(job)
        self._give_reason(job)

    def reserve(self, reservation: Reservation) -> None:
        """An admin makes a reservation."""
        self.reserved[reservation.name] = reservation

    # --- time

    def step(self) -> None:
        """Let machines register or fall silent, end what has run its time, start what fits."""
        self._register()
        self._fall_silent()
        self._mark_reserved()
        now = self.clock.now()
        for running in [each for each in self.running.values() if each.ends <= now]:
            if not any(name in self.silent_since for name in running.shares):
                self._end(running)
                self.done[running.job.id] = tuple(running.shares)
        for job in sorted(self.queue.values(), key=lambda job: -job.priority):
            if job.ask.deadline is not None and now + (job.ask.limit_s or 0) > job.ask.deadline:
                del self.queue[job.id]
                self.failed[job.id] = "DeadLine"
            while job.id in self.queue and self._try(self.queue[job.id]):
                pass
        for name in self.queue:
            self._give_reason(name)

    def _register(self) -> None:
        alive = {name: instance for cloud in self.clouds for name, instance in cloud.alive.items()}
        for name, instance in alive.items():
            self.silent_since.pop(name, None)
            if name not in self.records or self.registered.get(name) == instance.id:
                continue
            self.registered[name] = instance.id
            self._mark(name, add={"IDLE"}, remove={"POWERED_DOWN", "DOWN"} | INVALID_STATES)
            if "DRAIN" not in self.records[name].states:
                self.records[name] = replace(self.records[name], reason="")
            if Flaw.TOO_SMALL in instance.flaws:
                self._mark(name, add={"INVALID_REG", "DRAIN"})
                self.records[name] = replace(self.records[name], reason=self.records[name].reason or TOO_SMALL)
        for name in [name for name in self.registered if name not in alive]:
            del self.registered[name]
            self.silent_since[name] = self.clock.now()

    def _fall_silent(self) -> None:
        """A node that has not answered for so long is DOWN, and its jobs are requeued."""
        for name, since in list(self.silent_since.items()):
            if self.clock.now() - since < self.slurmd_timeout_s:
                continue
            del self.silent_since[name]
            for running in [each for each in self.running.values() if name in each.shares]:
                self._end(running)
                if running.job.requeue:
                    self._put_back(running.job)
                else:
                    self.failed[running.job.id] = "NodeFail"
            self._mark(name, add={"DOWN"}, remove={"IDLE"})
            self.records[name] = replace(self.records[name], reason=self.records[name].reason or NOT_RESPONDING)

    def _mark_reserved(self) -> None:
        now = self.clock.now()
        self.reserved = {name: each for name, each in self.reserved.items() if each.end > now}
        active = [each for each in self.reserved.values() if each.active(now)]
        reserved = {name for each in active for name in each.nodes}
        maintained = {name for each in active if each.maintenance for name in each.nodes}
        for name, record in self.records.items():
            flags = ({"RESERVED"} if name in reserved else set()) | ({"MAINTENANCE"} if name in maintained else set())
            if flags != record.states & {"RESERVED", "MAINTENANCE"}:
                self._mark(name, add=flags, remove={"RESERVED", "MAINTENANCE"})

    def _try(self, job: Job) -> bool:
        if job.id in self.held | self.passed_over or (job.begin or 0) > self.clock.now():
            return False
        nodes = place(job, self.records.values(), self.reserved.values(), self.clock.now())
        if nodes is None:
            return False
        self._start(job, nodes)
        return True

    def _start(self, job: Job, shares: Mapping[NodeName, Shape]) -> None:
        task = job.id if job.count == 1 else JobId(f"{job.id}_{job.count}")
        if job.count == 1:
            del self.queue[job.id]
        else:
            self.queue[job.id] = replace(job, count=job.count - 1)
            self.run_s[task] = self.run_s[job.id]
        now = self.clock.now()
        nodes = frozenset(shares)
        one = replace(
            job, id=task, state="RUNNING", count=1, nodes=nodes, started=now, reason="None", help=Help.NO, why=""
        )
        limit_s = self.run_s[job.id] if job.ask.limit_s is None else min(self.run_s[job.id], job.ask.limit_s)
        self.running[task] = Running(one, shares, now + limit_s)
        for name, share in shares.items():
            self.records[name] = replace(self.records[name], free=self.records[name].free.less(share))
            self._mark(name, add={"MIXED"}, remove={"IDLE"})

    def _end(self, running: Running) -> None:
        del self.running[running.job.id]
        for name in running.shares:
            others = [each for each in self.running.values() if name in each.shares]
            free = self.records[name].shape
            for each in others:
                free = free.less(each.shares[name])
            self.records[name] = replace(self.records[name], free=free)
            if not others:
                self._mark(name, add={"IDLE"}, remove={"MIXED"})

    def _put_back(self, job: Job) -> None:
        begin = self.clock.now() + REQUEUED_FOR_S
        self.queue[job.id] = replace(job, state="PENDING", nodes=frozenset(), started=None, begin=begin)
        self._give_reason(job.id)

    def _give_reason(self, name: JobId) -> None:
        job = self.queue[name]
        waits = _waits(job, self.reserved, self.clock.now(), held=name in self.held)
        self.queue[name] = replace(job, reason=waits.reason, help=waits.help, why=waits.why)

    def _mark(self, name: NodeName, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        record = self.records[name]
        self.records[name] = replace(record, states=(record.states - set(remove)) | set(add))

    # --- the port

    def nodes(self) -> Reading[NodeRecord]:
        self._answer()
        return Reading(
            tuple(record for record in self.records.values() if record.name not in self.garbled),
            tuple(f"node {name} could not be read: no number" for name in self.records if name in self.garbled),
        )

    def jobs(self) -> Reading[Job]:
        self._answer()
        jobs = [*self.queue.values(), *(running.job for running in self.running.values())]
        return Reading(
            tuple(job for job in jobs if job.id not in self.garbled),
            tuple(f"job {job.id} could not be read: no number" for job in jobs if job.id in self.garbled),
        )

    def backend(self) -> Backend:
        return Backend("simulated", "nothing of it is real")

    def reservations(self) -> Reading[Reservation]:
        self._answer()
        return Reading(tuple(each for each in self.reserved.values() if each.end > self.clock.now()))

    def drain(self, nodes: Sequence[NodeName], reason: str, *, off: bool = False) -> Mapping[NodeName, Outcome]:
        self._answer()
        for name in nodes:
            if name in self.records:
                self._mark(name, add={"DRAIN", "DOWN"} if off else {"DRAIN"}, remove={"IDLE"} if off else ())
                self.records[name] = replace(self.records[name], reason=reason)
        return {name: _OK if name in self.records else _NO_NODE for name in nodes}

    def resume(self, addresses: Mapping[NodeName, str]) -> Mapping[NodeName, Outcome]:
        self._answer()
        for name, address in addresses.items():
            if name in self.records:
                self._mark(name, remove={"DRAIN", "DOWN"})
                record = self.records[name]
                self.records[name] = replace(record, address=address or record.address, reason="")
        return {name: _OK if name in self.records else _NO_NODE for name in addresses}

    def say(self, comments: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        self._answer()
        for name, text in comments.items():
            if name in self.queue:
                self.queue[name] = replace(self.queue[name], comment=text)
            elif name in self.running:
                self.running[name].job = replace(self.running[name].job, comment=text)
        return {name: _OK if name in self.queue or name in self.running else _NO_JOB for name in comments}

    def requeue(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        self._answer()
        outcomes: dict[JobId, Outcome] = {}
        for name in jobs:
            running = self.running.get(name)
            if running is None:
                pending = Outcome(Result.BAD_REQUEST, "Job is pending execution")
                outcomes[name] = pending if name in self.queue else _NO_JOB
            elif not running.job.requeue:
                outcomes[name] = Outcome(Result.BAD_REQUEST, "Requested operation is presently disabled")
            else:
                self._end(running)
                self._put_back(running.job)
                outcomes[name] = _OK
        return outcomes

    def release(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        self._answer()
        outcomes: dict[JobId, Outcome] = {}
        for name in jobs:
            if name in self.held & self.queue.keys():
                outcomes[name] = _HELD
                continue
            outcomes[name] = _OK if name in self.queue or name in self.running else _NO_JOB
            if name in self.queue:
                self.queue[name] = replace(self.queue[name], begin=self.clock.now())
                self._give_reason(name)
        return outcomes

    def pin(self, constraints: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        self._answer()
        outcomes: dict[JobId, Outcome] = {}
        for name, text in constraints.items():
            if job := self.queue.get(name):
                self.queue[name] = replace(job, ask=replace(job.ask, constraint=self.read_constraint(text)))
                outcomes[name] = _OK
            else:
                running = Outcome(Result.BAD_REQUEST, "Job is no longer pending execution")
                outcomes[name] = running if name in self.running else _NO_JOB
        return outcomes

    def _answer(self) -> None:
        if self.unseen:
            raise Unavailable(self.unseen)


@dataclass(frozen=True, slots=True)
class _Waits:
    reason: str
    help: Help
    why: str


def _waits(job: Job, reservations: Mapping[str, Reservation], now: float, *, held: bool) -> _Waits:
    if held:
        return _Waits("JobHeldUser", Help.NO, "held by its user")
    if job.begin is not None and job.begin > now:
        return _Waits("BeginTime", Help.NO, "its begin time has not come")
    if job.ask.reservation:
        reservation = reservations.get(job.ask.reservation)
        if reservation is None:
            return _Waits("ReservationDeleted", Help.NO, "its reservation is gone")
        if not reservation.active(now):
            return _Waits("Reservation", Help.NO, "waits for its reservation")
    return _Waits("Resources", Help.NODES, "it waits for nodes")
