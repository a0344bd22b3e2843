"""Hours, days and months of a calendar, also where clocks are changed."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from cmscale.model import Period
from cmscale.shell.periods import Periods

PARIS = ZoneInfo("Europe/Paris")
IN_PARIS = Periods(PARIS)


def at(*words: int) -> float:
    return datetime(*words, tzinfo=PARIS).timestamp()  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("period", "moment", "begin", "end"),
    [
        (Period.HOUR, (2026, 3, 1, 12, 34, 56), (2026, 3, 1, 12), (2026, 3, 1, 13)),
        (Period.DAY, (2026, 3, 1, 12, 34, 56), (2026, 3, 1), (2026, 3, 2)),
        (Period.MONTH, (2026, 3, 31, 23, 59), (2026, 3, 1), (2026, 4, 1)),
        (Period.MONTH, (2026, 12, 31), (2026, 12, 1), (2027, 1, 1)),
        (Period.MONTH, (2028, 2, 29), (2028, 2, 1), (2028, 3, 1)),
    ],
)
def test_a_period_begins_and_ends_by_the_calendar(
    period: Period, moment: tuple[int, ...], begin: tuple[int, ...], end: tuple[int, ...]
) -> None:
    assert IN_PARIS.around(period, at(*moment)) == (at(*begin), at(*end))
    assert IN_PARIS.around(period, at(*begin)) == (at(*begin), at(*end))


@pytest.mark.parametrize(("day", "hours"), [((2026, 3, 29), 23), ((2026, 10, 25), 25), ((2026, 10, 26), 24)])
def test_a_day_on_which_clocks_are_changed_has_an_hour_less_or_more(day: tuple[int, ...], hours: int) -> None:
    begin, end = IN_PARIS.around(Period.DAY, at(*day, 15))
    assert end - begin == hours * 3600
    every = {IN_PARIS.around(Period.HOUR, begin + minute * 60) for minute in range(hours * 60)}
    assert sorted(every) == [(begin + hour * 3600, begin + (hour + 1) * 3600) for hour in range(hours)]


def test_a_day_and_a_month_are_found_by_their_names() -> None:
    assert IN_PARIS.of_month("2026-02") == (at(2026, 2, 1), at(2026, 3, 1))
    assert IN_PARIS.of_day("2026-03-29") == (at(2026, 3, 29), at(2026, 3, 30))
    assert IN_PARIS.date(at(2026, 3, 29, 23)) == "2026-03-29"
    assert (IN_PARIS.offset_s(at(2026, 1, 1)), IN_PARIS.offset_s(at(2026, 7, 1))) == (3600, 7200)
    for wrong in ("2026-13", "2026-02-30", "march"):
        with pytest.raises(ValueError, match=r"\w"):
            IN_PARIS.of_day(wrong)


def test_without_a_zone_the_calendar_is_the_machine_s_own() -> None:
    begin, end = Periods().around(Period.DAY, 1_772_366_400)
    assert datetime.fromtimestamp(begin).astimezone().strftime("%H:%M") == "00:00"
    assert 23 * 3600 <= end - begin <= 25 * 3600
