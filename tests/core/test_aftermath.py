"""What is remembered of a pool after each kind of outcome, and for how long."""

import pytest

from cmscale.core.aftermath import after_failed_boot, after_launch, settled
from cmscale.model import Closure, NodeName, Outcome, Result
from cmscale.resting import RESTS
from tests.builders import NOW

OK = Outcome(Result.OK)


def after(before: Closure | None, *outcomes: Outcome) -> Closure | None:
    named = {NodeName(f"n{number}"): outcome for number, outcome in enumerate(outcomes)}
    return after_launch(before, named, NOW)


def refusal(result: Result) -> Outcome:
    return Outcome(result, f"{result.value} it is")


@pytest.mark.parametrize("result", [result for result in RESTS if result is not Result.BOOT])
def test_each_refusal_closes_for_a_time_of_its_own_and_doubles_when_it_comes_again(result: Result) -> None:
    first = after(None, refusal(result))
    assert first == Closure(NOW + RESTS[result].first_s, result, f"{result.value} it is")
    again = after(first, refusal(result))
    assert again is not None
    assert (again.until, again.strikes) == (NOW + RESTS[result].first_s * 2, 2)
    many = Closure(0, result, "", strikes=50)
    capped = after(many, refusal(result))
    assert capped is not None
    assert capped.until == NOW + RESTS[result].most_s


def test_another_cause_starts_to_count_anew() -> None:
    other = after(Closure(0, Result.QUOTA, "", strikes=5), refusal(Result.CAPACITY))
    assert other is not None
    assert (other.result, other.strikes) == (Result.CAPACITY, 1)


def test_what_ends_well_opens_the_pool() -> None:
    assert after(Closure(NOW - 1, Result.CAPACITY, "", strikes=3), OK) is None


def test_a_launch_that_ends_well_says_nothing_about_boots() -> None:
    failing = Closure(NOW - 1, Result.BOOT, "", strikes=3)
    assert after(failing, OK) == failing


def test_a_launch_that_gave_only_some_machines_closes_as_if_for_the_first_time() -> None:
    partial = after(Closure(NOW - 1, Result.CAPACITY, "", strikes=3), OK, refusal(Result.CAPACITY))
    assert partial is not None
    assert partial.strikes == 1


def test_what_is_not_known_changes_nothing() -> None:
    before = Closure(NOW - 1, Result.CAPACITY, "")
    assert after(before, refusal(Result.TRANSIENT)) == before
    assert after(None, refusal(Result.GONE)) is None


def test_one_machine_may_fail_to_join_by_chance_two_in_a_row_close_the_pool() -> None:
    first = after_failed_boot(None, "i-1 has not joined", NOW)
    assert first.until == 0
    second = after_failed_boot(first, "i-2 has not joined", NOW)
    assert second.until == NOW + RESTS[Result.BOOT].first_s
    assert after_failed_boot(second, "i-3 has not joined", NOW).until == NOW + 2 * RESTS[Result.BOOT].first_s


def test_only_a_call_of_unknown_effect_is_unsettled() -> None:
    node = NodeName("n")
    assert settled({node: refusal(Result.CAPACITY)})
    assert not settled({node: refusal(Result.TRANSIENT)})


@pytest.mark.parametrize("result", [Result.THROTTLED, Result.AUTH])
def test_a_call_made_again_that_is_not_let_through_settles_nothing(result: Result) -> None:
    outcomes = {NodeName("n"): refusal(result)}
    assert settled(outcomes)
    assert not settled(outcomes, again=True)
