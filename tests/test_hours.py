"""Hours of the week: how they are written, and when they hold."""

import re
from datetime import UTC, datetime
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as some

from cmscale import hours
from cmscale.hours import DAY_S, WEEK_S
from cmscale.model import Window

OFFICE = (hours.window("mon-fri 08:00-18:00"),)


def at(day: int, time: str) -> float:
    """A time in the week of Monday, 6 January 2025, in UTC; Monday is day 6."""
    return datetime.fromisoformat(f"2025-01-{day:02} {time}").replace(tzinfo=UTC).timestamp()


# --- as an admin writes them -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "days", "begin_s", "end_s"),
    [
        ("mon-fri 08:00-18:00", {0, 1, 2, 3, 4}, 8 * 3600, 18 * 3600),
        ("sat,sun 00:00-24:00", {5, 6}, 0, DAY_S),
        ("20:00-06:00", set(range(7)), 20 * 3600, 6 * 3600),
        ("sat-mon 00:00-12:30", {5, 6, 0}, 0, 45000),
        ("wed-wed,fri 01:00-02:00", {2, 4}, 3600, 7200),
        (" Mon  08:00 - 18:00 ", {0}, 8 * 3600, 18 * 3600),
    ],
)
def test_hours_are_read_as_they_are_written(written: str, days: set[int], begin_s: int, end_s: int) -> None:
    assert hours.window(written) == Window(frozenset(days), begin_s, end_s)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("always", 'expected hours such as "mon-fri 08:00-18:00" or "20:00-06:00", got "always"'),
        ("mon 8-18", 'expected hours such as "mon-fri 08:00-18:00" or "20:00-06:00", got "mon 8-18"'),
        ("mon-fry 08:00-18:00", 'there is no day "fry" in "mon-fry 08:00-18:00"; did you mean "fri"?'),
        ("x 08:00-18:00", 'there is no day "x" in "x 08:00-18:00"; valid: mon, tue, wed, thu, fri, sat, sun'),
        ("mon,,tue 08:00-18:00", 'there is no day "" in "mon,,tue 08:00-18:00"; valid: mon, tue, wed, thu'),
        ("08:60-18:00", 'there is no time 08:60 in "08:60-18:00"; expected 00:00 to 24:00'),
        ("08:00-24:01", 'there is no time 24:01 in "08:00-24:01"; expected 00:00 to 24:00'),
        ("24:00-06:00", '"24:00-06:00" begins at 24:00; write 00:00 and the next day'),
        ("08:00-08:00", '"08:00-08:00" ends when it begins; write 00:00-24:00 for whole days'),
    ],
)
def test_what_cannot_be_read_is_told_in_one_sentence(written: str, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        hours.window(written)


@pytest.mark.parametrize(
    "written", ["mon-fri 08:00-18:00", "sat,sun 00:00-24:00", "20:00-06:00", "mon,wed-fri,sun 00:00-00:01"]
)
def test_hours_are_written_back_as_an_admin_would(written: str) -> None:
    assert hours.text(hours.window(written)) == written


def test_a_moment_is_told_by_the_sites_clock() -> None:
    assert hours.moment(at(10, "18:00"), 0) == "fri 18:00"
    assert hours.moment(at(10, "23:30:07"), 3600) == "sat 00:30:07"
    assert hours.moment(0.0, 0) == "thu 00:00"


# --- as they pass ----------------------------------------------------------------------------------------------------


def test_within_hours_it_is_told_when_they_end_and_outside_when_they_begin() -> None:
    assert hours.open_until(OFFICE, at(6, "08:00"), 0) == at(6, "18:00")
    assert hours.open_until(OFFICE, at(6, "18:00"), 0) is None
    assert hours.opens_at(OFFICE, at(6, "18:00"), 0) == at(7, "08:00")
    assert hours.opens_at(OFFICE, at(10, "18:00"), 0) == at(13, "08:00")
    assert hours.opens_at(OFFICE, at(6, "09:00"), 0) == at(6, "09:00")


def test_hours_over_midnight_end_on_the_next_day_even_from_one_week_to_the_next() -> None:
    night = (hours.window("sun 20:00-06:00"),)
    assert hours.open_until(night, at(12, "23:00"), 0) == at(13, "06:00")
    assert hours.open_until(night, at(13, "05:00"), 0) == at(13, "06:00")
    assert hours.open_until(night, at(13, "06:00"), 0) is None


def test_the_sites_clock_counts() -> None:
    assert hours.open_until(OFFICE, at(6, "07:30"), 3600) == at(6, "17:00")
    assert hours.open_until(OFFICE, at(6, "07:30"), -3600) is None


def test_hours_that_follow_one_another_or_overlap_are_one() -> None:
    seam = hours.windows(["fri 20:00-24:00", "sat,sun 00:00-24:00", "sun 22:00-06:00"])
    assert hours.open_until(seam, at(10, "21:00"), 0) == at(13, "06:00")


def test_no_hours_at_all_and_hours_without_a_gap_hold_for_ever() -> None:
    for always in ((), hours.windows(["00:00-24:00"]), hours.windows(["06:00-18:00", "18:00-06:00"])):
        assert hours.open_until(always, at(6, "12:00"), 0) == inf
        assert hours.opens_at(always, at(6, "12:00"), 0) == at(6, "12:00")


def test_hours_of_no_day_never_hold() -> None:
    never = (Window(frozenset(), 0, DAY_S),)
    assert hours.open_until(never, at(6, "12:00"), 0) is None
    assert hours.opens_at(never, at(6, "12:00"), 0) == inf


# --- whatever the hours ----------------------------------------------------------------------------------------------

MINUTES = some.integers(0, 24 * 60 - 1).map(lambda minute: minute * 60)
WINDOWS = some.builds(Window, some.frozensets(some.integers(0, 6), min_size=1), MINUTES, MINUTES).filter(
    lambda one: one.begin_s != one.end_s
)
HOURS = some.lists(WINDOWS, min_size=1, max_size=4).map(tuple)
TIMES = some.integers(0, 2_000_000_000).map(float)
OFFSETS = some.integers(-12, 14).map(lambda hour: hour * 3600.0)


@given(WINDOWS)
def test_what_is_written_back_is_read_as_the_same(one: Window) -> None:
    assert hours.window(hours.text(one)) == one


@given(HOURS, TIMES, OFFSETS)
def test_hours_hold_until_just_before_they_end_and_not_before_they_begin(
    some_hours: tuple[Window, ...], now: float, offset_s: float
) -> None:
    end = hours.open_until(some_hours, now, offset_s)
    begin = hours.opens_at(some_hours, now, offset_s)
    if end is None:
        assert now < begin <= now + WEEK_S
        assert hours.open_until(some_hours, begin - 1, offset_s) is None
        assert hours.open_until(some_hours, begin, offset_s) is not None
    else:
        assert begin == now < end
        if end < inf:
            assert hours.open_until(some_hours, end - 1, offset_s) == end
            assert hours.open_until(some_hours, end, offset_s) is None


@given(HOURS, TIMES, OFFSETS)
def test_hours_hold_just_when_the_calendar_says_so(some_hours: tuple[Window, ...], now: float, offset_s: float) -> None:
    clock = datetime.fromtimestamp(now + offset_s, UTC)
    second = clock.hour * 3600 + clock.minute * 60 + clock.second
    today, yesterday = clock.weekday(), (clock.weekday() - 1) % 7
    holds = any(
        (today in one.days and one.begin_s <= second < (one.end_s if one.end_s > one.begin_s else DAY_S))
        or (yesterday in one.days and one.end_s < one.begin_s and second < one.end_s)
        for one in some_hours
    )
    assert (hours.open_until(some_hours, now, offset_s) is not None) is holds


def test_hours_that_overlap_all_week_never_end_although_one_of_them_ends_at_once() -> None:
    every_day = frozenset(range(7))
    always = (Window(frozenset({0}), 0, 60), Window(every_day, 120, 0), Window(every_day, 180, 120))
    assert hours.open_until(always, 0.0, 0.0) == inf
