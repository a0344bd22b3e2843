"""What did the storms cost? A table, as docs/storms.md shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.storms.storms import Forecast
    from tests.storms.weather import Toll


def rows(tolls: Iterable[tuple[Forecast, Toll]]) -> Iterator[str]:
    yield from HEADING
    yield from (row(forecast, toll) for forecast, toll in tolls)


def row(forecast: Forecast, toll: Toll) -> str:
    return _row(
        (
            forecast.name,
            str(toll.wanted),
            str(toll.made),
            str(sum(toll.calls.values())),
            f"{toll.calls_per_node:.2f}",
            f"{toll.last_job_s:.0f} s",
            str(toll.lives),
            f"{toll.took_s:.1f} s",
        )
    )


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


HEADING = (
    _row(("storm", "nodes", "machines", "calls", "calls per node", "last job after", "lives", "took")),
    _row(["---"] + ["---:"] * 7),
)

STORM = "storm"
"""The property under which a test records its row."""
