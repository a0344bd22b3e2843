"""serve_queue: who gets which nodes."""

from typing import Any

import pytest

from cmscale.model import OFF_REASON, FactKind, Goal, Help, JobId, NodeName, Power, Shape, Snapshot, Want
from policies.serve_queue import Settings, propose
from tests.builders import BUSY, CPU, EAST, IDLE, JOINED, NOW, WEST, ask, fact, facts, home_node, job, node, pool, view

NOBODY: frozenset[NodeName] = frozenset()


def served(seen: Snapshot, claimed: frozenset[NodeName] = NOBODY) -> list[Goal]:
    """What is wished for; that no job waits on purpose here is part of each test."""
    goals: list[Goal] = []
    for each in propose(seen, claimed, Settings()):
        assert isinstance(each, Goal)
        goals.append(each)
    return goals


def names(goals: list[Goal]) -> list[str]:
    return [goal.node for goal in goals]


def test_a_waiting_job_gets_the_cheapest_pool_that_fits() -> None:
    pools = [pool("dear", price_hour=2), pool("cheap", price_hour=1), pool("small", shape=CPU, price_hour=0.1)]
    (goal,) = served(view(pools, jobs=[job()]))
    assert (goal.node, goal.want, goal.job) == ("cheap-1", Want.UP, "1")
    assert "cheap is the cheapest that fits, $1 an hour" in goal.reason


def test_a_job_gets_its_nodes_elsewhere_while_a_person_drains_the_site_of_the_cheapest() -> None:
    pools = [pool("dear", price_hour=2, site=WEST), pool("cheap", price_hour=1)]
    drained = facts(fact(FactKind.DRAIN_SITE, EAST))
    assert names(served(view(pools, jobs=[job()], facts=drained))) == ["dear-1"]


def test_jobs_that_more_nodes_would_not_help_get_none() -> None:
    waiting = [job(1, help=Help.NO), job(2, help=Help.ASK_AGAIN), job(3, state="RUNNING")]
    assert served(view(jobs=waiting)) == []


def test_an_array_gets_a_node_for_each_task_up_to_what_there_is() -> None:
    assert names(served(view([pool(count=8)], jobs=[job(count=20)]))) == [f"t4-{number}" for number in range(1, 9)]


def test_each_task_stands_for_itself_but_a_gang_stands_together() -> None:
    goals = served(view([pool(count=8)], jobs=[job(1, count=2), job(2, ask(nodes=4, tasks=4))]))
    assert [goal.gang for goal in goals[:2]] == [None, None]
    assert len({goal.gang for goal in goals[2:]}) == 1
    assert goals[2].gang is not None
    assert [goal.need for goal in goals] == [2, 2, 4, 4, 4, 4]


def test_all_nodes_of_a_job_come_from_one_site_or_none() -> None:
    pools = [pool("e", 3), pool("w", 3, site=WEST)]
    assert served(view(pools, jobs=[job(1, ask(nodes=4, tasks=4))])) == []
    assert len(served(view(pools, jobs=[job(1, ask(nodes=3, tasks=3))]))) == 3


def test_a_gang_that_finds_no_room_does_not_keep_smaller_jobs_from_theirs() -> None:
    goals = served(view([pool(count=2)], jobs=[job(1, ask(nodes=3, tasks=3)), job(2)]))
    assert [(goal.node, goal.job) for goal in goals] == [("t4-1", JobId("2"))]


def test_the_job_of_higher_priority_is_placed_first() -> None:
    jobs = [job(1, priority=1), job(2, ask(exclusive=True), priority=9)]
    (goal,) = served(view([pool(count=1)], jobs=jobs))
    assert goal.job == "2"


def test_jobs_that_ask_alike_do_not_overtake_one_that_stands_between_them() -> None:
    jobs = [job(1), job(2, ask(nodes=2, tasks=2)), job(3, count=9)]
    goals = served(view([pool(count=4)], jobs=jobs))
    assert [goal.job for goal in goals] == ["1", "2", "2", "3"]


def test_nodes_that_are_starting_are_counted_first() -> None:
    seen = view(nodes=[node("t4-3", Power.STARTING)], jobs=[job(1), job(2)])
    goals = served(seen)
    assert names(goals) == ["t4-3", "t4-1"]


def test_a_job_that_fits_a_free_node_at_home_gets_no_machine() -> None:
    free_at_home = home_node("gpu1", shape=Shape(8, 32000, 2, "a100"))
    goals = served(view(nodes=[free_at_home], jobs=[job(1)]))
    assert names(goals) == ["gpu1"]


def test_a_node_that_slurm_leaves_idle_for_long_counts_no_more() -> None:
    ignored, patient = node("t4-1", Power.ON, idle_since=NOW - 500), job(1, submit=NOW - 500)
    assert names(served(view(nodes=[ignored], jobs=[patient]))) == ["t4-2"]
    assert names(served(view(nodes=[ignored], jobs=[job(1, submit=NOW - 5)]))) == ["t4-1"]
    fresh = node("t4-1", Power.ON, idle_since=NOW - 5)
    assert names(served(view(nodes=[fresh], jobs=[patient]))) == ["t4-1"]


def test_an_idle_node_that_waits_with_a_gang_for_its_last_machine_still_counts() -> None:
    warm = node("t4-1", Power.ON, idle_since=NOW - 500)
    coming = node("t4-2", Power.STARTING, for_job=JobId("1"))
    gang = job(1, ask(nodes=2, tasks=2), submit=NOW - 500)
    assert sorted(names(served(view([pool(count=2)], [warm, coming], [gang])))) == ["t4-1", "t4-2"]


def test_a_node_stays_tired_while_it_is_given_back_but_one_that_was_never_handed_over_is_not() -> None:
    long, patient = NOW - 500, job(1, submit=NOW - 500)
    leaving = node("t4-1", Power.ON, states=IDLE | {"DRAIN"}, reason="cm-scale: idle for 500 s", idle_since=long)
    assert names(served(view(nodes=[leaving], jobs=[patient]))) == ["t4-2"]
    joined = node("t4-1", Power.ON, states=JOINED, reason=OFF_REASON, idle_since=long)
    assert names(served(view(nodes=[joined], jobs=[patient]))) == ["t4-1"]


@pytest.mark.parametrize("wrong", [{"spot": "sometimes"}, {"spot_share": 1.5}])
def test_a_setting_that_means_nothing_is_told(wrong: dict[str, Any]) -> None:
    (key,) = wrong
    with pytest.raises(ValueError, match=f"{key} is .*; expected"):
        Settings(**wrong)


def test_nodes_that_another_policy_has_claimed_are_not_used() -> None:
    assert names(served(view(jobs=[job(1)]), frozenset({NodeName("t4-1")}))) == ["t4-2"]


def test_a_job_that_slurm_bound_to_a_node_without_a_machine_gets_that_machine() -> None:
    bound = job(1, state="CONFIGURING", nodes=frozenset({NodeName("t4-2")}))
    seen = view(nodes=[node("t4-2", states=BUSY | {"POWERED_DOWN"}, reason="")], jobs=[bound])
    assert names(served(seen)) == ["t4-2"]
