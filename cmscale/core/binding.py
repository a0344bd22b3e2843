"""Which jobs must Slurm be told to run at one site, and which may start at once again?

Slurm itself may spread a job of several nodes over living nodes of two sites. So a job whose machines have all joined
at one site is pinned there before they are handed over: the site's feature is added to its --constraint. When the
machines are gone before it started, it gets its own constraint back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from cmscale.core.pins import pin_of, pinned
from cmscale.model import (
    HOME,
    Action,
    FactKind,
    GangId,
    Goal,
    Job,
    JobId,
    NodeName,
    OpId,
    Power,
    SiteName,
    Snapshot,
    Verb,
    Want,
)

_NOBODY = NodeName("")

PUT_OFF = frozenset(
    {
        "BeginTime",
        "JobHeldAdmin",
        "JobHoldMaxRequeue",
        "BadConstraints",
        "job requeued in held state",
        "launch failed requeued held",
    }
)
"""Slurm's reasons for a requeued job that waits although nodes are there: two minutes, or for ever."""


def bindings(view: Snapshot, goals: Iterable[Goal], incomplete: Collection[GangId]) -> Iterator[Action]:
    """Pins for gangs that are handed over now, and the way back for pinned jobs that still wait without nodes."""
    sites = _sites(view, goals, incomplete)
    pins = {subject for kind, subject in view.facts if kind is FactKind.PIN}
    if not sites and not pins:
        return
    living = _living(view)
    for job in view.jobs:
        if job.id not in sites and job.id not in pins and job.array not in pins:
            continue
        if job.pending and (pin := _pin(view, job, sites.get(job.id, set()), living)):
            yield pin


def _pin(view: Snapshot, job: Job, at: Collection[SiteName], living: Mapping[str, set[SiteName]]) -> Action | None:
    """The pin of a job whose nodes are all at one site, if Slurm could give it others and its constraint allows it."""
    op = OpId(f"{view.tick}-pin")
    fact = None if at else pin_of(view, job)
    if fact:
        return Action(
            Verb.PIN, _NOBODY, "its nodes are gone; any site may serve it again", op, job=job.id, arg=fact.why
        )
    if len(at) != 1 or HOME in at:
        return None
    site = next(iter(at))
    strict = (name for name in job.ask.partitions if not (name in view.queues and view.queues[name].mix_sites))
    constraint = pinned(job.ask.constraint.text, site)
    if constraint in {None, job.ask.constraint.text} or not any(living.get(name, set()) - {site} for name in strict):
        return None
    why = f"its nodes are at {site}; Slurm must not mix them with others"
    return Action(Verb.PIN, _NOBODY, why, op, job=job.id, arg=constraint or "")


def _living(view: Snapshot) -> Mapping[str, set[SiteName]]:
    """For each partition: the sites of nodes that Slurm may use now, or that may be handed over beside the gang."""
    sites: dict[str, set[SiteName]] = defaultdict(set)
    for node in view.nodes.values():
        if node.power is Power.ON and (node.schedulable or node.drained_by_us):
            for partition in node.partitions:
                sites[partition].add(node.site)
    return sites


def _sites(view: Snapshot, goals: Iterable[Goal], incomplete: Collection[GangId]) -> dict[JobId, set[SiteName]]:
    """For each job of complete gangs the sites of their nodes."""
    sites: dict[JobId, set[SiteName]] = {}
    for goal in goals:
        if goal.job and goal.gang and goal.want is Want.UP and goal.gang not in incomplete:
            sites.setdefault(goal.job, set()).add(view.nodes[goal.node].site)
    return sites


def releases(view: Snapshot) -> Iterator[Action]:
    """Jobs that we requeued, for their node was taken back, and that Slurm holds or puts off."""
    requeued = {subject for kind, subject in view.facts if kind is FactKind.REQUEUED}
    for job in view.jobs if requeued else ():
        if job.id in requeued and job.pending and job.reason in PUT_OFF:
            why = "its node was taken back; it may start elsewhere at once"
            yield Action(Verb.RELEASE, _NOBODY, why, OpId(f"{view.tick}-release"), job=job.id)
