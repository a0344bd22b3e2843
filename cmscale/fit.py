"""Who could serve whom: which nodes can hold a job, which are free or could be started, and what that would cost?

The one place that matches asks with shapes, partitions and constraints. Policies place jobs through `Room`, so that
two policies never disagree about what fits, and `never` tells apart "not now" from "not ever".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from cmscale.model import (
    HOME,
    Ask,
    Help,
    Job,
    Node,
    NodeName,
    Part,
    Pool,
    PoolName,
    Power,
    Shape,
    SiteName,
    Snapshot,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes that are alike for every job: same site, pool, room, features and partitions."""

    site: SiteName
    pool: PoolName | None
    shape: Shape
    features: frozenset[str]
    partitions: frozenset[str]

    @property
    def name(self) -> str:
        return f"pool {self.pool}" if self.pool else HOME


def kind(node: Node) -> Kind:
    return Kind(node.site, node.pool, node.shape, node.features, frozenset(node.partitions))


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


def refuses(ask: Ask, of: Kind) -> str:
    """Why nodes of this kind can never be part of this job; empty if they can."""
    if not of.partitions.intersection(ask.partitions):
        return f"is not in partition {' or '.join(ask.partitions)}"
    if not any(part.met_by(of.features) for choice in ask.constraint.choices for part in choice):
        return f"lacks the features of --constraint={ask.constraint.text}"
    if nodes_needed(ask, of.shape) is None:
        return _too_small(ask, of.shape)
    return ""


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


@dataclass(frozen=True, slots=True)
class Group:
    """Pending jobs that ask alike and stand beside one another in the queue, the most urgent first."""

    ask: Ask
    jobs: tuple[Job, ...]

    @property
    def count(self) -> int:
        return sum(job.count for job in self.jobs)


def groups(jobs: Iterable[Job]) -> list[Group]:
    """Jobs that more nodes would help, in Slurm's order; neighbours that ask alike are one group."""
    waiting = [job for job in jobs if job.pending and job.help is Help.NODES]
    waiting.sort(key=lambda job: (-job.priority, job.submit, job.id))
    return [Group(ask, tuple(alike)) for ask, alike in groupby(waiting, key=attrgetter("ask"))]


# --- room for jobs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placement:
    """Nodes that would hold one job (or, on one node, `times` alike jobs), all at one site."""

    site: SiteName
    nodes: tuple[Node, ...]
    """Up or coming already."""
    new: tuple[Node, ...]
    """To be started."""
    shares: tuple[Shape, ...] = ()
    """What the job takes of each node, in the order nodes + new."""
    times: int = 1


@dataclass(slots=True)
class Room:
    """The room left while jobs are placed, one after the other: on nodes that are up or coming, and on new ones."""

    view: Snapshot
    free: dict[Kind, dict[Shape, dict[NodeName, Node]]] = field(default_factory=dict)
    """Nodes that are up or coming, by the room they have left."""
    startable: dict[Kind, dict[NodeName, Node]] = field(default_factory=dict)
    rooms: dict[NodeName, Shape] = field(default_factory=dict)
    """The room that each node of `free` has left."""
    left: Counter[PoolName] = field(default_factory=Counter)
    """How many more machines each pool may have."""
    options: dict[Ask, list[Option]] = field(default_factory=dict)
    """The ways of each ask that was placed before, without those that have found no room, for room only shrinks."""

    @classmethod
    def of(cls, view: Snapshot, claimed: frozenset[NodeName], tired: frozenset[NodeName] = frozenset()) -> Room:
        """All the room in view but on `claimed` nodes; the room of `tired` nodes, though up, is not counted."""
        room = cls(view)
        for pool in view.pools.values():
            room.left[pool.name] = pool.most
        for node in view.nodes.values():
            if node.pool and node.power is not Power.GONE:
                room.left[node.pool] -= 1
            if node.name in claimed or node.held_by_human or node.sick:
                continue
            if is_coming_or_up(node):
                if node.name not in tired:
                    room._add(kind(node), node, node.free)
            elif is_startable(view, node):
                room.startable.setdefault(kind(node), {})[node.name] = node
        return room

    def place(self, ask: Ask, count: int) -> Iterator[Placement]:
        """Place up to `count` jobs that ask this, the cheapest way first; stops at the first that finds no room."""
        if ask not in self.options:
            self.options[ask] = list(_options(ask, self._kinds()))
        while count > 0 and (best := self._best(ask, count)):
            self._take(best)
            count -= best.times
            yield best

    def _best(self, ask: Ask, count: int) -> Placement | None:
        """The cheapest placement; the ways that have found no room are forgotten."""
        found: list[Placement] = []
        still: list[Option] = []
        options = self.options[ask]
        for at, option in enumerate(options):
            if placement := self._fill(ask, option, count):
                found.append(placement)
                still.append(option)
                if not placement.new:  # nothing is cheaper
                    still += options[at + 1 :]
                    break
        self.options[ask] = still
        return min(found, key=self._cost, default=None)

    def _kinds(self) -> list[Kind]:
        return list(dict.fromkeys([*self.free, *self.startable]))

    def _cost(self, placement: Placement) -> _Cost:
        """What decides among placements: nothing new, then the pool's priority, then dollars an hour for each job."""
        pools = [self.view.pools[node.pool] for node in placement.new if node.pool]
        price = sum(pool.price_hour for pool in pools) / placement.times
        return (bool(pools), -min((pool.priority for pool in pools), default=0), price, len(pools))

    def _fill(self, ask: Ask, option: Option, count: int) -> Placement | None:
        """The nodes for one job this way (on a single node, for as many of `count` as it holds), those that are up or
        coming first; None if there are not enough."""
        used: set[NodeName] = set()
        nodes: list[Node] = []
        new: list[Node] = []
        shares: dict[NodeName, Shape] = {}
        budget: dict[PoolName, int] = {}
        for slot in option.slots:
            wanted = slot.count
            for node, fresh, need in self._candidates(ask, slot):
                if wanted == 0:
                    break
                if node.name in used:
                    continue
                if fresh and node.pool:
                    so_far = budget.get(node.pool, 0)
                    if so_far >= self.left[node.pool]:
                        continue
                    budget[node.pool] = so_far + 1
                used.add(node.name)
                shares[node.name] = need
                (new if fresh else nodes).append(node)
                wanted -= 1
            if wanted:
                return None
        if not ask.nodelist <= used:
            return None
        placed = (*nodes, *new)
        needs = tuple(shares[node.name] for node in placed)
        times = 1
        if option.nodes == 1:
            times = max(1, min(count, packs(placed[0].shape if new else self.rooms[placed[0].name], needs[0])))
        return Placement(option.site, tuple(nodes), tuple(new), needs, times)

    def _candidates(self, ask: Ask, slot: Slot) -> Iterable[tuple[Node, bool, Shape]]:
        """(node, to be started?, share) for one slot: what must be used, what is there, what is cheapest to add."""
        found = self._all(ask, slot.kinds)
        return sorted(found, key=lambda each: each[0].name not in ask.nodelist) if ask.nodelist else found

    def _all(self, ask: Ask, fitting: Sequence[tuple[Kind, Shape]]) -> Iterator[tuple[Node, bool, Shape]]:
        for of, need in fitting:
            for room, nodes in self.free.get(of, {}).items():
                if room.fits(need) and (not ask.exclusive or room == of.shape):
                    for name, node in nodes.items():
                        if name not in ask.exclude:
                            yield node, False, need
        for of, need in sorted(fitting, key=self._dearness) if len(fitting) > 1 else fitting:
            for name, node in self.startable.get(of, {}).items():
                if name not in ask.exclude:
                    yield node, True, need

    def _dearness(self, pair: tuple[Kind, Shape]) -> tuple[int, float]:
        pool = self.view.pools.get(pair[0].pool) if pair[0].pool else None
        return (-pool.priority, pool.price_hour) if pool else (0, 0.0)

    def _take(self, placement: Placement) -> None:
        for node, need in zip((*placement.nodes, *placement.new), placement.shares, strict=True):
            of = kind(node)
            room = self.rooms.pop(node.name, None)
            if room is None:  # it is to be started
                room = node.shape
                del self.startable[of][node.name]
                if node.pool:
                    self.left[node.pool] -= 1
            else:
                del self.free[of][room][node.name]
                if not self.free[of][room]:
                    del self.free[of][room]
            self._add(of, node, room.less(need, placement.times))

    def _add(self, of: Kind, node: Node, room: Shape) -> None:
        if room.cpus > 0:
            self.free.setdefault(of, {}).setdefault(room, {})[node.name] = node
            self.rooms[node.name] = room


_Cost = tuple[bool, int, float, int]


@dataclass(frozen=True, slots=True)
class Slot:
    """So many nodes of a job, and the kinds that may give them, each with the share the job takes of it."""

    count: int
    kinds: tuple[tuple[Kind, Shape], ...]


@dataclass(frozen=True, slots=True)
class Option:
    """One way to place a job: a site, a partition, a choice of its constraint, a number of nodes."""

    site: SiteName
    nodes: int
    slots: tuple[Slot, ...]


def _options(ask: Ask, kinds: Iterable[Kind]) -> Iterator[Option]:
    """Every way the kinds allow: all nodes at one site and in one partition."""
    by_site: dict[SiteName, list[Kind]] = defaultdict(list)
    for of in kinds:
        by_site[of.site].append(of)
    for site, local in by_site.items():
        for partition in ask.partitions:
            inside = [of for of in local if partition in of.partitions]
            numbers = {number for of in inside if (number := nodes_needed(ask, of.shape)) is not None}
            for choice in ask.constraint.choices:
                for number in sorted({max(number, _counted(choice), len(ask.nodelist)) for number in numbers}):
                    fitting = tuple((of, need) for of in inside if (need := share(ask, number, of.shape)) is not None)
                    # Jobs of one node may share it, so each kind has its own price a job; a gang may mix kinds.
                    for kinds_used in [(one,) for one in fitting] if number == 1 else [fitting]:
                        yield Option(site, number, _dealt(choice, number, kinds_used))


def _counted(choice: tuple[Part, ...]) -> int:
    return sum(part.count for part in choice)


def _dealt(choice: tuple[Part, ...], nodes: int, kinds: tuple[tuple[Kind, Shape], ...]) -> tuple[Slot, ...]:
    """A slot for each part; the first open part takes what no count names, else the last part does."""
    spare = nodes - _counted(choice)
    open_at = next((at for at, part in enumerate(choice) if part.count == 0), len(choice) - 1)
    return tuple(
        Slot(
            part.count + (spare if at == open_at else 0),
            tuple((of, need) for of, need in kinds if part.met_by(of.features)),
        )
        for at, part in enumerate(choice)
    )


def is_coming_or_up(node: Node) -> bool:
    """True if Slurm may use the node now, or as soon as it has joined."""
    if node.power is Power.STARTING:
        return True
    return node.power is Power.ON and (node.schedulable or (node.registered and node.drained_by_us))


def is_startable(view: Snapshot, node: Node) -> bool:
    """True if a machine could be started for the node now."""
    return (
        node.pool is not None
        and node.power in {Power.GONE, Power.OFF}
        and node.op is None
        and not view.shut(view.pools[node.pool])
        and view.sites[node.site].reachable
        and not node.held_by_human
    )


# --- not now, or not ever --------------------------------------------------------------------------------------------


def stock(view: Snapshot) -> Mapping[Kind, int]:
    """How many nodes of each kind there can be at once, whatever state they are in."""
    names = Counter(kind(node) for node in view.nodes.values())
    return {of: min(count, view.pools[of.pool].most) if of.pool else count for of, count in names.items()}


def never(ask: Ask, of: Mapping[Kind, int]) -> str:
    """Why no nodes we know, in any state, could ever hold the job; empty if some could."""
    suited = [each for each in of if not refuses(ask, each)]
    short: dict[SiteName, tuple[int, int]] = {}
    for option in _options(ask, suited):
        have = [sum(of[each] for each, _ in slot.kinds) for slot in option.slots]
        if all(there >= slot.count for there, slot in zip(have, option.slots, strict=True)):
            return ""
        short[option.site] = max(short.get(option.site, (0, 0)), (min(have), option.nodes))
    if short:
        return "; ".join(
            f"{site} has at most {there} nodes that fit, {need} are needed"
            for site, (there, need) in sorted(short.items())
        )
    reasons = {each.name: refuses(ask, each) for each in sorted(of, key=lambda each: (each.pool is None, each.name))}
    return "; ".join(f"{name} {why}" for name, why in reasons.items())


def spent(view: Snapshot) -> Mapping[PoolName, str]:
    """For each pool: why no more of its nodes can be started now."""
    up = Counter(node.pool for node in view.nodes.values() if node.power is not Power.GONE)
    return {pool.name: f"{pool.name}: {_why_spent(view, pool, up[pool.name])}" for pool in view.pools.values()}


def _why_spent(view: Snapshot, pool: Pool, up: int) -> str:
    site = view.sites[pool.site]
    if not site.reachable:
        return f"{site.name} could not be read ({site.unseen})"
    if closed := view.shut(pool):
        return f"closed ({closed.result.value}: {closed.why})"
    if up >= pool.most:
        return f"all {pool.most} machines are in use"
    return f"the {pool.most - up} more machines it may have go to jobs before it, or are too few"


def obstacles(ask: Ask, of: Iterable[Kind], why_spent: Mapping[PoolName, str]) -> list[str]:
    """For each pool that suits the job: why no more of its nodes can be started now."""
    suited = dict.fromkeys(each.pool for each in of if each.pool and not refuses(ask, each))
    return [why_spent[pool] for pool in suited]
