"""What can be claimed of a scenario at a time, and is it so?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from cmscale.core import telling
from cmscale.core.orphans import orphans
from cmscale.model import EventKind, FactKind, Job, JobId, NodeName, PoolName, Power, Result, SiteName
from tests.scenarios.sentences import Vocabulary
from tests.scenarios.stage import Stage


class Verdict(NamedTuple):
    holds: bool
    instead: str
    """What is so, whether the claim holds or not."""


CLAIMS: Vocabulary[Verdict] = Vocabulary("claim")
means = CLAIMS.means


def _counted(have: int, how: str, n: int, what: Iterable[str]) -> Verdict:
    right = {"at most": have <= n, "at least": have >= n, "more than": have > n}.get(how, have == n)
    return Verdict(right, f"there are {have}: {', '.join(what) or 'none'}")


def _text(found: str, wanted: str) -> Verdict:
    return Verdict(wanted in found, f'it is "{found}"')


# --- jobs


def _queued(stage: Stage, job: JobId) -> Job | None:
    slurm = stage.cluster.slurm
    if job in slurm.queue:
        return slurm.queue[job]
    return slurm.running[job].job if job in slurm.running else None


def _fate(stage: Stage, job: JobId) -> str:
    slurm = stage.cluster.slurm
    if job in slurm.done:
        return f"it is done, on {','.join(sorted(slurm.done[job]))}"
    if job in slurm.failed:
        return f"it failed: {slurm.failed[job]}"
    if (found := _queued(stage, job)) is None:
        return "it was never submitted"
    nodes = f" on {','.join(sorted(found.nodes))}" if found.nodes else f" ({found.reason}; {found.comment})"
    return f"it is {found.state}{nodes}"


@means("job JOB is pending[: WHY]")
def _(stage: Stage, job: JobId, why: str = "") -> Verdict:
    found = _queued(stage, job)
    return Verdict(found is not None and found.pending and why in {"", found.reason}, _fate(stage, job))


@means("job JOB runs[ on NODES]")
def _(stage: Stage, job: JobId, nodes: tuple[NodeName, ...] = ()) -> Verdict:
    running = stage.cluster.slurm.running.get(job)
    return Verdict(running is not None and (not nodes or set(nodes) == set(running.shares)), _fate(stage, job))


@means("job JOB runs at SITE")
def _(stage: Stage, job: JobId, site: SiteName) -> Verdict:
    running = stage.cluster.slurm.running.get(job)
    places = {stage.look.view.nodes[name].site for name in running.shares} if running else set()
    return Verdict(places == {site}, f"{_fate(stage, job)}, at {', '.join(places)}")


@means("job JOB is done[ on NODES]")
def _(stage: Stage, job: JobId, nodes: tuple[NodeName, ...] = ()) -> Verdict:
    done = stage.cluster.slurm.done.get(job)
    return Verdict(done is not None and (not nodes or set(nodes) == set(done)), _fate(stage, job))


@means("job JOB failed: WHY")
def _(stage: Stage, job: JobId, why: str) -> Verdict:
    return Verdict(stage.cluster.slurm.failed.get(job) == why, _fate(stage, job))


@means("[HOW ]N job(s) done")
def _(stage: Stage, n: int, how: str = "") -> Verdict:
    return _counted(len(stage.cluster.slurm.done), how, n, stage.cluster.slurm.done)


@means("comment of job JOB says TEXT")
def _(stage: Stage, job: JobId, text: str) -> Verdict:
    found = _queued(stage, job)
    return _text(found.comment if found else "", text)


@means("comment of job JOB is TEXT")
def _(stage: Stage, job: JobId, text: str) -> Verdict:
    found = _queued(stage, job)
    return Verdict(found is not None and found.comment == text, f'it is "{found.comment if found else ""}"')


@means("constraint of job JOB is TEXT")
def _(stage: Stage, job: JobId, text: str) -> Verdict:
    found = _queued(stage, job)
    have = found.ask.constraint.text if found else ""
    return Verdict(have == text, f'it is "{have}"')


@means("explain job JOB says TEXT")
def _(stage: Stage, job: JobId, text: str) -> Verdict:
    view = stage.look.view
    found = next((each for each in view.jobs if each.id == job), None)
    return _text(" ".join(telling.job_sentences(view, stage.look.plan, found)) if found else "", text)


# --- nodes and machines


@means("[HOW ]N machine(s)[ of POOL][ at SITE]")
def _(stage: Stage, n: int, how: str = "", pool: str = "", site: SiteName | None = None) -> Verdict:
    there = [
        machine.node
        for machine in stage.machines
        if pool in {"", machine.pool} and (site is None or machine.id in stage.cluster.clouds[site].machines)
    ]
    return _counted(len(there), how, n, there)


@means("node NODE is POWER")
def _(stage: Stage, node: NodeName, power: Power) -> Verdict:
    found = stage.look.view.nodes[node]
    return Verdict(found.power is power, f"it is {found.power.value}")


@means("node NODE is busy")
def _(stage: Stage, node: NodeName) -> Verdict:
    states = stage.cluster.slurm.records[node].states
    return Verdict("MIXED" in states, f"it is {'+'.join(sorted(states))}")


def _in_state(*flags: str) -> Callable[[Stage, NodeName], Verdict]:
    def verdict(stage: Stage, node: NodeName) -> Verdict:
        states = stage.cluster.slurm.records[node].states
        return Verdict(states >= set(flags), f"it is {'+'.join(sorted(states))}")

    return verdict


means("node NODE is drained")(_in_state("DRAIN"))
means("node NODE is parked")(_in_state("DRAIN", "DOWN"))
means("node NODE is idle")(_in_state("IDLE"))


@means("node NODE rests")
def _(stage: Stage, node: NodeName) -> Verdict:
    fact = stage.look.view.fact(FactKind.QUARANTINE, node)
    return Verdict(fact is not None, fact.why if fact else "it does not")


@means("reason of node NODE says TEXT")
def _(stage: Stage, node: NodeName, text: str) -> Verdict:
    return _text(stage.cluster.slurm.records[node].reason, text)


@means("explain node NODE says TEXT")
def _(stage: Stage, node: NodeName, text: str) -> Verdict:
    found = stage.look.view.nodes[node]
    return _text(" ".join(telling.node_sentences(stage.look.view, stage.look.plan, found)), text)


# --- what the clouds were asked


def _starts(stage: Stage, pool: PoolName | None, since: float = 0.0) -> list[str]:
    names = set(stage.pools[pool].nodes) if pool else None
    return [
        f"{','.join(call.nodes)} at {call.at - stage.began:.0f} s"
        for call in stage.calls
        if call.verb == "start" and call.at >= stage.began + since and (names is None or names.intersection(call.nodes))
    ]


@means("[HOW ]N launch call(s)[ for POOL][ since TIME]")
def _(stage: Stage, n: int, how: str = "", pool: PoolName | None = None, time: float = 0.0) -> Verdict:
    starts = _starts(stage, pool, time)
    return _counted(len(starts), how, n, starts)


def _asked(verb: str) -> Callable[[Stage, str], Verdict]:
    def verdict(stage: Stage, name: str) -> Verdict:
        calls = [call for call in stage.calls if call.verb == verb and name in call.nodes]
        return Verdict(bool(calls), f"{len(calls)} such calls")

    return verdict


means("a machine named NAME was started")(_asked("start"))
means("a machine named NAME was stopped")(_asked("stop"))
means("a machine named NAME was deleted")(_asked("delete"))


@means("[HOW ]N machine(s) created")
def _(stage: Stage, n: int, how: str = "") -> Verdict:
    return _counted(len(stage.names), how, n, stage.names.values())


@means("spent at most MONEY")
def _(stage: Stage, money: float) -> Verdict:
    return Verdict(stage.spent <= money, f"{stage.spent:.3f} dollars are spent")


# --- what is remembered and told


@means("POOL is closed: RESULT")
def _(stage: Stage, pool: PoolName, result: Result) -> Verdict:
    view = stage.look.view
    closure = view.shut(stage.pools[pool])
    return Verdict(closure is not None and closure.result is result, f"it is {closure or 'open'}")


@means("POOL is open")
def _(stage: Stage, pool: PoolName) -> Verdict:
    closure = stage.look.view.shut(stage.pools[pool])
    return Verdict(closure is None, f"it is {closure or 'open'}")


@means("SITE is slowed down")
def _(stage: Stage, site: SiteName) -> Verdict:
    slowed = stage.look.view.slowed(site)
    return Verdict(slowed is not None, f"it is {slowed or 'at full speed'}")


@means("[HOW ]N event(s) KIND[ of NAME]")
def _(stage: Stage, n: int, kind: EventKind, how: str = "", name: str = "") -> Verdict:
    told = [event for event in stage.events if event.kind is kind and name in {"", event.subject}]
    return _counted(len(told), how, n, (f"{event.subject}: {event.text}" for event in stage.events))


@means("event KIND of NAME says TEXT")
def _(stage: Stage, kind: EventKind, name: str, text: str) -> Verdict:
    told = [event.text for event in stage.events if event.kind is kind and event.subject == name]
    return Verdict(any(text in each for each in told), f"it is {told}")


@means("job JOB can never be served")
def _(stage: Stage, job: JobId) -> Verdict:
    return Verdict(job in stage.look.plan.never, f"never: {dict(stage.look.plan.never)}")


@means("NAME refuses[ NODE]")
def _(stage: Stage, name: str, node: str = "") -> Verdict:
    refused = [f"{each.guard} refuses {each.goal.node}" for each in stage.look.plan.refused]
    there = any(each.guard == name and node in {"", each.goal.node} for each in stage.look.plan.refused)
    return Verdict(there, ", ".join(refused) or "nothing is refused")


@means("something is unreadable: TEXT")
def _(stage: Stage, text: str) -> Verdict:
    return _text("; ".join(stage.look.view.unreadable), text)


@means("an orphan is told of: TEXT")
def _(stage: Stage, text: str) -> Verdict:
    return _text("; ".join(each.text for each in orphans(stage.look.view)), text)


@means("nothing is told of orphans")
def _(stage: Stage) -> Verdict:
    found = [each.text for each in orphans(stage.look.view)]
    return Verdict(not found, "; ".join(found) or "there are none")


@means("[HOW ]N volume(s) and interface(s)")
def _(stage: Stage, n: int, how: str = "") -> Verdict:
    left = [each for cloud in stage.cluster.clouds.values() for each in cloud.left]
    return _counted(len(left), how, n, left)


@means("SITE could not be read")
def _(stage: Stage, site: SiteName) -> Verdict:
    unseen = stage.look.view.sites[site].unseen
    return Verdict(bool(unseen), unseen or "it was read")


@means("nothing is decided: TEXT")
def _(stage: Stage, text: str) -> Verdict:
    return _text(stage.look.plan.idle_because, text)


@means("the plan starts NODE")
def _(stage: Stage, node: NodeName) -> Verdict:
    actions = [f"{action.verb.value} {action.node}" for action in stage.look.plan.actions]
    return Verdict(f"start {node}" in actions, ", ".join(actions) or "nothing is planned")


@means("the daemon has died N time(s)")
def _(stage: Stage, n: int) -> Verdict:
    return Verdict(stage.deaths == n, f"it has died {stage.deaths} times")
