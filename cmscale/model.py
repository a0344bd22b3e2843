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


def users_text(comment: str) -> str:
    """What the user wrote into a comment that may carry our note behind it."""
    if comment.startswith(OUR_MARK):
        return ""
    return comment.split(f" | {OUR_MARK}", 1)[0]


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
    deadline: float | None = None
    """When the job must have ended (--deadline)."""
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
    started: float | None = None
    """When it began to run; None while it waits."""
    requeue: bool = True
    """May Slurm run it again from its beginning?"""

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def words(self) -> frozenset[str]:
        """The words of the user's own comment."""
        return frozenset(users_text(self.comment).replace(",", " ").split())


# --- where nodes come from -------------------------------------------------------------------------------------------


class SiteKind(Enum):
    ONPREM = "onprem"
    AWS = "aws"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: at most `burst` at once, and `refill` more a second."""

    burst: float
    refill: float


@dataclass(frozen=True, slots=True)
class Site:
    """One place with machines: home, or one region of a cloud. `unseen` says why it could not be read this tick."""

    name: SiteName
    kind: SiteKind
    region: str = ""
    unseen: str = ""
    account: str = ""
    """Who pays. Sites of one account and region share the buckets below, as they do at the cloud."""
    launched: Bucket = Bucket(1000, 2)
    """Machines launched; EC2's own limit (docs: API throttling, RunInstances resource tokens)."""
    calls: Bucket = Bucket(5, 2)
    """Launch calls; EC2's own limit (docs: API throttling, RunInstances request tokens)."""
    quotas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """How many CPUs of each family the account may have at once; without those that are not known."""
    expires: float | None = None
    """When its credentials end for good, as far as is known; None: not soon, or they are renewed by themselves."""
    expiry_margin_s: float = 900.0
    """Nothing is started with credentials that end within this time: who would give the machines back?"""
    cost_tags: frozenset[str] = frozenset()
    """Which of account, user and job machines are tagged with, for the cloud's own bill."""

    def expiring(self, now: float) -> bool:
        """True if its credentials end so soon that nothing may be started with them."""
        return self.expires is not None and self.expires - now < self.expiry_margin_s

    @property
    def reachable(self) -> bool:
        return not self.unseen


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of the week, by the site's clock; one that ends before it begins ends on the next day."""

    days: frozenset[int]
    """0: Monday. The days on which it begins."""
    begin_s: int
    """Seconds since midnight."""
    end_s: int


@dataclass(frozen=True, slots=True)
class Queue:
    """What a site wants of the jobs of one partition."""

    partition: str
    pools: frozenset[PoolName] | None = None
    """The only pools from which its jobs start machines; None: every pool whose nodes are in the partition."""
    queue_length: int = 0
    """Nothing is started before so many of its jobs wait."""
    age_s: float = 0.0
    """A job that has waited less starts nothing."""
    jobs_per_node: int = 0
    """The most jobs that are counted on a node that is started; 0: as many as fit."""
    mix_sites: bool = False
    """May one job have nodes at several sites?"""


class NodeOrder(Enum):
    """Which of a pool's names is started first?"""

    NAME = "name"
    LEAST_USED = "least-used"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Pool:
    """One place to get nodes: like machines at one site, under names declared to Slurm ahead of time."""

    name: PoolName
    site: SiteName
    shape: Shape
    nodes: tuple[NodeName, ...]
    """Every name the pool may use, in the order in which they are started."""
    partitions: tuple[str, ...] = ()
    """Empty: its machines help others and are not Slurm's (a licence server, a director)."""
    features: frozenset[str] = frozenset()
    market: str = "on-demand"
    family: str = ""
    """Pools of one site and family share a quota."""
    quota_cpus: int = 0
    """What a machine counts against it; 0: not known."""
    price_hour: float = 0.0
    stopped_price_hour: float = 0.0
    """What a machine costs that is powered off and kept."""
    priority: int = 0
    """Pools of higher priority are used first; price decides among equals."""
    max: int = 0
    """The most machines at once; 0: as many as there are names."""
    keep: int = 0
    keep_running: frozenset[NodeName] = frozenset()
    """Nodes whose machines, once up, are not given back for being idle."""
    static: bool = False
    """Its machines exist already: they are powered on and off, never created nor deleted."""
    never_terminate: frozenset[NodeName] = frozenset()
    """Nodes whose machines are powered off and kept where others are deleted."""
    order: NodeOrder = NodeOrder.NAME
    helpers: tuple[NodeName, ...] = ()
    """Nodes of other pools that must be up before its first machine, and until its last one is gone."""
    hours: tuple[Window, ...] = ()
    """When its nodes may serve Slurm; empty: always. At other times they have another role."""
    billing_quantum_s: float = 0.0
    """Machines are paid for in whole quanta, counted from their start; 0: by the second."""
    billing_minimum_s: float = 0.0
    """A machine is paid for at least so long after each start."""
    boot_s: float = 180.0
    """What a boot usually takes: the estimate users are shown."""
    boot_limit_s: float = 900.0
    """A machine that has not joined by then is given up."""
    shutdown_limit_s: float = 180.0
    """A machine that has not shut down by then is switched off hard."""

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
    site: SiteName | None = None
    """Where it was seen; None where nobody has looked yet."""


class LeftoverKind(Enum):
    """What a machine may leave behind when it ends."""

    VOLUME = "volume"
    INTERFACE = "interface"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A part of ours that belongs to no machine any more, and is perhaps paid for."""

    id: MachineId
    kind: LeftoverKind
    site: SiteName
    node: NodeName
    """What its tag says of the machine it belonged to."""
    op: OpId | None = None
    seen: float = 0.0
    """When a look showed it last: such looks are seldom."""


class Means(Enum):
    """What a word of a cloud about a machine comes to."""

    TAKEN = "taken"
    """The machine is taken back at the deadline."""
    SICK = "sick"
    """The machine does not work, as far as the cloud can see."""
    AT_RISK = "at-risk"
    """The machine may be taken back soon, or not."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What a cloud announces about a machine: above all, that it takes it back."""

    deadline: float
    """Infinite where nothing is taken back."""
    why: str
    means: Means = Means.TAKEN


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation of Slurm."""

    name: str
    start: float
    end: float
    nodes: frozenset[NodeName]
    maintenance: bool = False
    """Nobody's jobs run there meanwhile."""
    users: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()

    def active(self, now: float) -> bool:
        return self.start <= now < self.end


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
    for_job: JobId | None = None
    """The job for which its machine was started."""
    notice: Notice | None = None
    """By which its machine is taken back."""
    at_risk: str = ""
    """Why its cloud thinks that the machine may be taken back soon; nothing is decided by it."""
    reserved: str = ""
    """The reservation that is active on it; only its jobs run there."""
    resting: str = ""
    """Why it may not serve Slurm now, a maintenance or the hours of its pool; empty if it may."""
    until: float | None = None
    """When the next reservation, or the end of its pool's hours, takes it: jobs must have ended by then."""
    kept: bool = False
    """Its machine is powered off where others are deleted."""
    outside: bool = False
    """It is not Slurm's: a helper."""

    @property
    def busy(self) -> bool:
        return bool(self.states & BUSY_STATES)

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.states

    @property
    def drained_by_us(self) -> bool:
        """DRAIN *and* our mark: from 24.11 the reason text outlives a resume."""
        return "DRAIN" in self.states and self.reason.startswith(OUR_MARK)

    @property
    def parked(self) -> bool:
        """Out of Slurm's sight while it has no machine. DOWN is needed, too: it outlives a restart of slurmctld, where
        POWERED_DOWN does not, and only the registration of a new machine clears it."""
        return self.drained_by_us and "DOWN" in self.states

    @property
    def held_by_human(self) -> bool:
        """A drain that is not ours; never undone, and its machine is left alone. Slurm's own, of a node that registered
        with less than was promised, is no person's."""
        return "DRAIN" in self.states and not self.reason.startswith(OUR_MARK) and not self.states & INVALID_STATES

    @property
    def registered(self) -> bool:
        return not self.states & UNREGISTERED_STATES

    @property
    def schedulable(self) -> bool:
        """Slurm may start jobs here now; of a reservation, those jobs that are in it."""
        blocked = self.states & BLOCKED_STATES
        return not blocked or (bool(self.reserved) and blocked <= {"RESERVED"})

    @property
    def unfit(self) -> bool:
        """Its machine never served: it has not joined in time, or joined with less than its pool promises."""
        return bool(self.sick) and (self.power is Power.STARTING or bool(self.states & INVALID_STATES))

    @property
    def in_maintenance(self) -> bool:
        return bool(self.states & {"MAINT", "MAINTENANCE"})

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
    PROLOG = "prolog"
    """The site's own script before a start failed."""
    BUDGET = "budget"
    """No money is left for it in this period; no call was made."""


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
    first: float = 0.0
    """When the first launch for it was tried."""
    refused: int = 0
    """How many launches of a node were refused."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch call of the last hour."""

    at: float
    pool: PoolName
    machines: int


class FactKind(Enum):
    """What is known for a time and can't be observed."""

    PAUSE = "pause"
    """Nothing is started and nothing given back. Its subject is empty."""
    KEEP = "keep"
    """A node is not drained, stopped or deleted, for a person wants it as it is; its subject is the node."""
    DRAIN_SITE = "drain-site"
    """Nothing is started at a site, and what is there goes when its jobs have ended; its subject is the site."""
    QUARANTINE = "quarantine"
    """The name of a node rests after its machine failed; its subject is the node."""
    STOPPED = "stopped"
    """A failed machine was powered off, and its disk kept for a while; its subject is the node."""
    PIN = "pin"
    """A job was given a site; its subject is the job, its `why` the --constraint that its user gave."""
    REQUEUED = "requeued"
    """A job was requeued by us, since its node was taken back; its subject is the job."""
    ORPHAN = "orphan"
    """Nothing explains a machine of ours, or a part of one, since then; its subject is the machine."""
    REAP = "reap"
    """A person wants it deleted if that is still so; its subject is the machine."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A dated fact. Always with an end, a reason and an author."""

    kind: FactKind
    subject: str
    at: float
    until: float
    why: str
    by: str = ""


class EventKind(Enum):
    """What admins are told of."""

    CLOSED = "closed"
    OPENED = "opened"
    FAILED_BOOT = "failed-boot"
    QUARANTINED = "quarantined"
    RECLAIMED = "reclaimed"
    AT_RISK = "at-risk"
    """A cloud warns that it may take a machine back."""
    REQUEUED = "requeued"
    GANG_GIVEN_BACK = "gang-given-back"
    CREDENTIALS_END = "credentials-end"
    ORPHANED = "orphaned"
    REAPED = "reaped"
    OVERRIDE = "override"
    """A person decided otherwise: a pause, a keep, a drained site, and the end of each. None of them is left out."""
    POLICY_FAILED = "policy-failed"
    BUDGET_NEARLY_SPENT = "budget-nearly-spent"
    BUDGET_REACHED = "budget-reached"
    BUDGET_OPENED = "budget-opened"
    JOURNAL_LOST = "journal-lost"
    CLOCK_JUMPED = "clock-jumped"
    LEADER = "leader"

    @classmethod
    def _missing_(cls, value: object) -> EventKind | None:
        """What an older journal says of pauses, which had kinds of their own."""
        return cls.OVERRIDE if value in {"paused", "resumed"} else None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened and that somebody should know of, in one sentence."""

    at: float
    kind: EventKind
    subject: str
    """The pool, node, job, policy or budget."""
    text: str


# --- what things cost ------------------------------------------------------------------------------------------------

DOLLAR = 3_600_000_000_000
"""Amounts are whole numbers of micro-dollars an hour times milliseconds: a price times a time is exact, and so is every
sum. So many of them are a dollar."""

EACH = "*"
"""The user, or account, of a budget that everybody has for themselves."""


def price(dollars_hour: float) -> int:
    """What a millisecond costs: a price, in whole micro-dollars an hour."""
    return round(dollars_hour * 1_000_000)


def dollars(amount: int) -> float:
    return amount / DOLLAR


class Spending(Enum):
    """What a machine did while it was paid for."""

    BOOT = "boot"
    IDLE = "idle"
    """Nothing for a job: it waited for one, helped others, was powered off and kept, or was paid for and given back."""
    JOB = "job"


@dataclass(frozen=True, slots=True)
class Payer:
    """To whom a cost is put down: whose job ran, or for whose job a machine was started."""

    user: str = ""
    account: str = ""
    job: str = ""


NOBODY = Payer()
"""Who pays for what was started for no job."""


@dataclass(frozen=True, slots=True)
class Use:
    """One line of the bill; its time is kept beside it."""

    hour: int
    """When the hour of it began, by the site's clock; for days that are long over, the day."""
    pool: PoolName
    spending: Spending
    payer: Payer
    price: int


@dataclass(frozen=True, slots=True)
class Life:
    """One stretch in which a machine is paid for: from a start until it is powered off, or from then on at the price of
    a machine that is kept. Metered up to a time."""

    machine: MachineId
    node: NodeName
    pool: PoolName
    running: bool
    launched: float
    """When it began, by the cloud's own word."""
    until: float
    """What was before is in the bill."""
    paid_ms: int
    """How much of it is."""
    price: int
    owner: Payer


class Period(Enum):
    """Of the calendar."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


PER: Mapping[Period, str] = MappingProxyType({Period.HOUR: "an hour", Period.DAY: "a day", Period.MONTH: "a month"})


class AtLimit(Enum):
    """What happens when a budget is used up. No job is ever ended for it."""

    STOP_STARTING = "stop-starting"
    SPOT_ONLY = "spot-only"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be spent in a period: in all, or in a pool, by an account, by a user."""

    name: str
    per: Period
    limit: int
    pool: PoolName | None = None
    account: str = ""
    user: str = ""
    at_limit: AtLimit = AtLimit.STOP_STARTING
    warn_at: float = 0.8
    """The share of the limit at which admins are told."""
    ahead_s: float | None = None
    """For how long from now machines that are up are counted on; None: to the end of the period."""
    currency: str = "USD"

    @property
    def text(self) -> str:
        """100 dollars a day: $100 a day."""
        amount = f"{dollars(self.limit):g}"
        return f"{f'${amount}' if self.currency == 'USD' else f'{amount} {self.currency}'} {PER[self.per]}"

    @property
    def personal(self) -> bool:
        return bool(self.account or self.user)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one payer has spent in one pool."""

    pool: PoolName
    payer: Payer
    amount: int


@dataclass(frozen=True, slots=True)
class Spent:
    """What was spent so far in the period that runs now."""

    begin: float
    end: float
    costs: tuple[Cost, ...] = ()


@dataclass(frozen=True, slots=True)
class Purse:
    """What has become of one budget in the period that runs now; of a budget of each user, of one user's."""

    budget: Budget
    who: str
    """Whose it is; empty where it is nobody's own."""
    spent: int
    committed: int
    """What the machines that are there will have cost besides at the end of the period, if none is given back."""
    until: float
    """When the period ends."""
    why: str = ""
    """What is used up, by whom, and when it opens; empty if machines may be started."""

    @property
    def used_up(self) -> bool:
        """True if nothing more may be started."""
        return self.spent + self.committed >= self.budget.limit

    @property
    def gone(self) -> bool:
        """True if the money itself is gone: nothing that is given back now would open it again."""
        return self.spent >= self.budget.limit

    def concerns(self, pool: Pool) -> bool:
        """True if it may stand against starts from the pool."""
        return self.budget.pool in {None, pool.name} and not (
            self.budget.at_limit is AtLimit.SPOT_ONLY and pool.market == "spot"
        )

    def shuts(self, pool: Pool) -> bool:
        """True if nothing may be started from the pool now, whoever asks."""
        return self.used_up and not self.budget.personal and self.concerns(pool)


@dataclass(frozen=True, slots=True)
class Override:
    """What one word of a person changes in the journal, all at once."""

    event: Event
    put: tuple[Fact, ...] = ()
    drop: tuple[Fact, ...] = ()
    opened: tuple[PoolName, ...] = ()
    """Pools whose refusals are forgotten."""


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
    launches: tuple[Launch, ...] = ()
    """The launch calls of the last hour, oldest first."""
    queues: Mapping[str, Queue] = field(default_factory=lambda: MappingProxyType({}))
    """By partition; a partition without an entry has no wishes."""
    reservations: tuple[Reservation, ...] = ()
    facts: Mapping[tuple[FactKind, str], Fact] = field(default_factory=lambda: MappingProxyType({}))
    """Those that hold now, by kind and subject."""
    usual: Mapping[PoolName, float] = field(default_factory=lambda: MappingProxyType({}))
    """How many nodes of each pool were busy at this hour of the week: the mean over the last weeks."""
    used_s: Mapping[NodeName, float] = field(default_factory=lambda: MappingProxyType({}))
    """For how long each node had a machine in the last two weeks; of pools that start the least used first."""
    utc_offset_s: float = 0.0
    """What the site's clock is ahead of UTC."""
    budgets: tuple[Budget, ...] = ()
    spent: Mapping[Period, Spent] = field(default_factory=lambda: MappingProxyType({}))
    """For each period of a budget."""
    owners: Mapping[NodeName, Payer] = field(default_factory=lambda: MappingProxyType({}))
    """For whom the machine of each node was started, as far as it was started for anybody."""
    purses: tuple[Purse, ...] = ()
    """What has become of each budget."""
    surplus: tuple[Machine, ...] = ()
    """Machines of ours that serve no node of ours: second machines of a name, and those of names that no pool has."""
    leftovers: tuple[Leftover, ...] = ()
    """Parts of machines that are gone, as the last look for them has shown them."""
    unseen: str = ""
    """Why Slurm could not be read; empty if it was."""
    unrecorded: str = ""
    """Why the journal can't be read or written; empty if it can."""
    doubt: str = ""
    """Why nothing may be concluded from what was seen; empty if it may."""
    unreadable: tuple[str, ...] = ()
    """One sentence for each record that could not be read."""

    def shut(self, pool: Pool) -> Closure | None:
        """Why nothing is started from a pool now: its own closure, credentials that its site refuses, or no money."""
        own = self.closed.get(pool.name)
        if own and own.result is not Result.THROTTLED and self.now < own.until:
            return own
        return self._at_site(pool.site, Result.AUTH) or self._of_family(pool) or self._capped(pool)

    def fact(self, kind: FactKind, subject: str = "") -> Fact | None:
        return self.facts.get((kind, subject))

    def keep(self, node: NodeName) -> Fact | None:
        """The word of a person by which the node stays as it is."""
        return self.facts.get((FactKind.KEEP, node))

    def drained(self, site: SiteName) -> Fact | None:
        """The word of a person by which a site is left."""
        return self.facts.get((FactKind.DRAIN_SITE, site))

    def slowed(self, site: SiteName) -> Closure | None:
        """The throttle that makes a site's launches wait."""
        return self._at_site(site, Result.THROTTLED)

    def half_open(self, pool: Pool) -> Closure | None:
        """The closure whose time is over, but which no good end has lifted yet."""
        own = self.closed.get(pool.name)
        throttled = own is not None and own.result is Result.THROTTLED  # which closed nothing
        return own if own and not throttled and 0 < own.until <= self.now else None

    def _capped(self, pool: Pool) -> Closure | None:
        """No money is left for the pool."""
        purse = next((purse for purse in self.purses if purse.shuts(pool)), None)
        return Closure(purse.until, Result.BUDGET, purse.why.removeprefix("budget ")) if purse else None

    def _of_family(self, pool: Pool) -> Closure | None:
        """A quota that a pool shares: what one may not have more of, its whole family may not."""
        for name, closure in self.closed.items():
            of = self.pools.get(name)
            if (
                closure.result is Result.QUOTA
                and self.now < closure.until
                and of
                and pool.family
                and (of.site, of.family) == (pool.site, pool.family)
            ):
                return closure
        return None

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
    also: tuple[JobId, ...] = ()
    """Further jobs that the node serves at the same time..."""
    gangs: tuple[GangId, ...] = ()
    """...and their gangs, which are not complete without it."""
    by: float | None = None
    """When the node must be free: jobs that still run there then are requeued. None: they may run to their end."""
    whole: bool = True
    """False: the gang is not complete with these goals, so none of its nodes is handed to Slurm yet."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A policy lets a job wait on purpose: a reason to be told, not a wish."""

    job: JobId
    reason: str
    but: frozenset[PoolName] = frozenset()
    """The pools that are meant; empty: all."""


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


DESTRUCTIVE = frozenset({Verb.STOP, Verb.DELETE, Verb.DRAIN, Verb.REQUEUE})


@dataclass(frozen=True, slots=True)
class Action:
    """One step for one node; actions with the same operation travel in one call."""

    verb: Verb
    node: NodeName
    """Empty for a step that is a job's alone: pin, release. Of a machine that serves no node its id."""
    reason: str
    op: OpId
    pool: PoolName | None = None
    job: JobId | None = None
    arg: str = ""
    """start: the machine to power on, if there is one; drain: "off" if the node has no machine; resume: its address;
    stop, delete: the machine; pin: the job's new --constraint."""
    need: int = 1
    together: bool = False
    """start: all machines of the operation, or none."""
    site: SiteName | None = None
    """delete: where a machine is that serves no node, and so has no pool."""


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
    waits: Mapping[JobId, Wait] = field(default_factory=lambda: MappingProxyType({}))
    """Jobs that a policy lets wait on purpose."""
    policies: Mapping[NodeName, str] = field(default_factory=lambda: MappingProxyType({}))
    """Whose wish each goal is."""


class Reap(Enum):
    """What becomes of machines of ours that nothing explains?"""

    DELETE = "delete"
    REPORT = "report"
    """They are told of, and deleted when a person says so."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What no policy may exceed."""

    starts_per_minute: int = 200
    creations_per_hour: int = 1000
    creations_per_job: int = 3
    """How many machines may be created for each node a job needs."""
    min_up_s: float = 60.0
    search_s: float = 900.0
    """How long offers are tried for a job whose launches are refused..."""
    search_rest_s: float = 900.0
    """...and how long it then rests before they are tried again."""
    quarantine_s: float = 600.0
    """How long the name of a node whose machine failed rests."""
    reap: Reap = Reap.DELETE
    reap_after_s: float = 90.0
    """What nothing explains is deleted by the second look that finds it so, not before so long after the first one."""
    reap_most: int = 10
    """If more than so many would go, a person has to say so: then it is rather we who are wrong."""


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
    """start: those to power on, none to create; stop, delete: those to be given back. In the order of the nodes."""
    hard: bool = False
    """stop, delete: without asking the machine's system to shut down."""
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """start: what the machines created are tagged with for the cloud's own bill. It is written down, for a launch that
    is made again must be the same to the word."""
    site: SiteName | None = None
    """delete: where, if the machines serve no node and so have no pool. It need not outlive us: a deletion that is not
    finished is decided anew."""
