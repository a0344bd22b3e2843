"""When will nodes at home be free for a waiting job?

Running jobs end by their time limits at the latest, and each gives back its share then. Jobs that are to wait are
booked one after the other, so that two don't wait for the same node. Gaps between bookings are not filled: the answer
is an upper bound, and rather late than early.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import NamedTuple

from cmscale.fit import is_coming_or_up, kind, not_now, share
from cmscale.model import HOME, Ask, Node, NodeName, Shape, Snapshot
from cmscale.placing.ways import Kinds, Option, Slot, kinds_of, mixing, ways


class Gain(NamedTuple):
    """What more is free of a node from a time on."""

    at: float
    cpus: int
    gpus: int
    mem_mb: int


@dataclass(slots=True, eq=False)
class Diary:
    """One node, and what will be free of it: room comes back, and goes only by a booking."""

    node: Node
    gains: list[Gain]
    """The earliest first."""

    def free_from(self, need: Shape) -> float | None:
        """From when on it holds this share; None: never, as far as is known."""
        cpus = gpus = mem_mb = 0
        for gain in self.gains:
            cpus += gain.cpus
            gpus += gain.gpus
            mem_mb += gain.mem_mb
            if cpus >= need.cpus and gpus >= need.gpus and mem_mb >= need.mem_mb:
                return gain.at
        return None

    def book(self, need: Shape, at: float, until: float | None) -> None:
        """Take a share that is there at a time, until another (None: for ever)."""
        free = _sum(gain for gain in self.gains if gain.at <= at)
        left = Gain(at, free.cpus - need.cpus, free.gpus - need.gpus, free.mem_mb - need.mem_mb)
        self.gains = [left, *(gain for gain in self.gains if gain.at > at)]
        if until is not None:
            insort(self.gains, Gain(until, need.cpus, need.gpus, need.mem_mb))

    def give_back(self, part: Shape, at: float) -> None:
        """Count on a share that a running job gives back; never more than the node has."""
        free, whole = _sum(self.gains), self.node.shape
        gain = Gain(
            at,
            min(part.cpus, whole.cpus - free.cpus),
            min(part.gpus, whole.gpus - free.gpus),
            min(part.mem_mb, whole.mem_mb - free.mem_mb),
        )
        insort(self.gains, gain)


def _sum(gains: Iterable[Gain]) -> Gain:
    found = list(gains)
    return Gain(
        0.0, sum(gain.cpus for gain in found), sum(gain.gpus for gain in found), sum(gain.mem_mb for gain in found)
    )


class Later:
    """What will be free at home, while waiting jobs are booked one after the other."""

    def __init__(self, now: float, until: float, kinds: Kinds, diaries: list[list[Diary]]) -> None:
        self.now = now
        self.until = until
        """What is later is not looked at."""
        self.kinds = kinds
        self.diaries = diaries
        """For each kind."""
        self.known: dict[Ask, float | None] = {}
        """Answers since the last booking; an ask that finds nothing never will, for bookings only take."""

    @classmethod
    def of(cls, view: Snapshot, within_s: float = 86400.0) -> Later:
        """All that will be free at home within a time."""
        home = [
            node
            for node in view.nodes.values()
            if node.pool is None and is_coming_or_up(node) and not node.drained and not node.sick
        ]
        kinds = kinds_of(tuple(dict.fromkeys(map(kind, home))), mixing(view))
        diaries: list[list[Diary]] = [[] for _ in kinds.every]
        by_name: dict[NodeName, Diary] = {}
        for node in home:
            by_name[node.name] = Diary(node, [Gain(view.now, node.free.cpus, node.free.gpus, node.free.mem_mb)])
            diaries[kinds.places[kind(node)]].append(by_name[node.name])
        for job in view.jobs:
            if job.nodes and not job.pending and job.ask.limit_s is not None:
                ends = max((view.now if job.started is None else job.started) + job.ask.limit_s, view.now)
                for name in job.nodes & by_name.keys():
                    node = by_name[name].node
                    by_name[name].give_back(share(job.ask, len(job.nodes), node.shape) or node.shape, ends)
        return cls(view.now, view.now + within_s, kinds, diaries)

    @property
    def hopeful(self) -> bool:
        """True if any node will have more room within the time that is looked at than it has now."""
        return any(
            self.now < gain.at <= self.until for local in self.diaries for diary in local for gain in diary.gains
        )

    def start(self, ask: Ask) -> float | None:
        """The earliest time at which the job could start at home; None: not within the time that is looked at."""
        if ask not in self.known:
            times = [at for option in self._options(ask) if (at := self._start(ask, option)) is not None]
            self.known[ask] = min(times, default=None)
        return self.known[ask]

    def book(self, ask: Ask, at: float) -> None:
        """Take the nodes for one job that starts then, until its time limit."""
        until = None if ask.limit_s is None else at + ask.limit_s
        for option in self._options(ask):
            found = self._start(ask, option)
            if found is not None and found <= at:
                used: set[NodeName] = set()
                for slot in option.slots:
                    for _, diary, need in self._earliest(ask, slot, used):
                        used.add(diary.node.name)
                        diary.book(need, at, until)
                break
        self.known = {each: known for each, known in self.known.items() if known is None}

    def _options(self, ask: Ask) -> Iterator[Option]:
        found = ways(ask, self.kinds)
        for partition, by_kind in found.singles.items():
            yield Option(partition, HOME, 1, (Slot(1, by_kind),))
        yield from found.gangs

    def _start(self, ask: Ask, option: Option) -> float | None:
        used: set[NodeName] = set()
        start = self.now
        at_kinds: set[int] = set()
        for slot in option.slots:
            found = self._earliest(ask, slot, used)
            if len(found) < slot.nodes:
                return None
            for at, diary, _ in found:
                used.add(diary.node.name)
                start = max(start, at)
                at_kinds.add(self.kinds.places[kind(diary.node)])
        if not ask.nodelist <= used or any(not_now(ask, self.kinds.every[at], start) for at in at_kinds):
            return None
        return start

    def _earliest(self, ask: Ask, slot: Slot, used: set[NodeName]) -> list[tuple[float, Diary, Shape]]:
        """The nodes for one slot that are free first; those that the job must have before all others."""
        return nsmallest(
            slot.nodes,
            self._candidates(ask, slot, used),
            key=lambda each: (each[1].node.name not in ask.nodelist, each[0]),
        )

    def _candidates(self, ask: Ask, slot: Slot, used: set[NodeName]) -> Iterator[tuple[float, Diary, Shape]]:
        for at, way in slot.ways.items():
            if not_now(ask, self.kinds.every[at], self.now):
                continue
            for diary in self.diaries[at]:
                if diary.node.name in used or diary.node.name in ask.exclude:
                    continue
                free = diary.free_from(way.need)
                if free is not None and free <= self.until:
                    yield free, diary, way.need
