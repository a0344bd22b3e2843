"""What has been spent by now, and when is it written down?

Each look meters every machine that is paid for from where the last one left it. What was metered is written every half
a minute, and when a machine comes or goes; if we are killed in between, the next process meters that time anew, and no
time is lost or told twice. A clock that is set moves the lives along with it, so that no time passes by it; in looks
without a sight of Slurm nothing is metered, and a site that was not seen is when it is seen again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cmscale.core import budgets, metering
from cmscale.core.metering import Scene
from cmscale.model import (
    NOBODY,
    Budget,
    Cost,
    Job,
    JobId,
    Life,
    Machine,
    MachineId,
    NodeName,
    Operation,
    Payer,
    Period,
    Pool,
    PoolName,
    Snapshot,
    Spent,
    Use,
    Verb,
)
from cmscale.ports import Journal
from cmscale.shell.periods import Periods

WRITTEN_EVERY_S = 30.0
ROLLED_UP_EVERY_S = 86400.0
CLOCK_SET_S = 1.0
"""What a clock may run apart from the steady one between two looks without having been set."""


@dataclass(slots=True)
class Ledger:
    """What one process knows of the money; the journal has all of it that is older than half a minute."""

    lives: dict[MachineId, Life] | None = None
    """None: not read yet."""
    unwritten: Counter[Use] = field(default_factory=Counter)
    spent: dict[Period, Spent] = field(default_factory=dict)
    clock: tuple[float, float] | None = None
    """The time at the last look, and the steady time."""
    due: bool = False
    """A machine has come or gone."""
    written_at: float = float("-inf")
    rolled_up_at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Rules:
    """What the site says of money."""

    budgets: tuple[Budget, ...] = ()
    periods: Periods = field(default_factory=Periods)
    currency: str = "USD"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look has seen."""

    view: Snapshot
    machines: Iterable[Machine]
    starts: Mapping[NodeName, Operation]
    """Calls under way, by node."""
    steady: float
    """The time of a clock that nobody sets, at the moment of the snapshot."""


def metered(seen: Seen, journal: Journal, rules: Rules, ledger: Ledger) -> Snapshot:
    """The snapshot with what was spent until now, and what became of the budgets."""
    view = seen.view
    if ledger.lives is None:
        # A time to come was written by a clock that was ahead; what it told is in the bill already.
        lives = (life if life.until <= view.now else replace(life, until=view.now) for life in journal.lives())
        ledger.lives = {life.machine: life for life in lives}
    _follow_the_clock(ledger, view.now, seen.steady)
    bill: Counter[Use] = Counter()
    owners: dict[NodeName, Payer] = {}
    if not view.unseen:
        meter = _Meter(view, seen.starts, rules.periods.offset_s(view.now))
        bill = meter.look(ledger, {machine.id: machine for machine in seen.machines}, journal)
        owners = meter.owners(ledger.lives.values())
    ledger.unwritten += bill
    ledger.spent = {period: _with(spent, bill) for period, spent in ledger.spent.items()}
    for period in {budget.per for budget in rules.budgets}:
        _turn_over(ledger, journal, rules.periods, period, view.now)
    told = replace(
        view,
        budgets=rules.budgets,
        spent=MappingProxyType(ledger.spent),
        owners=MappingProxyType(owners),
    )
    return replace(told, purses=budgets.purses(told))


def write(ledger: Ledger, journal: Journal, periods: Periods, now: float) -> None:
    """Keep what was metered, if it is time."""
    if ledger.lives is None or not (ledger.due or abs(now - ledger.written_at) >= WRITTEN_EVERY_S):
        return
    journal.put_spending(tuple(ledger.lives.values()), ledger.unwritten)
    ledger.unwritten = Counter()
    ledger.due, ledger.written_at = False, now
    if abs(now - ledger.rolled_up_at) >= ROLLED_UP_EVERY_S:
        journal.roll_up(now, lambda at: periods.began(Period.DAY, at))
        ledger.rolled_up_at = now


def _follow_the_clock(ledger: Ledger, now: float, steady: float) -> None:
    """Take what the clock was set by out of the times of all lives."""
    before, ledger.clock = ledger.clock, (now, steady)
    if before is None or ledger.lives is None:
        return
    set_by = (now - before[0]) - (steady - before[1])
    if abs(set_by) > CLOCK_SET_S:
        ledger.lives = {name: replace(life, until=life.until + set_by) for name, life in ledger.lives.items()}


@dataclass(slots=True)
class _Meter:
    """One look at all machines."""

    view: Snapshot
    starts: Mapping[NodeName, Operation]
    offset_s: float
    jobs: dict[JobId, Job] = field(init=False)
    on: dict[NodeName, list[Job]] = field(init=False)
    pool_of: dict[NodeName, Pool] = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = {job.id: job for job in self.view.jobs}
        self.on = {}
        for job in self.view.jobs:
            for name in job.nodes:
                self.on.setdefault(name, []).append(job)
        self.pool_of = {name: pool for pool in self.view.pools.values() for name in pool.nodes}

    def look(self, ledger: Ledger, seen: Mapping[MachineId, Machine], journal: Journal) -> Counter[Use]:
        """The bill since the last look; the lives in the ledger are those that go on."""
        lives = ledger.lives if ledger.lives is not None else {}
        bill: Counter[Use] = Counter()
        over = [life for life in lives.values() if self._is_over(life, seen.get(life.machine))]
        ends = journal.given_back([life.machine for life in over]) if over else {}
        for life in over:
            bill += self._ended(life, seen.get(life.machine), ends.get(life.machine, ()))
            del lives[life.machine]
        for machine in seen.values():
            life_of = lives.get(machine.id) or self._begun(machine, ends.get(machine.id, ()))
            if life_of is None or self._unseen(life_of.pool):
                continue
            ledger.due |= machine.id not in lives
            lives[machine.id], more = self._metered(life_of, self.view.now)
            bill += more
        ledger.due |= bool(over)
        return bill

    def _is_over(self, life: Life, machine: Machine | None) -> bool:
        if self._unseen(life.pool):
            return False
        return machine is None or not metering.goes_on(life, machine)

    def _unseen(self, pool: PoolName) -> bool:
        """True if nothing is known now of the pool's machines; of a pool that is configured no more, all there is."""
        known = self.view.pools.get(pool)
        return known is not None and bool(self.view.sites[known.site].unseen)

    def _begun(self, machine: Machine, ends: tuple[float, ...]) -> Life | None:
        pool = self.pool_of.get(machine.node)
        if pool is None or metering.is_running(machine) is None:
            return None
        since = next((at for at in reversed(ends) if at <= self.view.now), self.view.now)
        return metering.begun(machine, pool, self._owner(machine.node), since)

    def _owner(self, name: NodeName) -> Payer:
        node, start = self.view.nodes.get(name), self.starts.get(name)
        job = node.for_job if node else None
        if job is None and start and start.verb is Verb.START and start.jobs:
            job = start.jobs[start.nodes.index(name)]
        if job is None:
            return NOBODY
        known = self.jobs.get(job)
        return Payer(known.user, known.account, job) if known else Payer(job=job)

    def _metered(self, life: Life, until: float) -> tuple[Life, Counter[Use]]:
        return metering.metered(life, self._scene(life), until)

    def _scene(self, life: Life) -> Scene:
        node = self.view.nodes.get(life.node)
        serves = node is not None and node.machine is not None and node.machine.id == life.machine
        pool = self.view.pools.get(life.pool)
        return Scene(pool, node if serves else None, self.on.get(life.node, ()), self.offset_s)

    def _ended(self, life: Life, machine: Machine | None, ends: tuple[float, ...]) -> Counter[Use]:
        """The rest of a life that is over: until we gave the machine back; if it went by itself, until the look that
        showed it go, or the last one that showed it."""
        now, scene = self.view.now, self._scene(life)._replace(node=None)
        by_itself = life.until if machine is None else now
        restarted = machine is not None and metering.is_running(machine) is life.running
        at = next((end for end in ends if life.until <= end <= now), life.until if restarted else by_itself)
        last, bill = metering.metered(life, scene, at)
        return bill + metering.ended(last, scene)

    def owners(self, lives: Iterable[Life]) -> dict[NodeName, Payer]:
        """For whom each node's machine was started, or is being."""
        started = {name: self._owner(name) for name, start in self.starts.items() if start.verb is Verb.START}
        known = {life.node: life.owner for life in lives}
        return {name: owner for name, owner in (started | known).items() if owner != NOBODY}


def _turn_over(ledger: Ledger, journal: Journal, periods: Periods, period: Period, now: float) -> None:
    """Begin with the period that runs now, from what the journal says of it, unless it is the one that is known."""
    known = ledger.spent.get(period)
    if known is None or not known.begin <= now < known.end:
        begin, end = periods.around(period, now)
        ledger.spent[period] = _with(Spent(begin, end, journal.costs(begin, end)), ledger.unwritten)


def _with(spent: Spent, bill: Mapping[Use, int]) -> Spent:
    amounts: Counter[tuple[PoolName, Payer]] = Counter({(cost.pool, cost.payer): cost.amount for cost in spent.costs})
    for use, ms in bill.items():
        if spent.begin <= use.hour < spent.end:
            amounts[use.pool, Payer(use.payer.user, use.payer.account)] += ms * use.price
    told = tuple(Cost(pool, payer, amount) for (pool, payer), amount in amounts.items())
    return Spent(spent.begin, spent.end, told)
