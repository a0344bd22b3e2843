"""In which ways could a job be placed, whatever is free now: which sites, how many nodes, what share of each?

The same for as long as the cluster's kinds of nodes are the same, so it is remembered over ticks; that is what makes
deciding fast for many asks. What holds only now (free room, reservations, prices) is for the caller to look at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from cmscale.fit import Kind, nodes_needed, packs, share
from cmscale.model import HOME, Ask, Part, Shape, SiteName, Snapshot


@dataclass(frozen=True, eq=False, slots=True)
class Kinds:
    """All kinds of a snapshot, pools left aside, and the partitions whose jobs may have nodes at several sites.

    Equal ones are one value (`kinds_of`), told apart by identity: to compare a hundred kinds for each ask takes long.
    """

    every: tuple[Kind, ...]
    places: Mapping[Kind, int]
    """For each kind of a pool its place among them."""
    mixing: frozenset[str]

    @property
    def passing(self) -> bool:
        """True if some may serve only some jobs for a time."""
        return any(of.reserved or of.until is not None for of in self.every)


@lru_cache(maxsize=16)
def kinds_of(kinds: tuple[Kind, ...], mixing: frozenset[str]) -> Kinds:
    every: dict[Kind, int] = {}
    places = {of: every.setdefault(replace(of, pool=None), len(every)) for of in kinds}
    return Kinds(tuple(every), places, mixing)


def mixing(view: Snapshot) -> frozenset[str]:
    """The partitions whose jobs may have nodes at several sites."""
    return frozenset(name for name, queue in view.queues.items() if queue.mix_sites)


class Way(NamedTuple):
    """A kind that can give nodes to a job, and the share that the job takes of each."""

    at: int
    """The kind's place among all."""
    number: int
    """Which of all the ask's ways this is."""
    need: Shape
    times: int
    """How often the share fits on an empty node."""


class Slot(NamedTuple):
    """So many nodes of a job, and for each kind that may give them the way."""

    nodes: int
    ways: Mapping[int, Way]


class Option(NamedTuple):
    """One way to place a job of several nodes: a partition, a site, a choice of its constraint, a number of nodes."""

    partition: str
    site: SiteName
    """Home, if the partition mixes sites."""
    nodes: int
    slots: tuple[Slot, ...]


Places = tuple[tuple[str, tuple[int, ...]], ...]
"""Partitions with the places of kinds."""


class Ways(NamedTuple):
    """Every way to place a job that the kinds allow: all nodes in one partition, and at one site unless it mixes."""

    singles: Mapping[str, Mapping[int, Way]]
    """On one node: for each partition, by the kind's place. Alike jobs may share a node, so each kind has its price."""
    gangs: tuple[Option, ...]
    """On several nodes, which may be of several kinds."""
    places: Places
    """All kinds that can give it nodes, in order; some may be there twice."""
    total: int
    """How many there are."""


@lru_cache(maxsize=16384)
def ways(ask: Ask, kinds: Kinds) -> Ways:
    numbers = count()
    singles: dict[str, dict[int, Way]] = {}
    gangs: list[Option] = []
    for (partition, site), inside in _inside(ask, kinds).items():
        for choice in ask.constraint.choices:
            least = max(sum(part.count for part in choice), len(ask.nodelist))
            for nodes in sorted({max(number, least) for number in inside.values()}):
                local = [(at, kinds.every[at], share(ask, nodes, kinds.every[at].shape)) for at in inside]
                slots = tuple(_slots(local, _dealt(choice, nodes), numbers))
                if nodes == 1:
                    singles.setdefault(partition, {}).update(slots[0].ways)
                elif all(slot.ways for slot in slots):
                    gangs.append(Option(partition, site, nodes, slots))
    places = [(partition, tuple(by_kind)) for partition, by_kind in singles.items()]
    places += [(option.partition, tuple(slot.ways)) for option in gangs for slot in option.slots]
    return Ways(singles, tuple(gangs), tuple(dict.fromkeys(places)), next(numbers))


def _inside(ask: Ask, kinds: Kinds) -> Mapping[tuple[str, SiteName], Mapping[int, int]]:
    """For each partition and site: the kinds that could hold the job, each with the nodes it would take of it alone."""
    needed: dict[Shape, int | None] = {}
    found: dict[tuple[str, SiteName], dict[int, int]] = defaultdict(dict)
    for at, of in enumerate(kinds.every):
        for partition in ask.partitions:
            if partition in of.partitions:
                if of.shape not in needed:
                    needed[of.shape] = nodes_needed(ask, of.shape)
                if number := needed[of.shape]:
                    found[partition, HOME if partition in kinds.mixing else of.site][at] = number
    return found


def _slots(
    local: Sequence[tuple[int, Kind, Shape | None]], parts: Iterable[tuple[int, Part]], numbers: Iterator[int]
) -> Iterator[Slot]:
    """For each part the ways that the kinds here can meet it."""
    for wanted, part in parts:
        ways_here = [
            Way(at, next(numbers), need, packs(of.shape, need))
            for at, of, need in local
            if need and part.met_by(of.features)
        ]
        yield Slot(wanted, {way.at: way for way in ways_here})


def _dealt(choice: tuple[Part, ...], nodes: int) -> Iterator[tuple[int, Part]]:
    """How many nodes each part takes; the first open part takes what no count names, else the last part does."""
    spare = nodes - sum(part.count for part in choice)
    open_at = next((at for at, part in enumerate(choice) if part.count == 0), len(choice) - 1)
    for at, part in enumerate(choice):
        if wanted := part.count + (spare if at == open_at else 0):
            yield wanted, part
