"""Two ways of deciding, compared: what each does alone, and the money between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cmscale.core.compare import Account, changes, difference, said
from cmscale.model import (
    Action,
    MachineId,
    MachineState,
    Node,
    NodeName,
    OpId,
    Plan,
    PolicyFailure,
    Power,
    Refusal,
    Snapshot,
    Verb,
    Want,
)
from tests.builders import BUSY, NOW, goal, machine, node, pool, view

PRICED = pool(price_hour=2.0, stopped_price_hour=0.5, never_terminate=frozenset({"t4-2"}))
UP = node(power=Power.ON, of=PRICED)
KEPT = node(power=Power.OFF, of=PRICED, machine=machine("t4-1", MachineState.STOPPED))


def action(verb: Verb, name: str = "t4-1", reason: str = "why", arg: str = "") -> Action:
    return Action(verb, NodeName(name), reason, OpId("t-0"), PRICED.name, arg=arg)


def plan(*actions: Action, wants: Want | None = None) -> Plan:
    goals = tuple(goal(each.node, wants) for each in actions) if wants else ()
    return Plan("t", NOW, actions, goals)


START, STOP, DELETE, DRAIN, RESUME = map(action, (Verb.START, Verb.STOP, Verb.DELETE, Verb.DRAIN, Verb.RESUME))
NOTHING = plan()


# --- what differs ----------------------------------------------------------------------------------------------------


def test_plans_that_do_the_same_differ_in_nothing_whatever_their_reasons_say() -> None:
    assert difference(view(), plan(START), plan(replace(START, reason="because", op=OpId("other")))) is None


def test_what_only_one_plan_does_is_told_and_what_both_do_is_not() -> None:
    other = action(Verb.START, "t4-2")
    found = difference(view([PRICED]), plan(START, other), plan(other, action(Verb.START, "t4-3")))
    assert found
    assert (found.tick, found.at) == ("t", NOW)
    assert [each.node for each in found.then] == ["t4-1"]
    assert [each.node for each in found.now] == ["t4-3"]
    assert found.price_hour == 0


def test_a_plan_that_starts_more_costs_more_by_the_hour() -> None:
    found = difference(view([PRICED]), NOTHING, plan(START, action(Verb.START, "t4-2")))
    assert found
    assert found.price_hour == 4.0


def test_a_plan_says_the_same_while_only_figures_in_its_sentences_change() -> None:
    first = Plan("t1", NOW, (START,), (), (Refusal(goal(), "min_up", "up for 3 s"),))
    again = Plan("t2", NOW + 1, (replace(START, reason="for 4 s"),), (), (Refusal(goal(), "min_up", "up for 4 s"),))
    assert said(first) == said(again)
    assert said(first) != said(replace(again, failed=(PolicyFailure("mine", "KeyError"),)))
    assert said(first) != said(replace(again, idle_because="Slurm could not be read"))


# --- what a step does to the price -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "decided", "dollars"),
    [
        (node(of=PRICED), plan(START), 2.0),
        (KEPT, plan(START), 1.5),
        (UP, plan(DELETE), -2.0),
        (KEPT, plan(DELETE), -0.5),
        (UP, plan(STOP), -1.5),
        (UP, plan(DRAIN, wants=Want.GONE), -2.0),
        (UP, plan(DRAIN, wants=Want.OFF), -1.5),
    ],
    ids=["start", "power-on", "delete", "delete-kept", "stop", "drain-to-delete", "drain-to-stop"],
)
def test_a_step_changes_what_its_node_costs(of: Node, decided: Plan, dollars: float) -> None:
    assert changes(view([PRICED], [of]), decided) == {"t4-1": dollars}


@pytest.mark.parametrize(
    ("of", "decided"),
    [
        (UP, plan(RESUME)),
        (UP, plan(DRAIN, wants=Want.DRAINED)),
        (replace(UP, states=BUSY), plan(DRAIN, wants=Want.GONE)),
        (node(of=PRICED), plan(DRAIN, wants=Want.GONE)),
        (replace(UP, machine=machine("t4-1", MachineState.ENDING)), plan(DELETE)),
    ],
    ids=["resume", "drain-to-rest", "drain-while-busy", "park", "delete-what-ends"],
)
def test_no_money_hangs_on_a_step_that_neither_starts_nor_gives_back(of: Node, decided: Plan) -> None:
    assert changes(view([PRICED], [of]), decided) == {}


def test_a_node_that_is_kept_when_it_is_given_back_costs_what_a_stopped_one_does() -> None:
    sight = view([PRICED], [node("t4-2", Power.ON, PRICED)])
    assert changes(sight, plan(action(Verb.DRAIN, "t4-2"), wants=Want.GONE)) == {"t4-2": -1.5}


def test_deleting_a_second_machine_saves_its_price_once() -> None:
    second = replace(machine("t4-1"), id=MachineId("i-second"))
    sight = view([PRICED], [KEPT], surplus=(second,))
    assert changes(sight, plan(action(Verb.DELETE, "i-second", arg="i-second"))) == {"t4-1": -2.0}


def test_steps_of_jobs_and_of_nodes_that_are_no_pools_cost_nothing() -> None:
    assert changes(view([PRICED]), plan(action(Verb.RELEASE, ""), action(Verb.START, "gone-1"))) == {}


# --- the money over a period -----------------------------------------------------------------------------------------

HOUR_S = 3600.0


def seen(hours: float, *, up: bool = False) -> Snapshot:
    return view([PRICED], [UP] if up else [], now=NOW + hours * HOUR_S)


def account(*ticks: tuple[Snapshot, Plan, Plan]) -> Account:
    kept = Account()
    for sight, then, now in ticks:
        kept.add(sight, then, now)
    return kept


def test_what_only_now_starts_is_charged_until_the_period_ends_though_each_snapshot_has_it_started_again() -> None:
    kept = account((seen(0), NOTHING, plan(START)), (seen(1), NOTHING, plan(START)), (seen(3), NOTHING, NOTHING))
    assert (kept.dollars, kept.price_hour) == (6.0, 2.0)


def test_what_only_then_started_is_saved_until_then_gave_it_back() -> None:
    kept = account(
        (seen(0), plan(START), NOTHING),
        (seen(1, up=True), plan(DRAIN, wants=Want.GONE), plan(DRAIN, wants=Want.GONE)),
        (seen(2, up=True), plan(DELETE), plan(DELETE)),
        (seen(5), NOTHING, NOTHING),
    )
    assert (kept.dollars, kept.price_hour) == (-2.0, 0.0)


def test_what_both_start_in_the_end_is_charged_until_the_later_one_does() -> None:
    kept = account(
        (seen(0), NOTHING, plan(START)),
        (seen(1), plan(START), plan(START)),
        (seen(4, up=True), NOTHING, NOTHING),
    )
    assert kept.dollars == 2.0


def test_what_now_gives_back_sooner_is_saved_until_then_gives_it_back_too() -> None:
    gives_back = plan(DRAIN, wants=Want.GONE)
    kept = account(
        (seen(0, up=True), NOTHING, gives_back),
        (seen(1, up=True), NOTHING, gives_back),
        (seen(2, up=True), gives_back, gives_back),
        (seen(9), NOTHING, NOTHING),
    )
    assert kept.dollars == -4.0


def test_what_then_gave_back_costs_now_until_then_started_it_again() -> None:
    kept = account(
        (seen(0, up=True), plan(DELETE), NOTHING),
        (seen(1), plan(START), NOTHING),
        (seen(9, up=True), NOTHING, NOTHING),
    )
    assert (kept.dollars, kept.price_hour) == (2.0, 0.0)


def test_two_ways_that_do_the_same_have_no_money_between_them() -> None:
    assert account((seen(0), plan(START), plan(START)), (seen(1, up=True), plan(DELETE), plan(DELETE))) == Account(
        0.0, NOW + HOUR_S
    )
