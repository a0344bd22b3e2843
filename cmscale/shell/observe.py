"""What is there? Machines, then nodes, then jobs, joined into one snapshot.

In this order, so that a race errs toward too little, which the next tick heals: a node that Slurm shows is never older
than its machine, a job never older than the nodes it might use. What can't be read is named: an unseen site or an
unseen Slurm is no evidence of absence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from cmscale.core.announced import announced
from cmscale.core.expiry import Stage
from cmscale.core.standing import ORDINARY, Standing, standings
from cmscale.model import (
    HOME,
    INVALID_STATES,
    OUR_MARK,
    Closure,
    EventKind,
    Fact,
    FactKind,
    Job,
    JobId,
    Leftover,
    Machine,
    MachineId,
    MachineState,
    Node,
    NodeName,
    NodeOrder,
    NodeRecord,
    Notice,
    Operation,
    OpId,
    Pool,
    PoolName,
    Power,
    Queue,
    Reservation,
    Shape,
    Site,
    SiteKind,
    SiteName,
    Snapshot,
    Verb,
)
from cmscale.ports import Clock, Journal, Provider, Reading, Scheduler, Unavailable
from cmscale.shell import reaping, spending
from cmscale.shell.beside import Beside
from cmscale.shell.reaping import Search
from cmscale.shell.scripts import Scripts
from cmscale.shell.spending import Ledger, Rules, Seen
from cmscale.shell.timekeeping import JUMP_S, SETTLING_S, Ages, Timekeeping, dated

K = TypeVar("K")
T = TypeVar("T")
V = TypeVar("V")
Notices = Mapping[MachineId, Sequence[Notice]]

log = logging.getLogger(__name__)

USED_FOR_S = 14 * 86400.0
"""How far back it counts which names of a pool were used least."""

POWER = {
    MachineState.STARTING: Power.STARTING,
    MachineState.STOPPING: Power.STOPPING,
    MachineState.ENDING: Power.STOPPING,
    MachineState.STOPPED: Power.OFF,
}


@dataclass(frozen=True, slots=True)
class World:
    """Everything outside of us that a tick needs."""

    scheduler: Scheduler
    providers: Mapping[SiteName, Provider]
    journal: Journal
    clock: Clock
    sites: Mapping[SiteName, Site]
    pools: Mapping[PoolName, Pool]
    queues: Mapping[str, Queue] = field(default_factory=lambda: MappingProxyType({}))
    scripts: Mapping[PoolName, Scripts] = field(default_factory=lambda: MappingProxyType({}))
    cluster: str = ""
    paused: str = ""
    """Why the configuration pauses us; empty if it does not."""
    rules: Rules = field(default_factory=Rules)
    beside: Beside = field(default_factory=Beside)
    check_lease: Callable[[], None] = lambda: None
    """Raises Deposed unless we may act, of two daemons that share a journal."""


@dataclass(slots=True)
class Memory:
    """What one process remembers from tick to tick; losing it costs a second of caution, no machine."""

    machines: dict[SiteName, dict[MachineId, Machine]] = field(default_factory=dict)
    """What the last look saw at each site: an absence counts only when a second look confirms it."""
    missed: set[MachineId] = field(default_factory=set)
    ending: set[MachineId] = field(default_factory=set)
    """Machines that we deleted ourselves; their absence needs no confirmation."""
    shown: set[MachineId] = field(default_factory=set)
    """Fresh machines that a listing has shown: from then on listings alone are believed."""
    again: dict[OpId, float] = field(default_factory=dict)
    """When an operation that is still open may be called again."""
    stopping: dict[MachineId, float] = field(default_factory=dict)
    """Since when machines that are on their way out have been seen so."""
    noticed: set[MachineId] = field(default_factory=set)
    """Machines whose taking back has been told..."""
    at_risk: set[MachineId] = field(default_factory=set)
    """...or that they may be taken back."""
    given_up: set[MachineId] = field(default_factory=set)
    """Machines that were given up in the last tick before they had served; each counts once against its pool."""
    closed: Mapping[PoolName, Closure] = field(default_factory=dict)
    """What stood against pools at the last look, to tell of changes."""
    ledger: Ledger = field(default_factory=Ledger)
    """What machines have cost."""
    budgets: Mapping[tuple[str, str], EventKind] = field(default_factory=dict)
    """What was told of budgets at the last look."""
    time: Timekeeping = field(default_factory=Timekeeping)
    ages: Ages = field(default_factory=Ages)
    """Of machines and of operations that are open."""
    looked: dict[SiteName, float] = field(default_factory=dict)
    """When the last look at each site that was answered began, by the steady clock."""
    expiry: Mapping[SiteName, Stage] = field(default_factory=dict)
    """What was told of credentials at the last look."""
    search: Search = field(default_factory=Search)
    """For parts of machines that are gone."""


def observe(world: World, tick: str, memory: Memory, doubt: str = "") -> Snapshot:
    """One consistent look at everything. Never raises for a world that does not answer."""
    sites, machines, notices = _machines(world, memory)
    now, steady = world.clock.now(), world.clock.steady()
    unseen = ""
    records: Reading[NodeRecord] = Reading(())
    jobs: Reading[Job] = Reading(())
    reservations: Reading[Reservation] = Reading(())
    try:
        with ThreadPoolExecutor(max_workers=1) as beside:
            # Beside the nodes, which take longer: the calendar changes by the hour.
            calendar = beside.submit(world.scheduler.reservations)
            records, jobs = world.scheduler.nodes(), world.scheduler.jobs()
            reservations = calendar.result()
    except Unavailable as error:
        unseen = str(error)
    except Exception as error:  # noqa: BLE001 - what we do not understand is no reason to stop looking
        unseen = _surprise("reading Slurm", error)
    journal, asked = world.journal, _Asked()
    fresh = asked.list(lambda: _fresh(world, memory, now))
    machines = machines if asked.in_vain else _with_fresh(machines, fresh, memory)
    pool_of = {name: pool for pool in world.pools.values() for name in pool.nodes}
    serving, surplus = _serving(machines, records.items, pool_of)
    memory.stopping = _stopping(machines, memory.stopping, now)
    under_way = asked.list(journal.under_way)
    if not asked.in_vain:
        memory.ages.keep([*(machine.id for machine in machines), *(operation.id for operation in under_way)])
    ops = {node: operation for operation in under_way for node in operation.nodes}
    offset_s = world.clock.utc_offset_s()
    known = _Known(
        serving,
        ops,
        asked.map(journal.idle),
        asked.map(lambda: _jobs_of(journal, serving.values())),
        standings(world.pools.values(), reservations.items, now, offset_s),
        notices,
        memory.stopping,
        now,
    )
    nodes, broken = _joined(records.items, pool_of, known)
    nodes |= _helpers(world.pools.values(), known) if not unseen else {}
    view = Snapshot(
        now=now,
        tick=tick,
        jobs=jobs.items,
        nodes=MappingProxyType(nodes),
        pools=world.pools,
        sites=MappingProxyType(sites),
        closed=MappingProxyType(dict(asked.map(journal.closed))),
        creations=MappingProxyType(dict(asked.map(lambda: journal.creations(_submitted(jobs.items, now))))),
        # One of the future was made before the clock was set back: it would fill its account's bucket for an hour.
        launches=tuple(each for each in asked.list(lambda: journal.launches(now - 3600)) if each.at <= now + JUMP_S),
        queues=world.queues,
        reservations=reservations.items,
        facts=MappingProxyType(_facts(asked.list(lambda: journal.facts(now)), world.paused, now)),
        usual=MappingProxyType(dict(asked.map(lambda: journal.usual(now)))),
        used_s=MappingProxyType(dict(asked.map(lambda: _used(world, now)))),
        utc_offset_s=offset_s,
        surplus=surplus,
        leftovers=tuple(memory.search.leftovers),
        unseen=unseen,
        unrecorded=asked.in_vain,
        doubt=doubt,
        unreadable=(*records.unreadable, *jobs.unreadable, *reservations.unreadable, *broken),
    )
    if view.unrecorded:
        return view
    try:
        return spending.metered(Seen(view, machines, ops, steady), journal, world.rules, memory.ledger)
    except Unavailable as error:
        return replace(view, unrecorded=str(error))


def _submitted(jobs: Iterable[Job], now: float) -> dict[JobId, float]:
    """Since when what was started counts for each job: all of it, if the clock was set back since it was submitted."""
    return {job.id: job.submit if job.submit <= now + JUMP_S else 0.0 for job in jobs}


def _surprise(doing: str, error: Exception) -> str:
    """The sentence about an error that nobody foresaw; the trace of it is for whoever logs everything."""
    log.debug("%s failed", doing, exc_info=error)
    return f"{doing} raised {type(error).__name__}: {error}"


class _Asked:
    """The journal's answers. After the first that does not come none is asked for: each would take as long."""

    def __init__(self) -> None:
        self.in_vain = ""

    def list(self, ask: Callable[[], tuple[T, ...]]) -> tuple[T, ...]:
        return self._answer(ask) or ()

    def map(self, ask: Callable[[], Mapping[K, V]]) -> Mapping[K, V]:
        return self._answer(ask) or {}

    def _answer(self, ask: Callable[[], T]) -> T | None:
        if not self.in_vain:
            try:
                return ask()
            except Unavailable as error:
                self.in_vain = str(error)
        return None


def _facts(known: Iterable[Fact], paused: str, now: float) -> dict[tuple[FactKind, str], Fact]:
    facts = {(fact.kind, fact.subject): fact for fact in known}
    if paused:
        facts[FactKind.PAUSE, ""] = Fact(FactKind.PAUSE, "", now, now, paused)
    return facts


def _used(world: World, now: float) -> dict[NodeName, float]:
    if any(pool.order is NodeOrder.LEAST_USED for pool in world.pools.values()):
        return dict(world.journal.used_s(now - USED_FOR_S, now))
    return {}


def _jobs_of(journal: Journal, machines: Iterable[Machine]) -> dict[NodeName, JobId]:
    """The job for which the machine of each node was started."""
    started = {(machine.op, machine.node) for machine in machines if machine.op}
    jobs = journal.jobs_of({op for op, _ in started})
    return {node: job for (op, node), job in jobs.items() if (op, node) in started}


def idle_changes(view: Snapshot, known: Mapping[NodeName, float]) -> dict[NodeName, float | None]:
    """What the journal must learn about idle nodes: since when, or None for those that are idle no more."""
    idle: dict[NodeName, float | None] = {
        node.name: node.idle_since for node in view.nodes.values() if node.idle_since is not None
    }
    changed = {name: since for name, since in idle.items() if known.get(name) != since}
    return changed | {name: None for name in known if name not in idle and name in view.nodes}


# --- machines --------------------------------------------------------------------------------------------------------


def _machines(world: World, memory: Memory) -> tuple[dict[SiteName, Site], list[Machine], Notices]:
    """The sites, with why one could not be read; all machines; what their clouds announce of them."""
    sites = {HOME: Site(HOME, SiteKind.ONPREM)} | dict(world.sites)
    machines: list[Machine] = []
    notices: dict[MachineId, Sequence[Notice]] = {}
    if not world.providers:
        return sites, machines, notices
    beside, began = world.beside, world.clock.steady()
    looks = {
        name: beside.look(name, partial(_look_at, provider, world.clock, thoroughly=memory.search.is_due(name, began)))
        for name, provider in world.providers.items()
    }
    beside.wait(look for look, is_new in looks.values() if is_new)
    for name, (look, _) in looks.items():
        try:
            seen = look.answer(beside.answer_s)
            beside.taken(look)
        except Exception as error:  # noqa: BLE001 - a site that we do not understand costs itself alone
            beside.taken(look)
            unseen = str(error) if isinstance(error, Unavailable) else _surprise(f"looking at site {name}", error)
            sites[name] = replace(sites[name], unseen=unseen)
            machines += _aged(memory.machines.get(name, {}).values(), name, world, memory)
            continue
        confirmed = _confirmed({machine.id: machine for machine in seen.machines}, memory, name)
        machines += _aged(confirmed, name, world, memory)
        memory.looked[name] = began
        sites[name] = replace(sites[name], expires=seen.expires)
        if seen.left is not None:
            memory.search.shown(name, seen.left, began)
        notices |= seen.notices
    return sites, machines, notices


def _aged(machines: Iterable[Machine], site: SiteName | None, world: World, memory: Memory) -> list[Machine]:
    """The machines of a site, none older than the steady clock allows."""
    now, steady = world.clock.now(), world.clock.steady()
    unknown_s = steady - memory.looked[site] if site in memory.looked else None
    ages = memory.ages
    there = (each if each.site == site else replace(each, site=site) for each in machines)
    return [dated(each, ages.of(each.id, each.launched, now, steady, unknown_s), now) for each in there]


def _fresh(world: World, memory: Memory, now: float) -> tuple[Machine, ...]:
    """The machines that calls made a moment ago; a moment by the clock that counts."""
    jump = memory.time.recent(world.clock, SETTLING_S)
    made = world.journal.fresh(now - SETTLING_S - max(jump.by_s if jump else 0.0, 0.0))
    sites = {name: pool.site for pool in world.pools.values() for name in pool.nodes}
    return tuple(aged for machine in made for aged in _aged([machine], sites.get(machine.node), world, memory))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one look at a site has shown."""

    machines: tuple[Machine, ...]
    notices: Notices
    expires: float | None
    left: tuple[Leftover, ...] | None
    """None: nobody looked for them this time."""


def _look_at(provider: Provider, clock: Clock, *, thoroughly: bool) -> _Seen:
    # The list first: a provider need not ask for notices where it has just seen nothing that could be taken back.
    listed, notices = provider.list(), _notices(provider)
    return _Seen(listed, notices, provider.expires(), reaping.look_for(provider, clock) if thoroughly else None)


def _notices(provider: Provider) -> Notices:
    try:
        return provider.notices()
    except Unavailable as error:
        # Without warnings a machine is lost as a node is lost at home; without the site nothing could be done at all.
        log.warning("%s", error)
        return {}


def _confirmed(seen: dict[MachineId, Machine], memory: Memory, site: SiteName) -> Iterable[Machine]:
    """What is there, with what was there a look ago and is missing for the first time now."""
    before = memory.machines.get(site, {})
    doubtful = {
        known: machine
        for known, machine in before.items()
        if known not in seen and known not in memory.missed | memory.ending and machine.state is not MachineState.ENDING
    }
    memory.missed -= set(seen)
    memory.missed -= set(before) - set(doubtful)
    memory.missed |= set(doubtful)
    memory.machines[site] = seen | doubtful
    return memory.machines[site].values()


def _with_fresh(machines: list[Machine], fresh: Iterable[Machine], memory: Memory) -> list[Machine]:
    """The machines, with those that a call made a moment ago and no listing has shown yet."""
    made = {machine.id: machine for machine in fresh}
    memory.shown = (memory.shown | {machine.id for machine in machines}) & set(made)
    return machines + [machine for name, machine in made.items() if name not in memory.shown]


def _stopping(machines: Iterable[Machine], before: Mapping[MachineId, float], now: float) -> dict[MachineId, float]:
    """Since when the machines that are on their way out have been seen so."""
    ending = {MachineState.STOPPING, MachineState.ENDING}
    return {machine.id: before.get(machine.id, now) for machine in machines if machine.state in ending}


def _serving(
    machines: Iterable[Machine], records: Iterable[NodeRecord], pool_of: Mapping[NodeName, Pool]
) -> tuple[dict[NodeName, Machine], tuple[Machine, ...]]:
    """The machine that serves each node, and those that serve none; of several of a name the one that Slurm talks to
    serves, else the oldest."""
    addresses = {record.name: record.address for record in records}
    serving: dict[NodeName, Machine] = {}
    surplus: list[Machine] = []
    order = sorted(
        machines,
        key=lambda machine: (
            machine.state in {MachineState.ENDING, MachineState.STOPPING},
            not machine.address or machine.address != addresses.get(machine.node),
            machine.launched,
            machine.id,
        ),
    )
    for machine in order:
        pool = pool_of.get(machine.node)
        at_home = pool is not None and machine.site in {None, pool.site}
        unknown = pool is not None and pool.partitions and addresses and machine.node not in addresses
        if not at_home or unknown or serving.setdefault(machine.node, machine) is not machine:
            surplus.append(machine)
    # Two sites may be one region of one account: both list the same machines.
    serve = {machine.id for machine in serving.values()}
    others = {machine.id: machine for machine in surplus if machine.id not in serve}
    return serving, tuple(machine for machine in others.values() if machine.state is not MachineState.ENDING)


# --- nodes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of nodes besides Slurm's records."""

    serving: Mapping[NodeName, Machine]
    ops: Mapping[NodeName, Operation]
    idle: Mapping[NodeName, float]
    jobs: Mapping[NodeName, JobId]
    standings: Mapping[NodeName, Standing]
    notices: Notices
    stopping: Mapping[MachineId, float]
    now: float


def _joined(
    records: Iterable[NodeRecord], pool_of: Mapping[NodeName, Pool], known: _Known
) -> tuple[dict[NodeName, Node], list[str]]:
    """The nodes, and a sentence for each that can't be understood: it costs itself, as a record that can't be read."""
    nodes: dict[NodeName, Node] = {}
    broken: list[str] = []
    for record in records:
        try:
            nodes[record.name] = _join(record, pool_of.get(record.name), known)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this node's
            broken.append(_surprise(f"node {record.name} is left alone: understanding it", error))
    return nodes, broken


def _join(record: NodeRecord, pool: Pool | None, known: _Known) -> Node:
    operation = known.ops.get(record.name)
    standing = known.standings.get(record.name, ORDINARY)
    machine = known.serving.get(record.name) if pool else None
    node = Node(
        record.name,
        record.shape,
        record.free,
        record.states,
        power=Power.ON,
        site=pool.site if pool else HOME,
        pool=pool.name if pool else None,
        features=record.features,
        partitions=record.partitions,
        reason=record.reason,
        address=record.address,
        machine=machine,
        op=operation.id if operation else None,
        reserved=standing.reserved,
        resting=standing.resting,
        until=standing.until,
    )
    if pool is None:
        return node
    power = _power(node, operation)
    idle = power is Power.ON and machine is not None and node.registered and not node.busy
    said = announced(known.notices.get(machine.id, ()) if machine else (), _drain_reason(node), known.now)
    return replace(
        node,
        power=power,
        sick=_sick(node, power, pool, known) or _sick_by_its_cloud(node, power, said.sick),
        free=record.shape if power is Power.STARTING else record.free,
        address=machine.address if machine and power is Power.ON else record.address,
        idle_since=min(known.idle.get(node.name, known.now), known.now) if idle else None,
        for_job=known.jobs.get(node.name),
        notice=said.taken,
        at_risk=said.at_risk,
        until=min(filter(None, (standing.until, said.taken.deadline if said.taken else None)), default=None),
        kept=_kept(pool, node.name),
    )


def _kept(pool: Pool, name: NodeName) -> bool:
    return pool.static or name in pool.never_terminate


def _helpers(pools: Iterable[Pool], known: _Known) -> dict[NodeName, Node]:
    """The nodes of pools that are not Slurm's: a machine is all there is to see of them."""
    pools = list(pools)
    # A machine that is kept powered off needs nobody's help.
    at_work = {name for name, machine in known.serving.items() if machine.state is not MachineState.STOPPED}
    nodes: dict[NodeName, Node] = {}
    for pool in pools:
        if pool.partitions:
            continue
        for name in pool.nodes:
            machine, operation = known.serving.get(name), known.ops.get(name)
            said = announced(known.notices.get(machine.id, ()) if machine else (), "", known.now)
            node = Node(
                name,
                pool.shape,
                Shape(0, 0),
                frozenset(),
                power=Power.ON,
                site=pool.site,
                pool=pool.name,
                machine=machine,
                address=machine.address if machine else "",
                op=operation.id if operation else None,
                notice=said.taken,
                at_risk=said.at_risk,
                kept=_kept(pool, name),
                outside=True,
            )
            power = _power(node, operation)
            unused = power is Power.ON and not any(
                other in at_work or other in known.ops
                for helped in pools
                if name in helped.helpers
                for other in helped.nodes
            )
            nodes[name] = replace(
                node,
                power=power,
                sick=_sick(node, power, pool, known) or _sick_by_its_cloud(node, power, said.sick),
                idle_since=min(known.idle.get(name, known.now), known.now) if unused else None,
            )
    return nodes


def _power(node: Node, operation: Operation | None) -> Power:
    if node.machine is None or node.machine.state is MachineState.STOPPED:
        # A start that may have taken effect counts as one that has, or its worth would be started twice.
        if operation and operation.verb is Verb.START:
            return Power.STARTING
        return Power.OFF if node.machine else Power.GONE
    if node.machine.state is not MachineState.RUNNING:
        return POWER[node.machine.state]
    # While our drain holds, a node that has not registered is still booting; without it, Slurm has lost it.
    return Power.ON if node.registered or not node.drained_by_us else Power.STARTING


def _sick(node: Node, power: Power, pool: Pool, known: _Known) -> str:
    machine = node.machine
    # Where a machine that is off may be powered on by now, when it was launched last says nothing.
    booting = machine is not None and power is Power.STARTING and machine.state is not MachineState.STOPPED
    if machine and booting and known.now - machine.launched > pool.boot_limit_s:
        return f"machine {machine.id} has not joined Slurm within {pool.boot_limit_s:.0f} s"
    if (
        machine
        and power is Power.STOPPING
        and known.now - known.stopping.get(machine.id, known.now) > (pool.shutdown_limit_s)
    ):
        return f"machine {machine.id} has not shut down within {pool.shutdown_limit_s:.0f} s"
    if machine and power is Power.ON and node.states & INVALID_STATES:
        own = "it registered with less than its pool promises"
        slurms = node.reason if node.reason and not node.reason.startswith(OUR_MARK) else own
        return f"Slurm refuses machine {machine.id}: {slurms}"
    if power is Power.ON and "DOWN" in node.states and not node.reason.startswith(OUR_MARK):
        return f"Slurm has lost it: {node.reason or 'down'}"
    return ""


def _drain_reason(node: Node) -> str:
    """What we, or the node in our name, have drained it for. Without a machine it says nothing of one."""
    return node.reason if node.machine and node.drained_by_us else ""


def _sick_by_its_cloud(node: Node, power: Power, why: str) -> str:
    """A machine that still boots has its own limit."""
    return f"machine {node.machine.id} does not work: {why}" if why and node.machine and power is Power.ON else ""
