"""The cloud in memory: the faults that can be asked for. What it promises as a provider is in tests/contract."""

from __future__ import annotations

import pytest

from cmscale.model import MachineId, MachineState, NodeName, Operation, OpId, PoolName, Result, Verb
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud, Flaw
from tests.builders import EAST

T4, OTHER, NODE = PoolName("t4"), PoolName("other"), NodeName("t4-1")


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(EAST, VirtualClock())


def results(cloud: Cloud, op: str, *nodes: str, pool: PoolName = T4) -> list[Result]:
    names = tuple(map(NodeName, nodes))
    outcomes = cloud.start(Operation(OpId(op), Verb.START, pool, names, began=0.0))
    return [outcomes[name].result for name in names]


def only(cloud: Cloud) -> MachineId:
    (machine,) = cloud.machines
    return machine


def states(cloud: Cloud) -> list[MachineState]:
    return [machine.state for machine in cloud.list()]


def test_a_refusal_is_one_pools_for_so_many_calls(cloud: Cloud) -> None:
    cloud.refuse(Result.THROTTLED, T4, calls=2)
    assert results(cloud, "a", "other-1", pool=OTHER) == [Result.OK]
    assert [results(cloud, op, "t4-1")[0] for op in ("b", "c", "d")] == [Result.THROTTLED, Result.THROTTLED, Result.OK]


def test_a_refusal_ends_with_its_time(cloud: Cloud) -> None:
    cloud.refuse(Result.CAPACITY, T4, for_s=60)
    assert results(cloud, "a", "t4-1") == [Result.CAPACITY]
    cloud.clock.wait(60)
    assert results(cloud, "b", "t4-1") == [Result.OK]


def test_an_answer_can_be_lost_though_the_machine_is_made(cloud: Cloud) -> None:
    cloud.refuse(Result.TRANSIENT, T4, calls=1, done=True)
    assert results(cloud, "a", "t4-1") == [Result.TRANSIENT]
    assert len(cloud.list()) == 1
    assert results(cloud, "a", "t4-1") == [Result.OK]
    assert len(cloud.list()) == 1


def test_a_pool_has_room_of_its_own(cloud: Cloud) -> None:
    cloud.room[T4] = 1
    assert results(cloud, "a", "t4-1", "t4-2") == [Result.OK, Result.CAPACITY]
    assert results(cloud, "b", "other-1", pool=OTHER) == [Result.OK]


def test_listings_may_lag_and_may_miss_a_machine(cloud: Cloud) -> None:
    cloud.lag_s = 30
    results(cloud, "a", "t4-1")
    assert cloud.list() == ()
    cloud.clock.wait(30)
    assert len(cloud.list()) == 1
    cloud.hide(NODE, 10)
    assert cloud.list() == ()
    cloud.clock.wait(10)
    assert len(cloud.list()) == 1


def test_a_reclaimed_machine_is_announced_and_then_gone(cloud: Cloud) -> None:
    results(cloud, "a", "t4-1")
    cloud.reclaim(NODE, in_s=120)
    ((notice,),) = cloud.notices().values()
    assert notice.deadline == cloud.clock.now() + 120
    cloud.clock.wait(120)
    assert cloud.list() == ()


def test_a_stopped_machine_is_kept_and_powered_on_again(cloud: Cloud) -> None:
    results(cloud, "a", "t4-1")
    kept = only(cloud)
    cloud.stop([kept])
    assert states(cloud) == [MachineState.STOPPING]
    cloud.clock.wait(cloud.ending_s)
    assert states(cloud) == [MachineState.STOPPED]
    cloud.start(Operation(OpId("b"), Verb.START, T4, (NODE,), began=0.0, machines=(kept,)))
    (machine,) = cloud.list()
    assert (machine.id, machine.state, machine.launched) == (kept, MachineState.STARTING, cloud.clock.now())


def test_a_machine_that_hangs_goes_only_when_it_is_cut_off(cloud: Cloud) -> None:
    cloud.spoil(Flaw.HANGS, T4)
    results(cloud, "a", "t4-1")
    cloud.delete([only(cloud)])
    cloud.clock.wait(3600)
    assert states(cloud) == [MachineState.ENDING]
    cloud.delete([only(cloud)], hard=True)
    cloud.clock.wait(cloud.ending_s)
    assert cloud.list() == ()


def test_a_spoilt_machine_shows_why_on_its_console(cloud: Cloud) -> None:
    cloud.spoil(Flaw.NEVER_BOOTS, T4)
    results(cloud, "a", "t4-1")
    cloud.clock.wait(3600)
    assert states(cloud) == [MachineState.RUNNING]
    assert cloud.alive == {}
    assert "never boots" in cloud.evidence(only(cloud))
