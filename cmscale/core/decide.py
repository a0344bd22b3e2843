"""Which steps shall be taken now, and why?

Policies propose, the table gives each wish its next step, guards refuse. A pure function of the snapshot, the policies
and the limits: it reads no clock and touches nothing, so a plan can be explained, replayed and simulated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cmscale.core import budgets, explain, orphans
from cmscale.core.binding import bindings, releases
from cmscale.core.guards import Bench, Proposal, admit
from cmscale.core.steps import step
from cmscale.model import (
    DESTRUCTIVE,
    Action,
    FactKind,
    GangId,
    Goal,
    Job,
    JobId,
    Limits,
    NodeName,
    OpId,
    Plan,
    PolicyFailure,
    Power,
    Refusal,
    Snapshot,
    Verb,
    Wait,
)

ASKED_AGAIN_S = 60.0
"""A requeue that Slurm did not carry out is asked for again after this time."""


OF_A_JOB = frozenset({"creations_per_job", "search_time", "queue_thresholds", "within_own_budget"})
"""Guards whose reason is the job's own: no other node would change it."""


class Policy(Protocol):
    """One file of the policy folders, with its settings."""

    @property
    def name(self) -> str: ...

    def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal | Wait]: ...


def decide(view: Snapshot, policies: Sequence[Policy], limits: Limits) -> Plan:
    """The plan for this tick. Without a sight of Slurm there is none, nor without a journal to write it down, nor in
    doubt of what was seen.
    """
    if view.unseen:
        return Plan(view.tick, view.now, idle_because=f"Slurm could not be read, so nothing is done: {view.unseen}")
    if view.unrecorded:
        why = f"Without its journal nothing is started or given back: {view.unrecorded}"
        return Plan(view.tick, view.now, idle_because=why)
    if view.doubt:
        return Plan(view.tick, view.now, idle_because=view.doubt)
    held = budgets.held(view)
    asked = replace(view, jobs=tuple(job for job in view.jobs if job.id not in held)) if held else view
    first = _judge(view, _propose(asked, policies, held), limits)
    barred = {refusal.goal.job: refusal for refusal in first.refused if refusal.guard in OF_A_JOB and refusal.goal.job}
    if not barred:
        return _planned(view, first, limits)
    # A job that may start nothing must not keep room, in thought, from those behind it.
    others = replace(asked, jobs=tuple(job for job in asked.jobs if job.id not in barred or not job.pending))
    second = _judge(view, _propose(others, policies, held), limits)
    return _planned(view, second, limits, tuple(barred.values()))


@dataclass(frozen=True, slots=True)
class _Judged:
    """What the policies ask for, and what of it may be done."""

    proposed: _Proposed
    incomplete: frozenset[GangId]
    admitted: Sequence[Proposal]
    refused: Sequence[Refusal]


def _judge(view: Snapshot, proposed: _Proposed, limits: Limits) -> _Judged:
    goals = proposed.goals
    incomplete = _incomplete(view, goals)
    proposals = [
        Proposal(goal, node, following)
        for goal in goals
        for node in [view.nodes[goal.node]]
        if (following := step(node, goal, view.now)).verb is not None
        # A gang's nodes are handed over together: Slurm would give the first ones to smaller jobs behind it.
        and not (following.verb is Verb.RESUME and goal.gang in incomplete)
    ]
    # Nor are its machines started before all of its nodes are parked: a call for a part of them is not all or none.
    unready = {proposal.goal.gang for proposal in proposals if proposal.step.verb is Verb.DRAIN} - {None}
    proposals = [each for each in proposals if each.step.verb is not Verb.START or each.goal.gang not in unready]
    return _Judged(proposed, incomplete, *admit(proposals, Bench.of(view, limits, proposed.failed, goals)))


def _planned(view: Snapshot, judged: _Judged, limits: Limits, barred: tuple[Refusal, ...] = ()) -> Plan:
    """The plan that comes of it, with what was refused to jobs that were then left out."""
    proposed = judged.proposed
    actions = (
        *bindings(view, proposed.goals, judged.incomplete),
        *releases(view),
        *_ordered(view, judged.admitted),
        *_upkeep(view, {goal.node for goal in proposed.goals}),
        *orphans.deletions(view, limits),
    )
    plan = Plan(
        view.tick,
        view.now,
        actions,
        proposed.goals,
        (*barred, *judged.refused),
        proposed.failed,
        waits=proposed.waits,
        policies=proposed.policies,
    )
    never, notes = explain.job_notes(view, plan)
    return replace(plan, notes=notes, never=never)


@dataclass(frozen=True, slots=True)
class _Proposed:
    """What the policies ask for."""

    goals: tuple[Goal, ...]
    policies: Mapping[NodeName, str]
    waits: Mapping[JobId, Wait]
    failed: tuple[PolicyFailure, ...]


def _propose(view: Snapshot, policies: Sequence[Policy], held: Mapping[JobId, Wait]) -> _Proposed:
    """All goals, at most one a node: the first policy to claim a node keeps it. A policy that fails yields nothing.
    Jobs that are held wait, whatever policies say."""
    claims: dict[NodeName, Goal] = {}
    claimed_by: dict[NodeName, str] = {}
    waits: dict[JobId, Wait] = {}
    failed: list[PolicyFailure] = []
    for policy in policies:
        own: dict[NodeName, Goal] = {}
        own_waits: dict[JobId, Wait] = {}
        claimed = frozenset(claims)
        try:
            for goal in policy.propose(view, claimed):
                if isinstance(goal, Wait):
                    own_waits[goal.job] = goal
                    continue
                node = view.nodes.get(goal.node)
                if node is None:
                    failed.append(PolicyFailure(policy.name, f"it wishes for a node that does not exist: {goal.node}"))
                    break
                if node.pool is not None and goal.node not in claimed and goal.node not in own:
                    own[goal.node] = goal
            else:
                claims |= own
                claimed_by |= dict.fromkeys(own, policy.name)
                waits = own_waits | waits
        except Exception as error:  # noqa: BLE001 - a site's own policy may raise anything; the tick goes on without it
            failed.append(PolicyFailure(policy.name, f"{type(error).__name__}: {error}"))
    return _Proposed(tuple(claims.values()), claimed_by, {**waits, **held}, tuple(failed))


def _incomplete(view: Snapshot, goals: Iterable[Goal]) -> frozenset[GangId]:
    """Gangs of which not all nodes are up yet."""
    incomplete: set[GangId] = set()
    for goal in goals:
        if (goal.gang or goal.gangs) and (not goal.whole or view.nodes[goal.node].power is not Power.ON):
            incomplete.update(goal.gangs, (goal.gang,) if goal.gang else ())
    return frozenset(incomplete)


def _ordered(view: Snapshot, admitted: Sequence[Proposal]) -> Iterator[Action]:
    """The admitted steps. Starts that can share one call share an operation: a gang's, or all single jobs'."""
    ops: dict[tuple[object, ...], OpId] = {}
    running = _running(view, admitted)
    for proposal in admitted:
        goal, node, following = proposal.goal, proposal.node, proposal.step
        assert following.verb is not None  # noqa: S101 - proposals are made of steps with a verb
        if following.verb is Verb.REQUEUE:
            for job in running[node.name]:
                yield Action(Verb.REQUEUE, node.name, following.why, _op(view, "requeue"), node.pool, job.id)
            continue
        if following.verb is Verb.START:
            # Machines to be powered on and machines to be created can't travel in one call.
            shared: tuple[object, ...] = (Verb.START, node.pool, goal.gang, bool(following.arg))
        else:
            shared = (following.verb, node.site)
        op = ops.setdefault(shared, OpId(f"{view.tick}-{len(ops)}"))
        together = following.verb is Verb.START and goal.gang is not None
        yield Action(
            following.verb, node.name, following.why, op, node.pool, goal.job, following.arg, goal.need, together
        )


def _running(view: Snapshot, admitted: Iterable[Proposal]) -> Mapping[NodeName, Sequence[Job]]:
    """The jobs on nodes that must be free now. A job of several such nodes is requeued for the first one."""
    due = {proposal.node.name for proposal in admitted if proposal.step.verb is Verb.REQUEUE}
    running: dict[NodeName, list[Job]] = defaultdict(list)
    for job in view.jobs if due else ():
        asked = view.fact(FactKind.REQUEUED, job.id)
        may = job.requeue and not (asked and view.now - asked.at < ASKED_AGAIN_S)
        if may and not job.pending and job.state != "COMPLETING" and (nodes := due & job.nodes):
            running[min(nodes)].append(job)
    return running


def _op(view: Snapshot, word: str) -> OpId:
    return OpId(f"{view.tick}-{word}")


def _upkeep(view: Snapshot, wished: set[NodeName]) -> Iterator[Action]:
    """What no wish is needed for: nodes without a machine are parked, machines that have joined are handed over, those
    that don't shut down are switched off."""
    paused = view.fact(FactKind.PAUSE)
    for node in view.nodes.values():
        if node.pool is None or node.name in wished or node.op or view.sites[node.site].unseen:
            continue
        following = step(node, None, view.now)
        left_alone = paused or view.keep(node.name)
        if following.verb is None or (left_alone and following.verb in DESTRUCTIVE and following.arg != "off"):
            continue
        yield Action(
            following.verb, node.name, following.why, _op(view, following.verb.value), node.pool, arg=following.arg
        )
