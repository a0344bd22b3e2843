"""Who could serve whom: which nodes can hold a job, which are in use by Slurm or could be started?

The one place that matches asks with shapes, partitions and constraints, so that two policies never disagree about what
fits. A refusal is either permanent (`refuses`) or holds now and not for ever (`not_now`). `cmscale.placing.room` places
jobs one after the other; `cmscale.placing.offers` tells what stands against one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from cmscale.model import (
    BLOCKED_STATES,
    HOME,
    Ask,
    FactKind,
    Help,
    Job,
    Node,
    Pool,
    PoolName,
    Power,
    Queue,
    Shape,
    SiteName,
    Snapshot,
)

RESERVED_BLOCKED_STATES = BLOCKED_STATES - {"RESERVED"}
"""What keeps jobs off a reserved node; the reservation itself doesn't keep its own jobs off."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes that are alike for every job."""

    site: SiteName
    pool: PoolName | None
    shape: Shape
    features: frozenset[str]
    partitions: tuple[str, ...]
    reserved: str = ""
    until: float | None = None

    @property
    def name(self) -> str:
        return f"pool {self.pool}" if self.pool else HOME

    @property
    def lasting(self) -> Kind:
        """Without what holds only now: reservations and the end of its time."""
        return replace(self, reserved="", until=None) if self.reserved or self.until is not None else self


_kind = lru_cache(maxsize=16384)(Kind)  # asked for with every node in every tick, and each time the same few


def kind(node: Node) -> Kind:
    return _kind(node.site, node.pool, node.shape, node.features, node.partitions, node.reserved, node.until)


def is_coming_or_up(node: Node) -> bool:
    """True if Slurm may use the node now, or as soon as it has joined."""
    if node.resting or node.outside:
        return False
    if node.power is Power.STARTING:
        return True
    if node.power is not Power.ON:
        return False
    blocked = node.states & (RESERVED_BLOCKED_STATES if node.reserved else BLOCKED_STATES)
    return not blocked or (node.registered and node.drained_by_us)


def is_startable(view: Snapshot, node: Node) -> bool:
    """True if a machine could be started for the node now."""
    pool = view.pools.get(node.pool) if node.pool else None
    return pool is not None and may_start(view, pool, node) and starts(view, pool)


def may_start(view: Snapshot, pool: Pool, node: Node) -> bool:
    """True if nothing of the node itself stands against a start."""
    return ((node.power is Power.GONE and not pool.static) or node.power is Power.OFF) and not (
        node.op
        or node.resting
        or node.outside
        or node.held_by_human
        or (view.facts and (FactKind.QUARANTINE, node.name) in view.facts)
    )


def starts(view: Snapshot, pool: Pool) -> bool:
    """True if the pool may start machines now, as far as its site is concerned."""
    site = view.sites[pool.site]
    return view.shut(pool) is None and site.reachable and not (view.drained(pool.site) or site.expiring(view.now))


# --- one job against one kind ----------------------------------------------------------------------------------------


def share(ask: Ask, nodes: int, shape: Shape) -> Shape | None:
    """What the job takes of each node if it has `nodes` of this shape; None if a node can't give that.

    Tasks are dealt evenly, as Slurm's block distribution fills them; the fullest node counts.
    """
    tasks = _ceil(ask.tasks, nodes)
    if ask.tasks_per_node and tasks > ask.tasks_per_node:
        return None
    gpus = max(ask.gpus_per_node, _ceil(ask.gpus, nodes), tasks * ask.gpus_per_task)
    cpus = max(ask.cpus_per_node, tasks * ask.cpus_per_task, gpus * ask.cpus_per_gpu)
    mem_mb = max(ask.mem_mb_per_node, cpus * ask.mem_mb_per_cpu, gpus * ask.mem_mb_per_gpu)
    need = Shape(cpus, mem_mb, gpus, ask.gpu_type)
    if not shape.fits(need):
        return None
    if ask.exclusive:
        return shape
    if ask.whole_memory:
        need = Shape(cpus, shape.mem_mb, gpus, ask.gpu_type)
    return need


@lru_cache(maxsize=65536)
def nodes_needed(ask: Ask, shape: Shape) -> int | None:
    """The least number of nodes of this shape that hold the whole job; None if no number does."""
    most = max(ask.nodes, ask.tasks, ask.gpus)
    if share(ask, most, shape) is None:
        return None
    low, high = ask.nodes, most
    while low < high:  # the share only shrinks with more nodes, so halving finds the least
        middle = (low + high) // 2
        if share(ask, middle, shape) is None:
            low = middle + 1
        else:
            high = middle
    return low


def packs(free: Shape, need: Shape) -> int:
    """How many times `need` fits into `free`."""
    if not free.fits(need):
        return 0
    counts = [
        have // want
        for have, want in ((free.cpus, need.cpus), (free.mem_mb, need.mem_mb), (free.gpus, need.gpus))
        if want
    ]
    return min(counts, default=1)


NO_QUEUES: Mapping[str, Queue] = MappingProxyType({})


def refuses(ask: Ask, of: Kind, queues: Mapping[str, Queue] = NO_QUEUES) -> str:
    """Why nodes of this kind can never be part of this job; empty if they can.

    With `queues` also: why none is ever started for it. What is up already is Slurm's to use.
    """
    common = set(of.partitions).intersection(ask.partitions)
    if not common:
        return f"is not in partition {' or '.join(ask.partitions)}"
    if not any(part.met_by(of.features) for choice in ask.constraint.choices for part in choice):
        return f"lacks the features of --constraint={ask.constraint.text}"
    if nodes_needed(ask, of.shape) is None:
        return _too_small(ask, of.shape)
    if of.pool and not any(starts_for(queues.get(partition), of.pool) for partition in common):
        return f"starts no machines for partition {' or '.join(sorted(common))}"
    return ""


def starts_for(queue: Queue | None, pool: PoolName) -> bool:
    """True if jobs of this queue may start machines of this pool."""
    return queue is None or queue.pools is None or pool in queue.pools


def not_now(ask: Ask, of: Kind, now: float, lead_s: float = 0.0) -> str:
    """Why nodes of this kind, ready after `lead_s`, are not this job's now though they could be; empty if they are."""
    if of.reserved and of.reserved != ask.reservation:
        return f"is reserved ({of.reserved})"
    if ask.reservation and not of.reserved:
        return f"is not in the job's reservation {ask.reservation}"
    if of.until is not None and (ask.limit_s is None or now + lead_s + ask.limit_s > of.until):
        may_take = "has no time limit" if ask.limit_s is None else f"may take {_minutes(lead_s + ask.limit_s)}"
        left_s = max(of.until - now, 0.0)
        return (
            f"may serve for another {_minutes(left_s)} (until a reservation or its hours' end), and the job {may_take}"
        )
    if ask.deadline is not None and now + lead_s + (ask.limit_s or 0) > ask.deadline:
        return "would let it end after its deadline"
    return ""


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _too_small(ask: Ask, shape: Shape) -> str:
    gpus = max(ask.gpus_per_node, ask.gpus_per_task)
    if (gpus or ask.gpus) and not shape.gpus:
        return "has no GPU"
    if (gpus or ask.gpus) and ask.gpu_type and ask.gpu_type != shape.gpu_type:
        return f"has {shape.gpu_type or 'other'} GPUs, not {ask.gpu_type}"
    if gpus > shape.gpus:
        return f"has {shape.gpus} of the {gpus} GPUs asked for on each node"
    cpus = max(ask.cpus_per_node, ask.cpus_per_task, max(gpus, 1 if ask.gpus else 0) * ask.cpus_per_gpu)
    if cpus > shape.cpus:
        return f"has {shape.cpus} of the {cpus} CPUs asked for on each node"
    mem_mb = max(ask.mem_mb_per_node, cpus * ask.mem_mb_per_cpu, max(gpus, 1) * ask.mem_mb_per_gpu)
    if mem_mb > shape.mem_mb:
        return f"has {shape.mem_mb} of the {mem_mb} MiB of memory asked for on each node"
    return "is too small for the tasks asked for on each node"


def _ceil(amount: int, parts: int) -> int:
    return -(-amount // parts)


# --- the queue -------------------------------------------------------------------------------------------------------


class Group(NamedTuple):
    """Pending jobs that ask alike and stand beside one another in the queue, the most urgent first."""

    ask: Ask
    jobs: Sequence[Job]
    tasks: int


def groups(jobs: Iterable[Job], key: Callable[[Job], object] | None = None) -> Iterator[Group]:
    """Jobs that more nodes would help, in Slurm's order; neighbours that ask alike, and of whom `key` says the same,
    are one group. Equal asks come out as one value."""
    waiting = [job for job in jobs if job.help is Help.NODES and job.state == "PENDING"]
    # One after the other: each sort compares plain values, which takes a third of the time that tuples take.
    waiting.sort(key=attrgetter("id"))
    waiting.sort(key=attrgetter("submit"))
    waiting.sort(key=attrgetter("priority"), reverse=True)
    one_value: dict[Ask, Ask] = {}
    known: dict[int, Ask] = {}  # by identity, which is told apart faster than asks are compared
    run: list[Job] = []
    count, last, last_also = 0, None, None
    for job in waiting:
        ask = known.get(id(job.ask))
        if ask is None:
            ask = known[id(job.ask)] = one_value.setdefault(job.ask, job.ask)
        also = key and key(job)
        if ask is last and also == last_also:
            run.append(job)
            count += job.count
            continue
        if last:
            yield Group(last, run, count)
        run, count, last, last_also = [job], job.count, ask, also
    if last:
        yield Group(last, run, count)
