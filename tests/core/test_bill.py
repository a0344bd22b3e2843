"""The bill as a table: whatever its lines are for, they add up to the same cents."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cmscale.core.bill import CENT, MICRO, table
from cmscale.model import DOLLAR, Payer, PoolName, Spending, Use

uses = some.builds(
    Use,
    hour=some.sampled_from((0, 3600, 86400)),
    pool=some.sampled_from(("t4", "cpu")).map(PoolName),
    spending=some.sampled_from(Spending),
    payer=some.builds(Payer, user=some.sampled_from(("ada", "bob", "")), job=some.sampled_from(("1", "2", "3"))),
    price=some.sampled_from((526_000, 340_000, 1, 12_000_000)),
)
bills = some.dictionaries(uses, some.integers(1, 10**9), max_size=20)
NAMES: dict[str, Callable[[Use], str]] = {
    "user": lambda use: use.payer.user,
    "job": lambda use: use.payer.job,
    "pool": lambda use: use.pool,
    "hour": lambda use: str(use.hour),
}


@settings(derandomize=True, deadline=None)
@given(bills, some.sampled_from((CENT, MICRO)))
def test_lines_and_columns_add_up_to_the_same_sum_whatever_the_lines_are_for(bill: dict[Use, int], unit: int) -> None:
    exact = sum(ms * use.price for use, ms in bill.items())
    for name_of in NAMES.values():
        told = table(bill, name_of, unit)
        assert abs(told.sum.total * unit - exact) * 2 <= unit
        assert sum(line.total for line in told.lines) == told.sum.total
        for column in ("boot", "idle", "jobs"):
            cells = [getattr(line, column) for line in told.lines]
            assert sum(cells) == getattr(told.sum, column)
            assert all(cell >= 0 for cell in cells)


def use(spending: Spending, user: str) -> Use:
    return Use(0, PoolName("t4"), spending, Payer(user), 1_000_000)


def test_the_dearest_comes_first_and_each_has_its_boots_its_idle_time_and_its_jobs() -> None:
    hour_ms = 3_600_000
    bill = {
        use(Spending.JOB, "ada"): 2 * hour_ms,
        use(Spending.BOOT, "ada"): hour_ms // 100,
        use(Spending.JOB, "bob"): 5 * hour_ms,
        use(Spending.IDLE, "bob"): hour_ms // 2,
    }
    told = table(bill, NAMES["user"], CENT)
    assert [(line.name, line.boot, line.idle, line.jobs, line.total) for line in told.lines] == [
        ("bob", 0, 50, 500, 550),
        ("ada", 1, 0, 200, 201),
    ]
    assert told.sum.total == 751


@pytest.mark.parametrize("unit", [CENT, MICRO])
def test_a_cent_that_nobody_has_whole_goes_to_who_has_most_of_it(unit: int) -> None:
    third = Use(0, PoolName("t4"), Spending.JOB, Payer("ada"), unit // 3_600_000)
    bill = {third: 1_200_000, Use(0, PoolName("t4"), Spending.JOB, Payer("bob"), unit // 3_600_000): 2_400_000}
    told = table(bill, NAMES["user"], unit)
    assert {line.name: line.jobs for line in told.lines} == {"bob": 1, "ada": 0}


def test_a_dollar_is_a_dollar_an_hour_for_an_hour() -> None:
    assert DOLLAR == 1_000_000 * 3_600_000
