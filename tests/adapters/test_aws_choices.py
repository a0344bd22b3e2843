"""What is remembered of each offer of a pool."""

from __future__ import annotations

import pytest

from cmscale.adapters.aws.choices import Choices, soonest
from cmscale.adapters.aws.pool import AwsPool, Offer
from cmscale.model import Outcome, Result
from cmscale.resting import RESTS

OFFERS = AwsPool(("g5.xlarge", "g6.xlarge"), "ami-1", ("subnet-a", "subnet-b")).offers
ONE, *OTHERS = OFFERS


def refusal(result: Result) -> Outcome:
    return Outcome(result, f"{result.value} it is")


def test_each_type_is_offered_in_all_subnets_before_the_next() -> None:
    assert [str(offer) for offer in OFFERS] == [
        "g5.xlarge in subnet-a",
        "g5.xlarge in subnet-b",
        "g6.xlarge in subnet-a",
        "g6.xlarge in subnet-b",
    ]


@pytest.mark.parametrize("result", [Result.CAPACITY, Result.QUOTA, Result.BAD_REQUEST, Result.IMAGE])
def test_a_refused_offer_rests_for_its_own_cause_and_twice_as_long_the_next_time(result: Result) -> None:
    choices, rest_s = Choices(), RESTS[result].first_s
    choices.learn([], {ONE: refusal(result)}, now=0)
    assert choices.open(OFFERS, rest_s - 1) == tuple(OTHERS)
    assert choices.open(OFFERS, rest_s) == OFFERS
    choices.learn([], {ONE: refusal(result)}, now=rest_s)
    assert choices.open(OFFERS, 3 * rest_s - 1) == tuple(OTHERS)
    assert choices.open(OFFERS, 3 * rest_s) == OFFERS


@pytest.mark.parametrize("result", [Result.THROTTLED, Result.AUTH, Result.GONE])
def test_what_says_nothing_of_an_offer_does_not_close_it(result: Result) -> None:
    choices = Choices()
    choices.learn([], {ONE: refusal(result)}, now=0)
    assert choices.open(OFFERS, 0) == OFFERS


def test_an_offer_that_gives_machines_again_begins_anew() -> None:
    choices, rest_s = Choices(), RESTS[Result.CAPACITY].first_s
    choices.learn([], {ONE: refusal(Result.CAPACITY)}, now=0)
    choices.learn([ONE], {ONE: refusal(Result.CAPACITY)}, now=rest_s)  # some, and not all that were wanted
    assert choices.open(OFFERS, 2 * rest_s) == OFFERS


def test_all_are_asked_when_nothing_else_is_left() -> None:
    choices = Choices()
    choices.learn([], dict.fromkeys(OFFERS, refusal(Result.CAPACITY)), now=0)
    assert choices.open(OFFERS, 1) == OFFERS


def test_another_market_is_another_offer() -> None:
    choices = Choices()
    choices.learn([], {ONE: refusal(Result.CAPACITY)}, now=0)
    spot = Offer(ONE.instance_type, ONE.subnet, "spot")
    assert choices.open([spot, ONE], 1) == (spot,)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([Result.CAPACITY, Result.THROTTLED, Result.QUOTA], Result.THROTTLED),
        ([Result.QUOTA, Result.CAPACITY, Result.BAD_REQUEST], Result.CAPACITY),
        ([Result.QUOTA, Result.QUOTA], Result.QUOTA),
        ([Result.GONE], None),
        ([], None),
    ],
)
def test_a_pool_is_refused_for_the_cause_that_passes_first(results: list[Result], expected: Result | None) -> None:
    assert soonest(map(refusal, results)) is expected
