"""`cost`: what has it cost, who had it cost that, and what is left of the budgets?

The bill is the journal's and at most half a minute old; the budgets are looked at afresh, as `plan` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from cmscale.cli import render
from cmscale.cli.looks import look
from cmscale.cli.shared import EXIT_BAD_INPUT, configured, date, duration_option, json_option, tell
from cmscale.core.bill import CENT, MICRO, Line, Table, table
from cmscale.model import Period, Use
from cmscale.shell import wiring
from cmscale.shell.config import Config
from cmscale.shell.periods import Periods

BY = ("user", "account", "pool", "job", "day", "site")
NOBODY = "-"
AMOUNTS = ("boot", "idle", "jobs", "total")


@click.command(short_help="What it has cost, by user, pool or day; and the budgets.")
@duration_option("--since", "since_s", default=None, help="From so long ago, the whole of that hour, until now.")
@click.option("--month", metavar="YYYY-MM", help="A month.  [default: the month that runs]")
@click.option("--day", metavar="YYYY-MM-DD", help="A day.")
@click.option("--by", type=click.Choice(BY), default="user", show_default=True, help="What each line is for.")
@json_option
@configured
def cost(config: Config, *, since_s: float | None, month: str | None, day: str | None, by: str, in_json: bool) -> None:
    """Tell what machines have cost: while they booted, while they were idle, and for jobs; and what is left of each
    budget."""
    begin, end = _span(config.rules.periods, since_s, month, day)
    with wiring.journal_if_any(config) as journal:
        bill = journal.bill(begin, end)
    view = look(config)[0] if config.rules.budgets else None
    budgets = [render.purse_json(purse) for purse in view.purses] if view else []
    name_of = _name_of(config, by)
    if in_json:
        told = table(bill, name_of, MICRO)
        rows = [_json(line) for line in _ordered(told, by)]
        head = {"since": begin, "until": end, "currency": config.rules.currency, "by": by}
        click.echo(render.as_json({**head, "rows": rows, "sum": _json(told.sum), "budgets": budgets}))
    else:
        if bill:
            _lines(config, by, table(bill, name_of, CENT))
        else:
            click.echo(f"Nothing was spent from {date(begin)} to {date(end)}, as far as the journal knows.")
        render.purse_lines(budgets, render.console())
    if view and (unseen := render.unseen(view)):
        tell(unseen.values())
        raise SystemExit(EXIT_BAD_INPUT)


def _span(periods: Periods, since_s: float | None, month: str | None, day: str | None) -> tuple[float, float]:
    now = time.time()
    given = {"--since": since_s, "--month": month, "--day": day}
    named = [option for option, value in given.items() if value is not None]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} name different times; give one of them")
    if since_s is not None:
        return periods.began(Period.HOUR, now - since_s), now
    try:
        if month is not None:
            return periods.of_month(month)
        if day is not None:
            return periods.of_day(day)
    except ValueError:
        form = "--month 2026-03" if month is not None else "--day 2026-03-31"
        raise click.UsageError(f'expected {form}, got "{month or day}"') from None
    return periods.around(Period.MONTH, now)


def _name_of(config: Config, by: str) -> Callable[[Use], str]:
    names: Mapping[str, Callable[[Use], str]] = {
        "user": lambda use: use.payer.user,
        "account": lambda use: use.payer.account,
        "pool": lambda use: use.pool,
        "job": lambda use: use.payer.job,
        "day": lambda use: config.rules.periods.date(use.hour),
        "site": lambda use: config.pools[use.pool].pool.site if use.pool in config.pools else "",
    }
    return names[by]


def _ordered(told: Table, by: str) -> list[Line]:
    """Days in their order, all else with the dearest first."""
    return sorted(told.lines, key=lambda line: line.name) if by == "day" else list(told.lines)


def _json(line: Line) -> dict[str, Any]:
    amounts = {key: getattr(line, key) / 1_000_000 for key in AMOUNTS}
    return {"name": line.name, **amounts}


def _lines(config: Config, by: str, told: Table) -> None:
    rows = [(line.name or NOBODY, line) for line in _ordered(told, by)]
    rows.append(("in all", told.sum))
    columns = [render.Column(by, [name for name, _ in rows])]
    columns += [
        render.Column(heading, [f"{getattr(line, heading) / 100:.2f}" for _, line in rows], right=True)
        for heading in AMOUNTS
    ]
    click.echo(f"{config.rules.currency}, by {by}:")
    render.print_table(columns, render.console(), droppable=())
