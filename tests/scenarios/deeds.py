"""What can happen in a scenario, and what does the world do then?"""

from __future__ import annotations

from math import inf
from pathlib import Path

from cmscale.model import (
    OFF_REASON,
    Fact,
    FactKind,
    JobId,
    LeftoverKind,
    MachineId,
    NodeName,
    Operation,
    OpId,
    PoolName,
    Reservation,
    Result,
    SiteName,
    Verb,
)
from cmscale.sim.cloud import Flaw
from tests.scenarios.sentences import Vocabulary
from tests.scenarios.stage import Stage

DEEDS: Vocabulary[None] = Vocabulary("deed")
means = DEEDS.means


# --- clouds


@means("POOL refuses: RESULT[, for TIME][, N time(s)]")
def _(stage: Stage, pool: PoolName, result: Result, time: float = inf, n: float = inf) -> None:
    stage.cloud_of(pool).refuse(result, pool, for_s=time, calls=n)


@means("POOL answers too late[, N time(s)]")
def _(stage: Stage, pool: PoolName, n: float = inf) -> None:
    stage.cloud_of(pool).refuse(Result.TRANSIENT, pool, calls=n, done=True)


@means("POOL has room for N machine(s)")
def _(stage: Stage, pool: PoolName, n: int) -> None:
    stage.cloud_of(pool).room[pool] = n


@means("all is well at SITE")
def _(stage: Stage, site: SiteName) -> None:
    stage.cluster.clouds[site].relent()
    stage.cluster.clouds[site].room.clear()
    stage.cluster.clouds[site].unseen = ""
    stage.cluster.clouds[site].credentials_end = None


@means("SITE does not answer: WHY")
def _(stage: Stage, site: SiteName, why: str) -> None:
    stage.cluster.clouds[site].unseen = why


@means("the credentials of SITE end in LATER")
def _(stage: Stage, site: SiteName, later: float) -> None:
    stage.cluster.clouds[site].credentials_end = stage.now + later


@means("each machine of POOL FLAW[, for TIME]")
def _(stage: Stage, pool: PoolName, flaw: Flaw, time: float = inf) -> None:
    stage.cloud_of(pool).spoil(flaw, pool, for_s=time)


@means("each machine of POOL dies after LATER[, for TIME]")
def _(stage: Stage, pool: PoolName, later: float, time: float = inf) -> None:
    stage.cloud_of(pool).spoil(Flaw.DIES, pool, for_s=time, after_s=later)


@means("the machine of NODE FLAW")
def _(stage: Stage, node: NodeName, flaw: Flaw) -> None:
    stage.cloud_at(node).spoil(flaw, node=node)


@means("NODE is reclaimed in LATER")
def _(stage: Stage, node: NodeName, later: float) -> None:
    stage.cloud_at(node).reclaim(node, later)


@means("NODE is lost")
def _(stage: Stage, node: NodeName) -> None:
    stage.cloud_at(node).lose(node)


@means("listings miss NODE for TIME")
def _(stage: Stage, node: NodeName, time: float) -> None:
    stage.cloud_at(node).hide(node, time)


@means("SITE has a machine of ours named NAME that nobody asked for")
def _(stage: Stage, site: SiteName, name: str) -> None:
    by_hand = Operation(OpId("by-hand"), Verb.START, PoolName("by-hand"), (NodeName(name),), stage.now)
    stage.cluster.clouds[site].start(by_hand)


@means("SITE has a machine named NAME that carries our tag alone")
def _(stage: Stage, site: SiteName, name: str) -> None:
    by_hand = Operation(OpId("by-hand"), Verb.START, PoolName("by-hand"), (NodeName(name),), stage.now)
    stage.cluster.clouds[site].start(by_hand)
    stage.cluster.clouds[site].untag(NodeName(name), operation=True)


@means("the machine of NODE loses its name")
def _(stage: Stage, node: NodeName) -> None:
    stage.cloud_at(node).untag(node, name=True)


@means("SITE has a volume of ours that belongs to no machine")
def _(stage: Stage, site: SiteName) -> None:
    stage.cluster.clouds[site].leave_behind(MachineId("vol-1"), LeftoverKind.VOLUME, NodeName("t4-1"))


# --- Slurm and people


@means("Slurm is silent: WHY")
def _(stage: Stage, why: str) -> None:
    stage.cluster.slurm.unseen = why


@means("Slurm answers again")
def _(stage: Stage) -> None:
    stage.cluster.slurm.unseen = ""


@means("a person drains NODES: WHY")
def _(stage: Stage, nodes: tuple[NodeName, ...], why: str) -> None:
    stage.cluster.slurm.drain(nodes, why)


@means("NODES have been parked by us")
def _(stage: Stage, nodes: tuple[NodeName, ...]) -> None:
    stage.cluster.slurm.drain(nodes, OFF_REASON, off=True)


@means("a person resumes NODES")
def _(stage: Stage, nodes: tuple[NodeName, ...]) -> None:
    stage.cluster.slurm.resume(dict.fromkeys(nodes, ""))


@means("NODES are under maintenance from TIME to LATER")
def _(stage: Stage, nodes: tuple[NodeName, ...], time: float, later: float) -> None:
    between = (stage.began + time, stage.began + later)
    stage.cluster.slurm.reserve(Reservation(f"maintenance-{nodes[0]}", *between, frozenset(nodes), maintenance=True))


@means("NODES are reserved for WHO from TIME to LATER")
def _(stage: Stage, nodes: tuple[NodeName, ...], who: str, time: float, later: float) -> None:
    between = (stage.began + time, stage.began + later)
    stage.cluster.slurm.reserve(Reservation(f"for-{who}", *between, frozenset(nodes), users=frozenset({who})))


@means("job JOB is cancelled")
def _(stage: Stage, job: JobId) -> None:
    stage.cluster.slurm.cancel(job)


@means("job JOB is released")
def _(stage: Stage, job: JobId) -> None:
    stage.cluster.slurm.unhold(job)


@means("Slurm never starts job JOB, and does not say why")
def _(stage: Stage, job: JobId) -> None:
    stage.cluster.slurm.passed_over.add(job)


@means("the record of job JOB is garbled")
def _(stage: Stage, job: JobId) -> None:
    stage.cluster.slurm.garbled.add(job)


@means("the record of node NODE is garbled")
def _(stage: Stage, node: NodeName) -> None:
    stage.cluster.slurm.garbled.add(node)


@means("all records can be read")
def _(stage: Stage) -> None:
    stage.cluster.slurm.garbled.clear()


# --- the daemon


@means("a person pauses cm-scale for TIME: WHY")
def _(stage: Stage, time: float, why: str) -> None:
    stage.cluster.journal.put_fact(Fact(FactKind.PAUSE, "", stage.now, stage.now + time, why, "ada"))


@means("a person keeps NODE for TIME: WHY")
def _(stage: Stage, node: NodeName, time: float, why: str) -> None:
    stage.cluster.journal.put_fact(Fact(FactKind.KEEP, node, stage.now, stage.now + time, why, "ada"))


@means("a person drains the site SITE for TIME: WHY")
def _(stage: Stage, site: SiteName, time: float, why: str) -> None:
    stage.cluster.journal.put_fact(Fact(FactKind.DRAIN_SITE, site, stage.now, stage.now + time, why, "ada"))


@means("the daemon is killed in the N. call from here")
def _(stage: Stage, n: int) -> None:
    stage.cluster.kill_in(n)


@means("the daemon is killed as soon as a launch has taken effect")
def _(stage: Stage) -> None:
    stage.cluster.kill_after("start")


@means("the daemon is away")
def _(stage: Stage) -> None:
    stage.away = True


@means("the journal is lost")
def _(stage: Stage) -> None:
    stage.cluster.journal.dispose()
    for path in Path(str(stage.cluster.where)).parent.glob(f"{Path(str(stage.cluster.where)).name}*"):
        path.unlink()
    stage.cluster.daemon = stage.cluster.start()


@means("the daemon is started again")
def _(stage: Stage) -> None:
    stage.away = False
    stage.cluster.daemon = stage.cluster.start()
