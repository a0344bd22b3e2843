"""What would change it? For each thing that stands in the way, what must happen before it does so no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cmscale.fit import is_startable
from cmscale.model import Ask, Fact, FactKind, Job, Node, Pool, Power, Refusal, Result, Snapshot
from cmscale.placing.quota import quotas

CHANGES: Mapping[str, str] = {
    "site_seen": "the site answers again: cm-scale check",
    "no_operation_under_way": "the call under way ends",
    "not_paused": "the pause ends, or is ended: cm-scale resume",
    "left_to_maintenance": "the maintenance ends: scontrol show reservation",
    "site_not_drained": "the drain ends, or is ended: cm-scale clear SITE",
    "credentials_last": "they are renewed, and the daemon is told to read them: systemctl reload cm-scale",
    "not_resting": "the hours of its pool begin",
    "not_quarantined": "its rest ends; cm-scale explain node NAME --console shows what its machine wrote",
    "static_machines": "a machine with cm-scale's tags appears at the site",
    "within_budget": "machines are given back, or the period ends; see cm-scale cost",
    "within_own_budget": "machines are given back, or the period ends; see cm-scale cost",
    "pool_open": "the time passes, or the cause is mended; other pools are tried meanwhile",
    "not_throttled": "a few seconds pass",
    "one_try_at_a_time": "the machine that is tried joins Slurm",
    "failed_boots_first": "the failed machine is gone",
    "helpers_first": "the helper has started",
    "queue_thresholds": "as many jobs wait, or this one as long, as [partitions] in the configuration asks",
    "search_time": "the rest ends, or limits.search is raised",
    "start_rate": "a minute passes, or limits.starts_per_minute is raised",
    "launch_bucket": "seconds pass; launch_burst and launch_refill of the site hold the cloud's own limit",
    "call_bucket": "a second passes; call_burst and call_refill of the site hold the cloud's own limit",
    "creations_per_hour": "an hour passes, or limits.creations_per_hour is raised",
    "creations_per_job": "limits.creations_per_job is raised, or the job is submitted anew; see cm-scale events",
    "within_quota": "machines of the family are given back, or the account's quota is raised: Service Quotas of AWS",
    "pool_maximum": "a job there ends, or a machine is given back, or the pool's nodes and max allow more",
    "not_kept_by_hand": "the keep ends, or is ended: cm-scale clear NAME",
    "minimum_up_time": "limits.min_up has passed",
    "helpers_last": "the last machine that it helps is gone",
    "nothing_destructive_after_a_failed_policy": "the policy is mended: cm-scale policies check",
}
"""What must happen before each guard has no reason any more."""

MENDED: Mapping[Result, str] = {
    Result.QUOTA: "the account's quota is raised, or other machines of the family are given back",
    Result.AUTH: "the site's credentials are mended: cm-scale check",
    Result.IMAGE: "the pool's image is mended: cm-scale check",
    Result.BAD_REQUEST: "the pool's table in the configuration is mended: cm-scale check",
    Result.BOOT: "what keeps its machines from joining is mended: cm-scale explain node NAME --console",
    Result.BUDGET: "the limit of the budget is raised: [budgets] in the configuration, cm-scale cost",
    Result.PROLOG: "the pool's prolog is mended",
}
"""What a person can do about each kind of refusal; of the others only time and the cloud can."""


IDLE = "a job uses it, or it has been idle for as long as a policy allows: cm-scale policies list"

SLURM: Mapping[str, str] = {
    "JobHeldUser": "its user releases it: scontrol release JOB",
    "JobHeldAdmin": "an admin releases it: scontrol release JOB",
    "BeginTime": "its begin time comes, or is moved: scontrol update jobid=JOB starttime=now",
    "Dependency": "the jobs it waits for end: squeue -j JOB -o %E",
}
"""What must happen before more machines would help a job, by Slurm's reason."""


def of_slurm(job: Job) -> str:
    """What must happen in Slurm before more machines would help the job."""
    return SLURM.get(job.reason, "that passes in Slurm: scontrol show job JOB").replace("JOB", job.id)


def of_refusal(view: Snapshot, refusal: Refusal) -> str:
    """What must happen before the guard has no reason any more."""
    pause = view.fact(FactKind.PAUSE)
    if refusal.guard == "not_paused" and pause:
        if pause.until <= view.now:  # it is the configuration's, which `cm-scale resume` does not end
            return "cluster.mode is changed in the configuration, and the daemon started again"
        return f"cm-scale resume, or the pause ends in {span(pause.until - view.now)}"
    node = view.nodes[refusal.goal.node]
    if refusal.guard == "site_not_drained" and (drained := view.drained(node.site)):
        return _cleared("drain", drained, view.now)
    if refusal.guard == "not_kept_by_hand" and (keep := view.keep(node.name)):
        return _cleared("keep", keep, view.now)
    return CHANGES[refusal.guard].replace("NAME", node.name)


def _cleared(what: str, fact: Fact, now: float) -> str:
    """What ends an override."""
    return f"cm-scale clear {fact.subject}, or the {what} ends in {span(fact.until - now)}"


def of_pool(view: Snapshot, pool: Pool, ask: Ask) -> Iterator[str]:
    """What must happen before machines of the pool can be started for a job that asks this."""
    if view.sites[pool.site].unseen:
        yield CHANGES["site_seen"]
    elif drained := view.drained(pool.site):
        yield _cleared("drain", drained, view.now)
    elif view.sites[pool.site].expiring(view.now):
        yield CHANGES["credentials_last"]
    elif closed := view.shut(pool):
        yield f"{pool.name} is tried again in {span(max(closed.until - view.now, 0))}"
        if closed.result in MENDED:
            yield MENDED[closed.result].replace("NAME", _failed(view, pool))
    else:
        yield from _of_open(view, pool, [view.nodes[name] for name in pool.nodes if name in view.nodes], ask)


def _failed(view: Snapshot, pool: Pool) -> str:
    """The node of the pool whose machine failed last, as far as is known."""
    rests = {name: fact.until for name in pool.nodes if (fact := view.fact(FactKind.QUARANTINE, name))}
    return max(rests, key=lambda name: rests[name], default="NAME")


def _of_open(view: Snapshot, pool: Pool, nodes: list[Node], ask: Ask) -> Iterator[str]:
    off = [node for node in nodes if node.power is Power.OFF]
    startable = [node for node in nodes if is_startable(view, node)]
    if not off and sum(node.power is not Power.GONE for node in nodes) >= pool.most:
        yield CHANGES["pool_maximum"]
    elif (quota := quotas(view).get(pool.name)) and not quota.room(pool):
        yield CHANGES["within_quota"]
    elif startable:
        yield _of_startable(pool, startable, ask)
    else:
        yield from (change for node in nodes for change in of_node(view, node))


def _of_startable(pool: Pool, nodes: list[Node], ask: Ask) -> str:
    """Machines could be started, but not for this job now."""
    if ask.reservation:
        return f"nodes of the pool are in the reservation {ask.reservation}"
    if any(node.reserved for node in nodes):
        return "the reservation ends: scontrol show reservation"
    if any(node.until is not None for node in nodes):
        what = (
            "the next hours of the pool begin, or the reservation is over" if pool.hours else "the reservation is over"
        )
        return f"the job gets a --time that ends before, or {what}: scontrol show reservation"
    if ask.deadline is not None:
        return "the job gets a shorter --time, or a later --deadline"
    return "jobs before it end or get nodes elsewhere"


def of_node(view: Snapshot, node: Node) -> Iterator[str]:
    """What must happen before the node may serve Slurm."""
    if node.notice:
        yield "nothing, the cloud decides"
    if node.in_maintenance:
        yield CHANGES["left_to_maintenance"]
    elif node.resting:
        yield f"the hours of pool {node.pool} begin"
    if view.fact(FactKind.QUARANTINE, node.name):
        yield CHANGES["not_quarantined"].replace("NAME", node.name)
    if node.held_by_human:
        yield f"scontrol update nodename={node.name} state=resume"


def span(seconds: float) -> str:
    """A time as people say it: 40 s, 3 min, 2.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
