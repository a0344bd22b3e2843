"""Gangs that came in part: kept out of Slurm's sight, completed, taken by whom comes first, given back as a whole."""

from collections.abc import Iterable
from types import MappingProxyType

from cmscale.core.decide import decide
from cmscale.model import (
    OFF_REASON,
    Closure,
    Goal,
    Job,
    JobId,
    Limits,
    Node,
    NodeName,
    PoolName,
    Power,
    Result,
    Snapshot,
    Verb,
    Want,
)
from cmscale.shell.policies import load
from policies.serve_queue import Settings, propose
from tests.builders import JOINED, NOW, ask, job, machine, node, view

CLOSED = MappingProxyType({PoolName("t4"): Closure(NOW + 60, Result.CAPACITY, "none left")})


def gang(number: int, nodes: int) -> Job:
    return job(number, ask(nodes=nodes, tasks=nodes))


def came(numbers: Iterable[int], of: int, minutes_ago: float = 1) -> list[Node]:
    """Nodes that have joined for a job, and are not handed to Slurm yet."""
    return [
        node(
            f"t4-{number}",
            Power.ON,
            states=JOINED,
            reason=OFF_REASON,
            for_job=JobId(str(of)),
            machine=machine(f"t4-{number}", launched=NOW - minutes_ago * 60),
        )
        for number in numbers
    ]


def wished(seen: Snapshot) -> list[Goal]:
    return [each for each in propose(seen, frozenset(), Settings(gang_wait_s=600)) if isinstance(each, Goal)]


def test_what_has_come_is_kept_for_the_gang_and_out_of_slurms_sight() -> None:
    seen = view(nodes=came([1, 2], of=1), jobs=[gang(1, 4)], closed=CLOSED)
    goals = wished(seen)
    assert [(goal.node, goal.want, goal.job, goal.whole) for goal in goals] == [
        ("t4-1", Want.UP, "1", False),
        ("t4-2", Want.UP, "1", False),
    ]
    assert goals[0].reason == "job 1 has 2 of its 4 nodes and waits for the rest"
    assert len({goal.gang for goal in goals}) == 1
    plan = decide(seen, load(("serve_queue",), None, {}), Limits())
    assert not any(action.verb is Verb.RESUME for action in plan.actions)


def test_what_has_come_is_not_for_smaller_jobs_behind_it() -> None:
    goals = wished(view(nodes=came([1, 2], of=1), jobs=[gang(1, 4), job(2)], closed=CLOSED))
    assert {goal.job for goal in goals} == {"1"}


def test_as_soon_as_the_rest_can_be_had_the_gang_is_completed() -> None:
    goals = wished(view(nodes=came([1, 2], of=1), jobs=[gang(1, 4)]))
    assert [goal.node for goal in goals] == ["t4-1", "t4-2", "t4-3", "t4-4"]
    assert all(goal.whole and goal.want is Want.UP for goal in goals)


def test_of_two_gangs_that_hold_half_each_the_first_takes_what_it_needs() -> None:
    halves = [*came([1, 2], of=1), *came([3, 4], of=2)]
    goals = wished(view(nodes=halves, jobs=[gang(1, 4), gang(2, 4)], closed=CLOSED))
    assert {(goal.node, goal.job, goal.whole) for goal in goals} == {(f"t4-{at}", "1", True) for at in range(1, 5)}


def test_a_gang_does_not_take_what_came_for_one_before_it() -> None:
    halves = [*came([1, 2], of=1), *came([3, 4], of=2)]
    goals = wished(view(nodes=halves, jobs=[gang(1, 5), gang(2, 3)], closed=CLOSED))
    assert {(goal.node, goal.job) for goal in goals} == {("t4-1", "1"), ("t4-2", "1"), ("t4-3", "2"), ("t4-4", "2")}
    assert not any(goal.whole for goal in goals)


def test_after_gang_wait_all_are_given_back_together() -> None:
    old, young = came([1], of=1, minutes_ago=11), came([2], of=1, minutes_ago=2)
    goals = wished(view(nodes=[*old, *young], jobs=[gang(1, 4)], closed=CLOSED))
    assert [(goal.node, goal.want) for goal in goals] == [("t4-1", Want.GONE), ("t4-2", Want.GONE)]
    assert goals[0].reason == "not all 4 nodes of job 1 came within 10 min"
    assert goals[0].gang == goals[1].gang is not None


def test_what_another_job_can_use_then_goes_to_that_job() -> None:
    goals = wished(view(nodes=came([1, 2], of=1, minutes_ago=11), jobs=[gang(1, 4), job(2)], closed=CLOSED))
    assert {(goal.node, goal.want, goal.job) for goal in goals} == {
        ("t4-1", Want.UP, "2"),
        ("t4-2", Want.GONE, "1"),
    }


def test_machines_that_still_boot_are_kept_too_and_sick_ones_are_not_counted() -> None:
    boots = node("t4-1", Power.STARTING, for_job=JobId("1"), machine=machine("t4-1", launched=NOW - 60))
    sick = node("t4-2", Power.STARTING, for_job=JobId("1"), sick="it has not joined")
    (goal,) = wished(view(nodes=[boots, sick], jobs=[gang(1, 4)], closed=CLOSED))
    assert (goal.node, goal.whole) == (NodeName("t4-1"), False)
    assert goal.reason == "job 1 has 1 of its 4 nodes and waits for the rest"


def test_nothing_is_kept_for_a_job_of_one_node_or_one_that_waits_no_more() -> None:
    alone = came([1], of=1)
    assert wished(view(nodes=alone, jobs=[], closed=CLOSED)) == []
    (goal,) = wished(view(nodes=alone, jobs=[job(1)], closed=CLOSED))
    assert goal.whole
