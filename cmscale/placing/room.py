"""Where would the waiting jobs go, one after the other, and which machines must be started for them?

What is up or coming is used before anything is started; of what could be started, the highest priority and then the
fewest dollars an hour for each job. Room only shrinks: a start turns a machine that could be had into the part of it
that is left. So whoever has found nothing need not look again, and that is what makes a long queue cheap.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import NamedTuple

from cmscale.fit import is_coming_or_up, kind, may_start, not_now, packs, starts, starts_for
from cmscale.model import Ask, Node, NodeName, PoolName, Power, Shape, Snapshot
from cmscale.placing.quota import quotas
from cmscale.placing.supply import Allowance, Entry, Size, Source, Stall, start_order
from cmscale.placing.ways import Kinds, Option, Slot, Way, kinds_of, mixing, ways


class Placement(NamedTuple):
    """Nodes that would hold one job (or, on one node, `times` alike jobs), at one site unless the partition mixes."""

    nodes: tuple[Node, ...]
    """Up or coming already."""
    new: tuple[Node, ...]
    """To be started."""
    times: int = 1


NOTHING_NEW = (False, 0, 0.0, 0)


@dataclass(slots=True, eq=False)
class Search:
    """One ask that looks for room, and what it has learnt."""

    ask: Ask
    singles: Mapping[str, Mapping[int, Way]]
    on_one: list[tuple[Stall, int, int, Shape, str]]
    """The same, as they are looked at: stall, number of the way, place of the kind, share, partition."""
    gangs: list[Option]
    """Those that may still find room."""
    up: list[bool]
    """For each kind: may it serve the job now?"""
    sources: Mapping[str, list[Source]]
    """For each partition: from what the job may start machines, the cheapest first."""
    all_sources: bool
    """True if no source is kept from it: then what it does not find it never will."""
    seen: list[int]
    """For each way: up to which start its kind is known to have no room for it; -1: not known."""
    stuck: int | None = None
    """After how many starts, of all, it found nothing."""


class Batch(NamedTuple):
    """Nodes of one kind for one job."""

    number: int
    need: Shape
    stall: Stall
    there: list[tuple[Size, list[Entry]]]
    """Those that are up or coming."""
    source: Source | None = None
    """From what they are to be started..."""
    node: Node | None = None
    """...and which, where names matter."""


class Draft(NamedTuple):
    """A placement that could be made."""

    cost: tuple[bool, int, float, int]
    """What decides among drafts: nothing new, then priority, then dollars an hour for each job, then few nodes."""
    batches: list[Batch]
    times: int
    partition: str


class Room:
    """The room left while jobs are placed, one after the other: on nodes that are up or coming, and on new ones."""

    def __init__(self, view: Snapshot, kinds: Kinds) -> None:
        self.view = view
        self.kinds = kinds
        self.stalls = [Stall() for _ in kinds.every]
        self.all_up = [True] * len(kinds.every)
        self.passing = kinds.passing
        self.sources: list[Source] = []
        """All that may still start machines, the cheapest first."""
        self.sparing = {name: queue.jobs_per_node for name, queue in view.queues.items() if queue.jobs_per_node}
        """For each partition that wants it: the most jobs that are counted on a node that is not up yet."""
        self.counted: Counter[NodeName] = Counter()
        """How many jobs were counted on each node that is not up yet."""
        self.searches: defaultdict[frozenset[PoolName], dict[int, Search]] = defaultdict(dict)
        """By the identity of the ask, which is told faster than its value."""
        self.starts = 0
        """How many nodes were taken to be started."""
        self.over: set[int] = set()
        """The asks, by identity, for which there is nothing any more, whatever is started for others."""

    @classmethod
    def of(cls, view: Snapshot, claimed: frozenset[NodeName], tired: frozenset[NodeName] = frozenset()) -> Room:
        """All the room in view but on `claimed` nodes; the room of `tired` nodes, though up, is not counted."""
        of_node = [kind(node) for node in view.nodes.values()]
        alike = {id(of): of for of in of_node}  # by identity, which is told faster than value
        room = cls(view, kinds_of(tuple(dict.fromkeys(alike.values())), mixing(view)))
        places = {each: room.kinds.places[of] for each, of in alike.items()}
        machines: Counter[PoolName] = Counter()
        startable: dict[tuple[int, PoolName], list[Node]] = defaultdict(list)
        open_pools = {name: pool for name, pool in view.pools.items() if starts(view, pool)}
        for number, (node, of) in enumerate(zip(view.nodes.values(), of_node, strict=True)):
            if node.pool and node.power is not Power.GONE:
                machines[node.pool] += 1
            if node.name in claimed or node.sick:
                continue
            if is_coming_or_up(node):
                if node.name not in tired and node.free.cpus > 0 and not node.held_by_human:
                    free = node.free
                    room.stalls[places[id(of)]].put((free.cpus, free.gpus), (free.mem_mb, number, node))
            elif node.pool in open_pools and may_start(view, open_pools[node.pool], node):
                startable[places[id(of)], node.pool].append(node)
        quota_of = quotas(view)
        allowances = {
            name: Allowance(pool.most - machines[name], pool, quota_of.get(name)) for name, pool in view.pools.items()
        }
        for (at, name), nodes in startable.items():
            nodes.sort(key=start_order(view, view.pools[name]), reverse=True)
            room.sources.append(Source(at, view.pools[name], allowances[name], nodes))
        room.sources.sort(key=attrgetter("rank"))
        return room

    def place(self, ask: Ask, count: int, but: frozenset[PoolName] = frozenset()) -> Iterator[Placement]:
        """Place up to `count` jobs that ask this, the cheapest way first; stops at the first that finds no room."""
        while count > 0 and (placement := self.place_next(ask, count, but)):
            count -= placement.times
            yield placement

    def place_next(self, ask: Ask, count: int, but: frozenset[PoolName] = frozenset()) -> Placement | None:
        """Place the next of `count` jobs that ask this, or several on one node, with nothing new from the pools in
        `but`; None if there is no room."""
        search = self.searches[but].get(id(ask)) or self._search(ask, but)
        if search.stuck == self.starts or id(ask) in self.over:
            return None
        placement = self._on_one(search, count)
        if placement is not None:
            return placement
        draft = self._cheapest(search, count)
        if draft is None:
            search.stuck = self.starts
            if search.all_sources:
                self.over.add(id(ask))
            return None
        return self._take(draft)

    def is_over(self, ask: Ask) -> bool:
        """True if no more such jobs will be placed, whatever comes of others."""
        return id(ask) in self.over

    def _search(self, ask: Ask, but: frozenset[PoolName]) -> Search:
        search = self.searches[but][id(ask)] = self._new_search(ask, but)
        return search

    def _new_search(self, ask: Ask, but: frozenset[PoolName]) -> Search:
        found = ways(ask, self.kinds)
        singles, gangs = found.singles, list(found.gangs)
        if ask.nodelist or ask.exclude:  # names matter, which the short way over buckets doesn't look at
            singles = {}
            gangs = [
                Option(partition, self.kinds.every[at].site, 1, (Slot(1, {at: way}),))
                for partition, local in found.singles.items()
                for at, way in local.items()
            ] + gangs
        up = self.all_up
        if self.passing or ask.reservation or ask.deadline is not None:
            up = [not not_now(ask, of, self.view.now) for of in self.kinds.every]
        sources = {partition: self._sources(ask, partition, but) for partition in ask.partitions}
        every = all(own is self.sources for own in sources.values())
        on_one = [
            (self.stalls[at], way.number, at, way.need, partition)
            for partition, by_kind in singles.items()
            for at, way in by_kind.items()
        ]
        return Search(ask, singles, on_one, gangs, up, sources, every, [-1] * found.total)

    def _sources(self, ask: Ask, partition: str, but: frozenset[PoolName]) -> list[Source]:
        """From what a job of this partition may start machines now."""
        queue = self.view.queues.get(partition)
        timeless = not self.passing and not ask.reservation and ask.deadline is None
        if timeless and not but and (queue is None or queue.pools is None):
            return self.sources
        own = [
            source
            for source in self.sources
            if source.pool.name not in but
            and starts_for(queue, source.pool.name)
            and (timeless or not not_now(ask, self.kinds.every[source.at], self.view.now, source.pool.boot_s))
        ]
        return own if len(own) < len(self.sources) else self.sources

    def _on_one(self, search: Search, count: int) -> Placement | None:
        """One node that is up or coming and holds the job, and as many alike as it can."""
        seen, up = search.seen, search.up
        for stall, number, at, need, partition in search.on_one:
            if stall.most_cpus < need.cpus or seen[number] == stall.gained or not up[at]:
                continue
            found = stall.take_fullest(need)
            if found is None:
                seen[number] = stall.gained
                continue
            size, entry = found
            node, times = entry[2], 1
            if count > 1:
                times = self._times(node, partition, min(count, packs(_shape(size, entry), need)))
            self._leave(size, entry, stall, need, (times, partition))
            return Placement((node,), (), times)
        return None

    def _cheapest(self, search: Search, count: int) -> Draft | None:
        """The cheapest way to place a job, be it on one node to be started or on several."""
        best = self._on_new(search, count)
        for option in tuple(search.gangs):
            draft = self._fill(search, option, count)
            if draft is None:
                if search.all_sources:
                    search.gangs.remove(option)
            elif draft.cost == NOTHING_NEW:
                return draft
            elif best is None or draft.cost < best.cost:
                best = draft
        return best

    def _on_new(self, search: Search, count: int) -> Draft | None:
        """The cheapest node to be started that holds the job, and as many alike as it can."""
        best: Draft | None = None
        for partition, by_kind in search.singles.items():
            for source in search.sources[partition]:
                if (way := by_kind.get(source.at)) is None or source.empty:
                    continue
                if best and best.cost[1] < -source.pool.priority:
                    break
                times = self._times(source.nodes[-1], partition, min(count, way.times)) if count > 1 else 1
                cost = (True, -source.pool.priority, source.pool.price_hour / times, 1)
                if best is None or cost < best.cost:
                    best = Draft(cost, [self._of(source, 1, way.need)], times, partition)
                if count == 1:
                    break
        return best

    def _of(self, source: Source, number: int, need: Shape, node: Node | None = None) -> Batch:
        return Batch(number, need, self.stalls[source.at], [], source, node)

    def _fill(self, search: Search, option: Option, count: int) -> Draft | None:
        """The nodes for one job this way, those that are up or coming first; None if there are not enough."""
        by_name = search.ask.nodelist or search.ask.exclude
        batches = self._by_name(search, option) if by_name else self._by_number(search, option)
        if batches is None:
            return None
        times = 1
        if option.nodes == 1:
            (batch,) = batches
            times = self._times_there(batch, option.partition, count)
        price, priority, nodes = 0.0, inf, 0
        for batch in batches:
            if batch.source:
                price += batch.source.pool.price_hour * batch.number
                priority = min(priority, batch.source.pool.priority)
                nodes += batch.number
        cost = (True, -int(priority), price / times, nodes) if nodes else NOTHING_NEW
        return Draft(cost, batches, times, option.partition)

    def _by_number(self, search: Search, option: Option) -> list[Batch] | None:
        """Any nodes that fit, counted rather than named; None if there are not enough."""
        batches: list[Batch] = []
        taken: dict[int, int] = {}
        """How many nodes of each stall and each source an earlier slot has taken."""
        made: dict[PoolName, int] = {}
        for slot in option.slots:
            wanted = slot.nodes - self._there(search, slot, batches, taken)
            for source in search.sources[option.partition] if wanted else ():
                if (way := slot.ways.get(source.at)) is None or source.empty:
                    continue
                used, pool = taken.get(id(source), 0), source.pool.name
                so_far = made.get(pool, 0)
                if number := min(wanted, source.most(so_far, used)):
                    batches.append(self._of(source, number, way.need))
                    taken[id(source)] = used + number
                    made[pool] = so_far + max(number - max(source.kept - used, 0), 0)
                    wanted -= number
                    if not wanted:
                        break
            if wanted:
                return None
        return batches

    def _there(self, search: Search, slot: Slot, batches: list[Batch], taken: dict[int, int]) -> int:
        """Adds nodes that are up or coming; returns how many."""
        wanted = slot.nodes
        for at, way in slot.ways.items():
            stall = self.stalls[at]
            if stall.most_cpus < way.need.cpus or search.seen[way.number] == stall.gained or not search.up[at]:
                continue
            used = taken.get(id(stall), 0)
            found = stall.fitting(way.need, wanted + used)
            if not found:
                search.seen[way.number] = stall.gained
                continue
            if used:
                found = _without(found, batches, wanted)
            number = sum([len(entries) for _, entries in found])
            batches.append(Batch(number, way.need, stall, found))
            taken[id(stall)] = used + number
            wanted -= number
            if not wanted:
                break
        return slot.nodes - wanted

    def _by_name(self, search: Search, option: Option) -> list[Batch] | None:
        """Nodes for a job that names some it must have or must not have; None if there are not enough."""
        ask = search.ask
        batches: list[Batch] = []
        used: set[NodeName] = set()
        made: Counter[PoolName] = Counter()
        for slot in option.slots:
            wanted = slot.nodes
            candidates = sorted(
                self._each(search, option.partition, slot), key=lambda each: each[0].name not in ask.nodelist
            )
            for node, batch in candidates:
                pool = batch.source.pool.name if batch.source and node.power is Power.GONE else None
                full = pool and batch.source and made[pool] >= batch.source.allowance.left
                if not wanted or full or node.name in used or node.name in ask.exclude:
                    continue
                if pool:
                    made[pool] += 1
                used.add(node.name)
                batches.append(batch)
                wanted -= 1
            if wanted:
                return None
        return batches if ask.nodelist <= used else None

    def _each(self, search: Search, partition: str, slot: Slot) -> Iterator[tuple[Node, Batch]]:
        """Every node that a slot could take: those that are there, then those that could be started."""
        for at, way in slot.ways.items():
            stall = self.stalls[at]
            for size, entries in stall.fitting(way.need, len(self.view.nodes)) if search.up[at] else ():
                for entry in entries:
                    yield entry[2], Batch(1, way.need, stall, [(size, [entry])])
        for source in search.sources[partition]:
            if source_way := slot.ways.get(source.at):
                for node in reversed(source.nodes):
                    yield node, self._of(source, 1, source_way.need, node)

    def is_whole(self, node: Node) -> bool:
        """True if the node counts here, and no job has been placed on it."""
        found = self._stall(node).find(node)
        return found is not None and _shape(*found) == node.free

    def drop(self, node: Node) -> None:
        """Take a node out: it is not for the jobs that come."""
        if found := self._stall(node).find(node):
            self._stall(node).remove(*found)

    def _stall(self, node: Node) -> Stall:
        return self.stalls[self.kinds.places[kind(node)]]

    # --- taking what was found

    def _take(self, draft: Draft) -> Placement:
        there: list[Node] = []
        new: list[Node] = []
        counted = (draft.times, draft.partition)
        for batch in draft.batches:
            need, stall = batch.need, batch.stall
            for size, entries in batch.there:
                for entry in entries:
                    stall.remove(size, entry)
                    self._leave(size, entry, stall, need, counted)
                    there.append(entry[2])
            for node in self._started(batch):
                shape = node.shape
                entry = (shape.mem_mb, len(self.view.nodes) + self.starts, node)
                stall.gained += 1
                self.starts += 1
                self._leave((shape.cpus, shape.gpus), entry, stall, need, counted)
                new.append(node)
        return Placement(tuple(there), tuple(new), draft.times)

    def _started(self, batch: Batch) -> list[Node]:
        source = batch.source
        if source is None:
            return []
        if batch.node:
            source.remove(batch.node)
        nodes = [batch.node] if batch.node else source.take(batch.number)
        if source.empty and source in self.sources:
            self.sources.remove(source)
        return nodes

    def _leave(self, size: Size, entry: Entry, stall: Stall, need: Shape, counted: tuple[int, str]) -> None:
        """What a job leaves of a node is there for the next ones. `counted`: how many jobs, and of which partition."""
        times, partition = counted
        mem_mb, number, node = entry
        cpus = size[0] - need.cpus * times
        if cpus and (not self.sparing or self._takes_more(node, times, partition)):
            stall.put((cpus, size[1] - need.gpus * times), (mem_mb - need.mem_mb * times, number, node))

    def _times_there(self, batch: Batch, partition: str, count: int) -> int:
        """How often a job of one node, found by name, fits on its node."""
        node = batch.node
        room = node.shape if node else None
        for size, (entry,) in batch.there:
            node, room = entry[2], _shape(size, entry)
        return self._times(node, partition, min(count, packs(room, batch.need))) if node and room else 1

    def _times(self, node: Node, partition: str, wanted: int) -> int:
        """How many of these jobs are counted on the node: the queue may want few on each that is started."""
        most = self.sparing.get(partition)
        if most is None or node.power is Power.ON:
            return wanted
        return min(wanted, max(most - self.counted[node.name], 1))

    def _takes_more(self, node: Node, times: int, partition: str) -> bool:
        """Counts so many jobs on a node; True if more may be counted there."""
        if node.power is Power.ON:
            return True
        self.counted[node.name] += times
        return self.counted[node.name] < self.sparing.get(partition, self.counted[node.name] + 1)


def _shape(size: Size, entry: Entry) -> Shape:
    return Shape(size[0], entry[0], size[1], entry[2].shape.gpu_type)


def _without(found: list[tuple[Size, list[Entry]]], batches: list[Batch], most: int) -> list[tuple[Size, list[Entry]]]:
    """So many of the entries, without those that an earlier slot has taken."""
    used = {entry[2].name for batch in batches for _, entries in batch.there for entry in entries}
    free: list[tuple[Size, list[Entry]]] = []
    for size, entries in found:
        some = [entry for entry in entries if entry[2].name not in used][:most]
        most -= len(some)
        if some:
            free.append((size, some))
    return free
