"""The Slurm in memory: what happens to nodes and jobs. What it promises as a scheduler is in tests/contract."""

from __future__ import annotations

import pytest

from cmscale.adapters.slurm import parse
from cmscale.model import Help, JobId, NodeName, Operation, OpId, Reservation, Verb
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud, Flaw
from cmscale.sim.slurm import Slurm
from tests.builders import CPU, EAST, ask, pool

NODE = NodeName("t4-1")
POOL = pool(count=2)


@pytest.fixture
def slurm() -> Slurm:
    """With both nodes up."""
    clock = VirtualClock()
    cloud = Cloud(EAST, clock, boot_s=0)
    slurm = Slurm.declaring([POOL], clock, [cloud])
    cloud.start(Operation(OpId("a"), Verb.START, POOL.name, POOL.nodes, began=0.0))
    slurm.step()
    return slurm


def after(slurm: Slurm, seconds: float) -> None:
    slurm.clock.wait(seconds)
    slurm.step()


def reserve(slurm: Slurm, begin_s: float, end_s: float, *, maintenance: bool = False, user: str = "bob") -> None:
    now = slurm.clock.now()
    users = frozenset() if maintenance else frozenset({user})
    slurm.reserve(Reservation("r", now + begin_s, now + end_s, frozenset(POOL.nodes), maintenance, users))


def test_a_job_starts_only_if_it_can_end_before_a_reservation_begins(slurm: Slurm) -> None:
    reserve(slurm, 600, 1200, maintenance=True)
    short, long = slurm.submit(1, ask(limit_s=300)), slurm.submit(2, ask(limit_s=900))
    after(slurm, 1)
    assert short in slurm.running
    assert long in slurm.queue
    after(slurm, 700)
    assert slurm.records[NODE].states >= {"MAINTENANCE", "RESERVED"}
    after(slurm, 600)
    assert long in slurm.running
    assert not slurm.records[NODE].states & {"MAINTENANCE", "RESERVED"}


def test_inside_a_reservation_only_its_users_jobs_run(slurm: Slurm) -> None:
    reserve(slurm, 0, 600, user="bob")
    other = slurm.submit(1, ask())
    stranger = slurm.submit(2, ask(reservation="r"), user="eve")
    bobs = slurm.submit(3, ask(reservation="r"), user="bob")
    after(slurm, 1)
    assert set(slurm.running) == {bobs}
    assert {other, stranger} == set(slurm.queue)
    assert slurm.records[NODE].states >= {"RESERVED"}


def test_a_job_whose_reservation_is_over_waits_for_nothing_that_we_could_start(slurm: Slurm) -> None:
    reserve(slurm, 0, 10)
    after(slurm, 20)
    job = slurm.submit(1, ask(reservation="r"))
    after(slurm, 1)
    assert slurm.queue[job].help is Help.NO


def test_a_node_that_falls_silent_is_down_and_its_jobs_are_put_off(slurm: Slurm) -> None:
    job, last = slurm.submit(1, ask(), run_s=600), slurm.submit(2, ask(), run_s=600, requeue=False)
    after(slurm, 1)
    slurm.clouds[0].machines.clear()
    after(slurm, 1)
    assert job in slurm.running
    after(slurm, slurm.slurmd_timeout_s)
    assert "DOWN" in slurm.records[NODE].states
    assert slurm.records[NODE].reason == "Not responding"
    assert slurm.queue[job].reason == "BeginTime"
    assert slurm.failed == {last: "NodeFail"}
    assert slurm.release([job])[job].ok
    assert slurm.queue[job].help is Help.NODES


def test_a_requeued_job_waits_two_minutes_unless_it_is_released(slurm: Slurm) -> None:
    job = slurm.submit(1, ask(), run_s=600)
    after(slurm, 1)
    assert slurm.requeue([job])[job].ok
    after(slurm, 100)
    assert slurm.queue[job].reason == "BeginTime"
    after(slurm, 30)
    assert slurm.running[job].job.started == slurm.clock.now()


def test_a_job_gets_nodes_with_the_features_it_asks_for(slurm: Slurm) -> None:
    slurm.add_home([NodeName("op1")], CPU, ("batch",))
    at_home = slurm.submit(1, ask(gpus_per_node=0, constraint=parse.constraint("home")))
    nowhere = slurm.submit(2, ask(gpus_per_node=0, constraint=parse.constraint("west")))
    after(slurm, 1)
    assert slurm.running[at_home].shares.keys() == {"op1"}
    assert nowhere in slurm.queue
    assert slurm.pin({nowhere: "home"})[nowhere].ok
    after(slurm, 1)
    assert slurm.running[nowhere].shares.keys() == {"op1"}


def test_held_jobs_jobs_of_later_and_jobs_past_their_deadline_do_not_start(slurm: Slurm) -> None:
    now = slurm.clock.now()
    held = slurm.submit(1, ask(), run_s=600, held=True)
    later = slurm.submit(2, ask(), begin=now + 100)
    late = slurm.submit(3, ask(limit_s=600, deadline=now + 60))
    after(slurm, 1)
    assert set(slurm.queue) == {held, later}
    assert slurm.failed == {late: "DeadLine"}
    slurm.let_go(held)
    after(slurm, 100)
    assert set(slurm.running) == {held, later}


def test_a_record_that_is_garbled_costs_itself_and_a_sentence(slurm: Slurm) -> None:
    slurm.submit(1, ask())
    job = slurm.submit(2, ask())
    slurm.garbled |= {"1", NODE}
    assert [each.id for each in slurm.jobs().items] == [job]
    assert [each.name for each in slurm.nodes().items] == ["t4-2"]
    assert len(slurm.jobs().unreadable) == len(slurm.nodes().unreadable) == 1


def test_a_machine_with_less_than_was_promised_registers_and_is_refused(slurm: Slurm) -> None:
    cloud = slurm.clouds[0]
    cloud.machines.clear()
    slurm.drain([NODE], "cm-scale: off", off=True)
    cloud.spoil(Flaw.TOO_SMALL)
    cloud.start(Operation(OpId("b"), Verb.START, POOL.name, (NODE,), began=0.0))
    after(slurm, 1)
    assert slurm.records[NODE].states >= {"INVALID_REG", "DRAIN"}
    job = slurm.submit(1, ask(nodelist=frozenset({NODE})))
    slurm.resume({NODE: "10.0.0.1"})
    after(slurm, 1)
    assert job in slurm.queue


def test_an_array_task_that_is_requeued_comes_back_alone(slurm: Slurm) -> None:
    array = slurm.submit(1, ask(), count=4, run_s=600)
    after(slurm, 1)
    task = JobId("1_4")
    slurm.requeue([task])
    assert slurm.queue[task].count == 1
    assert slurm.queue[task].array == array
    assert slurm.queue[array].count == 2
