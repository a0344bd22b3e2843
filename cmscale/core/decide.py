"""Which steps shall be taken now, and why?

Policies propose, the table gives each wish its next step, guards refuse. A pure function of the snapshot, the policies
and the limits: it reads no clock and touches nothing, so a plan can be explained, replayed and simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from cmscale.core import explain
from cmscale.core.guards import Bench, Proposal, admit
from cmscale.core.steps import step
from cmscale.model import (
    Action,
    Goal,
    Limits,
    Machine,
    Node,
    NodeName,
    OpId,
    Plan,
    PolicyFailure,
    Power,
    Snapshot,
    Verb,
)


class Policy(Protocol):
    """One file of the policy folders, with its settings."""

    @property
    def name(self) -> str: ...

    def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal]: ...


def decide(view: Snapshot, policies: Sequence[Policy], limits: Limits) -> Plan:
    """The plan for this tick. Without a sight of Slurm there is none."""
    if view.unseen:
        return Plan(view.tick, view.now, idle_because=f"Slurm could not be read, so nothing is done: {view.unseen}")
    goals, failed = _propose(view, policies)
    wished = {goal.node: goal for goal in goals}
    incomplete = {goal.gang for goal in goals if goal.gang and view.nodes[goal.node].power is not Power.ON}
    proposals = [
        Proposal(goal, node, following)
        for goal in goals
        for node in [view.nodes[goal.node]]
        if (following := step(node, goal)).verb is not None
        # A gang's nodes are handed over together: Slurm would give the first ones to smaller jobs behind it.
        and not (following.verb is Verb.RESUME and goal.gang in incomplete)
    ]
    admitted, refused = admit(proposals, Bench.of(view, limits, failed))
    actions = (*_ordered(view, admitted), *_upkeep(view, wished), *_surplus(view))
    plan = Plan(view.tick, view.now, actions, goals, tuple(refused), failed)
    never, notes = explain.job_notes(view, plan)
    return Plan(view.tick, view.now, actions, goals, tuple(refused), failed, "", notes, never)


def _propose(view: Snapshot, policies: Sequence[Policy]) -> tuple[tuple[Goal, ...], tuple[PolicyFailure, ...]]:
    """All goals, at most one a node: the first policy to claim a node keeps it. A policy that fails yields nothing."""
    claims: dict[NodeName, Goal] = {}
    failed: list[PolicyFailure] = []
    for policy in policies:
        own: dict[NodeName, Goal] = {}
        claimed = frozenset(claims)
        try:
            for goal in policy.propose(view, claimed):
                if goal.node not in view.nodes:
                    failed.append(PolicyFailure(policy.name, f"it wishes for a node that does not exist: {goal.node}"))
                    break
                if view.nodes[goal.node].pool is not None and goal.node not in claimed:
                    own.setdefault(goal.node, _signed(goal, policy.name))
            else:
                claims |= own
        except Exception as error:  # noqa: BLE001 - a site's own policy may raise anything; the tick goes on without it
            failed.append(PolicyFailure(policy.name, f"{type(error).__name__}: {error}"))
    return tuple(claims.values()), tuple(failed)


def _signed(goal: Goal, policy: str) -> Goal:
    return Goal(goal.node, goal.want, goal.reason, goal.job, goal.gang, goal.need, policy)


def _ordered(view: Snapshot, admitted: Sequence[Proposal]) -> Iterator[Action]:
    """The admitted steps. Starts that can share one call share an operation: a gang's, or all single jobs'."""
    ops: dict[tuple[object, ...], OpId] = {}
    for proposal in admitted:
        goal, node, following = proposal.goal, proposal.node, proposal.step
        assert following.verb is not None  # noqa: S101 - proposals are made of steps with a verb
        shared = (following.verb, node.pool, goal.gang) if following.verb is Verb.START else (following.verb, node.site)
        op = ops.setdefault(shared, OpId(f"{view.tick}-{len(ops)}"))
        arg = "all" if following.verb is Verb.START and goal.gang else following.arg
        yield Action(following.verb, node.name, following.why, op, node.pool, goal.job, arg, goal.need)


def _upkeep(view: Snapshot, wished: dict[NodeName, Goal]) -> Iterator[Action]:
    """What no wish is needed for: nodes without a machine are parked, machines that have joined are handed over."""
    for node in view.nodes.values():
        if node.pool is None or node.name in wished or node.op or view.sites[node.site].unseen:
            continue
        following = step(node, None)
        if following.verb is not None:
            op = OpId(f"{view.tick}-{following.verb.value}")
            yield Action(following.verb, node.name, following.why, op, node.pool, arg=following.arg)


def _surplus(view: Snapshot) -> Iterator[Action]:
    """A second machine of the same name serves nobody and is deleted."""
    for machine in view.surplus:
        node = view.nodes.get(machine.node)
        if node is None or node.pool is None or view.sites[node.site].unseen:
            continue
        why = f"a second machine of this name; {_serving(node, machine)} serves it"
        yield Action(Verb.DELETE, node.name, why, OpId(f"{view.tick}-surplus"), node.pool, arg=machine.id)


def _serving(node: Node, other: Machine) -> str:
    return node.machine.id if node.machine and node.machine.id != other.id else "another"
