"""May this be done now? Each guard looks at one proposed step and gives a reason against it, or nothing.

Guards run in the order of `GUARDS`; the first reason stands. They know what has been admitted before in the same tick
(`Tally`), so that limits hold for a tick as a whole. A gang's steps stand or fall together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

from cmscale.core import expiry
from cmscale.core.budgets import start_cost, title, whose
from cmscale.core.rates import Account, account, tokens
from cmscale.core.steps import Step
from cmscale.model import (
    DESTRUCTIVE,
    NOBODY,
    Creations,
    FactKind,
    GangId,
    Goal,
    Help,
    Job,
    JobId,
    Limits,
    Node,
    NodeName,
    Payer,
    PolicyFailure,
    Pool,
    PoolName,
    Power,
    Purse,
    Refusal,
    Snapshot,
    Verb,
    Want,
)
from cmscale.placing.quota import Family, Quota, quotas

T = TypeVar("T")

CallKey = tuple[PoolName | None, GangId | None]


class Proposal(NamedTuple):
    """A step that a goal asks for."""

    goal: Goal
    node: Node
    step: Step

    @property
    def together(self) -> str:
        """What it stands or falls with: its gang, or itself alone."""
        return self.goal.gang or self.node.name

    @property
    def call(self) -> CallKey:
        """The launch call that it travels in: its gang's, or that of all single starts of its pool."""
        return self.node.pool, self.goal.gang


@dataclass(slots=True)
class Tally:
    """What this tick has admitted so far: the starts."""

    starts: int = 0
    by_pool: Counter[PoolName] = field(default_factory=Counter)
    by_job: Counter[JobId] = field(default_factory=Counter)
    by_account: Counter[Account] = field(default_factory=Counter)
    by_family: Counter[Family] = field(default_factory=Counter)
    """How many CPUs, of those whose quota is known."""
    calls: dict[Account, Counter[CallKey]] = field(default_factory=lambda: defaultdict(Counter))
    together: Counter[str] = field(default_factory=Counter)
    tries: dict[PoolName, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """What was started from each pool."""
    paid_by: Counter[tuple[PoolName, Payer]] = field(default_factory=Counter)
    """How many machines were started, by pool and payer."""

    def count(self, proposal: Proposal, bench: Bench, times: int = 1) -> None:
        """Count a start; with -1 times take it back."""
        pool = bench.starting(proposal)
        if pool is None:
            return
        payer = bench.accounts[pool.name]
        self.starts += times
        if proposal.node.power is Power.GONE:  # a machine that is only powered on is counted among those that are there
            self.by_pool[pool.name] += times
        self.by_account[payer] += times
        if quota := bench.quotas.get(pool.name):
            self.by_family[quota.family] += times * pool.quota_cpus
        if proposal.goal.job:
            self.by_job[proposal.goal.job] += times
        _add(self.together, proposal.together, times)
        _add(self.tries[pool.name], proposal.together, times)
        _add(self.calls[payer], proposal.call, times)
        _add(self.paid_by, (pool.name, bench.payer(proposal)), times)


def _add(counter: Counter[T], key: T, times: int) -> None:
    counter[key] += times
    if not counter[key]:
        del counter[key]


@dataclass(frozen=True, slots=True)
class Bench:
    """What guards may look at besides the proposal."""

    view: Snapshot
    limits: Limits
    failed: tuple[PolicyFailure, ...]
    machines: Counter[PoolName]
    booting: Counter[PoolName]
    failing: Mapping[PoolName, Node]
    """A node of each pool whose machine never served and is being given up."""
    accounts: Mapping[PoolName, Account]
    launched: Mapping[Account, float]
    """How many machines each account may still launch now..."""
    calls: Mapping[Account, float]
    """...and in how many calls."""
    quotas: Mapping[PoolName, Quota]
    """What the account may have of each pool's family, as far as it is known."""
    helped: Mapping[NodeName, Sequence[PoolName]]
    """The pools that each helper helps."""
    jobs: Mapping[JobId, Job]
    """Those of partitions with thresholds."""
    waiting: Counter[str]
    """How many jobs wait for nodes in each of these partitions."""
    purses: Mapping[tuple[str, str], Purse]
    payers: Mapping[JobId, Payer]
    """Whose each job is; where there are budgets."""
    paused: str
    recent: tuple[int, int]
    """How many machines were started in the last minute, and in the last hour."""

    @classmethod
    def of(cls, view: Snapshot, limits: Limits, failed: tuple[PolicyFailure, ...], goals: Iterable[Goal] = ()) -> Bench:
        ours = [(node.pool, node) for node in view.nodes.values() if node.pool]
        booting = [(name, node) for name, node in ours if node.power is Power.STARTING]
        accounts = {name: account(view.sites[pool.site]) for name, pool in view.pools.items()}
        launched, calls = tokens(view)
        helped: dict[NodeName, list[PoolName]] = {}
        for pool in view.pools.values():
            for helper in pool.helpers:
                helped.setdefault(helper, []).append(pool.name)
        jobs = _threshold_jobs(view)
        pause = view.fact(FactKind.PAUSE)
        minute = sum(launch.machines for launch in view.launches if launch.at > view.now - 60)
        return cls(
            view,
            limits,
            failed,
            machines=Counter(name for name, node in ours if node.power is not Power.GONE),
            booting=Counter(name for name, _ in booting),
            failing={
                node.pool: node
                for goal in goals
                if (goal.want is Want.OFF or goal.want is Want.GONE)
                and (node := view.nodes[goal.node]).unfit
                and node.pool
                and not view.keep(node.name)
            },
            accounts=accounts,
            launched=launched,
            calls=calls,
            quotas=quotas(view),
            helped=helped,
            jobs=jobs,
            waiting=_waiting(jobs.values()),
            purses={(purse.budget.name, purse.who): purse for purse in view.purses},
            payers={job.id: Payer(job.user, job.account) for job in view.jobs} if view.budgets else {},
            paused=f"paused: {pause.why}" if pause else "",
            recent=(minute, sum(launch.machines for launch in view.launches)),
        )

    def starting(self, proposal: Proposal) -> Pool | None:
        """The pool from which the proposal starts a machine; None if it starts none."""
        if proposal.step.verb is not Verb.START or proposal.node.pool is None:
            return None
        return self.view.pools.get(proposal.node.pool)

    def payer(self, proposal: Proposal) -> Payer:
        """Whose job it is for which a machine is started."""
        return self.payers.get(proposal.goal.job, NOBODY) if proposal.goal.job else NOBODY


def _threshold_jobs(view: Snapshot) -> dict[JobId, Job]:
    """The waiting jobs of partitions with thresholds; none is looked at if there are no such partitions."""
    strict = {name for name, queue in view.queues.items() if queue.queue_length or queue.age_s}
    if not strict:
        return {}
    return {job.id: job for job in view.jobs if job.pending and strict.intersection(job.ask.partitions)}


def _waiting(jobs: Iterable[Job]) -> Counter[str]:
    waiting: Counter[str] = Counter()
    for job in jobs:
        if job.help is Help.NODES:
            for partition in job.ask.partitions:
                waiting[partition] += job.count
    return waiting


Guard = Callable[[Proposal, Bench, Tally], str]

_ASKED_IF: dict[Guard, Callable[[Bench], bool]] = {}


def asked_if(matters: Callable[[Bench], bool]) -> Callable[[Guard], Guard]:
    """A guard that can have a reason only in ticks of which this is true; in others it is not asked."""

    def remember(guard: Guard) -> Guard:
        _ASKED_IF[guard] = matters
        return guard

    return remember


# --- anything --------------------------------------------------------------------------------------------------------


def site_seen(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """Nothing is done at a site that could not be read this tick."""
    site = bench.view.sites[proposal.node.site]
    return f"{site.name} could not be read: {site.unseen}" if site.unseen else ""


def no_operation_under_way(proposal: Proposal, _: Bench, __: Tally) -> str:
    """One call at a time for a node."""
    return f"operation {proposal.node.op} is still under way" if proposal.node.op else ""


@asked_if(lambda bench: bool(bench.paused))
def not_paused(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """While cm-scale is paused nothing is started and nothing given back; what a cloud takes is let go in order."""
    if proposal.step.verb is Verb.RESUME or proposal.step.arg == "off" or proposal.node.notice:
        return ""
    return bench.paused


def left_to_maintenance(proposal: Proposal, _: Bench, __: Tally) -> str:
    """A node in a maintenance of Slurm's is left to whoever maintains it; a machine that never joined is given up."""
    node = proposal.node
    if not node.in_maintenance or proposal.step.verb is Verb.RESUME:
        return ""
    gives_up = node.power is Power.STARTING and node.sick and proposal.step.verb in DESTRUCTIVE
    return "" if gives_up else f"{node.name} is in maintenance"


# --- starts ----------------------------------------------------------------------------------------------------------


@asked_if(lambda bench: any(kind is FactKind.DRAIN_SITE for kind, _ in bench.view.facts))
def site_not_drained(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """Nothing is started at a site that a person drains."""
    fact = bench.view.drained(proposal.node.site)
    return f"{fact.subject} is drained: {fact.why}" if fact else ""


@asked_if(lambda bench: any(site.expires is not None for site in bench.view.sites.values()))
def credentials_last(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """Nothing is started with credentials that are about to end: its machine could not be given back."""
    site = bench.view.sites[proposal.node.site]
    return expiry.sentence(bench.view, site) if site.expiring(bench.view.now) else ""


def not_resting(proposal: Proposal, _: Bench, __: Tally) -> str:
    """Nothing is started that may not serve Slurm now."""
    return proposal.node.resting


@asked_if(lambda bench: any(kind is FactKind.QUARANTINE for kind, _ in bench.view.facts))
def not_quarantined(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """The name of a node whose machine failed rests for a while."""
    fact = bench.view.fact(FactKind.QUARANTINE, proposal.node.name)
    return f"{proposal.node.name} rests for another {fact.until - bench.view.now:.0f} s: {fact.why}" if fact else ""


@asked_if(lambda bench: any(pool.static for pool in bench.view.pools.values()))
def static_machines(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """The machines of a static pool exist already; none is created."""
    pool = bench.starting(proposal)
    if pool and pool.static and proposal.node.power is Power.GONE:
        return f"{pool.name} is static, and {pool.site} shows no machine for {proposal.node.name}"
    return ""


@asked_if(lambda bench: bool(bench.view.budgets))
def within_budget(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """Nothing is started whose budget is used up: by what was spent, and what is up if it runs on to the end."""
    return _beyond(proposal, bench, tally, personal=False)


@asked_if(lambda bench: any(budget.personal for budget in bench.view.budgets))
def within_own_budget(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """The same of the budget of the job's user, or of its account."""
    return _beyond(proposal, bench, tally, personal=True)


def _beyond(proposal: Proposal, bench: Bench, tally: Tally, *, personal: bool) -> str:
    pool = bench.starting(proposal)
    if pool is None:
        return ""
    for budget in bench.view.budgets:
        who = whose(budget, pool.name, bench.payer(proposal))
        if budget.personal is not personal or who is None:
            continue
        period = bench.view.spent[budget.per]
        purse = bench.purses.get((budget.name, who)) or Purse(budget, who, 0, 0, period.end)
        if not purse.concerns(pool):
            continue
        if purse.used_up:
            return purse.why
        started = sum(
            count * start_cost(budget, bench.view.pools[name], bench.view.now, period.end)
            for (name, payer), count in tally.paid_by.items()
            if whose(budget, name, payer) == who
        )
        if purse.spent + purse.committed + started >= budget.limit:
            return f"{title(purse)} ({budget.text}) is used up with what is started now"
    return ""


@asked_if(lambda bench: bool(bench.view.closed))
def pool_open(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """Nothing is started from a pool that has just refused."""
    pool = bench.starting(proposal)
    if pool and (closed := bench.view.shut(pool)):
        left_s = max(closed.until - bench.view.now, 0)
        return f"{pool.name} is closed for another {left_s:.0f} s ({closed.result.value}: {closed.why})"
    return ""


@asked_if(lambda bench: bool(bench.view.closed))
def not_throttled(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A site that asked us to slow down is given the time."""
    pool = bench.starting(proposal)
    if pool and (slowed := bench.view.slowed(pool.site)):
        return f"{pool.site} asked for fewer calls; the next launch is in {slowed.until - bench.view.now:.0f} s"
    return ""


@asked_if(lambda bench: bool(bench.view.closed))
def one_try_at_a_time(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """A pool that was closed is open again only after one machine, or one gang, has come well."""
    pool = bench.starting(proposal)
    if pool is None or not (closed := bench.view.half_open(pool)):
        return ""
    if not bench.booting[pool.name] and not tally.tries[pool.name].keys() - {proposal.together}:
        return ""
    return f"{pool.name} is tried with one machine first, for it was closed ({closed.result.value}: {closed.why})"


@asked_if(lambda bench: bool(bench.failing))
def failed_boots_first(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """While a machine is given up that never served, its pool waits: whether it is closed stands in the next tick."""
    pool = bench.starting(proposal)
    sick = bench.failing.get(pool.name) if pool else None
    return f"{sick.name} is given up first: {sick.sick}" if sick else ""


@asked_if(lambda bench: bool(bench.helped))
def helpers_first(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A machine is started when the helpers of its pool are up."""
    pool = bench.starting(proposal)
    for name in pool.helpers if pool else ():
        helper = bench.view.nodes.get(name)
        if helper is None or helper.power is not Power.ON or helper.sick:
            return f"its helper {name} is not up yet: {_state(helper)}"
    return ""


def _state(helper: Node | None) -> str:
    if helper is None:
        return "it is not known"
    return helper.sick or f"it is {helper.power.value}"


@asked_if(lambda bench: bool(bench.jobs))
def queue_thresholds(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A partition may ask for a number of waiting jobs, or for some patience of each, before machines are started."""
    job = bench.jobs.get(proposal.goal.job) if proposal.goal.job else None
    if job is None:
        return ""
    why = ""
    for partition in job.ask.partitions:
        if partition in proposal.node.partitions:
            why = _below(partition, job, bench)
            if not why:
                return ""
    return why


def _below(partition: str, job: Job, bench: Bench) -> str:
    queue = bench.view.queues.get(partition)
    if queue is None:
        return ""
    if bench.waiting[partition] < queue.queue_length:
        few = f"{bench.waiting[partition]} waiting in {partition}"
        return f"{few}; partitions.{partition}.queue_length is {queue.queue_length}"
    age_s = bench.view.now - max(job.submit, job.begin or 0.0)
    if age_s < queue.age_s:
        return f"it has waited for {age_s:.0f} s; partitions.{partition}.age is {queue.age_s:.0f} s"
    return ""


@asked_if(lambda bench: any(past.refused for past in bench.view.creations.values()))
def search_time(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """Offers are tried for a job for so long; if all that came were refusals in between, it then rests as stated."""
    past = bench.view.creations.get(proposal.goal.job) if proposal.goal.job else None
    if past is None or not past.refused:
        return ""
    search_s, rest_s = bench.limits.search_s, bench.limits.search_rest_s
    into_s = (bench.view.now - past.first) % (search_s + rest_s)
    if into_s < search_s:
        return ""
    return (
        f"offers were tried for job {proposal.goal.job} for {search_s / 60:.0f} min and {past.refused} launches were "
        f"refused; they are tried again in {(search_s + rest_s - into_s) / 60:.0f} min"
    )


def start_rate(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """At most so many machines a minute; a gang that is larger has a minute of its own."""
    recent = bench.recent[0] + tally.starts
    most = bench.limits.starts_per_minute
    if recent < most or (bench.recent[0] == 0 and _alone(proposal, tally)):
        return ""
    return f"{recent} machines were started in the last minute; limits.starts_per_minute is {most}"


def launch_bucket(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """An account launches no more machines at once in a region than the cloud grants it."""
    pool = bench.starting(proposal)
    if pool is None:
        return ""
    payer, site = bench.accounts[pool.name], bench.view.sites[pool.site]
    left = bench.launched[payer] - tally.by_account[payer]
    if left >= 1 or (bench.launched[payer] >= site.launched.burst and _alone(proposal, tally)):
        return ""
    return (
        f"{_named(payer)} launches {site.launched.burst:g} machines at once and {site.launched.refill:g} more a second"
    )


def call_bucket(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """An account makes no more launch calls at once in a region than the cloud grants it."""
    pool = bench.starting(proposal)
    if pool is None:
        return ""
    payer, site = bench.accounts[pool.name], bench.view.sites[pool.site]
    made = tally.calls[payer]
    if proposal.call in made or bench.calls[payer] - len(made) >= 1:
        return ""
    return _calls_granted(payer, site.calls.burst, site.calls.refill)


@lru_cache(maxsize=1024)
def _calls_granted(payer: Account, burst: float, refill: float) -> str:
    """Said of each of the thousands of machines that have to wait for the account."""
    return f"{_named(payer)} takes {burst:g} launch calls at once and {refill:g} more a second"


def _named(payer: Account) -> str:
    return f"account {payer.name} in {payer.region}" if payer.name else payer.region


def _alone(proposal: Proposal, tally: Tally) -> bool:
    """True if nothing else is started in this tick: what exceeds a limit all by itself must start some time."""
    return not tally.together.keys() - {proposal.together}


def creations_per_hour(_: Proposal, bench: Bench, tally: Tally) -> str:
    """At most so many machines an hour, whatever a policy says."""
    recent = bench.recent[1] + tally.starts
    most = bench.limits.creations_per_hour
    if recent < most:
        return ""
    return f"{recent} machines were started in the last hour; limits.creations_per_hour is {most}"


def creations_per_job(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """A job that never starts on the machines it gets stops getting more."""
    job = proposal.goal.job
    if job is None:
        return ""
    past = bench.view.creations.get(job, _NONE)
    most = bench.limits.creations_per_job * max(past.need, proposal.goal.need)
    made = past.machines + tally.by_job[job]
    if made < most:
        return ""
    return (
        f"{made} machines were created for job {job} already; limits.creations_per_job allows "
        f"{bench.limits.creations_per_job} for each node it needs"
    )


_NONE = Creations(0, 0)


@asked_if(lambda bench: bool(bench.quotas))
def within_quota(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """What the account may not have of a family of machines is not asked for."""
    pool = bench.starting(proposal)
    quota = bench.quotas.get(pool.name) if pool else None
    if pool is None or quota is None or quota.left - tally.by_family[quota.family] >= pool.quota_cpus:
        return ""
    return f"{quota.text}, and a machine of {pool.name} takes {pool.quota_cpus}"


def pool_maximum(proposal: Proposal, bench: Bench, tally: Tally) -> str:
    """No pool has more machines than its maximum."""
    pool = bench.starting(proposal)
    if pool is None or proposal.node.power is not Power.GONE:
        return ""
    have = bench.machines[pool.name] + tally.by_pool[pool.name]
    return f"{pool.name} has all the {pool.most} machines it may have" if have >= pool.most else ""


# --- what takes something away ---------------------------------------------------------------------------------------


@asked_if(lambda bench: any(kind is FactKind.KEEP for kind, _ in bench.view.facts))
def not_kept_by_hand(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A node that a person keeps is left as it is; what a cloud takes is let go in order."""
    node, fact = proposal.node, bench.view.keep(proposal.node.name)
    reclaimed = node.notice is not None and proposal.goal.by is not None
    if fact is None or reclaimed or proposal.step.arg == "off":
        return ""
    return f"{node.name} is kept: {fact.why}"


def minimum_up_time(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A machine is not given back right after it was paid for, but if it never serves, or must be free by a time."""
    node = proposal.node
    if node.up_since is None or node.sick or proposal.goal.by is not None:
        return ""
    up_s = bench.view.now - node.up_since
    most = bench.limits.min_up_s
    return f"it has been up for {up_s:.0f} s; limits.min_up is {most:.0f} s" if up_s < most else ""


@asked_if(lambda bench: bool(bench.helped))
def helpers_last(proposal: Proposal, bench: Bench, _: Tally) -> str:
    """A helper stays until the last machine that it helps is gone."""
    for pool in bench.helped.get(proposal.node.name, ()):
        for name in bench.view.pools[pool].nodes:
            node = bench.view.nodes.get(name)
            if node and node.power not in {Power.GONE, Power.OFF}:
                return f"{name} of {pool}, which it helps, has a machine"
    return ""


@asked_if(lambda bench: bool(bench.failed))
def nothing_destructive_after_a_failed_policy(_: Proposal, bench: Bench, __: Tally) -> str:
    """What a failed policy would have claimed is unknown, so nothing is taken away in that tick."""
    if bench.failed:
        return f"policy {bench.failed[0].policy} failed, so nothing is drained, stopped or deleted in this tick"
    return ""


_ANY: tuple[Guard, ...] = (site_seen, no_operation_under_way, not_paused, left_to_maintenance)
_STARTS: tuple[Guard, ...] = (
    site_not_drained,
    credentials_last,
    not_resting,
    not_quarantined,
    static_machines,
    within_budget,
    within_own_budget,
    pool_open,
    not_throttled,
    one_try_at_a_time,
    failed_boots_first,
    helpers_first,
    queue_thresholds,
    search_time,
    start_rate,
    launch_bucket,
    call_bucket,
    creations_per_hour,
    creations_per_job,
    within_quota,
    pool_maximum,
)
_DESTRUCTIVE: tuple[Guard, ...] = (
    not_kept_by_hand,
    minimum_up_time,
    helpers_last,
    nothing_destructive_after_a_failed_policy,
)

GUARDS: tuple[Guard, ...] = (*_ANY, *_STARTS, *_DESTRUCTIVE)


def _guards_of(verb: Verb | None) -> tuple[Guard, ...]:
    if verb is Verb.START:
        return (*_ANY, *_STARTS)
    return (*_ANY, *_DESTRUCTIVE) if verb in DESTRUCTIVE else _ANY


_BY_VERB: Mapping[Verb, tuple[Guard, ...]] = {verb: _guards_of(verb) for verb in Verb}


def admit(proposals: Iterable[Proposal], bench: Bench) -> tuple[list[Proposal], list[Refusal]]:
    """The proposals that may be done now, in order, and the refusals with their reasons."""
    admitted: list[Proposal] = []
    refused: list[Refusal] = []
    tally = Tally()
    guards = _asked(bench)
    for together in _gangs(proposals):
        if refusals := _look(together, guards, bench, tally):
            refused += refusals
        else:
            admitted += together
    return admitted, refused


Asked = Mapping[Verb, Sequence[Guard]]


def _asked(bench: Bench) -> Asked:
    """For each verb the guards that can have a reason in this tick."""
    matter = {guard for guard in GUARDS if guard not in _ASKED_IF or _ASKED_IF[guard](bench)}
    return {verb: [guard for guard in guards if guard in matter] for verb, guards in _BY_VERB.items()}


def _look(together: list[Proposal], guards: Asked, bench: Bench, tally: Tally) -> list[Refusal]:
    """The refusals of steps that stand or fall together; if there is none, they are counted."""
    counted: list[Proposal] = []
    refusals: list[Refusal] = []
    for proposal in together:
        if refusal := _first_reason(proposal, guards, bench, tally):
            refusals.append(refusal)
        else:
            tally.count(proposal, bench)
            counted.append(proposal)
    if not refusals:
        return []
    first = refusals[0]
    for proposal in counted:
        tally.count(proposal, bench, -1)
        refusals.append(Refusal(proposal.goal, first.guard, f"with {first.goal.node}: {first.why}"))
    return refusals


def _first_reason(proposal: Proposal, guards: Asked, bench: Bench, tally: Tally) -> Refusal | None:
    assert proposal.step.verb is not None  # noqa: S101 - proposals are made of steps with a verb
    for guard in guards[proposal.step.verb]:
        if why := guard(proposal, bench, tally):
            return Refusal(proposal.goal, guard.__name__, why)
    return None


def _gangs(proposals: Iterable[Proposal]) -> Iterable[list[Proposal]]:
    together: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        together.setdefault(proposal.together, []).append(proposal)
    return together.values()
