"""Where can the daemon's process end, and what does it leave to the next one?

A process that is killed leaves the world as it is at that moment, and nothing else. So while a scene is played the
world is copied at every boundary: before each call that changes anything, and after it has taken effect, when nobody
has written down yet what came of it. In each copy a new process goes on. What other calls were in flight had perhaps
not begun, as in these copies, or they still arrive: then the tick is played again, and only the one call breaks off.
"""

from __future__ import annotations

import copyreg
import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import event

from cmscale.journal.sql import SqlJournal
from cmscale.model import OUR_MARK, MachineState, NodeRecord, OpId, Result, SiteName, Verb
from cmscale.shell.observe import Memory
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud
from cmscale.sim.slurm import Slurm
from tests.shell.cluster import Called, Cluster, Fuse, Killed
from tests.shell.scenes import BY_HAND, Scene

copyreg.pickle(MappingProxyType, lambda proxy: (MappingProxyType, (dict(proxy),)))

LOOKS_OF_PROVIDER = {"list", "expires", "leftovers", "notices", "evidence", "problems"}
LOOKS_OF_SCHEDULER = {"nodes", "jobs", "reservations", "backend"}
LOOKS_OF_JOURNAL = {
    "bill",
    "costs",
    "given_back",
    "lives",
    *("under_way", "fresh", "creations", "launches", "jobs_of", "used_s"),
    *("idle", "closed", "facts", "usual", "events", "evidence", "snapshots"),
}
OF_A_PERSON = {"override"}
"""One transaction, made by a command and not by a tick."""
LOOKS = LOOKS_OF_PROVIDER | LOOKS_OF_SCHEDULER | LOOKS_OF_JOURNAL
"""The calls of ports that change nothing: to die beside one is to die beside the change before it."""

NEVER_READ = frozenset({"plans", "snapshots", "events", "busy", "uses", "machine_lives"})
"""Tables of the journal that no decision of these scenes goes by."""

MOST_TICKS = 150


@dataclass(frozen=True)
class Boundary:
    """One place at which the process can end."""

    when: str
    """before, after"""
    call: str
    what: str
    about: str
    """What tells it from others of its kind in the tick."""
    tick: int
    beside: bool
    """Other calls may be in flight."""

    @property
    def deed(self) -> str:
        return f"{self.call} {self.what}".strip()

    def __str__(self) -> str:
        return f"tick {self.tick}, {self.when} {self.deed}"


@dataclass(frozen=True)
class Copy:
    """A world at one moment, with what is needed to go on in it."""

    history: tuple[str, ...]
    """Where the process died so far."""
    outside: tuple[VirtualClock, dict[SiteName, Cloud], Slurm]
    journal: sqlite3.Connection
    memory: Memory | None
    """What the process remembers; None: it has died."""
    named: int
    """How many ticks have had a name."""
    ticks: int
    happened: int


@dataclass
class Watch(Fuse):
    """Tells of each boundary as it is passed, and breaks a call off at one of them."""

    told: Callable[[Boundary], None] = lambda _: None
    tick: int = 0
    passed: list[Boundary] = field(default_factory=list)
    """In this tick."""
    break_at: Boundary | None = None
    one_at_a_time: AbstractContextManager[object] = field(default_factory=threading.Lock)
    """A copy is of one moment, although calls are made side by side."""
    results: set[Result] = field(default_factory=set)
    """How calls have ended, of all ticks."""
    verbs: dict[OpId, Verb] = field(default_factory=dict)

    def before(self, call: Called) -> None:
        self._pass("before", call)

    def took_effect(self, call: Called, answer: Any) -> None:
        if call.name == "start":
            self.results |= {outcome.result for outcome in answer.values()}
        self._pass("after", call)

    def _pass(self, when: str, call: Called) -> None:
        what = self._what(call)
        if call.name in LOOKS or what is None:
            return
        in_a_thread = threading.current_thread() is not threading.main_thread()
        beside = in_a_thread or any(each.call == "begin" for each in self.passed)
        boundary = Boundary(when, call.name, what, repr(call.args), self.tick, beside)
        self.passed.append(boundary)
        if self.break_at == boundary:
            raise Killed
        self.told(boundary)

    def _what(self, call: Called) -> str | None:
        """What the call is about, in a word or two; None if it is about nothing."""
        match call.name, call.args:
            case "begin", [operations]:
                self.verbs |= {each.id: each.verb for each in operations}
                return "+".join(sorted({each.verb.value for each in operations})) or None
            case "finish", [op, outcomes, _]:
                results = {each.result for each in outcomes.values()}
                self.results |= results
                return f"{self.verbs[op].value}: {'+'.join(sorted(each.value for each in results))}"
            case "close", [_, closure]:
                self.results |= {closure.result} if closure else set()
                return closure.result.value if closure else "open"
            case "put_fact", [fact]:
                return str(fact.kind.value)
            case (("drop_fact" | "of"), [kind, *_]):
                return str(kind.value)
        return next((word for word in ("hard", "off") if call.options.get(word)), "")


class Copies(Enum):
    """From which ticks copies are taken."""

    ALL = "all"
    FIRST = "the first one, if it finds operations under way"
    NONE = "none"


@dataclass
class Stage:
    """A scene being played, from its beginning or from a copy."""

    scene: Scene
    folder: Path
    watch: Watch = field(default_factory=Watch)
    ticks: int = 0
    happened: int = 0
    history: tuple[str, ...] = ()
    copies: list[Copy] = field(default_factory=list)
    boundaries: list[Boundary] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = self.scene.cluster(self.folder / "journal.db", self.watch, self._open_journal)
        self.reader = sqlite3.connect(self.folder / "journal.db", check_same_thread=False)
        self.played: set[object] = set()
        """What was so at the beginning of ticks that were played already."""
        self.left: set[int] = set()
        """Prints of the worlds that deaths have left."""

    def _open_journal(self, path: Path, **_: object) -> SqlJournal:
        """The file as a new process finds it. The engine stays the same, with the statements that it has compiled."""
        if not hasattr(self, "unused"):
            self.unused = SqlJournal(path)
            engine = self.unused._database._engine
            assert engine
            # This machine will not lose its power in the middle: nothing need be flushed to the disk.
            event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
            engine.dispose()
            # Nor does anybody look back at what was seen: writing it down would take a third of the time.
            self.unused._rest_until = self.unused._pruned_at = inf
        return deepcopy(self.unused, {id(self.unused._database): self.unused._database})

    def end(self) -> None:
        self.reader.close()
        self.unused.dispose()

    # --- copies

    def print(self) -> int:
        """Worlds with the same print are alike for a process that starts in them."""
        names = self.reader.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        tables = [
            self.reader.execute(f'SELECT * FROM "{name}"').fetchall() for (name,) in names if name not in NEVER_READ
        ]
        return hash((repr(self._outside), repr(tables), self.happened))

    @property
    def _outside(self) -> tuple[VirtualClock, dict[SiteName, Cloud], Slurm]:
        return self.cluster.clock, self.cluster.clouds, self.cluster.slurm

    def copy(self) -> Copy:
        journal = sqlite3.connect(":memory:", check_same_thread=False)
        self.reader.backup(journal)
        daemon = self.cluster.daemon
        return Copy(
            self.history,
            deepcopy(self._outside),
            journal,
            deepcopy(daemon.memory),
            daemon.ticks,
            self.ticks,
            self.happened,
        )

    def restore(self, copy: Copy) -> None:
        """Go on from the copy: the same process, or a new one where it has died."""
        cluster = self.cluster
        self.unused.dispose()
        copy.journal.backup(self.reader)
        cluster.clock, cluster.clouds, cluster.slurm = deepcopy(copy.outside)
        cluster.lives = 0
        cluster.daemon = cluster.start()
        cluster.daemon.ticks = copy.named  # no id is used twice, and what went alike bears the same ids
        if copy.memory:
            cluster.daemon.memory = deepcopy(copy.memory)
        self.ticks, self.happened, self.history = copy.ticks, copy.happened, copy.history

    # --- the course of things

    def play(self, copies: Copies) -> None:
        """To the end of the scene, or to where it goes on as it went before; copies what deaths would leave, as long as
        it is asked to."""
        self.copies, self.boundaries, self.wrong = [], [], []
        while self.ticks <= MOST_TICKS and self._unfinished():
            if copies is Copies.FIRST and not self.cluster.journal.under_way():
                copies = Copies.NONE
            here = (self.print(), repr(self.cluster.daemon.memory), copies)
            if here in self.played:
                return
            self.played.add(here)
            begin = self.copy() if copies is not Copies.NONE else None
            self.tick(copying=begin is not None)
            if begin and copies is Copies.ALL:
                self._let_others_arrive(begin)
            if copies is Copies.FIRST:
                copies = Copies.NONE
            self.pause()
        self.wrong += [f"after {self.ticks} ticks {sentence}" for sentence in self._unfinished()]
        self.wrong += broken_promises(self.cluster)

    def tick(self, *, copying: bool) -> None:
        self.watch.passed, self.watch.tick = [], self.ticks
        self.watch.told = self._died_here if copying else lambda _: None
        self._happen()
        self.cluster.slurm.step()
        self.cluster.decide()
        self.boundaries += self.watch.passed
        self.wrong += [] if self.scene.twins else twins(self.cluster)

    def pause(self) -> None:
        self.cluster.clock.wait(self.scene.every_s)
        self.ticks += 1

    def _happen(self) -> None:
        while self.happened < len(self.scene.happens):
            happening = self.scene.happens[self.happened]
            if not happening.when(self.cluster):
                break
            happening.then(self.cluster)
            self.happened += 1

    def _died_here(self, boundary: Boundary) -> None:
        self._leave(str(boundary))

    def _leave(self, where: str) -> None:
        """What the death there leaves, if no other has left the same."""
        if (left := self.print()) not in self.left:
            self.left.add(left)
            self.copies.append(replace(self.copy(), memory=None, history=(*self.history, where)))

    def _let_others_arrive(self, begin: Copy) -> None:
        """Play the tick again for each call that had others beside it, and let only that one break off."""
        passed = self.watch.passed
        if not any(boundary.call in {"start", "stop", "delete"} for boundary in passed):
            return
        end = self.copy()
        for boundary in (each for each in passed if each.beside):
            self.restore(begin)
            self.watch.break_at = boundary
            try:
                self.tick(copying=False)
            except Killed:
                self._leave(f"{boundary}, others arrive")
            self.watch.break_at = None
        self.restore(end)

    # --- the end

    def _unfinished(self) -> list[str]:
        cluster = self.cluster
        machines = [each for cloud in cluster.clouds.values() for each in cloud.machines.values()]
        return [
            *(f"happening {number} has not come" for number in range(self.happened, len(self.scene.happens))),
            *(f"job {name} waits: {job.reason}, {job.comment}" for name, job in cluster.slurm.queue.items()),
            *(f"job {name} runs" for name in cluster.slurm.running),
            *(
                f"machine {each.id} is still there"
                for each in machines
                if not (each.node in self.scene.kept and each.going is MachineState.STOPPED)
            ),
            *(f"{part} is left behind" for cloud in cluster.clouds.values() for part in cloud.left),
            *(f"node {record.name} is not parked" for record in cluster.slurm.records.values() if not _parked(record)),
            *(f"operation {each.id} is under way" for each in cluster.journal.under_way()),
        ]


@dataclass
class Findings:
    """What came of all deaths in a scene."""

    boundaries: list[Boundary] = field(default_factory=list)
    """Those of the scene itself, in which nobody died."""
    results: set[Result] = field(default_factory=set)
    worlds: int = 0
    """In how many different worlds a new process had to start."""
    wrong: list[str] = field(default_factory=list)


def undisturbed(scene: Scene, folder: Path) -> Stage:
    """The scene without any death."""
    stage = Stage(scene, folder)
    stage.play(Copies.NONE)
    return stage


def die_everywhere(scene: Scene, folder: Path) -> Findings:
    """Die at every boundary of the scene; where it is cheap, once more at every boundary of the tick that then takes up
    what was under way. Worlds that are alike are played once."""
    stage = Stage(scene, folder)
    stage.play(Copies.ALL)
    findings = Findings(stage.boundaries, stage.watch.results, 0, stage.wrong)
    waiting = deque(stage.copies)
    while waiting:
        copy = waiting.popleft()
        stage.restore(copy)
        stage.pause()  # it is started again before the next tick
        stage.play(Copies.FIRST if scene.twice and len(copy.history) == 1 else Copies.NONE)
        findings.wrong += [f"died at {'; then at '.join(copy.history)}: {sentence}" for sentence in stage.wrong]
        waiting += stage.copies
        copy.journal.close()
    findings.worlds = len(stage.left)
    stage.end()
    return findings


# --- what must be so -------------------------------------------------------------------------------------------------


def twins(cluster: Cluster) -> list[str]:
    machines = [each for cloud in cluster.clouds.values() for each in cloud.machines.values()]
    names = Counter(each.node for each in machines if each.going is not MachineState.ENDING)
    return [f"{name} has {count} machines" for name, count in names.items() if count > 1]


def broken_promises(cluster: Cluster) -> list[str]:
    """Of a scene that is over: what the clouds have made and the journal does not know, what it has no end for, and
    jobs that were not served."""
    known = {(row["id"], row["node"]): row for row in cluster.journal.history()}
    made = {
        (op, node): machine
        for cloud in cluster.clouds.values()
        for op, of in cloud.made.items()
        for node, machine in of.items()
    }
    ours = {each: machine for each, machine in made.items() if not each[0].startswith(BY_HAND)}
    return [
        *(
            f"machine {machine} is in no operation"
            for each, machine in ours.items()
            if known.get(each, {}).get("machine") != machine
        ),
        *(f"operation {op} has no result for {node}" for (op, node), row in known.items() if not row["result"]),
        *(f"job {name} failed: {why}" for name, why in cluster.slurm.failed.items()),
    ]


def _parked(record: NodeRecord) -> bool:
    return record.states >= {"DOWN", "DRAIN"} and record.reason.startswith(OUR_MARK)
