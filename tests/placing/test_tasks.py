"""Tasks: placements are dealt to the jobs of a group in order, each for its share of the node."""

from cmscale.model import Goal
from policies.serve_queue import Settings, propose
from tests.builders import T4, ask, job, pool, view

SMALL = ask(gpus_per_node=0, cpus_per_node=1)


def test_jobs_that_share_a_node_are_all_named_with_it_and_the_first_gives_the_reason() -> None:
    jobs = [job(number, SMALL) for number in (1, 2, 3)]
    (goal,) = [each for each in propose(view(jobs=jobs), frozenset(), Settings()) if isinstance(each, Goal)]
    assert (goal.job, goal.also) == ("1", ("2", "3"))


def test_a_node_for_the_end_of_one_job_and_the_beginning_of_the_next_serves_both() -> None:
    of = pool(shape=T4)  # four CPUs: four tasks a node
    goals = [
        each
        for each in propose(view([of], jobs=[job(1, SMALL, count=6), job(2, SMALL, count=2)]), frozenset(), Settings())
        if isinstance(each, Goal)
    ]
    assert [(goal.node, goal.job, goal.also) for goal in goals] == [("t4-1", "1", ()), ("t4-2", "1", ("2",))]
