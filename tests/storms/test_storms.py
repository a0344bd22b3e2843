"""After every storm each job is done, no node ever had two machines, no machine is left, and few calls were made."""

from __future__ import annotations

from collections import Counter
from math import ceil
from pathlib import Path

import pytest

from cmscale.adapters.aws.names import MOST_A_LAUNCH
from cmscale.model import Power, Verb
from cmscale.shell.loop import Look
from tests.storms.conftest import Blow
from tests.storms.storms import STORMS, Forecast
from tests.storms.weather import Double

(THOUSAND,) = (each for each in STORMS if each.name == "a thousand at once")

pytestmark = pytest.mark.slow


def nodes_up(look: Look) -> int:
    return sum(node.power is Power.ON for node in look.view.nodes.values())


@pytest.mark.parametrize("forecast", STORMS, ids=lambda each: each.name.replace(" ", "-"))
def test_after_the_storm_all_work_is_done_and_nothing_is_twice_or_left(forecast: Forecast, blow: Blow) -> None:
    storm, toll = blow(forecast)
    assert (toll.done, storm.slurm.failed) == (forecast.nodes, {})
    assert toll.twice == frozenset()
    assert toll.left == ()
    assert toll.open == 0
    assert toll.lives == len(forecast.deaths) + 1
    assert toll.calls_per_node <= forecast.calls_per_node
    assert toll.last_job_s <= forecast.last_job_s


def test_a_thousand_nodes_are_launched_in_two_calls_as_soon_as_they_are_parked(blow: Blow) -> None:
    storm, _ = blow(THOUSAND)
    launches = storm.calls("RunInstances")
    assert len(launches) == ceil(1000 / MOST_A_LAUNCH) == 2
    assert {each["at"] - storm.began for each in launches} == {storm.tick_s}


def test_while_a_thousand_nodes_are_up_a_tick_makes_one_call_and_now_and_then_another(blow: Blow) -> None:
    storm, _ = blow(THOUSAND)
    up = [look.view.now for look in storm.looks if not look.plan.actions and nodes_up(look) == 1000]
    assert len(up) >= 2
    for at in up:
        made = Counter(each["action"] for each in storm.calls() if each["at"] == at)
        assert made in ({"DescribeInstances": 1}, {"DescribeInstances": 1, "DescribeInstanceStatus": 1})


def test_a_thousand_idle_machines_are_given_back_within_five_seconds_of_the_decision(
    ec2: Double, tmp_path: Path
) -> None:
    storm = Forecast("a thousand idle", "", 1000, 0, 0, tick_s=1.0).idle(ec2, tmp_path)
    storm.blow(over=lambda: any(action.verb is Verb.DELETE for action in storm.looks[-1].plan.actions))
    decided_at = next(look.view.now for look in storm.looks if look.plan.actions)
    (left,) = storm.calls("TerminateInstances")
    assert len(left["instances"]) == 1000
    assert left["at"] - decided_at < 5.0
