"""A daemon that runs for years does not grow: what a tick remembers, a later one forgets."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from tests.builders import ask, pool
from tests.shell.cluster import Cluster

TICKS = 300
EVERY_S = 4.0
JOB_EVERY = 45
"""Ticks: long enough for a machine to come, to serve, to be idle and to go."""


def work(cluster: Cluster, ticks: int, first: int) -> None:
    """Jobs come, get machines, end; machines come and go."""
    for number in range(ticks):
        if number % JOB_EVERY == 0:
            cluster.slurm.submit(first + number, ask(), run_s=5)
        cluster.tick(every_s=EVERY_S)
    assert len(cluster.cloud.made) >= ticks // JOB_EVERY
    # What the simulated world remembers for its tests is not the daemon's.
    cluster.slurm.done.clear()
    for cloud in cluster.clouds.values():
        cloud.calls.clear()
        cloud.made.clear()


def blocks(cluster: Cluster, ticks: int, first: int) -> int:
    """How many pieces of memory are in use after so many ticks."""
    work(cluster, ticks, first)
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.slow
def test_memory_is_flat_tick_after_tick(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db", [pool(count=4)])
    before = blocks(cluster, TICKS, 0)
    after = blocks(cluster, TICKS, TICKS)
    # A single object that every tick, or every machine, left behind would be more than this.
    assert after - before < TICKS
