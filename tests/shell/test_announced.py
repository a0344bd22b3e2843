"""What becomes of machines of which something is announced, tick after tick."""

from math import inf
from pathlib import Path
from time import gmtime, strftime

import pytest

from cmscale.model import EventKind, Means, Node, NodeName, Notice, PoolName
from tests.builders import ask
from tests.shell.cluster import Cluster

ONE = NodeName("t4-1")
SICK = Notice(inf, "EC2's checks say that its host does not answer", Means.SICK)
RISK = Notice(inf, "EC2 recommends to rebalance the spot instance", Means.AT_RISK)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "journal.db")


def node(cluster: Cluster) -> Node:
    return cluster.decide().view.nodes[ONE]


def told(cluster: Cluster, kind: EventKind) -> list[str]:
    return [event.text for event in cluster.journal.events(0) if event.kind is kind]


def running(cluster: Cluster, run_s: float = 10_000.0) -> None:
    """A job runs on the one machine."""
    cluster.slurm.submit(1, ask(), run_s=run_s)
    cluster.run_until(lambda: bool(cluster.slurm.running))


def drain_itself(cluster: Cluster, in_s: float) -> None:
    """What the watch on the machine does when its metadata says that it is taken back."""
    by = strftime("%H:%M:%S", gmtime(cluster.clock.now() + in_s))
    cluster.slurm.drain([ONE], f"cm-scale: notice by {by} UTC: EC2 takes the spot instance back")


def test_a_node_that_announces_its_own_end_is_left_before_it(cluster: Cluster) -> None:
    running(cluster)
    (first,) = cluster.cloud.machines
    drain_itself(cluster, 120.0)
    notice = node(cluster).notice
    assert notice is not None
    assert notice.deadline == pytest.approx(cluster.clock.now() + 120, abs=1)
    cluster.tick(85)
    assert cluster.slurm.running  # until shortly before the end
    cluster.tick(15)
    assert first not in {machine.id for machine in cluster.cloud.list() if machine.state.value == "running"}
    assert told(cluster, EventKind.RECLAIMED)[0].endswith("EC2 takes the spot instance back")
    assert told(cluster, EventKind.REQUEUED)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    assert len(cluster.cloud.made) == 2


def test_a_node_that_has_announced_its_end_gets_no_new_job_while_it_waits_for_it(cluster: Cluster) -> None:
    running(cluster, run_s=20.0)
    drain_itself(cluster, 120.0)
    cluster.slurm.submit(2, ask())
    cluster.tick(60)
    assert len(cluster.cloud.made) == 2


def test_the_announcement_of_a_machine_that_is_gone_is_not_one_of_the_next(cluster: Cluster) -> None:
    running(cluster)
    drain_itself(cluster, 40.0)
    cluster.run_until(lambda: len(cluster.cloud.made) == 2 and bool(cluster.slurm.running))
    assert all(each.notice is None for each in cluster.decide().view.nodes.values() if each.machine)


def test_a_machine_whose_checks_fail_ends_its_job_and_is_then_given_up(cluster: Cluster) -> None:
    running(cluster, run_s=60.0)
    (machine,) = cluster.cloud.machines
    cluster.cloud.announce(ONE, SICK)
    cluster.slurm.submit(2, ask())
    cluster.run_until(lambda: len(cluster.slurm.done) == 2)
    assert len(cluster.cloud.made) == 2
    assert f"machine {machine} does not work: {SICK.why}" in told(cluster, EventKind.QUARANTINED)[0]
    assert not told(cluster, EventKind.RECLAIMED) + told(cluster, EventKind.REQUEUED)


def test_a_machine_whose_checks_pass_again_serves_on(cluster: Cluster) -> None:
    running(cluster, run_s=300.0)
    cluster.cloud.announce(ONE, SICK)
    cluster.tick(5)
    assert node(cluster).drained_by_us
    cluster.cloud.announce(ONE)
    cluster.tick(5)
    assert node(cluster).schedulable
    assert not node(cluster).sick


def test_a_machine_at_risk_is_told_of_once_and_left_as_it_is(cluster: Cluster) -> None:
    running(cluster)
    cluster.cloud.announce(ONE, RISK)
    cluster.tick(20)
    there = node(cluster)
    assert (there.at_risk, there.notice, there.sick, there.drained) == (RISK.why, None, "", False)
    assert told(cluster, EventKind.AT_RISK) == [f"t4-1 may be taken back: {RISK.why}"]
    assert not cluster.journal.closed().get(PoolName("t4"))


def test_a_machine_at_risk_that_is_then_taken_back_is_left(cluster: Cluster) -> None:
    running(cluster)
    cluster.cloud.announce(ONE, RISK)
    cluster.tick(2)
    cluster.cloud.reclaim(ONE, 120.0)
    cluster.tick(100)
    assert told(cluster, EventKind.RECLAIMED)
    assert told(cluster, EventKind.REQUEUED)
