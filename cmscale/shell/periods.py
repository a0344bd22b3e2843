"""When do the hour, the day and the month begin and end, by the clock of the site?

The calendar of one time zone; without one, of the machine's own. A day on which clocks are changed has 23 or 25 hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from cmscale.model import Period

_FIRST: Mapping[Period, Mapping[str, Any]] = {
    Period.HOUR: {"minute": 0},
    Period.DAY: {"hour": 0, "minute": 0},
    Period.MONTH: {"day": 1, "hour": 0, "minute": 0},
}


@dataclass(frozen=True, slots=True)
class Periods:
    zone: tzinfo | None = None
    """None: the machine's own."""

    def around(self, period: Period, at: float) -> tuple[float, float]:
        """The hour, day or month in which a moment lies: when it begins, and when the next one does."""
        begin = self.began(period, at)
        if period is Period.HOUR:
            return begin, begin + 3600
        # A day and a half later, or a month and some days: within the next one, whatever clocks do meanwhile.
        later = timedelta(days=1, hours=12) if period is Period.DAY else timedelta(days=33)
        return begin, self.began(period, (datetime.fromtimestamp(begin, self.zone) + later).timestamp())

    def began(self, period: Period, at: float) -> float:
        moment = datetime.fromtimestamp(at, self.zone)
        return moment.replace(second=0, microsecond=0, **_FIRST[period]).timestamp()

    def offset_s(self, at: float) -> float:
        """What the zone's clock is ahead of UTC."""
        offset = datetime.fromtimestamp(at, self.zone).astimezone(self.zone).utcoffset()
        return offset.total_seconds() if offset else 0.0

    def date(self, at: float) -> str:
        """Its day, such as 2026-03-01."""
        return datetime.fromtimestamp(at, self.zone).strftime("%Y-%m-%d")

    def of_day(self, text: str) -> tuple[float, float]:
        """The day 2026-03-01; raises ValueError."""
        return self._named(Period.DAY, text, "%Y-%m-%d")

    def of_month(self, text: str) -> tuple[float, float]:
        """The month 2026-03; raises ValueError."""
        return self._named(Period.MONTH, text, "%Y-%m")

    def _named(self, period: Period, text: str, form: str) -> tuple[float, float]:
        # Without a zone a time is the machine's own.
        return self.around(period, datetime.strptime(text, form).replace(tzinfo=self.zone).timestamp())
