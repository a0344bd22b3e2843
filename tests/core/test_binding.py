"""Gangs are pinned to the site of their machines, and what we requeued may start at once."""

from types import MappingProxyType

import pytest

from cmscale.core.binding import bindings, releases
from cmscale.model import (
    OFF_REASON,
    Action,
    Constraint,
    Fact,
    FactKind,
    GangId,
    Goal,
    Help,
    JobId,
    Node,
    Part,
    Power,
    Queue,
    Snapshot,
    Verb,
)
from tests.builders import EAST, JOINED, NOW, WEST, ask, goal, home_node, job, node, pool, view

JOB = JobId("1")
GANG = GangId("1#1")
WEST_POOL = pool("w", site=WEST)
GOALS = [goal(name, job=JOB, gang=GANG, need=2) for name in ("t4-1", "t4-2")]


def joined(name: str) -> Node:
    return node(name, Power.ON, states=JOINED, reason=OFF_REASON)


def seen(*others: Node, **changes: object) -> Snapshot:
    fields = {"jobs": [job(1, ask(nodes=2, tasks=2))]} | changes
    return view([pool(), WEST_POOL], [joined("t4-1"), joined("t4-2"), *others], **fields)  # type: ignore[arg-type]


LIVING_IN_THE_WEST = node("w-1", Power.ON, of=WEST_POOL)


def pins(of: Snapshot, goals: list[Goal], incomplete: frozenset[GangId] = frozenset()) -> list[tuple[Verb, str]]:
    actions: list[Action] = list(bindings(of, goals, incomplete))
    assert all(action.job == JOB for action in actions)
    return [(action.verb, action.arg) for action in actions]


def pinned_from(own: str) -> dict[str, object]:
    fact = Fact(FactKind.PIN, JOB, NOW - 60, NOW + 3600, own)
    return {"facts": MappingProxyType({(FactKind.PIN, "1"): fact})}


def constrained(text: str) -> Constraint:
    return Constraint(text, ((Part(0, (frozenset(text.split("&")),)),),))


def test_a_complete_gang_is_pinned_to_its_site_if_slurm_could_mix_it_with_another() -> None:
    assert pins(seen(LIVING_IN_THE_WEST), GOALS) == [(Verb.PIN, EAST)]
    assert pins(seen(home_node()), GOALS) == [(Verb.PIN, EAST)]


def test_nodes_of_another_site_that_are_handed_over_in_the_same_tick_count_as_living() -> None:
    beside = node("w-1", Power.ON, of=WEST_POOL, states=JOINED, reason=OFF_REASON)
    assert pins(seen(beside), GOALS) == [(Verb.PIN, EAST)]


def test_no_pin_is_needed_where_no_other_site_has_living_nodes() -> None:
    assert pins(seen(), GOALS) == []


def test_a_gang_that_is_not_complete_is_not_pinned_yet() -> None:
    assert pins(seen(LIVING_IN_THE_WEST), GOALS, frozenset({GANG})) == []


def test_a_partition_may_let_its_jobs_mix_sites() -> None:
    mixing = MappingProxyType({"batch": Queue("batch", mix_sites=True)})
    assert pins(seen(LIVING_IN_THE_WEST, queues=mixing), GOALS) == []


def test_the_users_own_constraint_is_kept_beside_the_pin() -> None:
    own = seen(LIVING_IN_THE_WEST, jobs=[job(1, ask(nodes=2, tasks=2, constraint=constrained("gpu")))])
    assert pins(own, GOALS) == [(Verb.PIN, "gpu&east")]


def test_a_pinned_job_is_not_pinned_again() -> None:
    again = seen(
        LIVING_IN_THE_WEST, jobs=[job(1, ask(nodes=2, tasks=2, constraint=constrained(EAST)))], **pinned_from("")
    )
    assert pins(again, GOALS) == []


def test_a_pinned_job_without_nodes_gets_its_own_constraint_back() -> None:
    waiting = job(1, ask(nodes=2, tasks=2, constraint=constrained("gpu&east")))
    assert pins(seen(jobs=[waiting], **pinned_from("gpu")), []) == [(Verb.PIN, "gpu")]


def test_what_its_user_has_asked_since_is_left_to_the_user() -> None:
    changed = job(1, ask(nodes=2, tasks=2, constraint=constrained("big")))
    assert pins(seen(jobs=[changed], **pinned_from("gpu")), []) == []


def test_a_requeued_task_of_a_pinned_array_gets_its_own_constraint_back() -> None:
    back = job(7, ask(nodes=2, tasks=2, constraint=constrained(EAST)), array=JobId("1"))
    (action,) = bindings(seen(jobs=[back], **pinned_from("")), [], frozenset())
    assert (action.verb, action.job, action.arg) == (Verb.PIN, "7", "")


def test_a_pinned_job_that_runs_is_left_as_it_is() -> None:
    assert pins(seen(jobs=[job(1, state="RUNNING")], **pinned_from("gpu")), []) == []


@pytest.mark.parametrize("reason", ["BeginTime", "BadConstraints", "JobHeldAdmin"])
def test_a_job_that_we_requeued_may_start_elsewhere_at_once(reason: str) -> None:
    fact = Fact(FactKind.REQUEUED, JOB, NOW - 60, NOW + 3600, "its node was taken back")
    facts = MappingProxyType({(FactKind.REQUEUED, "1"): fact})
    waiting = job(1, reason=reason, help=Help.NO)
    assert [(action.verb, action.job) for action in releases(seen(jobs=[waiting], facts=facts))] == [
        (Verb.RELEASE, JOB)
    ]
    assert list(releases(seen(jobs=[waiting]))) == []


def test_a_job_that_its_user_holds_is_never_released() -> None:
    fact = Fact(FactKind.REQUEUED, JOB, NOW - 60, NOW + 3600, "its node was taken back")
    facts = MappingProxyType({(FactKind.REQUEUED, "1"): fact})
    assert list(releases(seen(jobs=[job(1, reason="JobHeldUser", help=Help.NO)], facts=facts))) == []
