"""One broken node or job costs itself, whatever it breaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cmscale.model import JobId, NodeName, Plan, Snapshot
from cmscale.shell.isolation import TRIED_AGAIN_S, LeftOut, decided
from tests.builders import EAST, ask, job, node, pool, view
from tests.shell.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "journal.db")


def test_a_node_whose_record_makes_no_sense_is_left_out_and_the_next_one_is_used(cluster: Cluster) -> None:
    job = cluster.slurm.submit(1, ask())
    name = NodeName("t4-1")
    sane = cluster.slurm.records[name]
    cluster.slurm.records[name] = replace(sane, states=None)  # type: ignore[arg-type]
    look = [cluster.decide() for _ in range(3)][-1]
    assert name not in look.view.nodes
    (told,) = look.view.unreadable
    assert told.startswith("node t4-1 is left out: deciding about it raised TypeError: ")
    assert [machine.node for machine in cluster.cloud.machines.values()] == ["t4-2"]
    cluster.slurm.records[name] = sane
    cluster.clock.wait(TRIED_AGAIN_S)
    cluster.run_until(lambda: job in cluster.slurm.done)
    assert name in cluster.tick().view.nodes


def test_a_job_whose_record_makes_no_sense_is_left_out_and_the_others_are_served(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask())
    cluster.slurm.submit(2, ask())
    name = JobId("1")
    cluster.slurm.queue[name] = replace(cluster.slurm.queue[name], ask=None)  # type: ignore[arg-type]
    look = [cluster.decide() for _ in range(3)][-1]
    assert [each.id for each in look.view.jobs] == ["2"]
    assert len(cluster.cloud.machines) == 1


@pytest.mark.parametrize("broken", [["t4-3"], ["2"], ["t4-1", "t4-4", "3"]])
def test_the_ones_at_fault_are_found_among_many(broken: list[str]) -> None:
    seen = view([pool()], [node("t4-1", of=pool())], [job(1), job(2), job(3)])

    def decide(part: Snapshot) -> Plan:
        for name in (*part.nodes, *(each.id for each in part.jobs)):
            if name in broken:
                raise ZeroDivisionError(name)
        return Plan(part.tick, part.now)

    left_out = LeftOut()
    part, _ = decided(seen, decide, left_out, 0.0)
    assert {name for _, name in left_out.why} == set(broken)
    assert len(part.nodes) + len(part.jobs) == 4 + 3 - len(broken)
    assert len(part.unreadable) == len(broken)
    assert EAST in part.sites


def test_what_breaks_without_any_of_them_is_not_blamed_on_one() -> None:
    def decide(_: Snapshot) -> Plan:
        raise ZeroDivisionError("by itself")

    with pytest.raises(ZeroDivisionError, match="by itself"):
        decided(view(jobs=[job(1)]), decide, LeftOut(), 0.0)
