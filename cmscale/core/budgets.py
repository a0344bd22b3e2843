"""What has become of each budget, and what would a start cost it?

The promise: machines are started only while what was spent in the period, and what the machines that are there cost
besides if all of them run on to its end, is below the limit. Giving a machine back only lowers that sum, time does not
raise it, and each start raises it by what that machine costs to the end of the period. So, whatever the jobs do, the
bill of a period is at most the limit and one start; or, where machines that were up when it began cost more than the
limit by themselves, that much and nothing that is started in it. Of a user's or an account's budget this is promised of
what is started for them: on machines that are up for others Slurm starts whose jobs it likes, and these pay for them.

With `ahead_s` machines are counted on for so long instead of to the end of the period: more may be started at once, and
the promise holds if no machine stays for longer after the money is used up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cmscale.core.metering import KEPT, RUNNING, billed_ms, divided, shares
from cmscale.core.remedies import span
from cmscale.hours import moment
from cmscale.model import (
    EACH,
    NOBODY,
    AtLimit,
    Budget,
    Event,
    EventKind,
    Job,
    JobId,
    Node,
    NodeName,
    Payer,
    Period,
    Pool,
    PoolName,
    Power,
    Purse,
    Snapshot,
    Wait,
    price,
)

NAMED = 3
"""How many of those who spent most are named."""

DAY_S = 86400
SOON_S = 6 * DAY_S
"""Until then a day of the week names one day."""

PERIODS: Mapping[Period, str] = {Period.HOUR: "hour", Period.DAY: "day", Period.MONTH: "month"}


def whose(budget: Budget, pool: PoolName, payer: Payer) -> str | None:
    """Whose purse of the budget pays for this; empty where it is nobody's own, None if the budget is not concerned."""
    if budget.pool not in {None, pool}:
        return None
    for meant, name in ((budget.user, payer.user), (budget.account, payer.account)):
        if meant:
            return name if name and meant in {EACH, name} else None
    return ""


def start_cost(budget: Budget, pool: Pool, now: float, until: float) -> int:
    """What a machine that is started now costs to the end of the period."""
    return _to_the_end(budget, pool, now, now, until)


def _to_the_end(budget: Budget, pool: Pool, launched: float, now: float, until: float) -> int:
    """What a machine costs from now on, with the quantum and the least time that it is paid for."""
    end = until if budget.ahead_s is None else min(until, now + budget.ahead_s)
    past_ms = max(round((now - launched) * 1000), 0)
    left_ms = max(round((end - now) * 1000), 0)
    return (billed_ms(past_ms + left_ms, pool) - past_ms) * price(pool.price_hour)


# --- what is used up -------------------------------------------------------------------------------------------------


def purses(view: Snapshot) -> tuple[Purse, ...]:
    """What has become of each budget."""
    if not view.budgets:
        return ()
    there = list(_machines(view))
    return tuple(purse for budget in view.budgets for purse in _purses(view, budget, there))


class _There(NamedTuple):
    """A machine that is there, or is being launched."""

    pool: Pool
    payers: tuple[tuple[Payer, int], ...]
    """Who has it, with their weights."""
    launched: float
    running: bool


def _machines(view: Snapshot) -> Iterator[_There]:
    on = _jobs_on(view) if any(budget.personal for budget in view.budgets) else {}
    for node in view.nodes.values():
        pool, machine = view.pools.get(node.pool) if node.pool else None, node.machine
        if pool is None:
            continue
        if machine and machine.state in RUNNING:
            yield _There(pool, _payers(view, node, on), machine.launched, running=True)
        elif node.power is Power.STARTING:  # it may have been made, or powered on, by now
            yield _There(pool, _payers(view, node, on), view.now, running=True)
        elif machine and machine.state in KEPT:
            yield _There(pool, _payers(view, node, on), machine.launched, running=False)
    for machine in view.surplus:
        node_of = view.nodes.get(machine.node)
        if node_of and node_of.pool and machine.state in RUNNING:
            yield _There(view.pools[node_of.pool], ((NOBODY, 1),), machine.launched, running=True)


def _jobs_on(view: Snapshot) -> Mapping[NodeName, Sequence[Job]]:
    on: dict[NodeName, list[Job]] = {}
    for job in view.jobs:
        for name in job.nodes:
            on.setdefault(name, []).append(job)
    return on


def _payers(view: Snapshot, node: Node, on: Mapping[NodeName, Sequence[Job]]) -> tuple[tuple[Payer, int], ...]:
    taken = [(share.payer, share.cpus) for share in shares(node, on.get(node.name, ()))]
    return tuple(taken) or ((view.owners.get(node.name, NOBODY), 1),)


def _purses(view: Snapshot, budget: Budget, there: Iterable[_There]) -> Iterator[Purse]:
    period = view.spent[budget.per]
    spent: Counter[str] = Counter()
    committed: Counter[str] = Counter()
    most: dict[str, Counter[str]] = {}
    for cost in period.costs:
        if (who := whose(budget, cost.pool, cost.payer)) is not None:
            spent[who] += cost.amount
            name = cost.pool if budget.personal else cost.payer.user or "nobody"
            most.setdefault(who, Counter())[name] += cost.amount
    for each in there:
        amount = _committed(budget, each, view.now, period.end)
        parts = divided(amount, [weight for _, weight in each.payers])
        for (payer, _), part in zip(each.payers, parts, strict=True):
            if (who := whose(budget, each.pool.name, payer)) is not None:
                committed[who] += part
    everybody = sorted(spent.keys() | committed.keys()) if EACH in {budget.user, budget.account} else [_owner(budget)]
    for who in everybody:
        purse = Purse(budget, who, spent[who], committed[who], period.end)
        yield replace(purse, why=reason(purse, view, most.get(who, Counter()))) if purse.used_up else purse


def _committed(budget: Budget, there: _There, now: float, until: float) -> int:
    if there.running:
        return _to_the_end(budget, there.pool, there.launched, now, until)
    return max(round((until - now) * 1000), 0) * price(there.pool.stopped_price_hour)


def _owner(budget: Budget) -> str:
    return budget.user or budget.account


def held(view: Snapshot) -> Mapping[JobId, Wait]:
    """Waiting jobs that no machine is started for, since the budget of their user or account is used up. They are left
    out of what policies see: machines started for others shall not be meant for them, and be made up for by more."""
    shut = [purse for purse in view.purses if purse.used_up and purse.budget.personal and _everywhere(purse.budget)]
    users = {purse.who: purse.why for purse in shut if purse.budget.user}
    accounts = {purse.who: purse.why for purse in shut if purse.budget.account}
    return {
        job.id: Wait(job.id, why)
        for job in (view.jobs if shut else ())
        if job.pending and (why := users.get(job.user) or accounts.get(job.account))
    }


def _everywhere(budget: Budget) -> bool:
    return budget.pool is None and budget.at_limit is not AtLimit.SPOT_ONLY


# --- how it is told --------------------------------------------------------------------------------------------------


def title(purse: Purse) -> str:
    """The budget and whose it is."""
    kind = "user" if purse.budget.user else "account"
    return f"budget {purse.budget.name}" + (f" of {kind} {purse.who}" if purse.who else "")


def reason(purse: Purse, view: Snapshot, most: Counter[str]) -> str:
    """Why nothing is started. In whole percents: it stands in comments, which shall not change at every look."""
    limit = purse.budget.limit
    by = [f"{name} {100 * amount // limit} %" for name, amount in most.most_common(NAMED) if 100 * amount >= limit]
    spent = f"{100 * purse.spent // limit} % spent" + (f" ({', '.join(by)})" if by else "")
    begin = f"{title(purse)} ({purse.budget.text}) is used up: {spent}"
    if purse.gone:
        return f"{begin}; it opens {opens(purse, view)}"
    with_all = 100 * (purse.spent + purse.committed) // limit
    ahead = purse.budget.ahead_s
    how_far = f"to the end of the {PERIODS[purse.budget.per]}" if ahead is None else f"for {span(ahead)}"
    with_them = f"{with_all} % with what is up, if it runs on {how_far}"
    return f"{begin}, {with_them}; it opens as machines are given back, at the latest {opens(purse, view)}"


def opens(purse: Purse, view: Snapshot) -> str:
    """When its period ends, in words that stay the same for a while."""
    left_s = purse.until - view.now
    return f"in {left_s // DAY_S:.0f} days" if left_s > SOON_S else f"on {moment(purse.until, view.utc_offset_s)}"


def events(before: Mapping[tuple[str, str], EventKind], view: Snapshot) -> Iterator[Event]:
    """What is news of the budgets, given what was told of each before."""
    levels = told(view)
    for purse in view.purses:
        kind = levels.get((purse.budget.name, purse.who))
        if kind is None or before.get((purse.budget.name, purse.who)) is kind:
            continue
        if kind is EventKind.BUDGET_REACHED:
            yield Event(view.now, kind, purse.budget.name, f"{purse.why}; {AT_LIMIT[purse.budget.at_limit]}")
        else:
            share = 100 * purse.spent // purse.budget.limit
            yield Event(view.now, kind, purse.budget.name, f"{title(purse)} ({purse.budget.text}) is {share} % spent")
    for (name, who), kind in before.items():
        if kind is EventKind.BUDGET_REACHED and levels.get((name, who)) is not kind:
            of = f" of {who}" if who else ""
            yield Event(view.now, EventKind.BUDGET_OPENED, name, f"budget {name}{of} allows starts again")


def told(view: Snapshot) -> Mapping[tuple[str, str], EventKind]:
    """What there is to tell of each budget now."""
    return {(purse.budget.name, purse.who): kind for purse in view.purses if (kind := _level(purse))}


def _level(purse: Purse) -> EventKind | None:
    if purse.used_up:
        return EventKind.BUDGET_REACHED
    nearly = purse.spent >= purse.budget.warn_at * purse.budget.limit
    return EventKind.BUDGET_NEARLY_SPENT if nearly else None


AT_LIMIT: Mapping[AtLimit, str] = {
    AtLimit.STOP_STARTING: "nothing is started meanwhile",
    AtLimit.SPOT_ONLY: "only spot machines are started meanwhile",
    AtLimit.DRAIN: "nothing is started meanwhile, and once it is spent, machines go as they get free",
}
