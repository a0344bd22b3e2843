"""Where jobs go: what is up first, then the cheapest, one site for a gang, nothing twice, and never too much."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmscale import fit
from cmscale.model import (
    Ask,
    Constraint,
    Fact,
    FactKind,
    Node,
    NodeName,
    NodeOrder,
    Notice,
    Part,
    PoolName,
    Power,
    Queue,
    Shape,
    Snapshot,
)
from cmscale.placing.room import Placement, Room
from tests.builders import CPU, EAST, NOW, OFF, T4, WEST, ask, home_node, node, pool, view

A, B = frozenset({"a"}), frozenset({"b"})
BIG = Shape(cpus=16, mem_mb=64000, gpus=4, gpu_type="a10g")
RESERVED = frozenset({"IDLE", "RESERVED"})


def placed(seen: Snapshot, asks: Ask, count: int = 1, but: frozenset[PoolName] = frozenset()) -> list[Placement]:
    return list(Room.of(seen, frozenset()).place(asks, count, but))


def new(placements: list[Placement]) -> list[str]:
    return [each.name for placement in placements for each in placement.new]


def queue(**changes: Any) -> MappingProxyType[str, Queue]:
    return MappingProxyType({"batch": Queue("batch", **changes)})


def test_jobs_are_placed_on_what_is_up_then_on_what_is_coming_then_on_the_cheapest_new() -> None:
    cheap, dear = pool("cheap", 2, price_hour=0.5), pool("dear", 2, price_hour=0.9)
    seen = view([dear, cheap], [node("dear-1", Power.ON, dear), node("cheap-1", Power.STARTING, cheap)])
    room = Room.of(seen, frozenset())
    placed = list(room.place(ask(), 9))
    assert [each.name for placement in placed for each in placement.nodes] in (
        ["dear-1", "cheap-1"],
        ["cheap-1", "dear-1"],
    )
    assert [each.name for placement in placed for each in placement.new] == ["cheap-2", "dear-2"]


def test_priority_comes_before_price() -> None:
    cheap, liked = pool("cheap", price_hour=0.1), pool("liked", price_hour=0.9, priority=5)
    (placed,) = Room.of(view([cheap, liked]), frozenset()).place(ask(), 1)
    assert placed.new[0].pool == "liked"


def test_a_large_node_is_cheaper_when_enough_jobs_share_it() -> None:
    small, large = pool("small", 8, price_hour=0.5), pool("large", 2, shape=BIG, price_hour=1.6)
    few = list(Room.of(view([small, large]), frozenset()).place(ask(), 2))
    many = list(Room.of(view([small, large]), frozenset()).place(ask(), 4))
    assert [each.name for placement in few for each in placement.new] == ["small-1", "small-2"]
    assert [each.name for placement in many for each in placement.new] == ["large-1"]


def test_a_gang_lives_on_one_site_or_nowhere() -> None:
    east, west = pool("e", 3), pool("w", 3, site=WEST)
    gang = ask(nodes=4, tasks=4)
    assert list(Room.of(view([east, west]), frozenset()).place(gang, 1)) == []
    bigger = pool("w", 4, site=WEST)
    (placed,) = Room.of(view([east, bigger]), frozenset()).place(gang, 1)
    assert {each.site for each in placed.new} == {WEST}


def test_a_gang_uses_the_nodes_that_are_up_at_its_site_first() -> None:
    east = pool("e", 4)
    seen = view([east], [node("e-3", Power.ON, east)])
    (placed,) = Room.of(seen, frozenset()).place(ask(nodes=3, tasks=3), 1)
    assert [each.name for each in placed.nodes] == ["e-3"]
    assert len(placed.new) == 2


def test_a_pool_gives_no_more_than_its_maximum() -> None:
    assert len(list(Room.of(view([pool(count=8, max=3)]), frozenset()).place(ask(), 8))) == 3


def test_nodelist_and_exclude_are_obeyed() -> None:
    room = Room.of(view([pool(count=4)]), frozenset())
    wanted = ask(nodelist=frozenset({NodeName("t4-3")}), exclude=frozenset({NodeName("t4-1")}), nodes=2, tasks=2)
    (placed,) = room.place(wanted, 1)
    assert [each.name for each in placed.new] == ["t4-3", "t4-2"]


def test_a_counted_constraint_takes_so_many_of_each() -> None:
    a, b = pool("a", 4, price_hour=0.1), pool("b", 4, price_hour=0.9)
    nodes = [node(name, of=of, features=feature) for of, feature in ((a, A), (b, B)) for name in of.nodes]
    counted = Constraint("[a*2&b*1]", ((Part(2, (A,)), Part(1, (B,))),))
    (placed,) = Room.of(view([a, b], nodes), frozenset()).place(ask(nodes=3, tasks=3, constraint=counted), 1)
    assert [each.pool for each in placed.new] == ["a", "a", "b"]


def test_a_matching_or_never_mixes_its_alternatives() -> None:
    a, b = pool("a", 2), pool("b", 2)
    nodes = [node(name, of=of, features=feature) for of, feature in ((a, A), (b, B)) for name in of.nodes]
    either = Constraint("[a|b]", ((Part(0, (A,)),), (Part(0, (B,)),)))
    mixed = Constraint("a|b", ((Part(0, (A, B)),),))
    assert list(Room.of(view([a, b], nodes), frozenset()).place(ask(nodes=3, tasks=3, constraint=either), 1)) == []
    assert list(Room.of(view([a, b], nodes), frozenset()).place(ask(nodes=3, tasks=3, constraint=mixed), 1)) != []


def test_nodes_held_by_a_person_or_sick_are_no_room() -> None:
    held = node("t4-1", states=OFF, reason="not this month")
    sick = node("t4-2", Power.STARTING, sick="stuck")
    placed = list(Room.of(view([pool(count=3)], [held, sick]), frozenset()).place(ask(), 5))
    assert [each.name for placement in placed for each in placement.new] == ["t4-3"]


def test_a_node_with_jobs_gives_only_what_it_has_left() -> None:
    half = node("big-1", Power.ON, pool("big", shape=BIG), free=Shape(8, 32000, 1, "a10g"))
    placed = list(Room.of(view([pool("big", 1, shape=BIG)], [half]), frozenset()).place(ask(), 5))
    assert sum(placement.times for placement in placed) == 1
    assert list(Room.of(view([pool("big", 1, shape=BIG)], [half]), frozenset()).place(ask(exclusive=True), 1)) == []


def test_nodes_that_are_coming_go_to_the_jobs_they_were_started_for() -> None:
    gang, singles = ask(nodes=2, tasks=2), ask()
    fresh = Room.of(view(), frozenset())
    wanted = [[each.name for each in placed.new] for asks in (gang, singles) for placed in fresh.place(asks, 2)]
    coming = view(nodes=[node(f"t4-{number}", Power.STARTING) for number in range(1, 5)])
    room = Room.of(coming, frozenset())
    assert [
        [each.name for each in placed.nodes] for asks in (gang, singles) for placed in room.place(asks, 2)
    ] == wanted


# --- what holds only now ---------------------------------------------------------------------------------------------


def test_a_reserved_node_takes_the_jobs_of_its_reservation_and_no_others() -> None:
    seen = view([], [home_node("op1", T4, reserved="school", states=RESERVED)])
    assert placed(seen, ask()) == []
    assert len(placed(seen, ask(reservation="school"))) == 1


def test_a_job_of_a_reservation_starts_nothing_outside_of_it() -> None:
    inside = node("t4-3", reserved="school")
    assert new(placed(view(nodes=[inside]), ask(reservation="school"), 4)) == ["t4-3"]
    assert new(placed(view(nodes=[inside]), ask(), 4)) == ["t4-1", "t4-2", "t4-4"]


@pytest.mark.parametrize(("limit_s", "up", "started"), [(600, 1, 1), (1700, 1, 0), (1801, 0, 0), (None, 0, 0)])
def test_a_job_must_end_before_the_maintenance_even_if_the_machine_boots_first(
    limit_s: int | None, up: int, started: int
) -> None:
    there = view([], [home_node("op1", T4, until=NOW + 1800)])
    to_start = view([pool(count=1)], [node("t4-1", until=NOW + 1800)])
    assert len(placed(there, ask(limit_s=limit_s))) == up
    assert len(placed(to_start, ask(limit_s=limit_s))) == started


def test_a_job_that_would_end_after_its_deadline_starts_nothing() -> None:
    assert new(placed(view(), ask(limit_s=600, deadline=NOW + 800))) == ["t4-1"]
    assert new(placed(view(), ask(limit_s=600, deadline=NOW + 700))) == []


@pytest.mark.parametrize(
    "changes",
    [{"resting": "maintenance"}, {"outside": True}],
    ids=["a node at rest", "a helper, which is not Slurm's"],
)
def test_some_nodes_serve_no_job_whether_up_or_not(changes: dict[str, Any]) -> None:
    for power in (Power.ON, Power.STARTING, Power.OFF, Power.GONE):
        assert placed(view([pool(count=1)], [node("t4-1", power, **changes)]), ask()) == []


def test_a_node_that_the_cloud_takes_back_serves_jobs_that_end_in_time() -> None:
    taken = node("t4-1", Power.ON, notice=Notice(NOW + 3600, "instance-retirement"), until=NOW + 3600)
    seen = view([pool(count=1)], [taken])
    assert placed(seen, ask(limit_s=7200)) == []
    assert len(placed(seen, ask(limit_s=600))) == 1


def test_a_name_in_quarantine_is_not_started() -> None:
    fact = Fact(FactKind.QUARANTINE, "t4-1", NOW, NOW + 60, "it never joined")
    seen = view(facts=MappingProxyType({(FactKind.QUARANTINE, "t4-1"): fact}))
    assert new(placed(seen, ask(), 4)) == ["t4-2", "t4-3", "t4-4"]


def test_a_machine_of_a_static_pool_is_only_powered_on() -> None:
    of = pool(static=True)
    seen = view([of], [node("t4-2", Power.OFF, of), node("t4-4", Power.OFF, of)])
    assert new(placed(seen, ask(), 4)) == ["t4-2", "t4-4"]


def test_a_machine_that_is_kept_does_not_count_twice_against_the_maximum() -> None:
    of = pool(max=2)
    assert new(placed(view([of], [node("t4-3", Power.OFF, of)]), ask(), 4)) == ["t4-3", "t4-1"]


# --- the site's own wishes -------------------------------------------------------------------------------------------


def test_a_partition_starts_machines_of_its_own_pools_and_uses_all_that_are_up() -> None:
    cheap, own = pool("cheap", price_hour=0.1), pool("own", 2, price_hour=0.9)
    seen = view([cheap, own], [node("cheap-3", Power.ON, cheap)], queues=queue(pools=frozenset({own.name})))
    found = placed(seen, ask(), 9)
    assert [each.name for placement in found for each in placement.nodes] == ["cheap-3"]
    assert new(found) == ["own-1", "own-2"]


def test_few_jobs_are_counted_on_a_new_node_if_the_partition_wants_it_so() -> None:
    seen = view([pool("cpu", 8, shape=CPU)], queues=queue(jobs_per_node=3))
    assert [placement.times for placement in placed(seen, ask(gpus_per_node=0), 8)] == [3, 3, 2]


def test_few_jobs_are_counted_on_a_coming_node_too_and_on_one_that_is_up_as_many_as_fit() -> None:
    of = pool("cpu", 2, shape=CPU)
    coming = view([of], [node("cpu-1", Power.STARTING, of)], queues=queue(jobs_per_node=3))
    assert [placement.times for placement in placed(coming, ask(gpus_per_node=0), 8)] == [3, 3]
    up = view([of], [node("cpu-1", Power.ON, of)], queues=queue(jobs_per_node=3))
    assert [placement.times for placement in placed(up, ask(gpus_per_node=0), 8)] == [8]


def test_a_gang_has_nodes_at_two_sites_only_where_the_partition_mixes_them() -> None:
    pools = [pool("e", 2), pool("w", 2, site=WEST)]
    assert placed(view(pools), ask(nodes=3, tasks=3)) == []
    (found,) = placed(view(pools, queues=queue(mix_sites=True)), ask(nodes=3, tasks=3))
    assert {each.site for each in found.new} == {EAST, WEST}


def test_nothing_new_comes_from_pools_that_are_not_for_this_job() -> None:
    spot, plain = pool("spot", price_hour=0.1), pool("plain", 1)
    seen = view([spot, plain], [node("spot-4", Power.ON, spot)])
    found = placed(seen, ask(), 9, frozenset({spot.name}))
    assert [each.name for placement in found for each in placement.nodes] == ["spot-4"]
    assert new(found) == ["plain-1"]


def test_what_others_have_started_is_used_by_a_job_that_could_not_start_it() -> None:
    spot = pool("spot", 1, shape=CPU)
    room, small = Room.of(view([spot]), frozenset()), ask(gpus_per_node=0)
    assert list(room.place(small, 1, frozenset({spot.name}))) == []
    (started,) = room.place(small, 1)
    (beside,) = room.place(small, 1, frozenset({spot.name}))
    assert started.new == beside.nodes


def test_who_has_found_no_room_finds_none_again_and_a_smaller_job_still_does() -> None:
    room, large, small = Room.of(view([pool(count=1)]), frozenset()), ask(), ask(gpus_per_node=0)
    assert len(list(room.place(large, 2))) == 1
    assert room.place_next(large, 1) is None
    assert room.place_next(small, 1) is not None
    assert room.place_next(large, 1) is None


def test_it_is_over_for_a_job_only_when_nothing_at_all_could_serve_it_any_more() -> None:
    first, second = pool("first", 1), pool("second", 1)
    room, one = Room.of(view([first, second]), frozenset()), ask()
    assert room.place_next(one, 1)
    assert room.place_next(one, 1, frozenset({second.name})) is None
    assert not room.is_over(one)
    assert room.place_next(one, 1)
    assert room.place_next(one, 1) is None
    assert room.is_over(one)


# --- which name first ------------------------------------------------------------------------------------------------


def test_machines_that_are_kept_come_first_then_the_names_as_they_are_listed() -> None:
    names = tuple(NodeName(name) for name in ("b", "a", "d", "c"))
    of = pool(nodes=names)
    assert new(placed(view([of], [node("c", Power.OFF, of)]), ask(), 4)) == ["c", "b", "a", "d"]


def test_the_least_used_names_come_first_if_the_pool_wants_it_so() -> None:
    used_s = MappingProxyType({NodeName("t4-1"): 900.0, NodeName("t4-2"): 30.0, NodeName("t4-3"): 30.0})
    seen = view([pool(order=NodeOrder.LEAST_USED)], used_s=used_s)
    assert new(placed(seen, ask(), 4)) == ["t4-4", "t4-2", "t4-3", "t4-1"]


def test_names_by_chance_are_the_same_for_one_tick_and_others_in_the_next() -> None:
    of = pool(count=50, order=NodeOrder.RANDOM)
    first, again, later = (new(placed(view([of], tick=tick), ask(), 50)) for tick in ("a", "a", "b"))
    assert first == again
    assert first != later
    assert sorted(first) == sorted(later)


# --- whatever the world is like --------------------------------------------------------------------------------------

SHAPES = (T4, CPU, BIG, Shape(2, 4000))


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """A few small pools at two sites and some nodes at home, in any state."""
    pools = [
        pool(
            f"p{at}",
            draw(st.integers(1, 4)),
            site=draw(st.sampled_from((EAST, WEST))),
            shape=draw(st.sampled_from(SHAPES)),
            max=draw(st.integers(0, 3)),
            price_hour=draw(st.sampled_from((0.1, 0.5, 2.0))),
            priority=draw(st.sampled_from((0, 0, 1))),
            static=draw(st.booleans()),
        )
        for at in range(draw(st.integers(1, 4)))
    ]
    nodes: list[Node] = []
    for of in pools:
        machines = 0
        for name in of.nodes:
            power = draw(st.sampled_from(Power)) if machines < of.most else Power.GONE
            machines += power is not Power.GONE
            until = draw(st.sampled_from((None, None, NOW + 700)))
            nodes.append(node(name, power, of, reserved=draw(st.sampled_from(("", "", "R"))), until=until))
    for at in range(draw(st.integers(0, 2))):
        shape = draw(st.sampled_from(SHAPES))
        free = replace(shape, cpus=draw(st.integers(0, shape.cpus)), gpus=draw(st.integers(0, shape.gpus)))
        nodes.append(home_node(f"op{at}", shape, free=free))
    queues = draw(
        st.sampled_from(
            (queue(), queue(jobs_per_node=2), queue(mix_sites=True), queue(pools=frozenset({PoolName("p0")})))
        )
    )
    return view(pools, nodes, queues=queues)


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    names = [NodeName(name) for name in ("p0-1", "p0-2", "p1-1", "op0")]
    return ask(
        nodes=draw(st.sampled_from((1, 1, 2, 3))),
        tasks=draw(st.sampled_from((1, 2, 5))),
        cpus_per_task=draw(st.sampled_from((1, 2))),
        mem_mb_per_node=draw(st.sampled_from((100, 3000, 9000))),
        gpus_per_node=draw(st.sampled_from((0, 0, 1, 2))),
        exclusive=draw(st.sampled_from((False, False, True))),
        nodelist=frozenset(draw(st.sampled_from(([], [], [], [names[0]], names[1:3])))),
        exclude=frozenset(draw(st.sampled_from(([], [], [], [names[0]], [names[2]])))),
        reservation=draw(st.sampled_from(("", "", "R"))),
        limit_s=draw(st.sampled_from((600, 3600, None))),
        deadline=draw(st.sampled_from((None, None, NOW + 700))),
    )


def could_serve(
    seen: Snapshot, asks: Ask, each: Node, room: dict[NodeName, Shape], machines: dict[PoolName, int]
) -> bool:
    """The obvious way: may this one node hold the whole job now?"""
    of = fit.kind(each)
    if fit.nodes_needed(asks, each.shape) != 1 or not asks.nodelist <= {each.name} or each.name in asks.exclude:
        return False
    need = fit.share(asks, 1, each.shape)
    if need is None or not room.get(each.name, each.shape).fits(need):
        return False
    if each.name in room:
        return fit.refuses(asks, of) == "" and fit.not_now(asks, of, NOW) == ""
    of_pool = seen.pools[each.pool or PoolName("")]
    return (
        fit.refuses(asks, of, seen.queues) == ""
        and fit.not_now(asks, of, NOW, of_pool.boot_s) == ""
        and (each.power is Power.OFF or machines[of_pool.name] < of_pool.most)
    )


@given(worlds(), st.lists(st.tuples(asks(), st.integers(1, 4)), min_size=1, max_size=12))
def test_no_node_gives_more_than_it_has_no_pool_more_than_its_maximum_and_nothing_that_fits_is_overlooked(
    seen: Snapshot, wanted: list[tuple[Ask, int]]
) -> None:
    room = Room.of(seen, frozenset())
    left = {each.name: each.free for each in seen.nodes.values() if fit.is_coming_or_up(each)}
    startable = {each.name: each for each in seen.nodes.values() if fit.is_startable(seen, each)}
    machines = {
        name: sum(each.pool == name and each.power is not Power.GONE for each in seen.nodes.values())
        for name in seen.pools
    }
    mixes, sparing = seen.queues["batch"].mix_sites, seen.queues["batch"].jobs_per_node
    for each_ask, count in wanted:
        served = 0
        for placement in room.place(each_ask, count):
            served += placement.times
            every = (*placement.nodes, *placement.new)
            names = {each.name for each in every}
            assert len(names) == len(every)
            assert each_ask.nodelist <= names
            assert not each_ask.exclude & names
            assert mixes or len({each.site for each in every}) == 1
            for each in placement.nodes:
                assert fit.not_now(each_ask, fit.kind(each), NOW) == ""
            for each in placement.new:
                del startable[each.name]
                left[each.name] = each.shape
                machines[each.pool or PoolName("")] += each.power is Power.GONE
                assert fit.refuses(each_ask, fit.kind(each), seen.queues) == ""
                assert fit.not_now(each_ask, fit.kind(each), NOW, seen.pools[each.pool or PoolName("")].boot_s) == ""
            for each in every:
                need = fit.share(each_ask, len(every), each.shape)
                assert need is not None
                taken = Shape(need.cpus * placement.times, need.mem_mb * placement.times, need.gpus * placement.times)
                assert replace(left[each.name], gpu_type="").fits(taken)
                left[each.name] = left[each.name].less(need, placement.times)
        assert served <= count
        if served < count and not sparing:
            candidates = [seen.nodes[name] for name in left] + list(startable.values())
            assert not any(could_serve(seen, each_ask, each, left, machines) for each in candidates)
    assert all(machines[name] <= each.most for name, each in seen.pools.items())
