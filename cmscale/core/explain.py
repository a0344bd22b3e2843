"""Why? Each job and each node in one or a few sentences, made of the plan's own reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil

from cmscale import fit
from cmscale.core.steps import step
from cmscale.model import (
    HOME,
    OUR_MARK,
    Ask,
    Goal,
    Help,
    Job,
    JobId,
    Node,
    NodeName,
    Plan,
    Power,
    Snapshot,
    Verb,
    Want,
)

POOLS_TOLD = 3
"""How many pools a job's comment goes into; `explain` names them all."""


def job_notes(view: Snapshot, plan: Plan) -> tuple[Mapping[JobId, str], Mapping[JobId, str]]:
    """(why it can never be served, what is being done) for each job that more nodes would help."""
    stock, spent = fit.stock(view), fit.spent(view)
    by_job = _goals_by_job(plan.goals)
    refusals = {refusal.goal.node: refusal.why for refusal in plan.refused}
    alike: dict[Ask, list[Job]] = defaultdict(list)
    for job in view.jobs:
        if job.pending and job.help is Help.NODES:
            alike[job.ask].append(job)
    never: dict[JobId, str] = {}
    notes: dict[JobId, str] = {}
    for ask, jobs in alike.items():
        if verdict := fit.never(ask, stock):
            never |= {job.id: verdict for job in jobs}
            notes |= {job.id: f"no pool can ever serve this job: {verdict}" for job in jobs}
            continue
        waiting = _waiting(fit.obstacles(ask, stock, spent))
        for job in jobs:
            notes[job.id] = _progress(view, by_job[job.id], refusals) if job.id in by_job else waiting
    return never, notes


def _waiting(crowded: list[str]) -> str:
    more = len(crowded) - POOLS_TOLD
    told = crowded[:POOLS_TOLD] + ([f"{more} more pools likewise"] if more > 0 else [])
    return f"waits for room: {'; '.join(told)}" if told else "waits for nodes at home"


def comment(own: str, note: str) -> str:
    """A job's comment: the user's own text first, then our note behind our mark; an empty note leaves only theirs."""
    theirs = users_text(own)
    if not note:
        return theirs
    return f"{theirs} | {OUR_MARK} {note}" if theirs else f"{OUR_MARK} {note}"


def users_text(own: str) -> str:
    """What the user wrote into a comment that may carry our note."""
    if own.startswith(OUR_MARK):
        return ""
    return own.split(f" | {OUR_MARK}", 1)[0]


def _goals_by_job(goals: Iterable[Goal]) -> Mapping[JobId, list[Goal]]:
    by_job: dict[JobId, list[Goal]] = defaultdict(list)
    for goal in goals:
        if goal.job and goal.want is Want.UP:
            by_job[goal.job].append(goal)
    return by_job


def _progress(view: Snapshot, goals: list[Goal], refusals: Mapping[NodeName, str]) -> str:
    refused = [refusals[goal.node] for goal in goals if goal.node in refusals]
    nodes = [view.nodes[goal.node] for goal in goals if goal.node not in refusals]
    starting = [node for node in nodes if node.power is not Power.ON]
    if starting:
        site = starting[0].site
        ready = f"; {len(nodes) - len(starting)} up" if len(nodes) > len(starting) else ""
        return f"{_count(starting)} starting at {site}, {_left(view, starting)}{ready}"
    if refused:
        return f"waits: {refused[0]}"
    return f"{_count(nodes)} ready at {nodes[0].site}"


def _count(nodes: list[Node]) -> str:
    return f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}"


def _left(view: Snapshot, starting: list[Node]) -> str:
    """The time until the last of them should be there, coarse so that a comment changes once a minute at most."""
    left_s = max(
        (view.pools[node.pool].boot_s if node.pool else 0) - (view.now - node.up_since if node.up_since else 0)
        for node in starting
    )
    return f"about {ceil(left_s / 60)} min" if left_s > 0 else "later than usual"


# --- at length -------------------------------------------------------------------------------------------------------


def job_sentences(view: Snapshot, plan: Plan, job: Job) -> list[str]:
    """Everything there is to say about one job, most important first."""
    if plan.idle_because:
        return [plan.idle_because]
    if not job.pending:
        where = f" on {', '.join(sorted(job.nodes))}" if job.nodes else ""
        return [f"Job {job.id} is {job.state}{where}; there is nothing to do for it."]
    told = [f"Job {job.id} waits in Slurm with reason {job.reason or 'None'}: {job.why}"]
    if job.help is not Help.NODES:
        return told
    if why := plan.never.get(job.id):
        return [*told, f"No pool can ever serve it: {why}."]
    stock = fit.stock(view)
    goals = _goals_by_job(plan.goals).get(job.id, [])
    told += [_served(view, plan, goal) for goal in goals]
    if not goals:
        home = [node for node in view.nodes.values() if node.site == HOME and not fit.refuses(job.ask, fit.kind(node))]
        if home:
            told.append(f"{len(home)} nodes at home could hold it when they are free.")
        told += [f"No node is started for it from {why}." for why in fit.obstacles(job.ask, stock, fit.spent(view))]
    for of in sorted(stock, key=lambda each: each.name):
        if why := fit.refuses(job.ask, of):
            told.append(f"{of.name[0].upper()}{of.name[1:]} {why}.")
    return told


def _served(view: Snapshot, plan: Plan, goal: Goal) -> str:
    node = view.nodes[goal.node]
    if refusal := next((each for each in plan.refused if each.goal.node == goal.node), None):
        return f"{node.name} is wanted for it ({goal.policy}: {goal.reason}), but {refusal.guard}: {refusal.why}."
    following = step(node, goal)
    doing = following.verb.value if following.verb else following.why
    return f"{node.name} at {node.site} ({node.power.value}) serves it ({goal.policy}: {goal.reason}): {doing}."


def node_sentences(plan: Plan, node: Node) -> list[str]:
    """Everything there is to say about one node, most important first."""
    if plan.idle_because:
        return [plan.idle_because]
    states = "+".join(sorted(node.states)) or "unknown"
    if node.pool is None:
        return [f"{node.name} is {states}; it belongs to no pool, so cm-scale counts its room and never touches it."]
    told = [f"{node.name} of pool {node.pool} at {node.site} is {node.power.value}; Slurm says {states}."]
    if node.reason:
        told.append(f"Its reason in Slurm: {node.reason}.")
    if node.machine:
        told.append(f"Its machine is {node.machine.id} ({node.machine.state.value}).")
    if node.sick:
        told.append(f"It is sick: {node.sick}.")
    if node.op:
        told.append(f"Operation {node.op} is under way.")
    goal = next((goal for goal in plan.goals if goal.node == node.name), None)
    if goal:
        told.append(f"{goal.policy} wishes it {goal.want.value}: {goal.reason}.")
    else:
        told.append("No policy wishes anything of it.")
    refusal = next((refusal for refusal in plan.refused if refusal.goal.node == node.name), None)
    actions = [action for action in plan.actions if action.node == node.name]
    if refusal:
        told.append(f"Refused by {refusal.guard}: {refusal.why}.")
    told += [f"Next step: {action.verb.value} ({action.reason})." for action in actions]
    if not refusal and not actions:
        told.append(f"Nothing is done: {step(node, goal).why}.")
    return told


def decision(verb: Verb, nodes: str, reason: str, count: int) -> str:
    """One line for several alike actions: start t4-[1-4]: job 17 waits (4 nodes)."""
    return f"{verb.value} {nodes}: {reason}" + (f" ({count} nodes)" if count > 1 else "")
