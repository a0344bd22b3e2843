"""What the properties have found, told one by one."""

from pathlib import Path

from cmscale.model import MachineState, NodeName, Operation, OpId, PoolName, Result, Verb
from tests.builders import EAST, WEST, ask, pool
from tests.shell.cluster import Cluster, shipped

LICENCE = NodeName("lic-1")


def test_a_helper_goes_although_the_machines_it_helped_are_kept_powered_off(tmp_path: Path) -> None:
    kept = pool(count=1, helpers=(LICENCE,), never_terminate=frozenset({NodeName("t4-1")}))
    quick = shipped(release_idle={"idle": "30s"}, start_helpers={"idle": "30s"})
    cluster = Cluster(tmp_path / "journal.db", pools=[kept, pool("lic", 1, partitions=())], policies=quick)
    cluster.slurm.submit(1, ask(), run_s=20)
    cluster.run_until(lambda: bool(cluster.slurm.done), every_s=10)
    cluster.tick(30, every_s=10)
    (left,) = cluster.cloud.machines.values()
    assert (left.node, left.going) == ("t4-1", MachineState.STOPPED)


def test_of_three_machines_of_one_name_two_are_deleted_and_the_ticks_go_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db")
    for number in range(3):
        by_hand = Operation(OpId(f"by-hand-{number}"), Verb.START, PoolName("t4"), (NodeName("t4-1"),), 0.0)
        cluster.cloud.start(by_hand)
    cluster.tick(5)
    assert [each.going for each in cluster.cloud.machines.values()].count(None) == 1


def test_a_machine_that_may_have_been_powered_on_is_not_made_up_for_by_another(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db", pools=[pool(count=3, static=True)])
    by_hand = Operation(OpId("bought"), Verb.START, PoolName("t4"), pool(count=3).nodes, 0.0)
    cluster.cloud.stop([each.machine for each in cluster.cloud.start(by_hand).values() if each.machine], hard=True)
    cluster.clock.wait(1000)
    cluster.tick(3)
    cluster.cloud.refuse(Result.TRANSIENT)
    cluster.slurm.submit(1, ask())
    cluster.tick(30)
    assert {call.split()[2] for call in cluster.starts[1:]} == {"t4-1"}
    cluster.cloud.relent()
    cluster.run_until(lambda: bool(cluster.slurm.done))


def test_tasks_of_a_pinned_array_that_come_back_to_the_queue_may_run_at_any_site_again(tmp_path: Path) -> None:
    near, far = pool("near", 4, site=EAST), pool("far", 2, site=WEST, price_hour=9.0, keep=1)
    cluster = Cluster(tmp_path / "journal.db", pools=[near, far])
    cluster.run_until(lambda: bool(cluster.clouds[WEST].machines), every_s=10)
    cluster.tick(20, every_s=10)
    cluster.slurm.submit(1, ask(nodes=2, tasks=2, exclusive=True), run_s=900, count=2)
    cluster.run_until(lambda: len(cluster.slurm.running) == 2, every_s=10)
    assert {task.job.ask.constraint.text for task in cluster.slurm.running.values()} == {EAST}
    cluster.clouds[EAST].refuse(Result.CAPACITY)
    for name in near.nodes:
        cluster.clouds[EAST].reclaim(name, 120)
    cluster.run_until(lambda: not cluster.slurm.running and not cluster.clouds[EAST].alive, every_s=10)
    cluster.run_until(lambda: len(cluster.slurm.done) == 2, every_s=10)
