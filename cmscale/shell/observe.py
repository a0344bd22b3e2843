"""What is there? Machines, then nodes, then jobs, joined into one snapshot.

In this order, so that a race errs toward too little, which the next tick heals: a node that Slurm shows is never older
than its machine, a job never older than the nodes it might use. What can't be read is named: an unseen site or an
unseen Slurm is no evidence of absence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from cmscale.model import (
    HOME,
    INVALID_STATES,
    OUR_MARK,
    Job,
    Machine,
    MachineId,
    MachineState,
    Node,
    NodeName,
    NodeRecord,
    Operation,
    OpId,
    Pool,
    PoolName,
    Power,
    Site,
    SiteKind,
    SiteName,
    Snapshot,
    Verb,
)
from cmscale.ports import Clock, Journal, Provider, Reading, Scheduler, Unavailable

SETTLING_S = 120.0
"""How long a machine that a call has made may be missing from listings: EC2's describe lags behind its launches."""

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


def observe(world: World, tick: str, memory: Memory) -> Snapshot:
    """One consistent look at everything. Never raises for a world that does not answer."""
    sites, machines = _machines(world, memory)
    now = world.clock.now()
    unseen = ""
    records: Reading[NodeRecord] = Reading(())
    jobs: Reading[Job] = Reading(())
    try:
        records, jobs = world.scheduler.nodes(), world.scheduler.jobs()
    except Unavailable as error:
        unseen = str(error)
    serving, surplus = _serving(_with_fresh(machines, world.journal.fresh(now - SETTLING_S), memory), records.items)
    ops = {node: operation for operation in world.journal.under_way() for node in operation.nodes}
    known = _Known(serving, ops, world.journal.idle(), now)
    pool_of = {name: pool for pool in world.pools.values() for name in pool.nodes}
    nodes = {record.name: _join(record, pool_of.get(record.name), known) for record in records.items}
    strays = () if unseen else _strays(nodes, serving)
    return Snapshot(
        now=now,
        tick=tick,
        jobs=jobs.items,
        nodes=MappingProxyType(nodes),
        pools=world.pools,
        sites=MappingProxyType(sites),
        closed=MappingProxyType(dict(world.journal.closed())),
        creations=MappingProxyType(dict(world.journal.creations({job.id: job.submit for job in jobs.items}))),
        starts=world.journal.starts(now - 3600),
        surplus=surplus,
        unseen=unseen,
        unreadable=(*records.unreadable, *jobs.unreadable, *strays),
    )


def idle_changes(view: Snapshot, known: Mapping[NodeName, float]) -> dict[NodeName, float | None]:
    """What the journal must learn about idle nodes: since when, or None for those that are idle no more."""
    idle: dict[NodeName, float | None] = {
        node.name: node.idle_since for node in view.nodes.values() if node.idle_since is not None
    }
    changed = {name: since for name, since in idle.items() if known.get(name) != since}
    return changed | {name: None for name in known if name not in idle and name in view.nodes}


# --- machines --------------------------------------------------------------------------------------------------------


def _machines(world: World, memory: Memory) -> tuple[dict[SiteName, Site], list[Machine]]:
    sites = {HOME: Site(HOME, SiteKind.ONPREM)} | dict(world.sites)
    machines: list[Machine] = []
    if not world.providers:
        return sites, machines
    with ThreadPoolExecutor(max_workers=len(world.providers)) as threads:
        listings = {name: threads.submit(provider.list) for name, provider in world.providers.items()}
    for name, listing in listings.items():
        try:
            seen = {machine.id: machine for machine in listing.result()}
        except Unavailable as error:
            sites[name] = replace(sites[name], unseen=str(error))
            machines += memory.machines.get(name, {}).values()
            continue
        machines += _confirmed(seen, memory, name)
    return sites, machines


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


def _serving(
    machines: Iterable[Machine], records: Iterable[NodeRecord]
) -> tuple[dict[NodeName, Machine], tuple[Machine, ...]]:
    """The machine that serves each node, and the others of its name; the one Slurm talks to serves, else the oldest."""
    addresses = {record.name: record.address for record in records}
    serving: dict[NodeName, Machine] = {}
    order = sorted(
        machines,
        key=lambda machine: (
            machine.state in {MachineState.ENDING, MachineState.STOPPING},
            not machine.address or machine.address != addresses.get(machine.node),
            machine.launched,
            machine.id,
        ),
    )
    surplus = [machine for machine in order if serving.setdefault(machine.node, machine) is not machine]
    return serving, tuple(machine for machine in surplus if machine.state is not MachineState.ENDING)


# --- nodes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of nodes besides Slurm's records."""

    serving: Mapping[NodeName, Machine]
    ops: Mapping[NodeName, Operation]
    idle: Mapping[NodeName, float]
    now: float


def _join(record: NodeRecord, pool: Pool | None, known: _Known) -> Node:
    operation = known.ops.get(record.name)
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
        machine=known.serving.get(record.name) if pool else None,
        op=operation.id if operation else None,
    )
    if pool is None:
        return node
    power = _power(node, operation)
    node = replace(node, power=power, sick=_sick(node, power, pool, known.now))
    if power is Power.STARTING:
        return replace(node, free=record.shape)
    if power is Power.ON and node.machine:
        idle = node.registered and not node.busy
        since = known.idle.get(node.name, known.now) if idle else None
        return replace(node, address=node.machine.address, idle_since=since)
    return node


def _power(node: Node, operation: Operation | None) -> Power:
    if node.machine is None:
        # A start that may have taken effect counts as one that has, or its worth would be started twice.
        return Power.STARTING if operation and operation.verb is Verb.START else Power.GONE
    if node.machine.state is not MachineState.RUNNING:
        return POWER[node.machine.state]
    # While our drain holds, a node that has not registered is still booting; without it, Slurm has lost it.
    return Power.ON if node.registered or not node.drained_by_us else Power.STARTING


def _sick(node: Node, power: Power, pool: Pool, now: float) -> str:
    if node.machine and power is Power.STARTING and now - node.machine.launched > pool.boot_limit_s:
        return f"machine {node.machine.id} has not joined Slurm within {pool.boot_limit_s:.0f} s"
    if power is Power.ON and node.states & INVALID_STATES:
        return f"Slurm refuses it: {node.reason or 'it registered with less than was promised'}"
    if power is Power.ON and "DOWN" in node.states and not node.reason.startswith(OUR_MARK):
        return f"Slurm has lost it: {node.reason or 'down'}"
    return ""


def _strays(nodes: Mapping[NodeName, Node], serving: Mapping[NodeName, Machine]) -> tuple[str, ...]:
    return tuple(
        f"machine {machine.id} carries our tag and the node name {name}, which "
        + ("belongs to no pool" if name in nodes else "Slurm does not know")
        + "; it is left alone: declare the node or delete the machine"
        if name
        else f"machine {machine.id} carries our tag but no readable node name; it is left alone: delete it by hand"
        for name, machine in sorted(serving.items())
        if name not in nodes or nodes[name].pool is None
    )
