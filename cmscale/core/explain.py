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
from cmscale.placing.ways import Places, ways

POOLS_TOLD = 3
"""How many pools a job's comment goes into; `explain` names them all."""


def job_notes(view: Snapshot, plan: Plan) -> tuple[Mapping[JobId, str], Mapping[JobId, str]]:
    """(why it can never be served, what is being done) for each job that more nodes would help."""
    waiting, by_job = _Waiting(view), goals_by_job(plan.goals)
    hopeless: dict[JobId, str] = {}
    notes: dict[JobId, str] = {}
    for ask, jobs in _alike(view.jobs):
        if verdict := never(ask, waiting.stock):
            hopeless |= dict.fromkeys(jobs, verdict)
            notes |= dict.fromkeys(jobs, f"no pool can ever serve this job: {verdict}")
            continue
        notes |= dict.fromkeys(jobs, waiting.note(ask))
    for job, wait in plan.waits.items():
        if job in notes:
            notes[job] = f"waits: {wait.reason}"
    for refusal in plan.refused:
        if refusal.goal.job in notes and refusal.goal.job not in by_job:
            notes[refusal.goal.job] = f"waits: {refusal.why}"
    served = _Served(view, plan)
    for job, goals in by_job.items():
        if job in notes:
            notes[job] = served.note(goals)
    return hopeless, notes


class _Served:
    """The notes of jobs for which nodes are up, coming or wanted."""

    def __init__(self, view: Snapshot, plan: Plan) -> None:
        self.view = view
        jobs = {goal.node: goal.job for goal in plan.goals}
        # What is refused to one job may be granted to another.
        self.refused = {
            refusal.goal.node: refusal.why
            for refusal in plan.refused
            if jobs.get(refusal.goal.node) == refusal.goal.job
        }
        self.alike: dict[NodeName, str] = {}

    def note(self, goals: list[Goal]) -> str:
        if len(goals) > 1:
            return _progress(self.view, goals, self.refused)
        name = goals[0].node
        if name not in self.alike:  # jobs that share a node share its note
            self.alike[name] = _progress(self.view, goals, self.refused)
        return self.alike[name]


class _Waiting:
    """The notes of jobs for which nothing is started: what stands against it, for each pool that suits them."""

    def __init__(self, view: Snapshot) -> None:
        self.stock, self.spent = stock_of(view), spent(view)
        # Where the time counts, each job has reasons of its own.
        self.dated = bool(view.reservations) or any(pool.hours for pool in view.pools.values())
        self.view = view
        self.offers: Offers | None = None
        self.alike: dict[Places, str] = {}

    def note(self, ask: Ask) -> str:
        if self.dated or ask.reservation or ask.deadline is not None:
            if self.offers is None:
                self.offers = Offers(self.view)
            return _crowded([offer.obstacle or self.spent[offer.pool] for offer in self.offers.to(ask)])
        places = ways(ask, self.stock.kinds).places
        if places not in self.alike:  # asks that the same kinds of nodes could serve share their note
            self.alike[places] = _crowded(obstacles(ask, self.stock, self.spent))
        return self.alike[places]


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


def _crowded(obstacles: list[str]) -> str:
    more = len(obstacles) - POOLS_TOLD
    told = obstacles[:POOLS_TOLD] + ([f"{more} more pools likewise"] if more > 0 else [])
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


def _progress(view: Snapshot, goals: list[Goal], refused: Mapping[NodeName, str]) -> str:
    first = goals[0]
    if first.want is Want.GONE:
        return f"waits: {first.reason}; given back"
    if not first.whole:
        site = view.nodes[first.node].site
        return f"has {len(goals)} of its {first.need} nodes at {site}, up or starting; waits for the rest"
    nodes = [view.nodes[goal.node] for goal in goals if goal.node not in refused]
    if not nodes:
        return f"waits: {refused[first.node]}"
    starting = [node for node in nodes if node.power is not Power.ON]
    if starting:
        site = starting[0].site
        ready = f"; {len(nodes) - len(starting)} up" if len(nodes) > len(starting) else ""
        return f"{_count(starting)} starting at {site}, {_left(view, starting)}{ready}"
    if len(nodes) < len(goals):
        return f"waits: {next(refused[goal.node] for goal in goals if goal.node in refused)}"
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
