"""Ticks over a cluster in memory: the main job, what can't be seen, and death at every call."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from cmscale.journal.sql import SqlJournal
from cmscale.model import Limits, NodeName, Operation, OpId, PoolName, Result, Verb
from cmscale.resting import RESTS
from cmscale.shell.act import REPEATED_FOR_S
from cmscale.shell.loop import Look, run, tick
from cmscale.sim.cloud import Flaw
from tests.builders import EAST, WEST, ask, pool
from tests.shell.cluster import Cluster, Killed


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "journal.db")


def test_a_job_gets_a_machine_runs_and_the_machine_goes(cluster: Cluster) -> None:
    job = cluster.slurm.submit(1, ask())
    cluster.run_until(lambda: cluster.finished)
    assert list(cluster.slurm.done) == [job]
    assert len(cluster.cloud.made) == 1


def test_an_array_is_served_by_one_launch_call_and_a_gang_by_another(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask(), count=4)
    cluster.slurm.submit(2, ask(nodes=4, tasks=4))
    cluster.tick(3)
    assert len(cluster.starts) == 2
    cluster.run_until(lambda: cluster.finished)
    assert len(cluster.slurm.done) == 5


def test_nodes_are_parked_before_anything_else_so_that_no_job_binds_to_them(cluster: Cluster) -> None:
    cluster.tick()
    assert all("DRAIN" in record.states for record in cluster.slurm.records.values())


def test_a_tick_never_starts_the_same_nodes_worth_twice(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask())
    cluster.tick(30)
    assert len(cluster.cloud.machines) == 1


def test_a_machine_that_listings_do_not_show_yet_is_not_made_again(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask())
    cluster.tick(2)
    hidden, cluster.cloud.machines = cluster.cloud.machines, {}
    cluster.tick(20)
    assert len(cluster.starts) == 1
    cluster.cloud.machines = hidden
    cluster.run_until(lambda: cluster.finished)
    assert len(cluster.starts) == 1


def test_one_listing_without_a_machine_is_not_yet_its_end(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask(), run_s=500)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    cluster.tick(200)
    hidden, cluster.cloud.machines = cluster.cloud.machines, {}
    look = tick(cluster.daemon)
    assert look.view.nodes[NodeName("t4-1")].machine is not None
    cluster.cloud.machines = hidden
    cluster.run_until(lambda: cluster.finished)
    assert len(cluster.starts) == 1


def test_a_slurm_that_does_not_answer_means_that_nothing_is_done(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask())
    cluster.slurm.unseen = "slurmctld is silent"
    look = cluster.tick(3)
    assert "slurmctld is silent" in look.plan.idle_because
    assert cluster.cloud.calls == []


def test_at_a_site_that_does_not_answer_nothing_is_done_and_its_nodes_stay(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask(), run_s=30)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    cluster.cloud.unseen = "no route to EC2"
    calls = list(cluster.cloud.calls)
    look = cluster.tick(200)
    assert cluster.cloud.calls == calls
    assert look.plan.refused == () or {refusal.guard for refusal in look.plan.refused} == {"site_seen"}
    cluster.cloud.unseen = ""
    cluster.run_until(lambda: cluster.finished)


def test_in_observe_mode_everything_is_decided_and_nothing_touched(cluster: Cluster) -> None:
    cluster.daemon.may_act = False
    cluster.slurm.submit(1, ask())
    look = cluster.tick(5)
    assert {action.verb for action in look.plan.actions} >= {Verb.DRAIN}
    assert cluster.cloud.calls == []
    assert all("DRAIN" not in record.states for record in cluster.slurm.records.values())
    assert next(iter(cluster.slurm.queue.values())).comment == ""


def test_a_pool_without_capacity_is_left_alone_for_a_while_and_the_job_is_told(cluster: Cluster) -> None:
    cluster.cloud.refuse(Result.CAPACITY)
    job = cluster.slurm.submit(1, ask())
    cluster.tick(60)
    assert len(cluster.starts) == 1
    assert "closed (capacity: InsufficientInstanceCapacity)" in cluster.slurm.queue[job].comment
    cluster.cloud.relent()
    cluster.run_until(lambda: cluster.finished)


def test_a_pool_that_was_closed_is_tried_with_one_machine_and_opens_when_that_comes(cluster: Cluster) -> None:
    cluster.cloud.refuse(Result.CAPACITY)
    cluster.slurm.submit(1, ask(), count=4, run_s=10)
    cluster.tick(60)
    cluster.daemon = cluster.start()  # the memory is the journal's, not the process's
    cluster.cloud.relent()
    cluster.run_until(lambda: bool(cluster.cloud.machines))
    assert len(cluster.cloud.machines) == 1
    assert cluster.clock.now() - cluster.began > 180
    cluster.tick(2)
    assert len(cluster.cloud.machines) == 4


def test_a_throttle_closes_nothing_and_slows_the_next_launch(cluster: Cluster) -> None:
    cluster.cloud.refuse(Result.THROTTLED)
    job = cluster.slurm.submit(1, ask())
    cluster.tick(10)
    assert 2 <= len(cluster.starts) <= 3
    assert "asked for fewer calls" in cluster.slurm.queue[job].comment
    cluster.cloud.relent()
    cluster.run_until(lambda: cluster.finished, limit=200)


def test_when_machines_of_one_pool_never_join_the_next_pool_is_tried(tmp_path: Path) -> None:
    pools = [pool("bad", 4, boot_limit_s=100, price_hour=0.1), pool("good", 4, boot_limit_s=100, price_hour=0.9)]
    cluster = Cluster(tmp_path / "j.db", pools=pools)
    cluster.cloud.spoil(Flaw.NEVER_BOOTS, PoolName("bad"))
    job = cluster.slurm.submit(1, ask())
    cluster.run_until(lambda: job in cluster.slurm.done, limit=1000)
    assert cluster.slurm.done[job] == ("good-1",)
    assert [call.split()[2] for call in cluster.starts] == ["bad-1", "bad-2", "good-1"]


def test_a_call_of_unknown_effect_is_made_again_under_the_same_operation(cluster: Cluster) -> None:
    cluster.cloud.refuse(Result.TRANSIENT)
    cluster.slurm.submit(1, ask())
    cluster.tick(5)
    assert len({call.split()[1] for call in cluster.starts}) == 1
    cluster.cloud.relent()
    cluster.run_until(lambda: cluster.finished)
    assert len(cluster.cloud.made) == 1


@pytest.mark.parametrize("refused", [Result.THROTTLED, Result.AUTH])
def test_a_call_made_again_that_is_not_let_through_says_nothing_of_the_one_before(
    cluster: Cluster, refused: Result
) -> None:
    cluster.cloud.refuse(Result.TRANSIENT, calls=1)
    cluster.cloud.refuse(refused, calls=2)
    cluster.slurm.submit(1, ask())
    cluster.tick(10)
    assert len(cluster.starts) == 4
    assert len({call.split()[1] for call in cluster.starts}) == 1


def test_a_machine_that_came_after_minutes_of_calls_is_not_missed_before_listings_show_it(cluster: Cluster) -> None:
    cluster.cloud.lag_s = 100
    cluster.cloud.refuse(Result.TRANSIENT, for_s=500)
    cluster.slurm.submit(1, ask(), run_s=5)
    cluster.run_until(lambda: cluster.finished, every_s=20)
    assert len(cluster.cloud.made) == 1
    assert len(cluster.slurm.done) == 1


def test_an_old_call_is_not_taken_for_none_before_listings_must_show_what_it_made(cluster: Cluster) -> None:
    cluster.cloud.lag_s = 115
    cluster.cloud.refuse(Result.TRANSIENT, for_s=500)
    cluster.slurm.submit(1, ask(), run_s=5)
    cluster.run_until(lambda: cluster.clock.now() - cluster.began > 500, every_s=10)
    cluster.kill_after("start")
    with pytest.raises(Killed):
        cluster.tick(20, every_s=10)
    cluster.daemon = cluster.start()
    (operation,) = cluster.journal.under_way()
    cluster.clock.at = operation.began + REPEATED_FOR_S + 1  # now it is too old to be made again
    cluster.run_until(lambda: cluster.finished, every_s=10)
    assert len(cluster.cloud.made) == 1
    assert len(cluster.slurm.done) == 1


def test_an_operation_that_stays_open_is_called_less_and_less_often(cluster: Cluster) -> None:
    cluster.cloud.refuse(Result.TRANSIENT)
    cluster.slurm.submit(1, ask())
    cluster.tick(100)
    assert 5 <= len(cluster.starts) <= 10


def test_a_tick_that_breaks_is_told_and_the_next_one_comes(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.slurm.submit(1, ask())
    looks: list[Look] = []

    def told(look: Look) -> None:
        looks.append(look)
        if len(looks) == 2:
            raise RuntimeError("a surprise")
        if len(looks) == 5:
            cluster.clock.ended = True

    run(cluster.daemon, told)
    assert len(looks) == 5
    assert "a surprise" in caplog.text


def test_a_machine_that_never_joins_is_given_up_and_the_job_does_not_make_machines_for_ever(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "j.db", pools=[pool(count=8, boot_limit_s=100)])
    cluster.cloud.boot_s = 10**9
    cluster.slurm.submit(1, ask())
    cluster.tick(2000)
    assert len(cluster.cloud.made) == Limits().creations_per_job
    assert cluster.cloud.machines == {}


def test_machines_that_are_given_up_together_close_their_pool_as_two_would(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db", pools=[pool(count=8, boot_limit_s=100.0)])
    cluster.cloud.spoil(Flaw.NEVER_BOOTS)
    cluster.slurm.submit(1, ask(), count=8)
    cluster.run_until(lambda: bool(cluster.journal.closed()))
    assert cluster.journal.closed()[PoolName("t4")].strikes == RESTS[Result.BOOT].from_strike
    cluster.tick(5)  # their deletion takes a while
    assert cluster.journal.closed()[PoolName("t4")].strikes == RESTS[Result.BOOT].from_strike


def test_a_cloud_that_takes_many_machines_back_at_once_has_said_once_that_it_needs_the_room(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db", pools=[pool(count=8, market="spot")])
    cluster.slurm.submit(1, ask(), count=8, run_s=600)
    cluster.run_until(lambda: len(cluster.slurm.running) == 8)
    for name in cluster.pools[0].nodes:
        cluster.cloud.reclaim(name, 120)
    cluster.tick(3)
    assert cluster.journal.closed()[PoolName("t4")].strikes == 1


def test_squeue_users_read_what_is_done_for_their_job_and_keep_their_own_comment(cluster: Cluster) -> None:
    job = cluster.slurm.submit(1, ask(nodes=2, tasks=2), comment="mine")
    cluster.tick(3)
    assert cluster.slurm.queue[job].comment == "mine | cm-scale: 2 nodes starting at east, about 3 min"
    cluster.run_until(lambda: job in cluster.slurm.running)
    cluster.tick(2)
    assert cluster.slurm.running[job].job.comment == "mine"


def test_a_job_that_can_never_be_served_is_told_once_and_gets_no_machine(cluster: Cluster) -> None:
    job = cluster.slurm.submit(1, ask(gpus_per_node=8))
    look = cluster.tick(5)
    assert cluster.slurm.queue[job].comment.startswith("cm-scale: no pool can ever serve this job: pool t4")
    assert job in look.plan.never
    assert cluster.cloud.calls == []


def test_a_drain_by_a_person_holds_whatever_waits(cluster: Cluster) -> None:
    cluster.tick()
    for name, record in cluster.slurm.records.items():
        cluster.slurm.records[name] = replace(record, reason="maintenance")
    cluster.slurm.submit(1, ask())
    cluster.tick(5)
    assert cluster.cloud.calls == []


def test_idle_time_is_remembered_over_a_restart(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask(), run_s=5)
    cluster.run_until(lambda: bool(cluster.slurm.done))
    cluster.tick(40)
    cluster.daemon = cluster.start()
    cluster.tick(30)
    assert any(call.startswith("delete") for call in cluster.cloud.calls)


def test_a_deletion_begun_before_a_crash_is_not_made_up_for_when_the_node_is_busy(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.slurm.submit(1, ask(), run_s=500)
    cluster.run_until(lambda: bool(cluster.slurm.running))
    journal = SqlJournal(tmp_path / "journal.db")
    for machine in cluster.cloud.machines.values():
        begun = Operation(OpId("life0-1-t4"), Verb.DELETE, pool().name, (machine.node,), 0.0, machines=(machine.id,))
        journal.begin([begun])
    cluster.daemon = cluster.start()
    cluster.tick(20)
    assert not any(call.startswith("delete") for call in cluster.cloud.calls)
    assert journal.under_way() == ()
    cluster.run_until(lambda: cluster.finished)
    assert len(cluster.slurm.done) == 1


@pytest.mark.parametrize("seed", range(6))
def test_killed_at_any_call_again_and_again_nothing_is_made_twice_and_nothing_is_left(
    tmp_path: Path, seed: int
) -> None:
    chance = Random(seed)
    cluster = Cluster(tmp_path / "journal.db")
    cluster.slurm.submit(1, ask(), run_s=5)
    cluster.slurm.submit(2, ask(), run_s=5, count=2)
    cluster.slurm.submit(3, ask(nodes=2, tasks=2), run_s=5)
    deaths = 0
    cluster.kill_in(seed + 1)
    for _ in range(3000):
        if cluster.finished:
            break
        try:
            cluster.tick(every_s=5)
        except Killed:
            deaths += 1
            cluster.daemon = cluster.start()
            cluster.kill_in(chance.randint(10, 80))
        named = [machine.node for machine in cluster.cloud.machines.values()]
        assert len(named) == len(set(named)), "two machines of one name"
    assert cluster.finished
    assert deaths > 10
    assert len(cluster.slurm.done) == 4
    cluster.kill_in(0)
    cluster.tick(3)
    assert SqlJournal(tmp_path / "journal.db").under_way() == ()


def test_two_sites_that_are_one_region_list_the_same_machines_and_none_is_taken_for_another(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "journal.db", pools=[pool(count=2), pool("west", site=WEST, price_hour=9.0)])
    cluster.clouds[WEST] = cluster.clouds[EAST]
    cluster.daemon = cluster.start()
    cluster.slurm.submit(1, ask(), 400.0)
    cluster.run_until(lambda: bool(cluster.slurm.running), every_s=10.0)
    for _ in range(35):
        look = cluster.tick(every_s=10.0)
        assert look.view.surplus == ()
    assert not [call for call in cluster.clouds[EAST].calls if call.startswith("delete")]
