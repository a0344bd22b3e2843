"""Which nodes would Slurm give a job now?

What is ideal here: first fit in the order of the nodes, and a job of lower priority takes what one of higher priority
cannot use. Reservations are respected as Slurm does it: a job must be able to end before one begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from cmscale import fit
from cmscale.model import BLOCKED_STATES, Ask, Job, NodeName, NodeRecord, Part, Reservation, Shape

CLOSED = BLOCKED_STATES - {"MAINT", "MAINTENANCE", "RESERVED"}
"""What keeps every job off a node; reservations are looked at one by one."""


def place(
    job: Job, nodes: Iterable[NodeRecord], reservations: Iterable[Reservation], now: float
) -> Mapping[NodeName, Shape] | None:
    """What the job takes of each node it gets; None if it has to wait."""
    ask = job.ask
    held = list(reservations)
    open_ = [
        node
        for node in nodes
        if node.free.cpus
        and not node.states & CLOSED
        and node.name not in ask.exclude
        and _may_run(job, node.name, held, now)
    ]
    for partition in ask.partitions:
        inside = [node for node in open_ if partition in node.partitions]
        for number in _numbers(ask, inside):
            shares = _shares(ask, number, inside)
            fitting = sorted(
                (node for node in inside if node.name in shares), key=lambda node: node.name not in ask.nodelist
            )
            for choice in ask.constraint.choices:
                chosen = _dealt(choice, max(number, sum(part.count for part in choice)), fitting)
                if chosen and ask.nodelist <= set(chosen):
                    return {name: shares[name] for name in chosen}
    return None


def _numbers(ask: Ask, nodes: Iterable[NodeRecord]) -> Iterator[int]:
    shapes = dict.fromkeys(node.shape for node in nodes)
    numbers = {number for shape in shapes if (number := fit.nodes_needed(ask, shape)) is not None}
    yield from sorted({max(number, len(ask.nodelist)) for number in numbers})


def _shares(ask: Ask, number: int, nodes: Iterable[NodeRecord]) -> dict[NodeName, Shape]:
    """What the job takes of each node that is free for it now; worked out once for those that are alike."""
    known: dict[tuple[int, int], Shape | None] = {}
    shares: dict[NodeName, Shape] = {}
    for node in nodes:
        alike = id(node.shape), id(node.free)
        if alike not in known:
            known[alike] = _share(ask, number, node)
        if share := known[alike]:
            shares[node.name] = share
    return shares


def _share(ask: Ask, number: int, node: NodeRecord) -> Shape | None:
    """What the job takes of this node, if it is free now."""
    share = fit.share(ask, number, node.shape)
    return share if share and node.free.fits(share) and (not ask.exclusive or node.free == node.shape) else None


def _dealt(choice: tuple[Part, ...], number: int, nodes: Iterable[NodeRecord]) -> list[NodeName]:
    """Nodes for each part of a constraint; empty if there are too few. The first open part takes what is left."""
    left = {node.name: node for node in nodes}
    chosen: list[NodeName] = []
    spare = number - sum(part.count for part in choice)
    open_part = next((part for part in choice if part.count == 0), choice[-1])
    for part in choice:
        wanted = part.count + (spare if part is open_part else 0)
        met = [name for name, node in left.items() if part.met_by(node.features)][:wanted]
        if len(met) < wanted:
            return []
        chosen += met
        for name in met:
            del left[name]
    return chosen


def _may_run(job: Job, node: NodeName, reservations: Iterable[Reservation], now: float) -> bool:
    """False if a reservation keeps the job off the node now, or would before the job can have ended."""
    ends = now + job.ask.limit_s if job.ask.limit_s is not None else inf
    inside = False
    for each in reservations:
        if node not in each.nodes or each.end <= now:
            continue
        if each.name == job.ask.reservation:
            inside = each.active(now) and not each.maintenance and _is_for(each, job)
        elif ends > each.start:
            return False
    return inside or not job.ask.reservation


def _is_for(reservation: Reservation, job: Job) -> bool:
    return job.user in reservation.users or job.account in reservation.accounts
