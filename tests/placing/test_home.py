"""Waiting for home: where it is free sooner than a machine boots, or soon for what a machine would cost."""

from dataclasses import replace
from typing import Any

from cmscale.model import Ask, Goal, Job, JobId, Node, NodeName, Shape, Snapshot, Wait
from policies.serve_queue import Settings, propose
from tests.builders import CPU, NOW, home_node, job, pool, view

CLOUD = pool("cpu", shape=CPU, price_hour=3.0, boot_s=180)
WHOLE = Ask(("batch",), cpus_per_node=8, limit_s=3600)


def taken(name: str, free_in_s: float) -> tuple[Node, Job]:
    """A node at home, and the job on it that ends by then."""
    runs = job(
        1000 + int(name[2:]),
        replace(WHOLE, limit_s=int(free_in_s) + 60),
        state="RUNNING",
        nodes=frozenset({NodeName(name)}),
        started=NOW - 60,
    )
    return home_node(name, states=frozenset({"ALLOCATED"}), free=Shape(0, 0)), runs


def proposed(waiting: list[Job], *home: tuple[Node, Job], **settings: Any) -> tuple[dict[JobId, str], list[Goal]]:
    """Why jobs wait on purpose, and what is wished for the others."""
    seen: Snapshot = view([CLOUD], [node for node, _ in home], [*waiting, *(runs for _, runs in home)])
    every = list(propose(seen, frozenset(), Settings(**settings)))
    waits = {each.job: each.reason for each in every if isinstance(each, Wait)}
    return waits, [each for each in every if isinstance(each, Goal)]


def test_a_job_waits_where_home_is_free_sooner_than_a_machine_boots() -> None:
    waits, goals = proposed([job(1, WHOLE)], taken("op1", 120))
    assert waits == {"1": "home should have room in about 2 min, sooner than a machine of cpu boots"}
    assert goals == []


def test_where_home_takes_longer_than_a_boot_a_machine_is_started() -> None:
    waits, goals = proposed([job(1, WHOLE)], taken("op1", 240))
    assert waits == {}
    assert [goal.node for goal in goals] == ["cpu-1"]


def test_with_a_wait_per_dollar_a_dear_job_waits_longer_than_a_cheap_one() -> None:
    dear, cheap = job(1, WHOLE), job(2, replace(WHOLE, limit_s=600))
    for each, expected in (
        (dear, {"1": "home should have room in about 10 min; cpu would cost up to $3.00"}),
        (cheap, {}),
    ):
        waits, goals = proposed([each], taken("op1", 600), wait_per_dollar_s=300.0)
        assert waits == expected
        assert bool(goals) == (not expected)


def test_no_job_waits_for_longer_than_it_may_in_all() -> None:
    fresh, patient = job(1, WHOLE, submit=NOW - 60), job(1, WHOLE, submit=NOW - 1500)
    settings = {"wait_per_dollar_s": 3600.0, "wait_at_most_s": 1800.0}
    assert proposed([fresh], taken("op1", 600), **settings)[0]
    assert not proposed([patient], taken("op1", 600), **settings)[0]
    begun_late = replace(patient, begin=NOW - 60)
    assert proposed([begun_late], taken("op1", 600), **settings)[0]


def test_jobs_are_booked_one_after_the_other_so_that_two_never_wait_for_the_same_node() -> None:
    waits, goals = proposed([job(1, WHOLE), job(2, WHOLE), job(3, WHOLE)], taken("op1", 60), taken("op2", 120))
    assert list(waits) == ["1", "2"]
    assert "about 1 min" in waits[JobId("1")]
    assert "about 2 min" in waits[JobId("2")]
    assert [(goal.node, goal.job) for goal in goals] == [("cpu-1", "3")]


def test_jobs_that_ask_alike_wait_alike_though_their_words_differ() -> None:
    first, second = job(1, WHOLE), job(2, replace(WHOLE))
    assert first.ask is not second.ask
    assert list(proposed([first, second], taken("op1", 60), taken("op2", 120))[0]) == ["1", "2"]


def test_a_node_that_is_free_now_is_used_before_any_wait() -> None:
    busy, runs = taken("op1", 60)
    waits, goals = proposed([job(1, WHOLE)], (busy, runs), (home_node("op2"), job(2000, state="COMPLETING")))
    assert [(goal.node, goal.job) for goal in goals] == [("op2", "1")]
    assert waits == {}


def test_a_job_that_runs_without_a_time_limit_is_not_waited_for() -> None:
    node, runs = taken("op1", 60)
    waits, goals = proposed([job(1, WHOLE)], (node, replace(runs, ask=replace(runs.ask, limit_s=None))))
    assert waits == {}
    assert len(goals) == 1


def test_where_no_machine_could_be_started_anyway_nothing_is_said_of_waiting_on_purpose() -> None:
    node, runs = taken("op1", 60)
    seen = view([replace(CLOUD, shape=Shape(2, 1000))], [node], [job(1, WHOLE), runs])
    assert list(propose(seen, frozenset(), Settings())) == []


def test_a_node_at_home_that_is_free_now_is_for_one_job_and_the_next_waits_for_the_other() -> None:
    busy, runs = taken("op1", 60)
    seen = view([CLOUD], [busy, home_node("op2")], [job(1, WHOLE), job(2, WHOLE), runs])
    every = list(propose(seen, frozenset(), Settings()))
    assert [each.node for each in every if isinstance(each, Goal)] == ["op2"]
    assert [each.job for each in every if isinstance(each, Wait)] == ["2"]
