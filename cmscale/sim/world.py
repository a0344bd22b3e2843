"""How would Slurm and a cloud behave, if they lived in memory and time were ours?

A `Cloud` is a Provider and a `Slurm` is a Scheduler; both obey the contracts of the ports and share a virtual clock.
What is ideal here: Slurm starts jobs by priority alone, first fit, as soon as `step` is called; a machine boots in
exactly its time; a call takes no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cmscale import fit
from cmscale.model import (
    Ask,
    Help,
    Job,
    JobId,
    Machine,
    MachineId,
    MachineState,
    NodeName,
    NodeRecord,
    Operation,
    Outcome,
    Pool,
    Result,
    Shape,
    SiteName,
)
from cmscale.ports import Reading, Unavailable


@dataclass(slots=True)
class VirtualClock:
    """Time that passes only when somebody waits."""

    at: float = 1_000_000.0
    ended: bool = False
    """Are we asked to end?"""

    def now(self) -> float:
        return self.at

    def wait(self, seconds: float) -> bool:
        self.at += seconds
        return self.ended


@dataclass(slots=True)
class Cloud:
    """The machines of one site."""

    site: SiteName
    clock: VirtualClock
    boot_s: float = 60.0
    ending_s: float = 10.0
    capacity: int = 10**9
    unseen: str = ""
    never_boot: str = ""
    """Machines of nodes whose name begins so never come up."""
    refusal: Outcome | None = None
    """What every start answers, if set."""
    made: dict[str, dict[NodeName, MachineId]] = field(default_factory=dict)
    """What each operation has made, for ever: the same operation gives the same machines."""
    machines: dict[MachineId, Machine] = field(default_factory=dict)
    ended: dict[MachineId, float] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def list(self) -> tuple[Machine, ...]:
        if self.unseen:
            raise Unavailable(self.unseen)
        for name, at in list(self.ended.items()):
            if self.clock.now() - at >= self.ending_s:
                self.machines.pop(name, None)
        return tuple(self._aged(machine) for machine in self.machines.values())

    def _aged(self, machine: Machine) -> Machine:
        if machine.id in self.ended:
            return replace(machine, state=MachineState.ENDING)
        booted = self.clock.now() - machine.launched >= self.boot_s
        return replace(machine, state=MachineState.RUNNING if booted else MachineState.STARTING)

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        if self.unseen:
            raise Unavailable(self.unseen)
        self.calls.append(f"start {operation.id} {','.join(operation.nodes)}")
        if operation.id not in self.made:
            if self.refusal:
                return dict.fromkeys(operation.nodes, self.refusal)
            room = max(self.capacity - len(self.machines), 0)
            if operation.all_or_none and room < len(operation.nodes):
                room = 0
            made = {node: MachineId(f"i-{operation.id}-{node}") for node in operation.nodes[:room]}
            for at, (node, name) in enumerate(made.items()):
                address = f"10.0.{len(self.machines) // 250}.{at + 1}"
                state = MachineState.STARTING
                self.machines[name] = Machine(name, node, state, address, self.clock.now(), operation.id)
            self.made[operation.id] = made
        made = self.made[operation.id]
        none_left = Outcome(Result.CAPACITY, "InsufficientInstanceCapacity")
        return {node: Outcome(Result.OK, "", made[node]) if node in made else none_left for node in operation.nodes}

    def stop(self, machines: Sequence[MachineId]) -> Mapping[MachineId, Outcome]:
        return self.delete(machines)

    def delete(self, machines: Sequence[MachineId]) -> Mapping[MachineId, Outcome]:
        if self.unseen:
            raise Unavailable(self.unseen)
        self.calls.append(f"delete {','.join(machines)}")
        for name in machines:
            if name in self.machines:
                self.ended.setdefault(name, self.clock.now())
        return dict.fromkeys(machines, Outcome(Result.OK))

    def problems(self) -> Sequence[str]:
        return [self.unseen] if self.unseen else []

    @property
    def alive(self) -> dict[NodeName, Machine]:
        """Machines that have booted and not been ended, by node."""
        return {
            machine.node: machine
            for machine in map(self._aged, self.machines.values())
            if machine.state is MachineState.RUNNING
            and not (self.never_boot and machine.node.startswith(self.never_boot))
        }


@dataclass(slots=True)
class Running:
    job: Job
    nodes: tuple[NodeName, ...]
    share: Shape
    ends: float


@dataclass(slots=True)
class Slurm:
    """A controller with the pools' nodes declared, fed by `submit`, moved on by `step`."""

    clock: VirtualClock
    clouds: Sequence[Cloud]
    records: dict[NodeName, NodeRecord] = field(default_factory=dict)
    queue: dict[JobId, Job] = field(default_factory=dict)
    run_s: dict[JobId, float] = field(default_factory=dict)
    running: dict[JobId, Running] = field(default_factory=dict)
    done: dict[JobId, tuple[NodeName, ...]] = field(default_factory=dict)
    unseen: str = ""
    registered: dict[NodeName, MachineId] = field(default_factory=dict)

    @classmethod
    def declaring(cls, pools: Iterable[Pool], clock: VirtualClock, clouds: Sequence[Cloud]) -> Slurm:
        """With every node as a fresh slurmctld shows it: schedulable, although there is no machine."""
        states = frozenset({"IDLE", "CLOUD", "POWERED_DOWN"})
        records = {
            name: NodeRecord(name, states, pool.shape, pool.shape, pool.features | {pool.site}, pool.partitions)
            for pool in pools
            for name in pool.nodes
        }
        return cls(clock, clouds, records)

    def submit(self, number: int, ask: Ask, run_s: float = 60.0, count: int = 1, comment: str = "") -> JobId:
        """Queue a job (or an array of `count` tasks, as records of their own when they run)."""
        job = Job(
            JobId(str(number)),
            ask,
            "PENDING",
            count=count,
            submit=self.clock.now(),
            priority=10**6 - number,
            reason="Resources",
            help=Help.NODES,
            why="it waits for nodes",
            comment=comment,
        )
        self.queue[job.id] = job
        self.run_s[job.id] = run_s
        return job.id

    def step(self) -> None:
        """Let machines register or vanish, end what has run its time, start what fits."""
        alive = {name: machine for cloud in self.clouds for name, machine in cloud.alive.items()}
        for name, machine in alive.items():
            if self.registered.get(name) != machine.id:
                self.registered[name] = machine.id
                self._mark(name, add={"IDLE"}, remove={"POWERED_DOWN", "DOWN"})
        for name in [name for name in self.registered if name not in alive]:
            del self.registered[name]
        for running in [each for each in self.running.values() if each.ends <= self.clock.now()]:
            self._end(running)
        for job in sorted(self.queue.values(), key=lambda job: -job.priority):
            while job.id in self.queue and self._try(self.queue[job.id]):
                pass

    def _try(self, job: Job) -> bool:
        open_ = [record for record in self.records.values() if not record.states & _CLOSED]
        for record in open_:
            number = fit.nodes_needed(job.ask, record.shape)
            if number is None:
                continue
            share = fit.share(job.ask, number, record.shape)
            fitting = [each for each in open_ if share and each.free.fits(share)]
            if share and len(fitting) >= number:
                self._start(job, tuple(each.name for each in fitting[:number]), share)
                return True
        return False

    def _start(self, job: Job, nodes: tuple[NodeName, ...], share: Shape) -> None:
        task = job.id if job.count == 1 else JobId(f"{job.id}_{job.count}")
        if job.count == 1:
            del self.queue[job.id]
        else:
            self.queue[job.id] = replace(job, count=job.count - 1)
        ends = self.clock.now() + self.run_s[job.id]
        one = replace(job, id=task, state="RUNNING", count=1, nodes=frozenset(nodes))
        self.running[task] = Running(one, nodes, share, ends)
        for name in nodes:
            self.records[name] = replace(self.records[name], free=self.records[name].free.less(share))
            self._mark(name, add={"MIXED"}, remove={"IDLE"})

    def _end(self, running: Running) -> None:
        del self.running[running.job.id]
        self.done[running.job.id] = running.nodes
        for name in running.nodes:
            others = [each for each in self.running.values() if name in each.nodes]
            free = self.records[name].shape
            for each in others:
                free = free.less(each.share)
            self.records[name] = replace(self.records[name], free=free)
            if not others:
                self._mark(name, add={"IDLE"}, remove={"MIXED"})

    def _mark(self, name: NodeName, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        record = self.records[name]
        self.records[name] = replace(record, states=(record.states - set(remove)) | set(add))

    # --- the port

    def nodes(self) -> Reading[NodeRecord]:
        self._answer()
        return Reading(tuple(self.records.values()))

    def jobs(self) -> Reading[Job]:
        self._answer()
        return Reading((*self.queue.values(), *(running.job for running in self.running.values())))

    def drain(self, nodes: Sequence[NodeName], reason: str, *, off: bool = False) -> Mapping[NodeName, Outcome]:
        self._answer()
        known = [name for name in nodes if name in self.records]
        for name in known:
            self._mark(name, add={"DRAIN", "DOWN"} if off else {"DRAIN"}, remove={"IDLE"} if off else ())
            self.records[name] = replace(self.records[name], reason=reason)
        unknown = Outcome(Result.BAD_REQUEST, "Invalid node name specified")
        return {name: Outcome(Result.OK) if name in known else unknown for name in nodes}

    def resume(self, addresses: Mapping[NodeName, str]) -> Mapping[NodeName, Outcome]:
        self._answer()
        for name, address in addresses.items():
            self._mark(name, remove={"DRAIN", "DOWN"})
            self.records[name] = replace(self.records[name], address=address, reason="")
        return dict.fromkeys(addresses, Outcome(Result.OK))

    def say(self, comments: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        self._answer()
        outcomes: dict[JobId, Outcome] = {}
        for name, text in comments.items():
            if name in self.queue:
                self.queue[name] = replace(self.queue[name], comment=text)
            elif name in self.running:
                self.running[name].job = replace(self.running[name].job, comment=text)
            gone = name not in self.queue and name not in self.running
            outcomes[name] = Outcome(Result.GONE, "Invalid job id specified") if gone else Outcome(Result.OK)
        return outcomes

    def _answer(self) -> None:
        if self.unseen:
            raise Unavailable(self.unseen)


_CLOSED = frozenset({"DRAIN", "DOWN", "POWERED_DOWN"})
