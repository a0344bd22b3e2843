"""Why, at length: everything there is to say about one job, one node or one tick, for somebody who knows no code.

Each answer tells what is so, what is being done, what stands in the way, and what would change it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cmscale import fit
from cmscale.core.budgets import held
from cmscale.core.explain import goals_by_job
from cmscale.core.pins import pin_of
from cmscale.core.remedies import CHANGES, IDLE, of_node, of_pool, of_refusal, of_slurm, span
from cmscale.core.steps import step
from cmscale.model import (
    HOME,
    OFF_REASON,
    Ask,
    FactKind,
    Goal,
    Help,
    Job,
    Node,
    NodeName,
    Plan,
    PoolName,
    Power,
    Refusal,
    Snapshot,
    Verb,
    Want,
)
from cmscale.placing.offers import offers, stock

NAMED = 5
"""How many nodes or jobs are named one by one."""

POWER: Mapping[Power, str] = {
    Power.GONE: "has no machine",
    Power.OFF: "is powered off",
    Power.STARTING: "is starting",
    Power.ON: "is up",
    Power.STOPPING: "is stopping",
}
WANTS: Mapping[Want, str] = {
    Want.UP: "up",
    Want.DRAINED: "drained",
    Want.OFF: "powered off",
    Want.GONE: "given back",
}
STEPS: Mapping[Verb, str] = {
    Verb.START: "It is started now",
    Verb.STOP: "It is powered off now",
    Verb.DELETE: "Its machine is deleted now",
    Verb.DRAIN: "It is drained now",
    Verb.RESUME: "It is handed to Slurm now",
    Verb.REQUEUE: "Its jobs are requeued now",
}


# --- a job -----------------------------------------------------------------------------------------------------------


def job_sentences(view: Snapshot, plan: Plan, job: Job) -> list[str]:
    """Everything there is to say about one job, most important first."""
    told = _standing(view, plan, job)
    if not _is_open(plan, job):
        return told
    goals = goals_by_job(plan.goals).get(job.id, [])
    done = _served(view, plan, job, goals) if goals else _not_served(view, plan, job)
    rest = _offered(view, plan, job) if goals and not goals[0].whole else ()
    return [*told, *done, *rest, *(_open(view, plan, job) or _next(view, goals))]


def why_not(view: Snapshot, plan: Plan, job: Job) -> list[str]:
    """Why no more is started for a job: what it gets, and each offer with what is against it."""
    goals = goals_by_job(plan.goals).get(job.id, [])
    if not goals or not _is_open(plan, job):
        return job_sentences(view, plan, job)
    told = [*_standing(view, plan, job), *_served(view, plan, job, goals), *_offered(view, plan, job)]
    if changes := _open(view, plan, job):
        return [*told, *changes]
    return [*told, "More is not needed: what it needs is up or coming.", *_others(view, plan, job)]


def _is_open(plan: Plan, job: Job) -> bool:
    """True if machines could be started for the job, now or later."""
    return not plan.idle_because and job.pending and job.help is Help.NODES and job.id not in plan.never


def _standing(view: Snapshot, plan: Plan, job: Job) -> list[str]:
    """How Slurm sees the job, what it needs, and why nothing can be done for it if that is so."""
    if plan.idle_because:
        return [plan.idle_because]
    if not job.pending:
        where = f" on {', '.join(sorted(job.nodes))}" if job.nodes else ""
        return [f"Job {job.id} is {job.state}{where}; there is nothing to do for it."]
    needs = f"Each of its {job.count} tasks needs" if job.count > 1 else "It needs"
    reason = f" ({job.reason})" if job.reason else ""
    told = [f"Job {job.id} is pending{reason}: {job.why}.", f"{needs} {need(job.ask)}."]
    if fact := pin_of(view, job):
        own = f'the constraint "{fact.why}" of its own' if fact.why else "no constraint of its own"
        told.append(f"cm-scale has pinned it to {job.ask.constraint.text}, where its nodes are; it has {own}.")
    if job.help is Help.ASK_AGAIN:
        told.append("Whether machines would help it is not known yet; Slurm is asked again at the next tick.")
    elif job.help is Help.NO:
        told += ["More machines would not help it, so none is started.", *_would([of_slurm(job)])]
    elif why := plan.never.get(job.id):
        told += [f"No pool can ever serve it: {why}.", *_would(["the job asks for less, or a pool offers more"])]
    return told


def need(ask: Ask) -> str:
    """What a job asks for, in words."""
    each = [_count(max(ask.cpus_per_node, ask.cpus_per_task), "CPU")]
    if ask.mem_mb_per_node or ask.mem_mb_per_cpu or ask.mem_mb_per_gpu:
        amounts = ((ask.mem_mb_per_node, ""), (ask.mem_mb_per_cpu, " a CPU"), (ask.mem_mb_per_gpu, " a GPU"))
        each += [f"{amount} MiB of memory{per}" for amount, per in amounts if amount]
    if gpus := max(ask.gpus_per_node, ask.gpus_per_task, 1 if ask.gpus else 0):
        each.append(_count(gpus, f"{ask.gpu_type} GPU".strip()))
    nodes = f"{ask.nodes} nodes" if ask.nodes > 1 else "a node"
    words = [f"{nodes} with at least {', '.join(each)}{' each' if ask.nodes > 1 else ''}"]
    words.append(f"in partition {' or '.join(ask.partitions)}")
    if ask.gpus:
        words.append(f"{ask.gpus} GPUs in all")
    if ask.exclusive:
        words.append("for itself alone")
    if ask.constraint.text:
        words.append(f"with the features {ask.constraint.text}")
    if ask.reservation:
        words.append(f"in the reservation {ask.reservation}")
    if ask.limit_s is not None:
        words.append(f"for up to {span(ask.limit_s)}")
    return ", ".join(words)


def _served(view: Snapshot, plan: Plan, job: Job, goals: Iterable[Goal]) -> Iterator[str]:
    """What is done for a job; nodes of a pool with which the same is done are told together."""
    verbs = {action.node: action.verb for action in plan.actions}
    refusals = {(refusal.goal.node, refusal.goal.job): refusal for refusal in plan.refused}
    alike: dict[tuple[str, str, str], list[Node]] = defaultdict(list)
    for goal in goals:
        node, refusal = view.nodes[goal.node], refusals.get((goal.node, goal.job))
        state = "Wanted" if refusal else _state(node, goal, verbs.get(goal.node))
        where = f" of {node.pool} at {node.site}" if node.pool else f" at {node.site}"
        shared = "" if goal.job == job.id else f", shared with job {goal.job}"
        why = f"{shared} ({_policy(plan, goal)}: {goal.reason})."
        if refusal:
            why += f" Not now: {refusal.why} (guard {refusal.guard})."
        elif state == "Wanted":
            why += f" First: {step(node, goal, view.now).why}."
        alike[state, where, why].append(node)
    for (state, where, why), nodes in alike.items():
        time = _ready(view, nodes) if state in COMING else ""
        yield f"{state}: {_names([node.name for node in nodes])}{where}{_price(view, nodes)}{time}{why}"


COMING = ("Starting now", "Booting")


def _state(node: Node, goal: Goal, verb: Verb | None) -> str:
    """What becomes of one node of a job."""
    on = node.power is Power.ON
    states = (
        (goal.want is not Want.UP, "Given back"),
        (verb is Verb.START, COMING[0]),
        (node.power is Power.STARTING, COMING[1]),
        (on and verb is Verb.RESUME, "Handed to Slurm now"),
        (on and node.drained_by_us and goal.gang, "Up, and kept for it until all its nodes have come"),
        (on and node.schedulable, "Up, and Slurm's to use"),
    )
    return next((word for holds, word in states if holds), "Wanted")


def _price(view: Snapshot, nodes: Sequence[Node]) -> str:
    prices = [view.pools[node.pool].price_hour for node in nodes if node.pool]
    return f", ${sum(prices):g} an hour{' in all' if len(prices) > 1 else ''}" if prices else ""


def _policy(plan: Plan, goal: Goal) -> str:
    name = plan.policies.get(goal.node)
    return f"policy {name}" if name else "a policy"


def _ready(view: Snapshot, nodes: Iterable[Node]) -> str:
    left_s = max(
        view.pools[node.pool].boot_s - (0.0 if node.up_since is None else view.now - node.up_since)
        for node in nodes
        if node.pool
    )
    return f", ready in about {span(left_s)}" if left_s > 0 else ", later than usual"


def _not_served(view: Snapshot, plan: Plan, job: Job) -> Iterator[str]:
    for failure in plan.failed:
        yield f"Policy {failure.policy} failed, so what it would do for the job is not known: {failure.why}."
    barred = next((refusal for refusal in plan.refused if refusal.goal.job == job.id), None)
    if barred:
        yield f"No machine is started for it now: {barred.why} (guard {barred.guard})."
    elif without_money := held(view).get(job.id):
        yield f"No machine is started for it now: {without_money.reason} (guard within_own_budget)."
    elif wait := plan.waits.get(job.id):
        yield f"It waits on purpose: {wait.reason}."
    home = [node for node in view.nodes.values() if node.site == HOME and not fit.refuses(job.ask, fit.kind(node))]
    if home:
        yield f"{_count(len(home), 'node')} at home could hold it when free."
    yield from _offered(view, plan, job)
    for of in sorted(stock(view).counts, key=lambda each: each.name):
        if why := fit.refuses(job.ask, of, view.queues):
            yield f"Never: {of.name}, which {why}."


def _offered(view: Snapshot, plan: Plan, job: Job) -> Iterator[str]:
    """Each pool that suits the job: what it costs, how long it takes, and what is against it."""
    against = _against(view, plan, job)
    for offer in offers(view, job.ask):
        what = f"{_count(offer.nodes, 'node')} of {offer.pool} at {offer.site}"
        time = f"ready in about {span(offer.ready_in_s)}" if offer.ready_in_s else "up already"
        # The pool stands there already.
        obstacle = offer.obstacle.removeprefix(offer.pool).removeprefix(":").strip()
        verdict = against.get(offer.pool) or (f"not now, {obstacle}" if obstacle else "could be had")
        yield f"Offer: {what}, ${offer.price_hour:g} an hour, {time}: {verdict}."


def _against(view: Snapshot, plan: Plan, job: Job) -> Mapping[PoolName, str]:
    """What this plan says of the pools, as far as this job is concerned."""
    told: dict[PoolName, str] = {}
    if job.id in held(view):
        told |= dict.fromkeys(view.pools, "not now (guard within_own_budget)")
    elif wait := plan.waits.get(job.id):
        told |= dict.fromkeys(wait.but or view.pools, "not wanted, it waits on purpose")
    for goal in plan.goals:
        if _serves(goal, job) and goal.whole and (pool := view.nodes[goal.node].pool):
            told[pool] = "taken for it"
    for refusal in plan.refused:
        if _serves(refusal.goal, job) and (pool := view.nodes[refusal.goal.node].pool):
            told[pool] = f"not now (guard {refusal.guard})"
    return told


def _serves(goal: Goal, job: Job) -> bool:
    return goal.job == job.id or job.id in goal.also


def _open(view: Snapshot, plan: Plan, job: Job) -> list[str]:
    """What would open the way for a job for which less is done than it needs."""
    changes = [of_refusal(view, refusal) for refusal in plan.refused if _serves(refusal.goal, job)]
    goals = goals_by_job(plan.goals).get(job.id, [])
    if plan.failed and not goals:
        changes.append(CHANGES["nothing_destructive_after_a_failed_policy"])
    if job.id in held(view):
        changes.append(CHANGES["within_own_budget"])
    elif wait := plan.waits.get(job.id):
        changes.append(
            f"another pool than {', '.join(sorted(wait.but))} has machines for it"
            if wait.but
            else "what it waits for comes"
        )
        changes.append("the policy's settings change: cm-scale policies list")
    elif not goals or not goals[0].whole:
        for offer in offers(view, job.ask):
            if offer.obstacle:
                changes += of_pool(view, view.pools[offer.pool], job.ask)
    return _would(changes)


def _others(view: Snapshot, plan: Plan, job: Job) -> list[str]:
    """What would open the pools that are not used for a job that has enough."""
    taken = _against(view, plan, job)
    shut = [offer.pool for offer in offers(view, job.ask) if offer.obstacle and offer.pool not in taken]
    return _would([change for name in shut for change in of_pool(view, view.pools[name], job.ask)], "open the others")


def _next(view: Snapshot, goals: Sequence[Goal]) -> list[str]:
    """What comes next for a job whose nodes are up or coming."""
    nodes = [view.nodes[goal.node] for goal in goals if goal.want is Want.UP]
    coming = [node for node in nodes if node.pool and node.power in {Power.GONE, Power.OFF, Power.STARTING}]
    if not coming:
        return ["Slurm may start it there at any time; nothing else is to be done for it."] if nodes else []
    limit_s = max(view.pools[node.pool].boot_limit_s for node in coming if node.pool)
    late = f"what has not joined after {span(limit_s)} is given up, and another machine tried"
    return [f"Slurm can start it when {'they have' if len(nodes) > 1 else 'it has'} joined; {late}."]


def _would(changes: Iterable[str], what: str = "change it") -> list[str]:
    told = "; or ".join(dict.fromkeys(changes))
    return [f"What would {what}: {told}."] if told else []


# --- a node ----------------------------------------------------------------------------------------------------------


def node_sentences(view: Snapshot, plan: Plan, node: Node) -> list[str]:
    """Everything there is to say about one node, most important first."""
    if plan.idle_because:
        return [plan.idle_because]
    states = "+".join(sorted(node.states)) or "unknown"
    if node.pool is None:
        return [f"{node.name} is {states}; it belongs to no pool, so cm-scale counts its room and never touches it."]
    slurm = "it is not Slurm's" if node.outside else f"Slurm says {states}"
    if why := view.sites[node.site].unseen:
        told = [f"{node.name} of pool {node.pool} cannot be seen: {node.site} could not be read ({why}); {slurm}."]
        told.append(f"Nothing is done at {node.site} until it answers again; what runs there runs on.")
        return [*told, *_circumstances(view, node, None), *_would([CHANGES["site_seen"]])]
    told = [f"{node.name} of pool {node.pool} at {node.site} {POWER[node.power]}; {slurm}."]
    goal = next((goal for goal in plan.goals if goal.node == node.name), None)
    refused = [
        refusal
        for refusal in plan.refused
        if refusal.goal.node == node.name and (goal is None or refusal.goal.job == goal.job)
    ]
    told += _done(view, plan, node, goal, refused)
    told += _ahead(view, node, goal)
    told += _circumstances(view, node, goal)
    idle = [IDLE] if goal is None and node.idle_since is not None and node.schedulable else []
    return [*told, *_would([*(of_refusal(view, each) for each in refused), *of_node(view, node), *idle])]


def _done(view: Snapshot, plan: Plan, node: Node, goal: Goal | None, refused: Sequence[Refusal]) -> Iterator[str]:
    """What is done with the node now, and why."""
    actions = [action for action in plan.actions if action.node == node.name]
    if goal:
        yield f"It should be {WANTS[goal.want]}, says {_policy(plan, goal)}: {goal.reason}."
    for action in actions:
        because = "" if goal and action.reason == goal.reason else f": {action.reason}"
        yield f"{STEPS[action.verb]}{because}."
    if goal and refused:
        yield f"Not now: {refused[0].why} (guard {refused[0].guard})."
    elif not actions:
        why = step(node, goal, view.now).why
        if goal and goal.gang and node.drained_by_us and node.power is Power.ON:
            why = f"it is kept for job {goal.job} until all nodes of the job have come"
        yield f"Nothing is done now: {why}." if goal else f"Nothing is done now: {why}; no policy wants anything of it."


def _ahead(view: Snapshot, node: Node, goal: Goal | None) -> Iterator[str]:
    """What has its time set already."""
    if node.power is Power.STARTING and node.pool and not node.sick:
        yield f"It counts as failed if it is not up {span(view.pools[node.pool].boot_limit_s)} after its start."
    if goal and goal.by is not None and node.power is Power.ON and goal.by > view.now:
        runs = [job for job in view.jobs if node.name in job.nodes and not job.pending]
        if any(job.requeue for job in runs):
            yield f"Jobs that still run there in {span(goal.by - view.now)} are requeued."
        for job in runs:
            if not job.requeue:
                yield f"Job {job.id} may not be requeued: it runs on for as long as the machine is there."


def _circumstances(view: Snapshot, node: Node, goal: Goal | None) -> list[str]:
    fact, keep, drained = view.fact(FactKind.QUARANTINE, node.name), view.keep(node.name), view.drained(node.site)
    notice, machine = node.notice, node.machine
    jobs = [job.id for job in view.jobs if node.name in job.nodes and not job.pending]
    sentences = (
        node.sick and not (goal and node.sick == goal.reason) and f"It is sick: {node.sick}.",
        notice and f"The cloud takes its machine back in {span(max(notice.deadline - view.now, 0))}: {notice.why}.",
        node.at_risk and not notice and f"Its cloud may take its machine back soon: {node.at_risk}.",
        fact
        and f"Its name rests for another {span(fact.until - view.now)}, so nothing is started under it: {fact.why}.",
        keep and f"It is kept for another {span(keep.until - view.now)} by {keep.by}: {keep.why}.",
        drained
        and f"{node.site} is drained for another {span(drained.until - view.now)} by {drained.by}: {drained.why}.",
        node.resting and f"It may not serve Slurm now: {node.resting}.",
        node.reserved and f"It is in the reservation {node.reserved}.",
        node.until is not None and not notice and f"Jobs there must end within {span(max(node.until - view.now, 0))}.",
        jobs and f"{'Jobs' if len(jobs) > 1 else 'Job'} {_names(jobs)} run{'s' if len(jobs) == 1 else ''} there.",
        node.idle_since is not None and f"It has been idle for {span(view.now - node.idle_since)}.",
        machine and f"Its machine is {machine.id} ({machine.state.value}).",
        node.for_job and f"It was started for job {node.for_job}.",
        node.kept and "Its machine is kept: it is powered off, never deleted.",
        node.op and f"Operation {node.op} is under way.",
        node.reason not in {"", OFF_REASON} and not node.held_by_human and f"Its reason in Slurm: {node.reason}.",
    )
    return [sentence for sentence in sentences if sentence]


# --- a tick ----------------------------------------------------------------------------------------------------------


def tick_sentences(view: Snapshot, plan: Plan) -> list[str]:
    """What one tick saw and decided."""
    if plan.idle_because:
        return [plan.idle_because]
    waiting = [job for job in view.jobs if job.pending]
    helped = sum(job.count for job in waiting if job.help is Help.NODES)
    power = Counter(node.power for node in view.nodes.values() if node.pool)
    pending = _count(sum(job.count for job in waiting), "pending job")
    machines = f"{power[Power.ON]} up, {power[Power.STARTING]} starting, {power[Power.STOPPING]} stopping"
    told = [f"It saw {pending}, {helped} of which more nodes would help; machines: {machines}."]
    told += [f"{site.name} could not be read: {site.unseen}." for site in view.sites.values() if site.unseen]
    told += [f"Policy {failure.policy} failed: {failure.why}." for failure in plan.failed]
    told += _doings(plan) if plan.actions else ["It decided to do nothing."]
    refused: dict[tuple[str, str], list[NodeName]] = defaultdict(list)
    for refusal in plan.refused:
        refused[refusal.guard, refusal.why].append(refusal.goal.node)
    told += [f"Not done for {_names(nodes)}: {why} (guard {guard})." for (guard, why), nodes in refused.items()]
    told += [f"Job {job} waits on purpose: {wait.reason}." for job, wait in plan.waits.items()]
    told += [f"No pool can ever serve job {job}: {why}." for job, why in plan.never.items()]
    return [*told, *_would([of_refusal(view, refusal) for refusal in plan.refused])]


def _doings(plan: Plan) -> Iterator[str]:
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for action in plan.actions:
        alike[action.verb.value, action.reason].append(action.node or f"job {action.job}")
    for (verb, why), whom in alike.items():
        yield f"It decided to {verb} {_names(whom)}: {why}."


# --- words -----------------------------------------------------------------------------------------------------------


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'' if number == 1 else 's'}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names) if more < 2 else f"{', '.join(names[:NAMED])} and {more} more"


def decision(verb: Verb, nodes: str, reason: str, count: int) -> str:
    """One line for several alike actions: start t4-[1-4]: job 17 waits (4 nodes)."""
    return f"{verb.value} {nodes}: {reason}" + (f" ({count} nodes)" if count > 1 else "")
