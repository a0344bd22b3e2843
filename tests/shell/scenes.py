"""Which short stories lead the daemon through everything that it ever does?

Each scene is a small cluster and what happens in it, one thing after the other. Jobs are always served at last, and
whatever was made for them is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cmscale.journal.sql import SqlJournal
from cmscale.model import (
    JobId,
    LeftoverKind,
    MachineId,
    MachineState,
    NodeName,
    Operation,
    OpId,
    Pool,
    PoolName,
    Result,
    SiteName,
    Verb,
)
from cmscale.shell.scripts import Scripts
from cmscale.sim.cloud import Flaw
from tests.builders import EAST, WEST, ask, pool
from tests.shell.cluster import Cluster, Fuse, shipped

T4_1, T4_2 = NodeName("t4-1"), NodeName("t4-2")
BY_HAND = "by-hand-"
"""How the operations begin with which somebody else makes machines."""
LICENCE = NodeName("lic-1")


@dataclass(frozen=True)
class Happening:
    when: Callable[[Cluster], bool]
    then: Callable[[Cluster], object]


@dataclass(frozen=True)
class Scene:
    name: str
    happens: tuple[Happening, ...]
    pools: tuple[Pool, ...] = (pool(count=2),)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of policies."""
    every_s: float = 10.0
    lag_s: float = 12.0
    """How late listings show a machine that was made."""
    scripts: Mapping[PoolName, Scripts] = field(default_factory=dict)
    kept: frozenset[NodeName] = frozenset()
    """Nodes whose machines stay, powered off."""
    twice: bool = False
    """Cheap enough to die in once more as it is recovered from a death."""
    twins: bool = False
    """Second machines of a name come from outside."""

    def cluster(self, journal: Path, fuse: Fuse, opened: Callable[[Path], SqlJournal]) -> Cluster:
        tables = {"release_idle": {"idle": "10s"}, "start_helpers": {"idle": "10s"}} | dict(self.tables)
        cluster = Cluster(
            journal, pools=self.pools, policies=shipped(**tables), scripts=self.scripts, fuse=fuse, open_journal=opened
        )
        for cloud in cluster.clouds.values():
            cloud.boot_s, cloud.lag_s = 15.0, self.lag_s
        return cluster


# --- what happens ----------------------------------------------------------------------------------------------------


def at_once(_: Cluster) -> bool:
    return True


def running(cluster: Cluster) -> bool:
    return bool(cluster.slurm.running)


def starting(cluster: Cluster) -> bool:
    return bool(cluster.starts)


def served(number: int) -> Callable[[Cluster], bool]:
    return lambda cluster: len(cluster.slurm.done) >= number


def submit(number: int, **words: Any) -> Callable[[Cluster], object]:
    """A job; `nodes` of one GPU each."""
    nodes, run_s = words.pop("nodes", 1), words.pop("run_s", 5.0)
    return lambda cluster: cluster.slurm.submit(number, ask(nodes=nodes, tasks=nodes), run_s, **words)


def refuse(result: Result, **words: Any) -> Callable[[Cluster], object]:
    return lambda cluster: cluster.cloud.refuse(result, **({"calls": 1} | words))


def spoil(flaw: Flaw, node: NodeName) -> Callable[[Cluster], object]:
    return lambda cluster: cluster.cloud.spoil(flaw, node=node)


def powered_off(cluster: Cluster) -> bool:
    machines = cluster.cloud.machines.values()
    return bool(machines) and all(each.going is MachineState.STOPPED for each in machines)


def lose_both(cluster: Cluster) -> None:
    for node in (T4_1, T4_2):
        cluster.clouds[EAST].lose(node)


def let_begin(cluster: Cluster) -> None:
    cluster.slurm.passed_over.clear()


def by_hand(cluster: Cluster) -> None:
    """Somebody makes machines with our tags, a second one for the node that is busy and two for another."""
    for number, node in enumerate((T4_1, T4_2, T4_2)):
        cluster.cloud.start(Operation(OpId(f"{BY_HAND}{number}"), Verb.START, PoolName("t4"), (node,), 0.0))


def orphans(cluster: Cluster) -> None:
    """A machine with our tags whose name no pool has, and a volume of a machine that is gone."""
    cluster.cloud.start(Operation(OpId(f"{BY_HAND}web"), Verb.START, PoolName("t4"), (NodeName("web-1"),), 0.0))
    cluster.cloud.leave_behind(MachineId("vol-1"), LeftoverKind.VOLUME, T4_1)


def first(*then: Callable[[Cluster], object]) -> tuple[Happening, ...]:
    return tuple(Happening(at_once, each) for each in then)


# --- the scenes ------------------------------------------------------------------------------------------------------

REFUSALS: Mapping[str, tuple[SiteName, Result]] = {
    "a": (EAST, Result.CAPACITY),
    "b": (EAST, Result.QUOTA),
    "c": (EAST, Result.IMAGE),
    "d": (EAST, Result.BAD_REQUEST),
    "e": (EAST, Result.AUTH),
    "f": (WEST, Result.THROTTLED),
}
"""The pools that refuse, the cheapest first; the last two results stand against a whole site."""
REFUSING = tuple(
    pool(name, 1, site=site, price_hour=0.1 * number) for number, (name, (site, _)) in enumerate(REFUSALS.items(), 1)
)
KEPT = frozenset({T4_1, T4_2})


def refuse_everywhere(cluster: Cluster) -> None:
    for name, (site, result) in REFUSALS.items():
        cluster.clouds[site].refuse(result, PoolName(name), calls=1)


SCENES = (
    Scene("a job and a gang", first(submit(1), submit(2, nodes=2)), (pool(count=3),), twice=True),
    Scene(
        "an array gets a part of its machines at first",
        (
            *first(lambda cluster: setattr(cluster.cloud, "capacity", 1), submit(1, count=2)),
            Happening(served(1), lambda cluster: setattr(cluster.cloud, "capacity", 2)),
        ),
    ),
    Scene("one pool after the other refuses a launch", first(refuse_everywhere, submit(1)), REFUSING),
    Scene("the answer is lost", first(refuse(Result.TRANSIENT, done=True), submit(1)), twice=True),
    Scene(
        "the answers are lost for so long that the machine is looked up by its tag",
        first(refuse(Result.TRANSIENT, calls=10**6, for_s=800.0, done=True), submit(1)),
        every_s=100.0,
        twice=True,
    ),
    Scene(
        "nothing is known of a launch for so long that it is looked up by its tag",
        first(refuse(Result.TRANSIENT, calls=10**6, for_s=620.0), submit(1)),
        every_s=60.0,
        lag_s=100.0,
    ),
    Scene(
        "nothing is known of a launch for so long that it is taken for none",
        first(refuse(Result.TRANSIENT, calls=10**6, for_s=900.0), submit(1)),
        every_s=100.0,
    ),
    Scene(
        "a machine never boots",
        first(spoil(Flaw.NEVER_BOOTS, T4_1), submit(1)),
        (pool(count=2, boot_limit_s=25.0),),
    ),
    Scene(
        "a failed machine is stopped, and deleted later",
        first(spoil(Flaw.NEVER_BOOTS, T4_1), submit(1)),
        (pool(count=2, boot_limit_s=25.0),),
        {"quarantine": {"stuck_boot": "stop", "keep_disk": "20s"}},
    ),
    Scene(
        "machines do not shut down, one that goes and one that is kept",
        first(spoil(Flaw.HANGS, T4_1), spoil(Flaw.HANGS, T4_2), submit(1, count=2)),
        (pool(count=2, never_terminate=frozenset({T4_1}), shutdown_limit_s=15.0),),
        kept=frozenset({T4_1}),
    ),
    Scene(
        "machines are kept and powered on again, and one is lost meanwhile",
        (
            *first(submit(1, count=2)),
            Happening(powered_off, refuse(Result.TRANSIENT)),
            *first(submit(2, count=2)),
            Happening(lambda cluster: len(cluster.starts) > 1, lambda cluster: cluster.cloud.lose(T4_1)),
        ),
        (pool(count=2, never_terminate=KEPT),),
        kept=KEPT,
        twice=True,
    ),
    Scene(
        "a helper comes first and goes last",
        first(submit(1)),
        (pool(count=1, helpers=(LICENCE,)), pool("lic", 1, partitions=())),
    ),
    Scene(
        "the prolog of the cheaper pool fails",
        first(submit(1)),
        (pool("t4", 1), pool("bad", 1, price_hour=0.1)),
        scripts={
            PoolName("bad"): Scripts(Path("/bin/false"), Path("/bin/true")),
            PoolName("t4"): Scripts(Path("/bin/true"), Path("/bin/false")),
        },
    ),
    Scene(
        "the cloud takes a busy machine back",
        (
            *first(submit(1, run_s=50.0)),
            Happening(running, lambda cluster: cluster.cloud.reclaim(NodeName("spot-1"), 45.0)),
        ),
        (pool("spot", 1, market="spot", price_hour=0.1), pool(count=1)),
    ),
    Scene("others have made second machines", (*first(submit(1, run_s=30.0)), Happening(running, by_hand)), twins=True),
    Scene("a machine and a volume of ours are orphans", first(orphans, submit(1, run_s=400.0)), every_s=120.0),
    Scene(
        "a pinned gang loses its machines before it began",
        (
            *first(submit(1, run_s=100.0)),
            Happening(running, submit(2, nodes=2)),
            *first(lambda cluster: cluster.slurm.passed_over.add(JobId("2"))),
            Happening(lambda cluster: cluster.slurm.queue[JobId("2")].ask.constraint.text != "", lose_both),
            Happening(lambda cluster: cluster.slurm.queue[JobId("2")].ask.constraint.text == "", let_begin),
        ),
        (pool("t4", 2), pool("west", 1, site=WEST, price_hour=0.1)),
    ),
    Scene(
        "the clock is set ahead while a machine boots",
        (*first(submit(1)), Happening(starting, lambda cluster: cluster.clock.set_by(3600.0))),
    ),
)
