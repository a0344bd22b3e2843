"""Do hours of the week, such as "mon-fri 08:00-18:00", hold now, and when do they end or begin?

Plain arithmetic on seconds. What the site's clock is ahead of UTC is given, and taken to stay as it is: on the day on
which the clock changes, hours are an hour off until the change. No hours at all mean always.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from math import inf

from cmscale.model import Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_S = 24 * 3600
WEEK_S = 7 * DAY_S
_MONDAY_S = 4 * DAY_S
"""The epoch was a Thursday, so the first Monday came four days later."""

_HOURS = re.compile(r"(?:([a-z,-]+)\s+)?(\d\d):(\d\d)\s*-\s*(\d\d):(\d\d)")


# --- as an admin writes them -----------------------------------------------------------------------------------------


def window(text: str) -> Window:
    """The hours that a text means; raises ValueError saying what was expected."""
    match = _HOURS.fullmatch(text.strip().lower())
    if not match:
        raise ValueError(f'expected hours such as "mon-fri 08:00-18:00" or "20:00-06:00", got "{text}"')
    days, *clock = match.groups()
    begin_s, end_s = _time_s(text, *clock[:2]), _time_s(text, *clock[2:])
    if begin_s == DAY_S:
        raise ValueError(f'"{text}" begins at 24:00; write 00:00 and the next day')
    if begin_s == end_s:
        raise ValueError(f'"{text}" ends when it begins; write 00:00-24:00 for whole days')
    return Window(_days(text, days) if days else frozenset(range(7)), begin_s, end_s)


def windows(texts: Iterable[str]) -> tuple[Window, ...]:
    """The hours that several texts mean together; raises ValueError as `window` does."""
    return tuple(window(text) for text in texts)


def text(hours: Window) -> str:
    """The hours as an admin would write them; `window` reads them back."""
    times = f"{_time(hours.begin_s)}-{_time(hours.end_s)}"
    return times if len(hours.days) == 7 else f"{_names(hours.days)} {times}"


def moment(at: float, utc_offset_s: float) -> str:
    """A time of this week by the site's clock, such as "fri 18:00"; with seconds unless they are 0."""
    day, second = divmod(int(at - _week_began(at, utc_offset_s)), DAY_S)
    return f"{DAYS[day]} {_time(second)}" + (f":{second % 60:02}" if second % 60 else "")


def _days(text: str, names: str) -> frozenset[int]:
    days: set[int] = set()
    for part in names.split(","):
        first, _, last = part.partition("-")
        begin, end = _day(text, first), _day(text, last or first)
        days |= {day % 7 for day in range(begin, end + 1 if begin <= end else end + 8)}
    return frozenset(days)


def _day(text: str, name: str) -> int:
    if name not in DAYS:
        close = get_close_matches(name, DAYS, n=1)
        hint = f'did you mean "{close[0]}"?' if close else f"valid: {', '.join(DAYS)}"
        raise ValueError(f'there is no day "{name}" in "{text}"; {hint}')
    return DAYS.index(name)


def _time_s(text: str, hour: str, minute: str) -> int:
    time_s = int(hour) * 3600 + int(minute) * 60
    if int(minute) > 59 or time_s > DAY_S:
        raise ValueError(f'there is no time {hour}:{minute} in "{text}"; expected 00:00 to 24:00')
    return time_s


def _time(second: int) -> str:
    return f"{second // 3600:02}:{second % 3600 // 60:02}"


def _names(days: frozenset[int]) -> str:
    """Days in order; three or more in a row as a range."""
    runs: list[list[int]] = []
    for day in sorted(days):
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return ",".join(
        f"{DAYS[run[0]]}-{DAYS[run[-1]]}" if len(run) > 2 else ",".join(DAYS[day] for day in run) for run in runs
    )


# --- as they pass ----------------------------------------------------------------------------------------------------


def open_until(hours: Sequence[Window], now: float, utc_offset_s: float) -> float | None:
    """When the hours that hold now end, those that follow without a gap included: inf if never, None if none hold."""
    week = _week_began(now, utc_offset_s)
    return next((week + end for begin, end in _spans(hours) if week + begin <= now < week + end), None)


def opens_at(hours: Sequence[Window], now: float, utc_offset_s: float) -> float:
    """When hours hold again: now, if they do; inf if never."""
    week = _week_began(now, utc_offset_s)
    return min((max(week + begin, now) for begin, end in _spans(hours) if now < week + end), default=inf)


def _week_began(now: float, utc_offset_s: float) -> float:
    """The last Monday, at midnight of the site's clock."""
    passed = (now + utc_offset_s - _MONDAY_S) // WEEK_S
    return passed * WEEK_S + _MONDAY_S - utc_offset_s


def _spans(hours: Sequence[Window]) -> list[tuple[float, float]]:
    """When hours hold, in seconds since this week began: those of the last, this and the next week, merged."""
    if not hours:
        return [(-inf, inf)]
    each = [
        (week + day * DAY_S + one.begin_s, week + day * DAY_S + one.end_s + (DAY_S if one.end_s < one.begin_s else 0))
        for one in hours
        for day in one.days
        for week in (-WEEK_S, 0, WEEK_S)
    ]
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(each):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    # More than two weeks without a gap have none at all.
    return [(-inf, inf)] if any(end - begin > 2 * WEEK_S for begin, end in merged) else merged
