"""The nouns of cm-scale: which values describe demand, machines, wishes and decisions?

Everything here is a frozen value. Slurm's words stay Slurm's (state flags, reasons, partitions); ours are few and
lower case. Times are seconds since the epoch, durations are seconds, memory is MiB, prices are US dollars an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NewType

NodeName = NewType("NodeName", str)
JobId = NewType("JobId", str)
PoolName = NewType("PoolName", str)
SiteName = NewType("SiteName", str)
HOME = SiteName("home")
"""Where the nodes are that Slurm has without us."""

MachineId = NewType("MachineId", str)
OpId = NewType("OpId", str)
GangId = NewType("GangId", str)

OUR_MARK = "cm-scale:"
"""How every text of ours in Slurm begins: drain reasons and job comments."""

OFF_REASON = f"{OUR_MARK} off"
"""The drain reason of a node that has no machine."""


# --- what a machine is, and what a job asks --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """The room of one node, or a share of it."""

    cpus: int
    mem_mb: int
    gpus: int = 0
    gpu_type: str = ""

    def fits(self, need: Shape) -> bool:
        """True if a node with this room holds `need`; an empty GPU type in `need` takes any."""
        return (
            need.cpus <= self.cpus
            and need.mem_mb <= self.mem_mb
            and need.gpus <= self.gpus
            and (need.gpus == 0 or not need.gpu_type or need.gpu_type == self.gpu_type)
        )

    def less(self, need: Shape, times: int = 1) -> Shape:
        """The room left when `need` is taken `times` times; never below nothing."""
        return Shape(
            max(self.cpus - need.cpus * times, 0),
            max(self.mem_mb - need.mem_mb * times, 0),
            max(self.gpus - need.gpus * times, 0),
            self.gpu_type,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """So many nodes of a job (0: all that are left), each with all features of one alternative."""

    count: int
    any_of: tuple[frozenset[str], ...]

    def met_by(self, features: frozenset[str]) -> bool:
        return any(alternative <= features for alternative in self.any_of)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A job's --constraint: one choice holds for all nodes ([a|b]); it has a part for each count ([a*2&b*1])."""

    text: str = ""
    choices: tuple[tuple[Part, ...], ...] = ((Part(0, (frozenset(),)),),)


ANYWHERE = Constraint()


@dataclass(frozen=True, slots=True)
class Ask:
    """What a job asks of Slurm. Two jobs with equal asks can be served by the same nodes."""

    partitions: tuple[str, ...]
    nodes: int = 1
    """The least number of nodes (-N); 1 where Slurm may choose."""
    tasks: int = 1
    cpus_per_task: int = 1
    tasks_per_node: int = 0
    """The most tasks on a node; 0: no bound."""
    cpus_per_node: int = 1
    mem_mb_per_node: int = 0
    mem_mb_per_cpu: int = 0
    mem_mb_per_gpu: int = 0
    whole_memory: bool = False
    """--mem=0: all the memory of each node."""
    gpus: int = 0
    """GPUs over all nodes (--gpus)."""
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    cpus_per_gpu: int = 0
    gpu_type: str = ""
    exclusive: bool = False
    constraint: Constraint = ANYWHERE
    nodelist: frozenset[NodeName] = frozenset()
    """Nodes the job must have (--nodelist)."""
    exclude: frozenset[NodeName] = frozenset()
    limit_s: int | None = None
    reservation: str = ""
    licences: str = ""


class Help(Enum):
    """Would more nodes help a pending job?"""

    NODES = "more nodes would help"
    NO = "more nodes would not help"
    ASK_AGAIN = "not known; asked again next tick"


@dataclass(frozen=True, slots=True)
class Job:
    """One record of Slurm's queue; a folded array is one record of `count` tasks that ask alike."""

    id: JobId
    """What squeue shows and scontrol takes: 17, 17_4, 17+1."""
    ask: Ask
    state: str
    """Slurm's word: PENDING, CONFIGURING, RUNNING, COMPLETING..."""
    count: int = 1
    """Pending tasks that could run at the same time (the array's % limit applied)."""
    array: JobId | None = None
    """The array's id for a record that belongs to one."""
    user: str = ""
    account: str = ""
    qos: str = ""
    submit: float = 0.0
    begin: float | None = None
    priority: int = 0
    reason: str = ""
    """Slurm's own text."""
    help: Help = Help.NO
    why: str = ""
    """One sentence: why more nodes would or would not help."""
    nodes: frozenset[NodeName] = frozenset()
    """Where it runs, or is bound to."""
    comment: str = ""

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"


# --- where nodes come from -------------------------------------------------------------------------------------------


class SiteKind(Enum):
    ONPREM = "onprem"
    AWS = "aws"


@dataclass(frozen=True, slots=True)
class Site:
    """One place with machines: home, or one region of a cloud. `unseen` says why it could not be read this tick."""

    name: SiteName
    kind: SiteKind
    region: str = ""
    unseen: str = ""

    @property
    def reachable(self) -> bool:
        return not self.unseen


@dataclass(frozen=True, slots=True)
class Pool:
    """One place to get nodes: like machines at one site, under names declared to Slurm ahead of time."""

    name: PoolName
    site: SiteName
    shape: Shape
    nodes: tuple[NodeName, ...]
    """Every name the pool may use, in the order in which they are started."""
    partitions: tuple[str, ...] = ()
    features: frozenset[str] = frozenset()
    market: str = "on-demand"
    price_hour: float = 0.0
    priority: int = 0
    """Pools of higher priority are used first; price decides among equals."""
    max: int = 0
    """The most machines at once; 0: as many as there are names."""
    keep: int = 0
    keep_running: frozenset[NodeName] = frozenset()
    """Nodes whose machines, once up, are not given back for being idle."""
    billing_quantum_s: float = 0.0
    """Machines are paid for in whole quanta, counted from their start; 0: by the second."""
    boot_s: float = 180.0
    """What a boot usually takes: the estimate users are shown."""
    boot_limit_s: float = 900.0
    """A machine that has not joined by then is given up."""

    @property
    def most(self) -> int:
        return min(self.max, len(self.nodes)) if self.max else len(self.nodes)


class MachineState(Enum):
    """A provider's view of a machine, in our words."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ENDING = "ending"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of ours that exists and is perhaps paid for. A machine that is wholly gone has no record."""

    id: MachineId
    node: NodeName
    state: MachineState
    address: str = ""
    launched: float = 0.0
    op: OpId | None = None


class Power(Enum):
    """What Slurm's and the provider's view of one node say together."""

    GONE = "gone"
    OFF = "off"
    STARTING = "starting"
    ON = "on"
    STOPPING = "stopping"


BUSY_STATES = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
UNREGISTERED_STATES = frozenset({"DOWN", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "FUTURE", "UNKNOWN"})
INVALID_STATES = frozenset({"INVALID_REG", "INVAL"})
BLOCKED_STATES = (
    UNREGISTERED_STATES
    | INVALID_STATES
    | {"DRAIN", "FAIL", "MAINT", "MAINTENANCE", "RESERVED", "REBOOT_ISSUED", "BLOCKED", "POWER_DOWN", "POWER_UP"}
)


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """Slurm's view of one node."""

    name: NodeName
    states: frozenset[str]
    """Upper-case flags as sinfo's StateComplete gives them."""
    shape: Shape
    free: Shape
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    reason: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """Slurm's view and the provider's of one node, joined by name."""

    name: NodeName
    shape: Shape
    free: Shape
    states: frozenset[str]
    power: Power
    site: SiteName
    pool: PoolName | None = None
    """None for a node that the site runs without us: its room counts, it is never touched."""
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    reason: str = ""
    address: str = ""
    machine: Machine | None = None
    idle_since: float | None = None
    sick: str = ""
    """Why the node will not come up by itself; empty if nothing is wrong."""
    op: OpId | None = None
    """The operation under way on it."""

    @property
    def busy(self) -> bool:
        return bool(self.states & BUSY_STATES)

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.states

    @property
    def drained_by_us(self) -> bool:
        """DRAIN *and* our mark: from 24.11 the reason text outlives a resume."""
        return self.drained and self.reason.startswith(OUR_MARK)

    @property
    def parked(self) -> bool:
        """Out of Slurm's sight while it has no machine. DOWN is needed, too: it outlives a restart of slurmctld, where
        POWERED_DOWN does not, and only the registration of a new machine clears it."""
        return self.drained_by_us and "DOWN" in self.states

    @property
    def held_by_human(self) -> bool:
        """A drain that is not ours; never undone, and its machine is left alone. Slurm's own, of a node that registered
        with less than was promised, is no person's."""
        return self.drained and not self.drained_by_us and not self.states & INVALID_STATES

    @property
    def registered(self) -> bool:
        return not self.states & UNREGISTERED_STATES

    @property
    def schedulable(self) -> bool:
        """Slurm may start jobs here now."""
        return not self.states & BLOCKED_STATES

    @property
    def up_since(self) -> float | None:
        return self.machine.launched if self.machine else None


# --- what a decision may know ----------------------------------------------------------------------------------------


class Result(Enum):
    """How a call ended, for one item. The words are never mixed up: a throttle is not a lack of capacity."""

    OK = "ok"
    CAPACITY = "capacity"
    QUOTA = "quota"
    THROTTLED = "throttled"
    AUTH = "auth"
    IMAGE = "image"
    BAD_REQUEST = "bad-request"
    GONE = "gone"
    TRANSIENT = "transient"
    BOOT = "boot"
    """The machine was made and never joined Slurm."""


@dataclass(frozen=True, slots=True)
class Outcome:
    result: Result
    detail: str = ""
    machine: MachineId | None = None

    @property
    def ok(self) -> bool:
        return self.result is Result.OK


@dataclass(frozen=True, slots=True)
class Closure:
    """What a pool's refusals have come to. Closed until a time; after it half-open: one try at a time, until one ends
    well and the closure is forgotten. A throttle closes nothing: it slows all launches of its site down."""

    until: float
    """0: refusals are only counted yet."""
    result: Result
    why: str
    strikes: int = 1
    """How many refusals of this kind came one after the other."""


@dataclass(frozen=True, slots=True)
class Creations:
    """What was started so far on behalf of one job: machines, and the most nodes it asked for at once."""

    machines: int
    need: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that a decision may know."""

    now: float
    tick: str
    jobs: tuple[Job, ...] = ()
    nodes: Mapping[NodeName, Node] = field(default_factory=lambda: MappingProxyType({}))
    pools: Mapping[PoolName, Pool] = field(default_factory=lambda: MappingProxyType({}))
    sites: Mapping[SiteName, Site] = field(default_factory=lambda: MappingProxyType({}))
    closed: Mapping[PoolName, Closure] = field(default_factory=lambda: MappingProxyType({}))
    creations: Mapping[JobId, Creations] = field(default_factory=lambda: MappingProxyType({}))
    starts: tuple[float, ...] = ()
    """When machines were started in the last hour, oldest first."""
    surplus: tuple[Machine, ...] = ()
    """Machines of ours beside the one that serves their node: second machines of a name."""
    unseen: str = ""
    """Why Slurm could not be read; empty if it was."""
    unreadable: tuple[str, ...] = ()
    """One sentence for each record that could not be read."""

    def shut(self, pool: Pool) -> Closure | None:
        """Why nothing is started from a pool now: its own closure, or credentials that its site refuses."""
        own = self.closed.get(pool.name)
        if own and own.result is not Result.THROTTLED and self.now < own.until:
            return own
        return self._at_site(pool.site, Result.AUTH)

    def slowed(self, site: SiteName) -> Closure | None:
        """The throttle that makes a site's launches wait."""
        return self._at_site(site, Result.THROTTLED)

    def half_open(self, pool: Pool) -> Closure | None:
        """The closure whose time is over, but which no good end has lifted yet."""
        own = self.closed.get(pool.name)
        return own if own and 0 < own.until <= self.now else None

    def _at_site(self, site: SiteName, result: Result) -> Closure | None:
        for name, closure in self.closed.items():
            of = self.pools.get(name)
            if closure.result is result and self.now < closure.until and of and of.site == site:
                return closure
        return None


# --- wishes and decisions --------------------------------------------------------------------------------------------


class Want(Enum):
    UP = "up"
    DRAINED = "drained"
    OFF = "off"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Goal:
    """A wish of a policy for one node. Goals with the same gang stand or fall together."""

    node: NodeName
    want: Want
    reason: str
    job: JobId | None = None
    gang: GangId | None = None
    need: int = 1
    """How many nodes the job needs in all, for the cap on creations."""
    policy: str = ""


class Verb(Enum):
    START = "start"
    STOP = "stop"
    DELETE = "delete"
    DRAIN = "drain"
    RESUME = "resume"
    ASSIGN = "assign"
    STAGE = "stage"
    PIN = "pin"
    RELEASE = "release"
    REQUEUE = "requeue"


DESTRUCTIVE = frozenset({Verb.STOP, Verb.DELETE, Verb.DRAIN})


@dataclass(frozen=True, slots=True)
class Action:
    """One step for one node; actions with the same operation travel in one call."""

    verb: Verb
    node: NodeName
    reason: str
    op: OpId
    pool: PoolName | None = None
    job: JobId | None = None
    arg: str = ""
    """start: "all" if the operation is all or nothing; drain: "off" if the node has no machine; resume: its address;
    stop, delete: the machine."""
    need: int = 1


@dataclass(frozen=True, slots=True)
class Refusal:
    goal: Goal
    guard: str
    why: str


@dataclass(frozen=True, slots=True)
class PolicyFailure:
    policy: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The only output of deciding."""

    tick: str
    now: float
    actions: tuple[Action, ...] = ()
    goals: tuple[Goal, ...] = ()
    refused: tuple[Refusal, ...] = ()
    failed: tuple[PolicyFailure, ...] = ()
    idle_because: str = ""
    """Why nothing at all was decided; empty in an ordinary tick."""
    notes: Mapping[JobId, str] = field(default_factory=lambda: MappingProxyType({}))
    """For each job we have something to say about: the sentence its comment shall carry."""
    never: Mapping[JobId, str] = field(default_factory=lambda: MappingProxyType({}))
    """Jobs that no pool can ever serve, and why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What no policy may exceed."""

    starts_per_minute: int = 200
    creations_per_hour: int = 1000
    creations_per_job: int = 3
    """How many machines may be created for each node a job needs."""
    min_up_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Operation:
    """A call to a provider, recorded before it is made."""

    id: OpId
    verb: Verb
    pool: PoolName
    nodes: tuple[NodeName, ...]
    began: float
    reason: str = ""
    jobs: tuple[JobId | None, ...] = ()
    """For each node the job it is started for."""
    needs: tuple[int, ...] = ()
    """For each node how many nodes that job needs in all."""
    all_or_none: bool = False
    machines: tuple[MachineId, ...] = ()
