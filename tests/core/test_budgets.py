"""Budgets: what is used up, what a start costs, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from cmscale.core.budgets import held, purses, start_cost, whose
from cmscale.core.decide import decide
from cmscale.core.telling import why_not
from cmscale.model import (
    DOLLAR,
    AtLimit,
    Budget,
    JobId,
    Limits,
    NodeName,
    Payer,
    PoolName,
    Power,
    Purse,
    Snapshot,
    Verb,
)
from tests.builders import BUSY, NOW, budget, cost, job, node, pool, spent, view
from tests.shell.cluster import shipped

DAY_LEFT_S = 36000.0
"""Ten hours: a machine of the pool costs $5 in them."""


def seen(*budgets: Budget, costs: Iterable[Any] = (), **changes: Any) -> Snapshot:
    """A snapshot with what has become of its budgets."""
    periods = {each.per: spent(*costs, end=NOW + DAY_LEFT_S) for each in budgets}
    bare = view(budgets=budgets, spent=MappingProxyType(periods), **changes)
    return replace(bare, purses=purses(bare))


def only(look: Snapshot) -> Purse:
    (purse,) = look.purses
    return purse


def starts(look: Snapshot) -> int:
    return sum(action.verb is Verb.START for action in decide(look, shipped(), Limits()).actions)


@pytest.mark.parametrize(
    ("of", "payer", "expected"),
    [
        (budget(), Payer("ada"), ""),
        (budget(pool=PoolName("t4")), Payer(), ""),
        (budget(pool=PoolName("cpu")), Payer(), None),
        (budget(user="ada"), Payer("ada"), "ada"),
        (budget(user="ada"), Payer("bob"), None),
        (budget(user="*"), Payer("bob"), "bob"),
        (budget(user="*"), Payer(), None),
        (budget(account="physics"), Payer("bob", "physics"), "physics"),
        (budget(account="*", pool=PoolName("cpu")), Payer("bob", "physics"), None),
    ],
)
def test_whose_purse_pays(of: Budget, payer: Payer, expected: str | None) -> None:
    assert whose(of, PoolName("t4"), payer) == expected


def test_what_is_up_is_committed_to_the_end_of_the_period() -> None:
    purse = only(seen(budget(8), nodes=[node("t4-1", Power.ON, states=BUSY)], costs=[cost(2)]))
    assert (purse.spent, purse.committed) == (2 * DOLLAR, 5 * DOLLAR)
    assert not purse.used_up


def test_what_is_started_counts_before_any_cloud_has_shown_it() -> None:
    starting = node("t4-1", Power.STARTING, machine=None)
    assert only(seen(budget(8), nodes=[starting])).committed == 5 * DOLLAR


def test_what_is_kept_powered_off_is_committed_at_its_stopped_price() -> None:
    kept = pool(stopped_price_hour=0.01)
    off = node("t4-1", Power.OFF, of=kept)
    off = replace(off, machine=replace(off.machine, state=off.machine.state.STOPPED)) if off.machine else off
    assert only(seen(budget(8), pools=[kept], nodes=[off])).committed == DOLLAR // 10


def test_machines_are_counted_on_for_as_long_as_the_budget_says() -> None:
    assert only(seen(budget(8, ahead_s=3600.0), nodes=[node("t4-1", Power.ON)])).committed == DOLLAR // 2


def test_whole_quanta_and_the_least_time_are_committed() -> None:
    quanta = pool(billing_quantum_s=7200.0)
    assert start_cost(budget(), quanta, NOW, NOW + 60) == DOLLAR
    assert start_cost(budget(), pool(billing_minimum_s=3600.0), NOW, NOW + 60) == DOLLAR // 2
    up = only(seen(budget(8), pools=[quanta], nodes=[node("t4-1", Power.ON, of=quanta)]))  # for ten minutes already
    assert up.committed == round((6 * 7200 - 600) * DOLLAR * 0.5 / 3600)


def test_starts_stop_with_the_one_that_uses_the_budget_up() -> None:
    jobs = [job(number) for number in range(1, 5)]
    assert [starts(seen(budget(limit), jobs=jobs)) for limit in (0.1, 5, 5.1, 10.1, 100)] == [1, 1, 2, 3, 4]


def test_a_gang_is_started_as_a_whole_or_not_at_all() -> None:
    gang = [job(1, replace(job(1).ask, nodes=3, tasks=3))]
    assert [starts(seen(budget(limit), jobs=gang)) for limit in (9.9, 10.1)] == [0, 3]


def test_each_budget_has_a_say() -> None:
    jobs = [job(number, user="ada") for number in range(1, 5)]
    assert starts(seen(budget(100), replace(budget(6), name="small"), jobs=jobs)) == 2
    assert starts(seen(budget(100), replace(budget(6, user="ada"), name="adas"), jobs=jobs)) == 2
    assert starts(seen(budget(100), replace(budget(6, user="bob"), name="bobs"), jobs=jobs)) == 4


def test_what_runs_on_a_machine_is_committed_to_those_whose_jobs_run_there() -> None:
    running = [
        replace(job(number, user=user), state="RUNNING", started=NOW - 60, nodes=frozenset({NodeName("t4-1")}))
        for number, user in ((1, "ada"), (2, "bob"))
    ]
    look = seen(budget(8, user="*"), nodes=[node("t4-1", Power.ON, states=BUSY)], jobs=running)
    assert {purse.who: purse.committed for purse in look.purses} == {"ada": 5 * DOLLAR // 2, "bob": 5 * DOLLAR // 2}


def test_jobs_of_a_user_without_money_are_left_out_of_what_policies_see() -> None:
    look = seen(budget(8, user="*"), costs=[cost(8, user="ada")], jobs=[job(1, user="ada"), job(2, user="bob")])
    assert list(held(look)) == [JobId("1")]
    plan = decide(look, shipped(), Limits())
    assert [goal.job for goal in plan.goals if goal.job] == ["2"]
    assert plan.notes[JobId("1")].startswith("waits: budget money of user ada ($8 a day) is used up: 100 % spent")


def test_the_reason_names_the_budget_who_spent_what_and_when_it_opens() -> None:
    costs = [cost(6, user="ada"), cost(2.5, user="bob"), cost(0.01, user="eve")]
    assert only(seen(budget(8), costs=costs)).why == (
        "budget money ($8 a day) is used up: 106 % spent (ada 75 %, bob 31 %); it opens on mon 23:46:40"
    )


def test_a_pool_whose_budget_is_used_up_is_shut_and_spot_pools_are_not_where_spot_may_go_on() -> None:
    pools = [pool(), pool("spot", market="spot")]
    for at_limit, shut in ((AtLimit.STOP_STARTING, 2), (AtLimit.DRAIN, 2), (AtLimit.SPOT_ONLY, 1)):
        look = seen(budget(1, at_limit=at_limit), pools=pools, costs=[cost(1)])
        assert sum(look.shut(each) is not None for each in pools) == shut


def test_with_drain_nothing_goes_before_the_money_is_gone() -> None:
    busy = node("t4-1", Power.ON, states=BUSY)
    for spent_so_far, drained in ((1, 0), (8, 1)):
        look = seen(budget(8, at_limit=AtLimit.DRAIN), nodes=[busy], costs=[cost(spent_so_far)])
        actions = decide(look, shipped(), Limits()).actions
        assert [action.verb for action in actions if action.node == "t4-1"] == [Verb.DRAIN] * drained


def test_a_user_without_money_is_told_so_at_length_with_what_would_change_it() -> None:
    look = seen(budget(8, user="*"), costs=[cost(8, user="ada")], jobs=[job(1, user="ada")])
    told = why_not(look, decide(look, shipped(), Limits()), look.jobs[0])
    assert told[2:] == [
        (
            "No machine is started for it now: budget money of user ada ($8 a day) is used up: 100 % spent (t4 100 %); "
            "it opens on mon 23:46:40 (guard within_own_budget)."
        ),
        "Offer: 1 node of t4 at east, $0.5 an hour, ready in about 3 min: not now (guard within_own_budget).",
        "What would change it: machines are given back, or the period ends; see cm-scale cost.",
    ]


def test_a_pool_without_money_is_told_so_at_length_with_what_would_change_it() -> None:
    look = seen(budget(8), costs=[cost(8, user="ada")], jobs=[job(1)])
    told = why_not(look, decide(look, shipped(), Limits()), look.jobs[0])
    assert "closed (budget: money ($8 a day) is used up: 100 % spent (ada 100 %); it opens on mon 23:46:40)" in told[-2]
    assert told[-1] == (
        "What would change it: t4 is tried again in 10.0 h; or the limit of the budget is raised: [budgets] in the "
        "configuration, cm-scale cost."
    )
