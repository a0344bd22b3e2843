"""What shall be remembered of a plan, and what shall admins be told of?

Facts are what later ticks must know and cannot observe; events are what somebody should hear of who reads no log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cmscale.core.pins import pin_of
from cmscale.model import (
    Action,
    Closure,
    Event,
    EventKind,
    Fact,
    FactKind,
    JobId,
    Limits,
    Node,
    Plan,
    PoolName,
    Power,
    Result,
    Snapshot,
    Verb,
    Want,
)

PINNED_S = 30 * 86400.0
"""A job may wait for so long with the site it was given."""

REQUEUED_S = 3600.0

STOPPED_S = 365 * 86400.0
"""However long we are away: without this proof nobody would dare to delete the machine."""

_US = "cm-scale"


def facts(view: Snapshot, plan: Plan, limits: Limits) -> Iterator[Fact]:
    """What must be known before the plan is carried out."""
    for action in plan.actions:
        job, node = action.job, view.nodes.get(action.node)
        if node and _gives_up(node, action):
            yield Fact(FactKind.QUARANTINE, node.name, view.now, view.now + limits.quarantine_s, node.sick, _US)
            if action.verb is Verb.STOP and not node.kept:
                yield Fact(FactKind.STOPPED, node.name, view.now, view.now + STOPPED_S, node.sick, _US)
        elif action.verb is Verb.REQUEUE and job:
            yield Fact(FactKind.REQUEUED, job, view.now, view.now + REQUEUED_S, action.reason, _US)
        elif action.verb is Verb.PIN and job:
            changed = next((each for each in view.jobs if each.id == job), None)
            if changed and pin_of(view, changed) is None:
                own = changed.ask.constraint.text
                yield Fact(FactKind.PIN, job, view.now, view.now + PINNED_S, own, _US)


def unpinned(view: Snapshot, plan: Plan) -> Iterator[JobId]:
    """Jobs that get their own constraint back: once Slurm has it, the pin is forgotten.

    Not that of an array while a task of it bears the pin: it may come back to the queue.
    """
    for action in plan.actions:
        fact = view.fact(FactKind.PIN, action.job) if action.verb is Verb.PIN and action.job else None
        if fact and action.job and action.arg == fact.why:
            tasks = [each for each in view.jobs if each.array == action.job and each.id != action.job]
            if not any(pin_of(view, task) for task in tasks):
                yield action.job


def events(view: Snapshot, plan: Plan) -> Iterator[Event]:
    """What the plan does that is out of the ordinary."""
    for failure in plan.failed:
        yield Event(view.now, EventKind.POLICY_FAILED, failure.policy, f"policy {failure.policy} failed: {failure.why}")
    for action in plan.actions:
        node = view.nodes.get(action.node)
        if node and _gives_up(node, action):
            booting = node.power is Power.STARTING
            kind = EventKind.FAILED_BOOT if booting else EventKind.QUARANTINED
            text = f"{node.name} is given up and its machine given back: {node.sick}"
            yield Event(view.now, kind, node.name, text)
        elif action.verb is Verb.REQUEUE and action.job:
            text = f"job {action.job} is requeued from {action.node}: {action.reason}"
            yield Event(view.now, EventKind.REQUEUED, action.job, text)
        elif action.site:
            yield Event(view.now, EventKind.REAPED, action.arg, f"deleted: {action.reason}")
    for job, count, why in sorted(_gangs_given_back(plan)):
        text = f"{count} machines of job {job} are given back: {why}"
        yield Event(view.now, EventKind.GANG_GIVEN_BACK, job, text)


def _gives_up(node: Node, action: Action) -> bool:
    """True if the machine goes because its node failed; not if it went already and must be switched off hard."""
    return bool(node.sick) and action.verb in {Verb.DELETE, Verb.STOP} and node.power in {Power.STARTING, Power.ON}


def _gangs_given_back(plan: Plan) -> set[tuple[JobId, int, str]]:
    given: dict[JobId, list[str]] = {}
    for goal in plan.goals:
        if goal.gang and goal.job and goal.want is Want.GONE:
            given.setdefault(goal.job, []).append(goal.reason)
    return {(job, len(reasons), reasons[0]) for job, reasons in given.items()}


def closure_events(before: Mapping[PoolName, Closure], view: Snapshot) -> Iterator[Event]:
    """What has closed and opened since: protection is never silent."""
    for name, closure in view.closed.items():
        past = before.get(name)
        newly = past is None or (past.result, past.until) != (closure.result, closure.until)
        if closure.result is not Result.THROTTLED and closure.until > view.now and newly:
            text = f"pool {name} is closed for {(closure.until - view.now) / 60:.0f} min ({closure.result.value}): "
            yield Event(view.now, EventKind.CLOSED, name, f"{text}{closure.why}")
    for name, closure in before.items():
        if closure.until and closure.result is not Result.THROTTLED and name not in view.closed:
            text = f"pool {name} is open again; it was closed ({closure.result.value}: {closure.why})"
            yield Event(view.now, EventKind.OPENED, name, text)
