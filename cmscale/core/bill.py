"""What does the bill say, by user, pool or day, so that its lines and columns add up?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cmscale.model import DOLLAR, Spending, Use

CENT = DOLLAR // 100
MICRO = DOLLAR // 1_000_000


@dataclass(frozen=True, slots=True)
class Line:
    """What one name has cost, in amounts or in whole units of money."""

    name: str
    boot: int
    idle: int
    jobs: int

    @property
    def total(self) -> int:
        return self.boot + self.idle + self.jobs


@dataclass(frozen=True, slots=True)
class Table:
    """Lines and their sum."""

    lines: tuple[Line, ...]
    sum: Line


def table(bill: Mapping[Use, int], name_of: Callable[[Use], str], unit: int) -> Table:
    """The bill in whole units, one line a name. The sum is the nearest number of units whatever the names are; it is
    dealt out to the columns, and each column to its lines, so all of them add up."""
    lines = _lines(bill, name_of)
    exact = Line("", *(sum(getattr(line, column) for line in lines) for column in COLUMNS))
    columns = dealt([exact.boot, exact.idle, exact.jobs], (exact.total + unit // 2) // unit, unit)
    cells = [
        dealt([getattr(line, column) for line in lines], units, unit)
        for column, units in zip(COLUMNS, columns, strict=True)
    ]
    rows = zip(*cells, strict=True)
    return Table(
        tuple(Line(line.name, *row) for line, row in zip(lines, rows, strict=True)),
        Line("", *columns),
    )


COLUMNS = ("boot", "idle", "jobs")
_COLUMN: Mapping[Spending, int] = {Spending.BOOT: 0, Spending.IDLE: 1, Spending.JOB: 2}


def _lines(bill: Mapping[Use, int], name_of: Callable[[Use], str]) -> list[Line]:
    """The exact lines, the dearest first."""
    amounts: dict[str, list[int]] = {}
    for use, ms in bill.items():
        amounts.setdefault(name_of(use), [0, 0, 0])[_COLUMN[use.spending]] += ms * use.price
    lines = [Line(name, *row) for name, row in amounts.items()]
    return sorted(lines, key=lambda line: (-line.total, line.name))


def dealt(amounts: Sequence[int], units: int, unit: int) -> list[int]:
    """The units that amounts come to, rounded either way, dealt to them: to each its whole units, what is left to those
    with the most besides. Whoever has nothing gets nothing."""
    whole = [amount // unit for amount in amounts]
    by_rest = sorted((at for at, amount in enumerate(amounts) if amount), key=lambda at: -(amounts[at] % unit))
    for at in by_rest[: units - sum(whole)]:
        whole[at] += 1
    return whole
