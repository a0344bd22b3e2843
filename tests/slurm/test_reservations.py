"""Reservations on a real Slurm, and the jobs that run in them."""

from __future__ import annotations

import time
from getpass import getuser

import pytest

from cmscale.model import Help, NodeName
from tests.slurm.conftest import POOL, Cluster

_OFF = "cm-scale: off"
_NODE = NodeName("t4-1")


def reserve(cluster: Cluster, name: str, nodes: str, start: str = "now", *words: str) -> None:
    cluster.lab.command(
        "scontrol",
        "create",
        "reservation",
        f"reservationname={name}",
        f"users={getuser()}",
        f"nodes={nodes}",
        f"starttime={start}",
        "duration=60",
        *words,
    )


def test_reservations_are_seen_whether_they_have_begun_or_not(cluster: Cluster) -> None:
    assert cluster.slurm.reservations().items == ()
    reserve(cluster, "course", "t4-[1-2]")
    reserve(cluster, "service", "op1,t4-3", "now+2hours", "flags=maint")
    reading = cluster.slurm.reservations()
    assert not reading.unreadable
    course, service = sorted(reading.items, key=lambda each: each.name)
    now = time.time()
    assert course.nodes == {"t4-1", "t4-2"}
    assert course.users == {getuser()}
    assert course.active(now)
    assert course.end - course.start == 3600
    assert service.nodes == {"op1", "t4-3"}
    assert (course.maintenance, service.maintenance) == (False, True)
    assert not service.active(now)
    assert service.start == pytest.approx(now + 7200, abs=10)


@pytest.mark.slow
def test_a_job_of_a_reservation_whose_nodes_are_off_is_helped_by_nodes_and_runs_on_one(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, _OFF, off=True)
    reserve(cluster, "course", "t4-[1-2]")
    reserve(cluster, "later", "t4-3", "now+2hours")
    mine = cluster.submit("-p", "cloud", "--reservation=course")
    later = cluster.submit("-p", "cloud", "--reservation=later")
    cluster.wait(lambda: cluster.job(mine).help is Help.NODES)
    assert cluster.job(mine).ask.reservation == "course"
    cluster.wait(lambda: cluster.job(later).why == "waits for its reservation")
    assert cluster.job(later).help is Help.NO
    cluster.boot(_NODE)
    cluster.wait(lambda: "IDLE" in cluster.node(_NODE).states)
    assert cluster.slurm.resume({_NODE: "127.0.0.1"})[_NODE].ok
    cluster.wait(lambda: cluster.job(mine).nodes == {_NODE})


def test_a_node_in_maintenance_says_so_though_it_is_off(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, _OFF, off=True)
    reserve(cluster, "service", "t4-4", "now", "flags=maint")
    cluster.wait(lambda: "MAINTENANCE" in cluster.node("t4-4").states)
    assert cluster.node("t4-4").states >= {"DOWN", "DRAIN"}
    assert cluster.node("t4-4").reason == _OFF
