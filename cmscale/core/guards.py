"""May this be done now? Each guard looks at one proposed step and gives a reason against it, or nothing.

Guards run in the order of `GUARDS`; the first reason stands. They know what has been admitted before in the same tick
(`Tally`), so that limits hold for a tick as a whole. A gang's steps stand or fall together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
    Pool,
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

    @property
    def together(self) -> str:
        """What it stands or falls with: its gang, or itself alone."""
        return self.goal.gang or self.node.name


@dataclass(slots=True)
class Tally:
    """What this tick has admitted so far."""

    starts: int = 0
    by_pool: Counter[PoolName] = field(default_factory=Counter)
    by_job: Counter[JobId] = field(default_factory=Counter)
    tries: dict[PoolName, str] = field(default_factory=dict)
    """What was started first from each pool."""

    def copy(self) -> Tally:
        return Tally(self.starts, self.by_pool.copy(), self.by_job.copy(), self.tries.copy())

    def count(self, proposal: Proposal) -> None:
        if proposal.step.verb is Verb.START:
            self.starts += 1
            if proposal.node.pool:
                self.by_pool[proposal.node.pool] += 1
                self.tries.setdefault(proposal.node.pool, proposal.together)
            if proposal.goal.job:
                self.by_job[proposal.goal.job] += 1


@dataclass(frozen=True, slots=True)
class Bench:
    """What guards may look at besides the proposal."""

    view: Snapshot
    limits: Limits
    failed: tuple[PolicyFailure, ...]
    machines: Counter[PoolName]
    booting: Counter[PoolName]
    failing: Mapping[PoolName, Node]
    """A node of each pool whose machine never joined and is still there."""

    @classmethod
    def of(cls, view: Snapshot, limits: Limits, failed: tuple[PolicyFailure, ...]) -> Bench:
        ours = [(node.pool, node) for node in view.nodes.values() if node.pool]
        booting = [(name, node) for name, node in ours if node.power is Power.STARTING]
        return cls(
            view,
            limits,
            failed,
            machines=Counter(name for name, node in ours if node.power is not Power.GONE),
            booting=Counter(name for name, _ in booting),
            failing={name: node for name, node in booting if node.sick},
        )

    def starting(self, proposal: Proposal) -> Pool | None:
        """The pool from which the proposal starts a machine; None if it starts none."""
        if proposal.step.verb is not Verb.START or proposal.node.pool is None:
            return None
        return self.view.pools.get(proposal.node.pool)


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
    pool = bench.starting(proposal)
    if pool and (closed := bench.view.shut(pool)):
        left_s = max(closed.until - bench.view.now, 0)
        return f"{pool.name} is closed for another {left_s:.0f} s ({closed.result.value}: {closed.why})"
    return ""


def not_throttled(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A site that asked us to slow down is given the time."""
    pool = bench.starting(proposal)
    if pool and (slowed := bench.view.slowed(pool.site)):
        return f"{pool.site} asked for fewer calls; the next launch is in {slowed.until - bench.view.now:.0f} s"
    return ""


def one_try_at_a_time(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """A pool that was closed is open again only after one machine, or one gang, has come well."""
    pool = bench.starting(proposal)
    if pool is None or not (closed := bench.view.half_open(pool)):
        return ""
    if tally.tries.get(pool.name, proposal.together) == proposal.together and not bench.booting[pool.name]:
        return ""
    return f"{pool.name} is tried with one machine first, for it was closed ({closed.result.value}: {closed.why})"


def failed_boots_first(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """While a machine is given up that never joined, its pool waits: whether it is closed stands in the next tick."""
    pool = bench.starting(proposal)
    sick = bench.failing.get(pool.name) if pool else None
    return f"{sick.name} is given up first: {sick.sick}" if sick else ""


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
    pool = bench.starting(proposal)
    if pool is None or proposal.node.power is not Power.GONE:
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
    not_throttled,
    one_try_at_a_time,
    failed_boots_first,
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
    together: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        together.setdefault(proposal.together, []).append(proposal)
    return list(together.values())
