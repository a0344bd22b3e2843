"""Whatever stands in a record of Slurm, it costs that record alone: the tick goes on and the others are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cmscale.adapters.slurm import records, reservations
from cmscale.adapters.slurm.records import SINFO_FIELDS, SQUEUE_FIELDS
from cmscale.model import Job, NodeName, NodeRecord
from cmscale.ports import Reading
from tests.adapters.slurm.recording import excluded, rows
from tests.builders import T4, ask, pool
from tests.shell.cluster import Cluster

NOW = 1_000_000.0

JOBS = [tuple(row) for row in rows("22.05", "squeue.txt", SQUEUE_FIELDS)][:12]
NODES = [tuple(row) for row in rows("22.05", "sinfo.txt", SINFO_FIELDS)]
EXCLUDED = excluded("22.05")

NASTY = (
    *(
        "",
        " ",
        "N/A",
        "(null)",
        "None",
        "-1",
        "0",
        "1e999",
        "nan",
        "inf",
        "-inf",
        "9" * 40,
        "0x10",
        "²",
        "1/2",
        "1/2/3",
    ),
    *(
        "[1-",
        "a[1-3",
        "a[3-1]",
        "a[1-99999999]",
        "gpu:",
        "gpu:t4:",
        "gres:gpu:t4:-1",
        "cpu=,mem=,node=",
        "cpu=-4,node=x",
    ),
    *("1-00:00:00:00", "UNLIMITED", "UNKNOWN", "2026-13-45T99:99:99", "\x00", "\x1f", "\ud7ff", "a" * 3000, "&|()[]*2"),
)
GARBAGE = st.sampled_from(NASTY) | st.text(max_size=12) | st.integers().map(str) | st.floats().map(str)


@st.composite
def spoilt(draw: st.DrawFn, recorded: Sequence[tuple[str, ...]], names: Sequence[int]) -> tuple[int, list[list[str]]]:
    """Recorded rows of which one has garbage in some fields; which one. Fields that name a record are left alone."""
    which = draw(st.integers(0, len(recorded) - 1))
    fields = [at for at in range(len(recorded[0])) if at not in names]
    changes = draw(st.dictionaries(st.sampled_from(fields), GARBAGE, min_size=1, max_size=4))
    found = [list(row) for row in recorded]
    for at, value in changes.items():
        found[which][at] = value
    return which, found


IDS = [SQUEUE_FIELDS.index(name) for name in ("JobID", "JobArrayID", "ArrayJobID", "ArrayTaskID", "HetJobID")]
NODE_IDS = [SINFO_FIELDS.index(name) for name in ("NodeList", "Partition")]
OFTEN = settings(derandomize=True, max_examples=150, deadline=None)


def by_id(reading: Reading[Any], key: str) -> Mapping[str, Any]:
    return {getattr(item, key): item for item in reading.items}


@OFTEN
@given(spoilt(JOBS, IDS))
def test_a_garbled_job_costs_itself_alone(found: tuple[int, list[list[str]]]) -> None:
    which, garbled = found
    name = JOBS[which][SQUEUE_FIELDS.index("JobArrayID")]
    sane = by_id(records.jobs(map(records.job_row, JOBS), EXCLUDED, NOW), "id")
    read = records.jobs(map(records.job_row, garbled), EXCLUDED, NOW)
    # A count is shared by the tasks of one array.
    assert {key: job for key, job in sane.items() if not_of(name, key)} == {
        key: job for key, job in by_id(read, "id").items() if not_of(name, key)
    }
    assert len(read.unreadable) <= 1


def not_of(array: str, name: str) -> bool:
    return name.partition("_")[0] != array.partition("_")[0]


@OFTEN
@given(spoilt(NODES, NODE_IDS))
def test_a_garbled_node_costs_itself_alone(found: tuple[int, list[list[str]]]) -> None:
    which, garbled = found
    name = NODES[which][SINFO_FIELDS.index("NodeList")]
    sane = by_id(records.nodes(NODES), "name")
    read = by_id(records.nodes(garbled), "name")
    assert {key: node for key, node in sane.items() if key != name} == {
        key: node for key, node in read.items() if key != name
    }


@OFTEN
@given(st.lists(GARBAGE, max_size=8).map(" ".join), st.lists(GARBAGE, max_size=3).map("=".join))
def test_a_garbled_reservation_costs_itself_alone(words: str, more: str) -> None:
    sane = (
        "ReservationName=upkeep StartTime=1000100 EndTime=1000200 Duration=00:01:40 Nodes=e01 NodeCnt=1 CoreCnt=1 "
        "Features=(null) PartitionName=batch Flags=MAINT TRES=cpu=1 Users=root Groups=(null) Accounts=(null)"
    )
    garbled = f"ReservationName={words} StartTime={more} EndTime=1000200 {words}".replace("\n", " ")
    read = reservations.read(f"{garbled}\n{sane}", NOW)
    assert "upkeep" in {each.name for each in read.items}


@dataclass
class Garbled:
    """A Slurm that shows other records beside its own."""

    inner: Any
    more_jobs: Reading[Job]
    more_nodes: Reading[NodeRecord]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def jobs(self) -> Reading[Job]:
        own: Reading[Job] = self.inner.jobs()
        return Reading((*own.items, *self.more_jobs.items), (*own.unreadable, *self.more_jobs.unreadable))

    def nodes(self) -> Reading[NodeRecord]:
        own: Reading[NodeRecord] = self.inner.nodes()
        return Reading((*own.items, *self.more_nodes.items), (*own.unreadable, *self.more_nodes.unreadable))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Its pool has a node of the recording, and one of its own for a job that can be served."""
    names = (NodeName("t4-1"), NodeName(NODES[-1][SINFO_FIELDS.index("NodeList")]))
    pools = [pool("t4", nodes=names, shape=T4, partitions=("batch", "gpu"))]
    return Cluster(tmp_path_factory.mktemp("garbage") / "journal.db", pools)


@settings(derandomize=True, max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoilt(JOBS, IDS), spoilt(NODES, NODE_IDS))
def test_a_tick_goes_on_whatever_a_job_and_a_node_look_like(
    cluster: Cluster, jobs: tuple[int, list[list[str]]], nodes: tuple[int, list[list[str]]]
) -> None:
    own = cluster.slurm.submit(990001, ask())
    shown = Garbled(cluster.slurm, records.jobs(map(records.job_row, jobs[1]), EXCLUDED, NOW), records.nodes(nodes[1]))
    cluster.daemon.world = replace(cluster.daemon.world, scheduler=shown)
    cluster.daemon.may_act = False
    look = cluster.decide()
    assert not look.plan.idle_because
    assert own in {job.id for job in look.view.jobs}
    assert look.plan.failed == ()
