"""How does a benchmark say what it measured?

One row for each figure. With --json each row is one object on one line: name, value, unit, and `against`, which says
what the figure is to be held against: a limit of ours, a peer's published figure, or another figure. A time is the
median of several runs after a first one that does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    name: str
    value: float
    unit: str
    against: str


@dataclass(frozen=True, slots=True)
class Options:
    """What every benchmark can be told."""

    json: bool
    quick: bool
    """Tiny sizes: does it run at all? The figures mean nothing."""


def options(docstring: str | None) -> Options:
    """The command line's words."""
    parser = argparse.ArgumentParser(description=(docstring or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object for each figure")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, a few seconds; the figures mean nothing")
    told = parser.parse_args()
    return Options(told.json, told.quick)


def seconds(call: Callable[[], object], runs: int) -> float:
    """The median time of so many calls, after one that does not count."""
    call()
    times: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return median(times)


def count(number: int) -> str:
    """How a row's name writes a number: 10k."""
    return f"{number // 1000}k" if number >= 1000 and number % 1000 == 0 else str(number)


def tell(rows: Iterable[Row], told: Options) -> None:
    """Print each row as soon as it is there."""
    for row in rows:
        if told.json:
            print(json.dumps(asdict(row)), flush=True)
        else:
            print(f"{row.name:<44} {row.value:>10.4g} {row.unit:<8} against {row.against}", flush=True)
