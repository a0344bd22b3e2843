"""Who could serve whom: shapes, packing, constraints, and what can never be."""

from dataclasses import replace

import pytest

from cmscale import fit
from cmscale.model import Ask, Constraint, NodeName, Part, Power, Shape
from tests.builders import CPU, OFF, T4, WEST, ask, home_node, node, pool, view

A, B = frozenset({"a"}), frozenset({"b"})
BIG = Shape(cpus=16, mem_mb=64000, gpus=4, gpu_type="a10g")


@pytest.mark.parametrize(
    ("asks", "shape", "nodes"),
    [
        (ask(), T4, 1),
        (ask(nodes=4, tasks=4), T4, 4),
        (ask(gpus_per_node=0, tasks=10), T4, 3),
        (ask(gpus_per_node=0, tasks=10, nodes=5), T4, 5),
        (ask(gpus_per_node=0, tasks=10, tasks_per_node=2), T4, 5),
        (ask(gpus_per_node=0, gpus=3), T4, 3),
        (ask(gpus_per_node=0, gpus=3), BIG, 1),
        (ask(gpus_per_node=0, gpus_per_task=1, tasks=5), BIG, 2),
        (ask(gpus_per_node=2), T4, None),
        (ask(gpu_type="a10g"), T4, None),
        (ask(gpu_type="t4"), T4, 1),
        (ask(), CPU, None),
        (ask(gpus_per_node=0, cpus_per_task=8), T4, None),
        (ask(mem_mb_per_node=16000), T4, None),
        (ask(mem_mb_per_node=15000), T4, 1),
        (ask(gpus_per_node=0, tasks=8, mem_mb_per_cpu=5000), T4, 3),
        (ask(gpus_per_node=0, gpus=2, cpus_per_gpu=4, mem_mb_per_gpu=8000), T4, 2),
    ],
)
def test_the_least_number_of_nodes_that_hold_a_job(asks: Ask, shape: Shape, nodes: int | None) -> None:
    assert fit.nodes_needed(asks, shape) == nodes


def test_an_exclusive_job_and_one_with_all_memory_take_whole_nodes() -> None:
    assert fit.share(ask(exclusive=True), 1, T4) == T4
    assert fit.share(ask(whole_memory=True), 1, T4) == replace(T4, cpus=1, gpu_type="")


def test_alike_small_jobs_pack_onto_one_node() -> None:
    small = fit.share(ask(gpus_per_node=0, mem_mb_per_node=1000), 1, CPU)
    assert small is not None
    assert fit.packs(CPU, small) == 8


def test_jobs_are_placed_on_what_is_up_then_on_what_is_coming_then_on_the_cheapest_new() -> None:
    cheap, dear = pool("cheap", 2, price_hour=0.5), pool("dear", 2, price_hour=0.9)
    seen = view([dear, cheap], [node("dear-1", Power.ON, dear), node("cheap-1", Power.STARTING, cheap)])
    room = fit.Room.of(seen, frozenset())
    placed = list(room.place(ask(), 9))
    assert [each.name for placement in placed for each in placement.nodes] in (
        ["dear-1", "cheap-1"],
        ["cheap-1", "dear-1"],
    )
    assert [each.name for placement in placed for each in placement.new] == ["cheap-2", "dear-2"]


def test_priority_comes_before_price() -> None:
    cheap, liked = pool("cheap", price_hour=0.1), pool("liked", price_hour=0.9, priority=5)
    (placed,) = fit.Room.of(view([cheap, liked]), frozenset()).place(ask(), 1)
    assert placed.new[0].pool == "liked"


def test_a_large_node_is_cheaper_when_enough_jobs_share_it() -> None:
    small, large = pool("small", 8, price_hour=0.5), pool("large", 2, shape=BIG, price_hour=1.6)
    few = list(fit.Room.of(view([small, large]), frozenset()).place(ask(), 2))
    many = list(fit.Room.of(view([small, large]), frozenset()).place(ask(), 4))
    assert [each.name for placement in few for each in placement.new] == ["small-1", "small-2"]
    assert [each.name for placement in many for each in placement.new] == ["large-1"]


def test_a_gang_lives_on_one_site_or_nowhere() -> None:
    east, west = pool("e", 3), pool("w", 3, site=WEST)
    gang = ask(nodes=4, tasks=4)
    assert list(fit.Room.of(view([east, west]), frozenset()).place(gang, 1)) == []
    bigger = pool("w", 4, site=WEST)
    (placed,) = fit.Room.of(view([east, bigger]), frozenset()).place(gang, 1)
    assert {each.site for each in placed.new} == {WEST}


def test_a_gang_uses_the_nodes_that_are_up_at_its_site_first() -> None:
    east = pool("e", 4)
    seen = view([east], [node("e-3", Power.ON, east)])
    (placed,) = fit.Room.of(seen, frozenset()).place(ask(nodes=3, tasks=3), 1)
    assert [each.name for each in placed.nodes] == ["e-3"]
    assert len(placed.new) == 2


def test_a_pool_gives_no_more_than_its_maximum() -> None:
    assert len(list(fit.Room.of(view([pool(count=8, max=3)]), frozenset()).place(ask(), 8))) == 3


def test_nodelist_and_exclude_are_obeyed() -> None:
    room = fit.Room.of(view([pool(count=4)]), frozenset())
    wanted = ask(nodelist=frozenset({NodeName("t4-3")}), exclude=frozenset({NodeName("t4-1")}), nodes=2, tasks=2)
    (placed,) = room.place(wanted, 1)
    assert [each.name for each in placed.new] == ["t4-3", "t4-2"]


def test_a_counted_constraint_takes_so_many_of_each() -> None:
    a, b = pool("a", 4, price_hour=0.1), pool("b", 4, price_hour=0.9)
    nodes = [node(name, of=of, features=feature) for of, feature in ((a, A), (b, B)) for name in of.nodes]
    counted = Constraint("[a*2&b*1]", ((Part(2, (A,)), Part(1, (B,))),))
    (placed,) = fit.Room.of(view([a, b], nodes), frozenset()).place(ask(nodes=3, tasks=3, constraint=counted), 1)
    assert [each.pool for each in placed.new] == ["a", "a", "b"]


def test_a_matching_or_never_mixes_its_alternatives() -> None:
    a, b = pool("a", 2), pool("b", 2)
    nodes = [node(name, of=of, features=feature) for of, feature in ((a, A), (b, B)) for name in of.nodes]
    either = Constraint("[a|b]", ((Part(0, (A,)),), (Part(0, (B,)),)))
    mixed = Constraint("a|b", ((Part(0, (A, B)),),))
    assert list(fit.Room.of(view([a, b], nodes), frozenset()).place(ask(nodes=3, tasks=3, constraint=either), 1)) == []
    assert list(fit.Room.of(view([a, b], nodes), frozenset()).place(ask(nodes=3, tasks=3, constraint=mixed), 1)) != []


def test_nodes_held_by_a_person_or_sick_are_no_room() -> None:
    held = node("t4-1", states=OFF, reason="not this month")
    sick = node("t4-2", Power.STARTING, sick="stuck")
    placed = list(fit.Room.of(view([pool(count=3)], [held, sick]), frozenset()).place(ask(), 5))
    assert [each.name for placement in placed for each in placement.new] == ["t4-3"]


def test_a_node_with_jobs_gives_only_what_it_has_left() -> None:
    half = node("big-1", Power.ON, pool("big", shape=BIG), free=Shape(8, 32000, 1, "a10g"))
    placed = list(fit.Room.of(view([pool("big", 1, shape=BIG)], [half]), frozenset()).place(ask(), 5))
    assert sum(placement.times for placement in placed) == 1
    assert list(fit.Room.of(view([pool("big", 1, shape=BIG)], [half]), frozenset()).place(ask(exclusive=True), 1)) == []


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (ask(gpus_per_node=4), "has 1 of the 4 GPUs"),
        (ask(gpu_type="h100"), "has t4 GPUs, not h100"),
        (ask(partitions=("debug",)), "is not in partition debug"),
        (ask(nodes=9, tasks=9), "at most 4 nodes that fit, 9 are needed"),
        (ask(mem_mb_per_node=10**6), "of memory"),
        (ask(constraint=Constraint("fast", ((Part(0, (frozenset({"fast"}),)),),))), "--constraint=fast"),
    ],
)
def test_a_job_that_no_node_could_ever_hold_is_told_why(asks: Ask, words: str) -> None:
    assert words in fit.never(asks, fit.stock(view()))


def test_a_job_that_fits_somewhere_even_if_all_is_taken_is_not_hopeless() -> None:
    assert fit.never(ask(nodes=4, tasks=4), fit.stock(view())) == ""
    assert fit.never(ask(gpus_per_node=0, cpus_per_task=8), fit.stock(view(nodes=[home_node()]))) == ""


def test_two_sites_do_not_add_up_for_a_gang() -> None:
    seen = view([pool("e", 8), pool("w", 4, site=WEST)])
    assert "east has at most 8 nodes that fit, 10 are needed" in fit.never(ask(nodes=10, tasks=10), fit.stock(seen))


def test_nodes_that_are_coming_go_to_the_jobs_they_were_started_for() -> None:
    gang, singles = ask(nodes=2, tasks=2), ask()
    fresh = fit.Room.of(view(), frozenset())
    wanted = [[each.name for each in placed.new] for asks in (gang, singles) for placed in fresh.place(asks, 2)]
    coming = view(nodes=[node(f"t4-{number}", Power.STARTING) for number in range(1, 5)])
    room = fit.Room.of(coming, frozenset())
    assert [
        [each.name for each in placed.nodes] for asks in (gang, singles) for placed in room.place(asks, 2)
    ] == wanted
