"""What stands against a job: can it never be served, or not now, and what would each pool cost it?

`Room` says where a job goes; this says why it goes nowhere, and what else there would be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cmscale.fit import (
    Kind,
    is_coming_or_up,
    kind,
    may_start,
    nodes_needed,
    not_now,
    refuses,
    share,
    starts,
    starts_for,
)
from cmscale.model import Ask, FactKind, Node, Pool, PoolName, Power, Queue, Site, SiteName, Snapshot
from cmscale.placing.quota import Quota, quotas
from cmscale.placing.ways import Kinds, kinds_of, mixing, ways


@dataclass(frozen=True, slots=True)
class Stock:
    """What nodes there can be at once, whatever state they are in now."""

    counts: Mapping[Kind, int]
    by_name: Sequence[tuple[str, Kind]]
    """Each with its name; home is the last."""
    queues: Mapping[str, Queue]
    kinds: Kinds
    have: Mapping[str, Sequence[int]]
    """For each partition and kind (pools left aside): how many of its nodes jobs of that partition may get."""
    pools: Mapping[str, Sequence[Sequence[PoolName]]]
    """For each partition and kind: the pools from which it may start them."""


def stock(view: Snapshot) -> Stock:
    names: Counter[Kind] = Counter()
    for of, count in Counter(map(kind, view.nodes.values())).items():
        names[of.lasting] += count
    counts = {of: min(count, view.pools[of.pool].most) if of.pool else count for of, count in names.items()}
    kinds = kinds_of(tuple(counts), mixing(view))
    have: dict[str, list[int]] = defaultdict(lambda: [0] * len(kinds.every))
    pools: dict[str, list[list[PoolName]]] = defaultdict(lambda: [[] for _ in kinds.every])
    for of, count in counts.items():
        for partition in of.partitions:
            if of.pool is None:
                have[partition][kinds.places[of]] += count
            elif starts_for(view.queues.get(partition), of.pool):
                have[partition][kinds.places[of]] += count
                pools[partition][kinds.places[of]].append(of.pool)
    by_name = sorted(((of.name, of) for of in counts), key=lambda each: (each[1].pool is None, each[0]))
    return Stock(counts, by_name, view.queues, kinds, have, pools)


def never(ask: Ask, of: Stock) -> str:
    """Why no nodes we know, in any state, could ever hold the job; empty if some could."""
    found = ways(ask, of.kinds)
    if any(of.have[partition][at] for partition, by_kind in found.singles.items() for at in by_kind):
        return ""
    short: dict[SiteName, tuple[int, int]] = {}
    for option in found.gangs:
        have = [sum(of.have[option.partition][at] for at in slot.ways) for slot in option.slots]
        if all(there >= slot.nodes for there, slot in zip(have, option.slots, strict=True)):
            return ""
        if all(have):
            short[option.site] = max(short.get(option.site, (0, 0)), (min(have), option.nodes))
    if short:
        return "; ".join(
            f"{site} has at most {there} nodes that fit, {need} are needed"
            for site, (there, need) in sorted(short.items())
        )
    reasons: dict[str, str] = {}
    # Of many pools with few kinds of nodes, each kind is asked once, unless a partition tells its pools apart.
    known: dict[int, str] = {}
    for name, each in of.by_name:
        at = of.kinds.places[each]
        if at not in known or of.queues:
            known[at] = refuses(ask, each, of.queues)
        if known[at]:
            reasons[name] = known[at]
    return "; ".join(f"{name} {why}" for name, why in reasons.items())


def suited(ask: Ask, of: Stock) -> Iterable[PoolName]:
    """The pools from which machines could be started for the job, at some time."""
    places = ways(ask, of.kinds).places
    return dict.fromkeys(pool for partition, local in places for at in local for pool in of.pools[partition][at])


def obstacles(ask: Ask, of: Stock, why_spent: Mapping[PoolName, str]) -> list[str]:
    """For each pool that suits the job: why no more of its nodes can be started now."""
    return [why_spent[pool] for pool in suited(ask, of)]


def spent(view: Snapshot) -> Mapping[PoolName, str]:
    """For each pool: why no more of its nodes can be started now."""
    nodes, quota_of = _by_pool(view), quotas(view)
    return {
        name: f"{name}: {_why_spent(view, pool, nodes[name], quota_of.get(name))}" for name, pool in view.pools.items()
    }


def _by_pool(view: Snapshot) -> Mapping[PoolName, list[Node]]:
    nodes: dict[PoolName, list[Node]] = {name: [] for name in view.pools}
    for node in view.nodes.values():
        if node.pool:
            nodes[node.pool].append(node)
    return nodes


def _why_spent(view: Snapshot, pool: Pool, nodes: Sequence[Node], quota: Quota | None) -> str:
    if why := _why_not_at(view, view.sites[pool.site]):
        return why
    if closed := view.shut(pool):
        return f"closed ({closed.result.value}: {closed.why})"
    more = _startable(view, pool, nodes, quota)
    if more:
        return f"the {len(more)} more machines it may have go to jobs before it, or are too few"
    return _why_nothing_startable(view, pool, nodes, quota)


def _why_nothing_startable(view: Snapshot, pool: Pool, nodes: Sequence[Node], quota: Quota | None) -> str:
    if quota and not quota.room(pool):
        return f"{quota.text}, and a machine takes {pool.quota_cpus}"
    off = [node for node in nodes if node.power in {Power.GONE, Power.OFF}]
    if sum(node.power is not Power.GONE for node in nodes) >= pool.most and not any(
        node.power is Power.OFF for node in off
    ):
        return f"all {pool.most} machines are in use" if pool.most > 1 else "its one machine is in use"
    return next((why for node in off if (why := _why_not_startable(view, node))), "none of its nodes can be started")


def _why_not_at(view: Snapshot, site: Site) -> str:
    """Why nothing is started at a site now."""
    if not site.reachable:
        return f"{site.name} could not be read ({site.unseen})"
    if drained := view.drained(site.name):
        return f"{site.name} is drained ({drained.why})"
    return f"the credentials of {site.name} are about to end" if site.expiring(view.now) else ""


def _startable(view: Snapshot, pool: Pool, nodes: Sequence[Node], quota: Quota | None) -> list[Node]:
    """The nodes that could be started now, those whose machine is kept first."""
    free = pool.most - sum(node.power is not Power.GONE for node in nodes)
    may = [node for node in nodes if may_start(view, pool, node)] if starts(view, pool) else []
    gone = [node for node in may if node.power is Power.GONE]
    found = [node for node in may if node.power is Power.OFF] + gone[: max(free, 0)]
    return found if quota is None else found[: quota.room(pool)]


def _why_not_startable(view: Snapshot, node: Node) -> str:
    if node.resting:
        return f"{node.name} rests ({node.resting})"
    if fact := view.fact(FactKind.QUARANTINE, node.name):
        return f"{node.name} is in quarantine ({fact.why})"
    if node.held_by_human:
        return f"{node.name} is drained by a person ({node.reason})"
    return f"operation {node.op} is under way on {node.name}" if node.op else ""


# --- what each pool would cost a job ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offer:
    """What one pool has for one job."""

    pool: PoolName
    site: SiteName
    nodes: int
    price_hour: float
    """Of all the nodes."""
    ready_in_s: float
    obstacle: str
    """Why nothing is started from it for the job now; empty if it could be."""


class Offers:
    """What the pools have for any job, in one snapshot: what does not hang on the job is found out once."""

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        self.stock = stock(view)
        self.nodes = _by_pool(view)
        self.spent = spent(view)
        quota_of = quotas(view)
        self.up: dict[PoolName, list[Node]] = {}
        self.startable: dict[PoolName, Counter[Kind]] = {}
        for name, nodes in self.nodes.items():
            pool = view.pools[name]
            self.up[name] = [
                node for node in nodes if node.power is Power.ON and is_coming_or_up(node) and not node.held_by_human
            ]
            self.startable[name] = Counter(kind(node) for node in _startable(view, pool, nodes, quota_of.get(name)))

    def to(self, ask: Ask) -> list[Offer]:
        """The offers of all pools that suit the job at all, in the order in which they are taken."""
        found = [self._offer(ask, self.view.pools[name]) for name in suited(ask, self.stock)]
        return sorted(found, key=lambda each: (-self.view.pools[each.pool].priority, each.price_hour, each.pool))

    def _offer(self, ask: Ask, pool: Pool) -> Offer:
        number = max(nodes_needed(ask, pool.shape) or 1, len(ask.nodelist))
        need = share(ask, number, pool.shape)
        up = [
            node
            for node in self.up[pool.name]
            if need and node.free.fits(need) and not not_now(ask, kind(node), self.view.now)
        ]
        obstacle = self._obstacle(ask, pool, number - min(len(up), number))
        ready_in_s = 0.0 if len(up) >= number else pool.boot_s
        return Offer(pool.name, pool.site, number, number * pool.price_hour, ready_in_s, obstacle)

    def _obstacle(self, ask: Ask, pool: Pool, wanted: int) -> str:
        may = 0
        passing = ""
        for of, number in self.startable[pool.name].items():
            why = refuses(ask, of.lasting) or not_now(ask, of, self.view.now, pool.boot_s)
            passing = passing or why
            may += 0 if why else number
        if may and may >= wanted:
            return ""
        if passing:
            return f"{pool.name} {passing}"
        if may:
            return f"{pool.name}: {may} more machines can be started, {wanted} are needed"
        return self.spent[pool.name]


def offers(view: Snapshot, ask: Ask) -> list[Offer]:
    """What the pools have for one job."""
    return Offers(view).to(ask)
