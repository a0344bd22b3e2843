"""What holds in every world, whatever happens in it? worlds.py says which worlds there are, play.py how they go.

A busy node is not stopped; no two machines are made for one name; never more machines are coming than the jobs that
wait need; a gang is at one site; after a policy has failed nothing is taken away in that tick. When demand has ended
and every fault is over, ten ticks later there is nothing that nobody keeps. And all that wherever the daemon is killed.

The suite tries the same worlds each time. CM_SCALE_WORLDS=1000 pytest tests/properties -m slow tries so many others;
what such a search finds becomes a story in test_found.py.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings

from tests.properties.play import left_over, made_for_jobs, stage, still_changed, still_waiting
from tests.properties.worlds import World, worlds

OTHERS = int(os.environ.get("CM_SCALE_WORLDS", "0"))


def examples(number: int, others: int = 0) -> settings:
    """So many worlds, the same each time, or so many others; a busy machine must not fail a test."""
    return settings(
        deadline=None,
        max_examples=others or number,
        derandomize=not others,
        suppress_health_check=list(HealthCheck),
    )


def never_wrong(world: World) -> None:
    with stage(world) as on:
        on.story()
        assert on.wrong == []


def served_and_given_back(world: World) -> None:
    with stage(world) as on:
        on.story()
        on.heal()
        assert [*on.wrong, *still_waiting(on), *still_changed(on)] == []
        on.rest()
        assert [*on.wrong, *left_over(on), *made_for_jobs(on)] == []


@examples(30)
@given(worlds(broken=True))
def test_whatever_happens_nothing_is_done_that_must_never_be(world: World) -> None:
    never_wrong(world)


@examples(20)
@given(worlds())
def test_ten_ticks_after_demand_and_faults_are_over_only_what_is_kept_is_left(world: World) -> None:
    served_and_given_back(world)


@examples(20)
@given(worlds(deadly=True))
def test_killed_at_any_call_and_again_nothing_is_orphaned_and_nothing_made_twice(world: World) -> None:
    served_and_given_back(world)


@pytest.mark.slow
@pytest.mark.timeout(900 + 10 * OTHERS)
@examples(60, OTHERS)
@given(worlds(broken=True, deadly=True, faults=16, jobs=20))
def test_in_worse_worlds_as_well(world: World) -> None:
    served_and_given_back(world)
