"""What is each waiting job's note? One short sentence for its comment in Slurm, made of the plan's own reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import ceil

from cmscale.model import (
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
    Want,
    users_text,
)
from cmscale.placing.offers import Offers, never, obstacles, spent
from cmscale.placing.offers import stock as stock_of

POOLS_TOLD = 3
"""How many pools a job's comment goes into; `explain` names them all."""


def job_notes(view: Snapshot, plan: Plan) -> tuple[Mapping[JobId, str], Mapping[JobId, str]]:
    """(why it can never be served, what is being done) for each job that more nodes would help."""
    against, served = _Against(view), _Served(view, plan)
    hopeless: dict[JobId, str] = {}
    notes: dict[JobId, str] = {}
    for ask, jobs in _alike(view.jobs):
        if verdict := never(ask, against.stock):
            hopeless |= dict.fromkeys(jobs, verdict)
            notes |= dict.fromkeys(jobs, f"no pool can ever serve this job: {verdict}")
            continue
        notes |= dict.fromkeys(jobs, _waiting(against(ask)))
    for job, wait in plan.waits.items():
        if job in notes:
            notes[job] = f"waits: {wait.reason}"
    for refusal in plan.refused:
        if refusal.goal.job in notes:
            notes[refusal.goal.job] = f"waits: {refusal.why}"
    for job, goals in served.by_job.items():
        if job in notes:
            notes[job] = served.note(goals)
    return hopeless, notes


class _Served:
    """The notes of jobs for which nodes are up, coming or wanted."""

    def __init__(self, view: Snapshot, plan: Plan) -> None:
        self.view = view
        self.by_job = goals_by_job(plan.goals)
        self.refusals = {(refusal.goal.node, refusal.goal.job): refusal.why for refusal in plan.refused}
        self.alike: dict[NodeName, str] = {}

    def note(self, goals: list[Goal]) -> str:
        if len(goals) > 1:
            return _progress(self.view, goals, self.refusals)
        name = goals[0].node
        if name not in self.alike:  # jobs that share a node share its note
            self.alike[name] = _progress(self.view, goals, self.refusals)
        return self.alike[name]


class _Against:
    """What stands against starting more for a job, for each pool that suits it."""

    def __init__(self, view: Snapshot) -> None:
        self.stock, self.spent = stock_of(view), spent(view)
        # Where the time counts, each job has reasons of its own.
        self.dated = bool(view.reservations) or any(pool.hours for pool in view.pools.values())
        self.view = view
        self.offers: Offers | None = None

    def __call__(self, ask: Ask) -> list[str]:
        if not self.dated and not ask.reservation and ask.deadline is None:
            return obstacles(ask, self.stock, self.spent)
        if self.offers is None:
            self.offers = Offers(self.view)
        return [offer.obstacle or self.spent[offer.pool] for offer in self.offers.to(ask)]


def _alike(jobs: Iterable[Job]) -> Iterable[tuple[Ask, list[JobId]]]:
    """The jobs that more nodes would help, by what they ask. Equal asks are mostly one object, and an object is found
    faster than its equal."""
    same: dict[int, tuple[Ask, list[JobId]]] = {}
    for job in jobs:
        if job.help is Help.NODES and job.state == "PENDING":
            found = same.get(id(job.ask))
            if found is None:
                found = same[id(job.ask)] = (job.ask, [])
            found[1].append(job.id)
    return same.values()


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


def goals_by_job(goals: Iterable[Goal]) -> Mapping[JobId, list[Goal]]:
    """The wishes that serve each job, or that give back what came for it."""
    by_job: dict[JobId, list[Goal]] = defaultdict(list)
    for goal in goals:
        if goal.job and (goal.want is Want.UP or goal.gang):
            by_job[goal.job].append(goal)
            for job in goal.also:
                by_job[job].append(goal)
    return by_job


def _progress(view: Snapshot, goals: list[Goal], refusals: Mapping[tuple[NodeName, JobId | None], str]) -> str:
    if goals[0].want is Want.GONE:
        return f"waits: {goals[0].reason}; given back"
    if not goals[0].whole:
        site = view.nodes[goals[0].node].site
        return f"has {len(goals)} of its {goals[0].need} nodes at {site}, up or starting; waits for the rest"
    # By job as well: what is refused to one may be granted to another.
    refused = [refusals[goal.node, goal.job] for goal in goals if (goal.node, goal.job) in refusals]
    nodes = [view.nodes[goal.node] for goal in goals if (goal.node, goal.job) not in refusals]
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
