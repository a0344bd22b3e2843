"""Spot or on demand: what the site, the job's user, its time limit and the share of spot machines say."""

from typing import Any

import pytest

from cmscale.model import Goal, Job, Node, Power, Snapshot, Wait
from policies.serve_queue import Settings, propose
from tests.builders import BUSY, ask, job, node, pool, view

SPOT = pool("spot", count=8, market="spot", price_hour=0.2)
DEMAND = pool("demand", count=8, price_hour=0.5)


def where(seen: Snapshot, **settings: Any) -> list[str]:
    """From which pools the jobs get nodes, in order."""
    goals = [each for each in propose(seen, frozenset(), Settings(**settings)) if isinstance(each, Goal)]
    return [goal.node.partition("-")[0] for goal in goals]


def one(**changes: Any) -> Snapshot:
    return view([SPOT, DEMAND], jobs=[job(1, **changes)])


def test_by_default_the_cheaper_spot_machine_is_taken() -> None:
    assert where(one()) == ["spot"]


def test_never_means_never() -> None:
    assert where(one(comment="spot"), spot="never") == ["demand"]


def test_a_user_opts_out_in_the_jobs_comment() -> None:
    assert where(one(comment="on-demand, please")) == ["demand"]


def test_a_job_that_may_not_run_again_gets_no_spot_machine() -> None:
    assert where(one(requeue=False)) == ["demand"]
    assert where(one(requeue=False, comment="spot"), spot="opt-in") == ["demand"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "demand"),
        ({"comment": "spot"}, "spot"),
        ({"comment": "train,spot"}, "spot"),
        ({"comment": "spotless"}, "demand"),
        ({"comment": "cm-scale: no spot machines are started for it"}, "demand"),
        ({"asks": ask(limit_s=600)}, "spot"),
        ({"asks": ask(limit_s=601)}, "demand"),
    ],
)
def test_with_opt_in_a_job_says_so_or_is_short(changes: dict[str, Any], expected: str) -> None:
    assert where(one(**changes), spot="opt-in", spot_limit_s=600.0) == [expected]


def test_a_spot_machine_that_is_up_already_serves_whoever_fits_for_slurm_does_not_ask() -> None:
    there = node("spot-1", Power.ON, SPOT)
    assert where(view([SPOT, DEMAND], [there], [job(1)]), spot="never") == ["spot"]


def several(count: int) -> list[Job]:
    return [job(number, ask(exclusive=True)) for number in range(1, count + 1)]


def test_of_all_machines_no_more_than_the_share_are_spot() -> None:
    pools = where(view([SPOT, DEMAND], jobs=several(4)), spot_share=0.5)
    assert sorted(pools) == ["demand", "demand", "spot", "spot"]
    assert where(view([SPOT, DEMAND], jobs=several(3)), spot_share=0.0) == ["demand"] * 3


def busy(name: str) -> Node:
    of = SPOT if name.startswith("spot") else DEMAND
    return node(name, Power.ON, of, states=BUSY, free=of.shape.less(of.shape))


def test_machines_that_are_there_count_in_the_share() -> None:
    there = [busy("spot-1"), busy("spot-2"), busy("demand-1")]
    assert where(view([SPOT, DEMAND], there, several(1)), spot_share=0.6) == ["demand"]
    assert where(view([SPOT, DEMAND], there[1:], several(1)), spot_share=0.7) == ["spot"]


def test_a_job_for_which_only_spot_machines_are_left_is_told_why_it_waits() -> None:
    (wait,) = propose(view([SPOT], jobs=[job(1, requeue=False)]), frozenset(), Settings())
    assert isinstance(wait, Wait)
    assert (wait.job, wait.but) == ("1", frozenset({"spot"}))
    assert "no spot machines are started for it" in wait.reason


def test_a_job_that_the_share_leaves_without_machines_is_told_so() -> None:
    (wait,) = propose(view([SPOT], jobs=several(1)), frozenset(), Settings(spot_share=0.5))
    assert isinstance(wait, Wait)
    assert wait.reason.endswith("50% of all machines at most may be spot machines, and none on demand is to be had")


def test_a_gang_counts_in_the_share_with_all_its_nodes() -> None:
    gang = [job(1, ask(nodes=2, tasks=2, exclusive=True))]
    there = [busy("demand-1")]
    assert where(view([SPOT, DEMAND], there, gang), spot_share=0.5) == ["demand"] * 2


def test_jobs_that_ask_alike_but_want_different_markets_are_served_apart() -> None:
    jobs = [job(1, comment="on-demand"), job(2), job(3, comment="on-demand")]
    assert where(view([SPOT, DEMAND], jobs=jobs)) == ["demand", "spot", "demand"]
