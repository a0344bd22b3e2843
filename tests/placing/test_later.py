"""When home is free: when running jobs end by their limits, less what others are to wait for."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from cmscale.model import Ask, Job, NodeName, Shape, Snapshot
from cmscale.placing.later import Later
from tests.builders import BUSY, CPU, NOW, ask, home_node, job, node, view

TAKEN = Shape(0, 30000)
WHOLE = ask(gpus_per_node=0, cpus_per_task=8, limit_s=1000)
SMALL = ask(gpus_per_node=0, cpus_per_task=4, mem_mb_per_node=100, limit_s=1000)


def running(number: int, *nodes: str, asks: Ask = WHOLE, ago_s: float = 400) -> Job:
    where = frozenset(NodeName(name) for name in nodes)
    return job(number, asks, state="RUNNING", nodes=where, started=NOW - ago_s)


def home(*jobs: Job, nodes: int = 2) -> Snapshot:
    """All nodes at home are full."""
    return view([], [home_node(f"op{at}", free=TAKEN, states=BUSY) for at in range(1, nodes + 1)], jobs)


def test_a_node_that_is_free_serves_a_job_now() -> None:
    assert Later.of(view([], [home_node()])).start(WHOLE) == NOW


def test_a_job_can_start_when_the_first_running_one_ends_by_its_limit() -> None:
    assert Later.of(home(running(1, "op1"), running(2, "op2", ago_s=700))).start(WHOLE) == NOW + 300


def test_a_job_of_two_nodes_waits_for_the_later_of_them() -> None:
    seen = home(running(1, "op1"), running(2, "op2", ago_s=700))
    two = ask(gpus_per_node=0, nodes=2, tasks=2, cpus_per_task=8, limit_s=100)
    assert Later.of(seen).start(two) == NOW + 600


def test_a_job_past_its_limit_is_about_to_end() -> None:
    assert Later.of(home(running(1, "op1", ago_s=5000), nodes=1)).start(WHOLE) == NOW


def test_a_job_without_a_limit_may_never_end() -> None:
    endless = ask(gpus_per_node=0, cpus_per_task=8)
    assert Later.of(home(running(1, "op1", asks=endless), nodes=1)).start(WHOLE) is None


def test_each_running_job_gives_back_its_own_share() -> None:
    seen = home(running(1, "op1", asks=SMALL, ago_s=900), running(2, "op1", asks=SMALL, ago_s=100), nodes=1)
    assert Later.of(seen).start(SMALL) == NOW + 100
    assert Later.of(seen).start(WHOLE) == NOW + 900


def test_two_jobs_do_not_wait_for_the_same_node() -> None:
    later = Later.of(home(running(1, "op1"), running(2, "op2", ago_s=700)))
    starts = []
    for _ in range(4):
        at = later.start(WHOLE)
        assert at is not None
        starts.append(at - NOW)
        later.book(WHOLE, at)
    assert starts == [300, 600, 1300, 1600]


def test_small_jobs_wait_for_one_node_together() -> None:
    later = Later.of(home(running(1, "op1"), nodes=1))
    starts = []
    for _ in range(3):
        at = later.start(SMALL)
        assert at is not None
        starts.append(at - NOW)
        later.book(SMALL, at)
    assert starts == [600, 600, 1600]


def test_what_is_too_far_away_is_not_looked_at() -> None:
    assert Later.of(home(running(1, "op1"), nodes=1), within_s=500).start(WHOLE) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"states": frozenset({"IDLE", "DRAIN"}), "reason": "mine"},
        {"states": frozenset({"DOWN"})},
        {"reserved": "school", "states": frozenset({"IDLE", "RESERVED"})},
        {"until": NOW + 999},
        {"resting": "maintenance"},
        {"partitions": ("other",)},
    ],
    ids=["drained", "down", "reserved for others", "a reservation begins too soon", "at rest", "of another partition"],
)
def test_a_node_that_cannot_be_used_is_never_free(changes: dict[str, Any]) -> None:
    assert Later.of(view([], [home_node("op1", **changes)])).start(WHOLE) is None


def test_cloud_nodes_are_not_home() -> None:
    assert Later.of(view(nodes=[node("t4-1")])).start(ask()) is None


def test_names_that_a_job_must_or_must_not_have_are_obeyed() -> None:
    seen = home(running(1, "op1"), running(2, "op2", ago_s=700))
    one = NodeName("op1")
    assert Later.of(seen).start(ask(gpus_per_node=0, nodelist=frozenset({one}), limit_s=1)) == NOW + 600
    assert Later.of(seen).start(ask(gpus_per_node=0, exclude=frozenset({one}), limit_s=1)) == NOW + 300


def test_a_job_that_no_node_at_home_can_hold_starts_there_at_no_time() -> None:
    assert Later.of(view([], [home_node(shape=CPU)])).start(ask(gpus_per_node=4)) is None
    assert Later.of(Snapshot(NOW, "t", nodes=MappingProxyType({}))).start(WHOLE) is None
