"""What the policies wish together: no busy node goes before its time, and none undoes another's work."""

from dataclasses import replace
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as some

from cmscale import hours
from cmscale.model import FactKind, Goal, MachineState, Node, NodeName, Pool, PoolName, Power, Shape, Snapshot, Want
from policies import consolidate, harvest, keep_warm, leave_reclaimed, quarantine, release_idle
from tests.builders import BUSY, IDLE, NOW, OFF, fact, facts, job, machine, node, notice, pool, view

POOLS = (
    pool("big", 4, shape=Shape(16, 64000), keep=1),
    pool("desk", 4, shape=Shape(16, 64000), hours=hours.windows(["mon 08:00-14:00"])),  # now it is 13:46
    pool("late", 4, shape=Shape(16, 64000), hours=hours.windows(["20:00-06:00"]), static=True),
)
GOING = "cm-scale: giving back"


@some.composite
def nodes(draw: some.DrawFn, of: Pool, name: NodeName) -> Node:
    power = draw(some.sampled_from(list(Power)))
    states = draw(some.sampled_from([BUSY, IDLE, IDLE | {"DOWN"}])) if power is Power.ON else OFF
    drained = draw(some.booleans())
    busy = bool(states & BUSY)
    cpus = draw(some.integers(1, 16)) if busy else 0
    off = power is Power.OFF
    return node(
        name,
        power,
        of,
        states=states | {"DRAIN"} if drained else states,
        reason=draw(some.sampled_from([GOING, "cm-scale: off", "a person's"])) if drained else "",
        free=Shape(16 - cpus, 64000 - cpus * 4000),
        idle_since=None if busy or power is not Power.ON else NOW - draw(some.integers(0, 4000)),
        sick=draw(some.sampled_from(["", "", "it does not answer"])),
        notice=draw(some.sampled_from([None, None, notice()])),
        kept=of.static,
        machine=None
        if power is Power.GONE
        else machine(name, MachineState.STOPPED if off else MachineState.RUNNING, launched=NOW - 3600),
    )


@some.composite
def views(draw: some.DrawFn) -> Snapshot:
    return view(
        POOLS,
        [draw(nodes(of, name)) for of in POOLS for name in of.nodes],
        draw(some.sampled_from([[], [job()]])),
        usual=MappingProxyType({PoolName("big"): draw(some.floats(0, 5))}),
        facts=facts(
            *(
                fact(FactKind.QUARANTINE, name, at=NOW - 400)
                for name in draw(some.sets(some.sampled_from(POOLS[0].nodes)))
            )
        ),
    )


def wished(view: Snapshot) -> list[Goal]:
    """What all policies wish, in their order; the first to claim a node keeps it."""
    goals: dict[NodeName, Goal] = {}
    for policy, settings in (
        (leave_reclaimed, leave_reclaimed.Settings()),
        (harvest, harvest.Settings()),
        (quarantine, quarantine.Settings()),
        (keep_warm, keep_warm.Settings(forecast=1.0)),
        (consolidate, consolidate.Settings()),
        (release_idle, release_idle.Settings()),
    ):
        goals |= {goal.node: goal for goal in policy.propose(view, frozenset(goals), settings)}
    return list(goals.values())


@given(views())
def test_a_busy_node_goes_only_by_a_time_that_is_given(seen: Snapshot) -> None:
    for goal in wished(seen):
        if seen.nodes[goal.node].busy and goal.want in {Want.OFF, Want.GONE}:
            assert goal.by is not None


@given(views())
def test_jobs_are_requeued_only_where_the_cloud_or_another_role_takes_the_node(seen: Snapshot) -> None:
    for goal in wished(seen):
        if goal.by is not None:
            one = seen.nodes[goal.node]
            assert one.notice or (one.pool and seen.pools[one.pool].hours)


@given(views())
def test_kept_machines_are_never_deleted_while_they_are_off(seen: Snapshot) -> None:
    for goal in wished(seen):
        one = seen.nodes[goal.node]
        assert not (one.kept and one.power is Power.OFF and goal.want is Want.GONE and not one.notice)


@given(views())
def test_no_pool_is_emptied_below_what_it_keeps(seen: Snapshot) -> None:
    leaving = {goal.node for goal in wished(seen) if goal.want in {Want.DRAINED, Want.GONE}}
    up = [name for name in POOLS[0].nodes if seen.nodes[name].power is Power.ON and seen.nodes[name].schedulable]
    fate = {name for name in up if seen.nodes[name].sick or seen.nodes[name].notice}
    assert len(set(up) - leaving) >= min(POOLS[0].keep, len(set(up) - fate))


def test_what_is_being_emptied_is_not_what_the_pool_keeps_warm() -> None:
    of = POOLS[0]
    fuller = node(of.nodes[1], Power.ON, of, states=BUSY, free=Shape(8, 32000), machine=machine("b", launched=0))
    half = node(of.nodes[0], Power.ON, of, states=BUSY, free=Shape(12, 48000), machine=machine("a", launched=0))
    first = {goal.node: goal.want for goal in wished(view([of], [half, fuller]))}
    assert first == {"big-1": Want.UP, "big-2": Want.DRAINED}
    drained = replace(fuller, states=BUSY | {"DRAIN"}, reason=GOING)
    assert {goal.node: goal.want for goal in wished(view([of], [half, drained]))} == first
    other = replace(half, states=BUSY | {"DRAIN"}, reason=GOING)
    assert {goal.node: goal.want for goal in wished(view([of], [other, fuller]))} == {
        "big-2": Want.UP,
        "big-1": Want.DRAINED,
    }


def test_a_sick_node_whose_hours_end_goes_back_to_its_other_role_in_time() -> None:
    of = POOLS[1]
    sick = node(of.nodes[0], Power.ON, of, states=BUSY, sick="Slurm refuses it")
    (goal,) = wished(view([of], [sick]))
    assert (goal.want, goal.by) == (Want.GONE, NOW + 800 - 600)  # it is 13:46:40


@given(views())
def test_the_same_look_gives_the_same_wishes(seen: Snapshot) -> None:
    assert wished(seen) == wished(seen)
