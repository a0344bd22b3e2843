"""How would a cloud behave, if it lived in memory and its faults were ours to choose?

A `Cloud` is a Provider and obeys its contract. A call takes no time, a machine boots in exactly its time; whatever goes
wrong is asked for: `refuse` makes launches fail with a typed result, `spoil` makes machines that never come well, and
`reclaim`, `lose` and `hide` happen to machines that are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from math import inf

from cmscale.model import (
    Leftover,
    LeftoverKind,
    Machine,
    MachineId,
    MachineState,
    NodeName,
    Notice,
    Operation,
    OpId,
    Outcome,
    PoolName,
    Result,
    SiteName,
)
from cmscale.ports import Unavailable
from cmscale.sim.clock import VirtualClock

SAYS: Mapping[Result, str] = {
    Result.CAPACITY: "InsufficientInstanceCapacity",
    Result.QUOTA: "VcpuLimitExceeded",
    Result.THROTTLED: "RequestLimitExceeded",
    Result.AUTH: "AuthFailure",
    Result.IMAGE: "InvalidAMIID.NotFound",
    Result.BAD_REQUEST: "InvalidParameterValue",
    Result.TRANSIENT: "connection reset",
}
"""EC2's own words for what it refuses."""


class Flaw(Enum):
    """What can be wrong with a machine from its making."""

    NEVER_BOOTS = "never boots"
    TOO_SMALL = "registers with less than promised"
    DIES = "dies after a while"
    HANGS = "does not shut down"


@dataclass(slots=True)
class Refusal:
    """What launches are answered: those of a pool (None: all), so many times, until a time."""

    outcome: Outcome
    pool: PoolName | None = None
    calls: float = inf
    until: float = inf
    done: bool = False
    """Machines are made all the same: only the answer is lost."""

    def meets(self, pool: PoolName, now: float) -> bool:
        return self.pool in {None, pool} and self.calls > 0 and now < self.until


@dataclass(frozen=True, slots=True)
class Spoilt:
    """Which machines are made with a flaw."""

    flaw: Flaw
    pool: PoolName | None = None
    node: NodeName | None = None
    until: float = inf
    after_s: float = 0.0
    """How long one lives that dies."""

    def meets(self, instance: Instance, now: float) -> bool:
        return self.pool in {None, instance.pool} and self.node in {None, instance.node} and now < self.until


@dataclass(slots=True)
class Instance:
    """A machine as the cloud itself knows it."""

    id: MachineId
    node: NodeName
    pool: PoolName
    op: OpId
    """Empty if no tag tells it."""
    address: str
    launched: float
    going: MachineState | None = None
    """STOPPED or ENDING, if it is on its way there."""
    gone_at: float = inf
    """When it will have arrived there."""
    dies_at: float = inf
    hidden_until: float = 0.0
    """Until when no listing shows it."""
    flaws: frozenset[Flaw] = frozenset()
    notices: tuple[Notice, ...] = ()
    unnamed: bool = False
    """No tag tells its node any more, whatever its slurmd says of itself."""

    def state(self, now: float, boot_s: float) -> MachineState:
        if self.going is MachineState.ENDING:
            return MachineState.ENDING
        if self.going is MachineState.STOPPED:
            return MachineState.STOPPED if now >= self.gone_at else MachineState.STOPPING
        return MachineState.RUNNING if now - self.launched >= boot_s else MachineState.STARTING


@dataclass(slots=True)
class Stretch:
    """What a cloud bills: a machine that runs, or is kept powered off."""

    machine: MachineId
    pool: PoolName
    running: bool
    began: float
    ended: float | None = None
    """None: it goes on."""


@dataclass(slots=True)
class Cloud:
    """The machines of one site."""

    site: SiteName
    clock: VirtualClock
    boot_s: float = 60.0
    ending_s: float = 10.0
    capacity: int = 10**9
    """How many machines there is room for in all..."""
    room: dict[PoolName, int] = field(default_factory=dict)
    """...and of some pools."""
    lag_s: float = 0.0
    """For how long listings do not show a machine that was just made."""
    unseen: str = ""
    """Why every call fails; empty if none does."""
    credentials_end: float | None = None
    refusals: list[Refusal] = field(default_factory=list)
    spoilt: list[Spoilt] = field(default_factory=list)
    made: dict[OpId, dict[NodeName, MachineId]] = field(default_factory=dict)
    """What each operation has made, for ever: the same operation gives the same machines."""
    machines: dict[MachineId, Instance] = field(default_factory=dict)
    left: dict[MachineId, Leftover] = field(default_factory=dict)
    """Volumes and interfaces that belong to no machine."""
    calls: list[str] = field(default_factory=list)
    billed: list[Stretch] = field(default_factory=list)
    """Every stretch of every machine there ever was."""
    numbers: Iterator[int] = field(default_factory=count)
    """One for each machine ever made: no two live at one address."""

    # --- what happens to it

    def refuse(
        self,
        result: Result,
        pool: PoolName | None = None,
        *,
        calls: float = inf,
        for_s: float = inf,
        done: bool = False,
    ) -> None:
        """From now on launches fail so. With `done` machines are made all the same: only the answer is lost."""
        self.refusals.append(Refusal(Outcome(result, SAYS[result]), pool, calls, self.clock.now() + for_s, done))

    def relent(self) -> None:
        """Launches are refused no more, and machines come well."""
        self.refusals.clear()
        self.spoilt.clear()

    def spoil(
        self,
        flaw: Flaw,
        pool: PoolName | None = None,
        node: NodeName | None = None,
        *,
        for_s: float = inf,
        after_s: float = 0.0,
    ) -> None:
        """From now on machines (of a pool, of a node) are made with this flaw."""
        self.spoilt.append(Spoilt(flaw, pool, node, self.clock.now() + for_s, after_s))

    def reclaim(self, node: NodeName, in_s: float) -> None:
        """Announce that the node's machine is taken back, and take it then."""
        for instance in self._of(node):
            instance.dies_at = self.clock.now() + in_s
            self.announce(node, Notice(instance.dies_at, "spot interruption"))

    def announce(self, node: NodeName, *notices: Notice) -> None:
        """Announce something of the node's machine; nothing comes of it. Nothing at all: take back what was said."""
        for instance in self._of(node):
            instance.notices = (*instance.notices, *notices) if notices else ()

    def lose(self, node: NodeName) -> None:
        """The node's machine is there no more, and nobody has said a word."""
        for instance in self._of(node):
            instance.dies_at = self.clock.now()

    def hide(self, node: NodeName, for_s: float) -> None:
        """Listings do not show the node's machine for a while, although it is there."""
        for instance in self._of(node):
            instance.hidden_until = self.clock.now() + for_s

    def untag(self, node: NodeName, *, name: bool = False, operation: bool = False) -> None:
        """Somebody takes tags off the node's machine: its name, its operation."""
        for instance in self._of(node):
            instance.unnamed |= name
            instance.op = OpId("") if operation else instance.op

    def leave_behind(self, part: MachineId, kind: LeftoverKind, node: NodeName) -> None:
        """A part of a machine that is gone is still there."""
        self.left[part] = Leftover(part, kind, self.site, node, OpId("an-old-one"))

    def _of(self, node: NodeName) -> Iterable[Instance]:
        return [instance for instance in self.machines.values() if instance.node == node]

    @property
    def alive(self) -> dict[NodeName, Instance]:
        """Machines whose slurmd runs, by node."""
        self._age()
        return {
            instance.node: instance
            for instance in self.machines.values()
            if self._state(instance) is MachineState.RUNNING and Flaw.NEVER_BOOTS not in instance.flaws
        }

    def _state(self, instance: Instance) -> MachineState:
        return instance.state(self.clock.now(), self.boot_s)

    def _age(self) -> None:
        """Let go what is wholly gone by now."""
        now = self.clock.now()
        for instance in list(self.machines.values()):
            ended = instance.going is MachineState.ENDING and now >= instance.gone_at
            if ended or now >= instance.dies_at:
                self._bill(instance, None, min(now, instance.dies_at))
                del self.machines[instance.id]

    def _bill(self, instance: Instance, running: bool | None, at: float) -> None:
        """From then on the machine is billed so; None: not at all."""
        open_ = next((each for each in self.billed if each.machine == instance.id and each.ended is None), None)
        if open_ and open_.running is running:
            return
        if open_:
            open_.ended = at
        if running is not None:
            self.billed.append(Stretch(instance.id, instance.pool, running, at))

    # --- the port

    def list(self) -> tuple[Machine, ...]:
        self._answer()
        self._age()
        return tuple(self._listed(each) for each in self.machines.values() if self.clock.now() >= each.hidden_until)

    def _listed(self, instance: Instance) -> Machine:
        state = self._state(instance)
        op = instance.op or None
        node = NodeName("") if instance.unnamed else instance.node
        return Machine(instance.id, node, state, instance.address, instance.launched, op, self.site)

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        self._answer()
        self._age()
        self.calls.append(f"start {operation.id} {','.join(operation.nodes)}")
        if operation.id not in self.made:
            refusal = next((each for each in self.refusals if each.meets(operation.pool, self.clock.now())), None)
            if refusal:
                refusal.calls -= 1
                if refusal.done:
                    self._make(operation)
                return dict.fromkeys(operation.nodes, refusal.outcome)
            self._make(operation)
        made = self.made[operation.id]
        kept = dict(zip(operation.nodes, operation.machines, strict=False))
        return {
            node: Outcome(Result.OK, "", made[node])
            if node in made
            else Outcome(Result.GONE, "InvalidInstanceID.NotFound")
            if kept.get(node)
            else Outcome(Result.CAPACITY, SAYS[Result.CAPACITY])
            for node in operation.nodes
        }

    def _make(self, operation: Operation) -> None:
        """Power on the machines that are named, and create the others as far as there is room."""
        kept = {node: machine for node, machine in zip(operation.nodes, operation.machines, strict=False) if machine}
        made = {node: machine for node, machine in kept.items() if not self._ends(machine)}
        for machine in made.values():
            self._power_on(self.machines[machine])
        new = [node for node in operation.nodes if node not in kept]
        room = self._room(operation.pool)
        if operation.all_or_none and room < len(new):
            room = 0
        for node in new[:room]:
            made[node] = self._create(operation, node)
        self.made[operation.id] = made

    def _room(self, pool: PoolName) -> int:
        of_pool = sum(1 for instance in self.machines.values() if instance.pool == pool)
        return max(min(self.capacity - len(self.machines), self.room.get(pool, 10**9) - of_pool), 0)

    def _create(self, operation: Operation, node: NodeName) -> MachineId:
        number = next(self.numbers)
        name = MachineId(f"i-{operation.id}-{node}")
        now = self.clock.now()
        address = f"10.{number // 62500 % 250}.{number // 250 % 250}.{number % 250 + 1}"
        instance = Instance(name, node, operation.pool, operation.id, address, now, hidden_until=now + self.lag_s)
        flawed = [each for each in self.spoilt if each.meets(instance, now)]
        instance.flaws = frozenset(each.flaw for each in flawed)
        instance.dies_at = min((now + each.after_s for each in flawed if each.flaw is Flaw.DIES), default=inf)
        self.machines[name] = instance
        self._bill(instance, running=True, at=now)
        return name

    def _power_on(self, instance: Instance) -> None:
        if instance.going is None:
            return
        instance.going = None
        instance.gone_at = inf
        instance.launched = self.clock.now()
        self._bill(instance, running=True, at=instance.launched)

    def _ends(self, machine: MachineId) -> bool:
        return machine not in self.machines or self.machines[machine].going is MachineState.ENDING

    def stop(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        gone = {name: Outcome(Result.GONE, "InvalidInstanceID.NotFound") for name in machines if self._ends(name)}
        there = [name for name in machines if name not in gone]
        return gone | self._leave("stop", there, MachineState.STOPPED, hard=hard)

    def delete(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        outcomes = self._leave("delete", machines, MachineState.ENDING, hard=hard)
        for name in machines:
            self.left.pop(name, None)
        return outcomes

    def expires(self) -> float | None:
        return self.credentials_end

    def leftovers(self) -> tuple[Leftover, ...]:
        self._answer()
        return tuple(self.left.values())

    def _leave(
        self, verb: str, machines: Sequence[MachineId], where: MachineState, *, hard: bool
    ) -> dict[MachineId, Outcome]:
        self._answer()
        self.calls.append(f"{verb}{' hard' if hard else ''} {','.join(machines)}")
        now = self.clock.now()
        for instance in (self.machines[name] for name in machines if name in self.machines):
            hangs = Flaw.HANGS in instance.flaws and not hard
            if instance.going is not where or instance.gone_at == inf:
                self._bill(instance, False if where is MachineState.STOPPED else None, now)
                instance.going = where
                instance.gone_at = inf if hangs else now + self.ending_s
        return dict.fromkeys(machines, Outcome(Result.OK))

    def notices(self) -> Mapping[MachineId, Sequence[Notice]]:
        self._answer()
        self._age()
        return {each.id: each.notices for each in self.machines.values() if each.notices}

    def evidence(self, machine: MachineId) -> str:
        self._answer()
        instance = self.machines.get(machine)
        if instance is None:
            return ""
        flaws = sorted(flaw.value for flaw in instance.flaws)
        return "\n".join([f"{instance.node} login:", *(f"this machine {flaw}" for flaw in flaws)])

    def problems(self) -> Sequence[str]:
        return [self.unseen] if self.unseen else []

    def _answer(self) -> None:
        if self.unseen:
            raise Unavailable(self.unseen)
