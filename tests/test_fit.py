"""Who could serve whom: shapes, packing, kinds, and the queue as Slurm sees it."""

from dataclasses import replace

import pytest

from cmscale import fit
from cmscale.model import Ask, Help, Power, Shape
from tests.builders import CPU, NOW, T4, ask, job, node

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


def test_neighbours_in_the_queue_that_ask_alike_are_one_group_in_slurms_order() -> None:
    big, small = ask(), ask(gpus_per_node=0)
    queue = [job(1, big), job(2, replace(big), count=3), job(3, small), job(4, big), job(5, big, help=Help.NO)]
    grouped = [([each.id for each in group.jobs], group.tasks) for group in fit.groups(reversed(queue))]
    assert grouped == [(["1", "2"], 4), (["3"], 1), (["4"], 1)]


def test_a_group_is_parted_where_a_further_thing_differs() -> None:
    queue = [job(1, comment="spot"), job(2, comment="spot"), job(3)]
    grouped = fit.groups(queue, key=lambda each: "spot" in each.words)
    assert [[each.id for each in group.jobs] for group in grouped] == [["1", "2"], ["3"]]


def test_among_jobs_of_one_priority_the_first_submitted_comes_first() -> None:
    queue = [job(1, submit=NOW, priority=5), job(2, submit=NOW - 9, priority=5), job(3, submit=NOW, priority=6)]
    assert [each.id for group in fit.groups(queue) for each in group.jobs] == ["3", "2", "1"]


def test_nodes_that_are_alike_are_of_one_kind_whatever_state_they_are_in() -> None:
    assert fit.kind(node("t4-1")) == fit.kind(node("t4-2", Power.ON))
    assert fit.kind(node("t4-1", until=NOW)) != fit.kind(node("t4-1"))
    assert fit.kind(node("t4-1", until=NOW, reserved="R")).lasting == fit.kind(node("t4-1"))
