"""May this be done now? Each guard looks at one proposed step and gives a reason against it, or nothing.

Guards run in the order of `GUARDS`; the first reason stands. They know what has been admitted before in the same tick
(`Tally`), so that limits hold for a tick as a whole. A gang's steps stand or fall together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cmscale.core.steps import Step
from cmscale.model import (
    DESTRUCTIVE,
    Creations,
    Goal,
    JobId,
    Limits,
    Node,
    PolicyFailure,
    PoolName,
    Power,
    Refusal,
    Snapshot,
    Verb,
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """A step that a goal asks for."""

    goal: Goal
    node: Node
    step: Step


@dataclass(slots=True)
class Tally:
    """What this tick has admitted so far."""

    starts: int = 0
    by_pool: Counter[PoolName] = field(default_factory=Counter)
    by_job: Counter[JobId] = field(default_factory=Counter)

    def copy(self) -> Tally:
        return Tally(self.starts, self.by_pool.copy(), self.by_job.copy())

    def count(self, proposal: Proposal) -> None:
        if proposal.step.verb is Verb.START:
            self.starts += 1
            if proposal.node.pool:
                self.by_pool[proposal.node.pool] += 1
            if proposal.goal.job:
                self.by_job[proposal.goal.job] += 1


@dataclass(frozen=True, slots=True)
class Bench:
    """What guards may look at besides the proposal."""

    view: Snapshot
    limits: Limits
    failed: tuple[PolicyFailure, ...]
    machines: Counter[PoolName]


Guard = Callable[[Proposal, Bench, Tally], str]


def site_seen(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """Nothing is done at a site that could not be read this tick."""
    site = bench.view.sites[proposal.node.site]
    return f"{site.name} could not be read: {site.unseen}" if site.unseen else ""


def no_operation_under_way(proposal: Proposal, _: Bench, __: Tally) -> str:
    """One call at a time for a node."""
    return f"operation {proposal.node.op} is still under way" if proposal.node.op else ""


def pool_open(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """Nothing is started from a pool that has just refused."""
    closed = bench.view.closed.get(proposal.node.pool) if proposal.node.pool else None
    if proposal.step.verb is Verb.START and closed:
        left_s = max(closed.until - bench.view.now, 0)
        return f"{proposal.node.pool} is closed for another {left_s:.0f} s ({closed.result.value}: {closed.why})"
    return ""


def start_rate(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """At most so many machines a minute."""
    if proposal.step.verb is not Verb.START:
        return ""
    recent = sum(1 for at in bench.view.starts if at > bench.view.now - 60) + tally.starts
    most = bench.limits.starts_per_minute
    return (
        f"{recent} machines were started in the last minute; limits.starts_per_minute is {most}"
        if recent >= most
        else ""
    )


def creations_per_hour(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """At most so many machines an hour, whatever a policy says."""
    if proposal.step.verb is not Verb.START:
        return ""
    recent = len(bench.view.starts) + tally.starts
    most = bench.limits.creations_per_hour
    return (
        f"{recent} machines were started in the last hour; limits.creations_per_hour is {most}"
        if recent >= most
        else ""
    )


def creations_per_job(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """A job that never starts on the machines it gets stops getting more."""
    job = proposal.goal.job
    if proposal.step.verb is not Verb.START or job is None:
        return ""
    past = bench.view.creations.get(job, Creations(0, 0))
    most = bench.limits.creations_per_job * max(past.need, proposal.goal.need)
    made = past.machines + tally.by_job[job]
    if made < most:
        return ""
    return (
        f"{made} machines were created for job {job} already; limits.creations_per_job allows "
        f"{bench.limits.creations_per_job} for each node it needs"
    )


def pool_maximum(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """No pool has more machines than its maximum."""
    pool = bench.view.pools.get(proposal.node.pool) if proposal.node.pool else None
    if proposal.step.verb is not Verb.START or proposal.node.power is not Power.GONE or pool is None:
        return ""
    have = bench.machines[pool.name] + tally.by_pool[pool.name]
    return f"{pool.name} has all the {pool.most} machines it may have" if have >= pool.most else ""


def minimum_up_time(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A machine is not given back right after it was paid for; one that will never serve is."""
    node = proposal.node
    if proposal.step.verb not in DESTRUCTIVE or node.up_since is None or node.sick:
        return ""
    up_s = bench.view.now - node.up_since
    most = bench.limits.min_up_s
    return f"it has been up for {up_s:.0f} s; limits.min_up is {most:.0f} s" if up_s < most else ""


def nothing_destructive_after_a_failed_policy(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """What a failed policy would have claimed is unknown, so nothing is taken away in that tick."""
    if proposal.step.verb in DESTRUCTIVE and bench.failed:
        return f"policy {bench.failed[0].policy} failed, so nothing is drained, stopped or deleted in this tick"
    return ""


GUARDS: tuple[Guard, ...] = (
    site_seen,
    no_operation_under_way,
    pool_open,
    start_rate,
    creations_per_hour,
    creations_per_job,
    pool_maximum,
    minimum_up_time,
    nothing_destructive_after_a_failed_policy,
)


def admit(proposals: Iterable[Proposal], bench: Bench) -> tuple[list[Proposal], list[Refusal]]:
    """The proposals that may be done now, in order, and the refusals with their reasons."""
    admitted: list[Proposal] = []
    refused: list[Refusal] = []
    tally = Tally()
    for together in _gangs(proposals):
        after, refusals = _look(together, bench, tally)
        if refusals:
            refused.extend(refusals)
        else:
            tally = after
            admitted.extend(together)
    return admitted, refused


def _look(together: list[Proposal], bench: Bench, tally: Tally) -> tuple[Tally, list[Refusal]]:
    after, refusals = tally.copy(), []
    for proposal in together:
        for guard in GUARDS:
            if why := guard(proposal, bench, after):
                refusals.append(Refusal(proposal.goal, guard.__name__, why))
                break
        else:
            after.count(proposal)
    if refusals:
        named = {refusal.goal.node for refusal in refusals}
        first = refusals[0]
        rest = [proposal.goal for proposal in together if proposal.goal.node not in named]
        refusals += [Refusal(goal, first.guard, f"with {first.goal.node}: {first.why}") for goal in rest]
    return after, refusals


def _gangs(proposals: Iterable[Proposal]) -> list[list[Proposal]]:
    together: dict[object, list[Proposal]] = {}
    for proposal in proposals:
        together.setdefault(proposal.goal.gang or object(), []).append(proposal)
    return list(together.values())
