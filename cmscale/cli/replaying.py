"""`replay`: what would other policies have decided on what was seen, and what money lies between?

The daemon keeps what it saw together with what it decided. Here the same snapshots are decided again; neither Slurm nor
a cloud is asked, and nothing is touched.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from cmscale.cli import render
from cmscale.cli.shared import configured, date, duration_option, json_option
from cmscale.core import compare
from cmscale.core.compare import Account, Difference
from cmscale.core.decide import Policy, decide
from cmscale.model import Limits, Plan, Snapshot
from cmscale.ports import Misconfigured
from cmscale.shell import wiring
from cmscale.shell.config import Config
from cmscale.shell.policies import found
from cmscale.shell.values import as_duration, nearest


@dataclass(frozen=True, slots=True)
class Replay:
    """All that is told of a period."""

    since: float
    until: float
    ticks: int
    differences: tuple[Difference, ...]
    account: Account


@click.command("replay", short_help="Decide again what was seen, and tell what differs.")
@duration_option("--since", "since_s", default="2h", help="How long ago the period begins.")
@duration_option("--until", "until_s", default=None, help="How long ago it ends.  [default: now]")
@click.option(
    "--policy-dir",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Search this folder for policies first.",
)
@click.option("--policies", "names", metavar="NAME,...", help="Decide with these.  [default: as configured]")
@json_option
@configured
def replay(
    config: Config, since_s: float, until_s: float | None, folder: Path | None, names: str | None, *, in_json: bool
) -> None:
    """Decide the stored snapshots of a period again, with the configuration of now, and tell what differs from what was
    decided then.

    Each snapshot is taken as it was: what would have been decided otherwise does not change the snapshots after it. So
    the money is an estimate: a node that only one side starts costs its price there until that side gives it back, the
    other starts it as well, or the period ends; a node that only one side gives back saves it likewise.
    """
    now = time.time()
    since, until = now - since_s, now - (until_s or 0.0)
    if since >= until:
        raise Misconfigured(f"--until {as_duration(until_s or 0.0)} is no later than --since {as_duration(since_s)}")
    policies = _policies(config, folder, names)
    with wiring.journal_if_any(config) as journal:
        replayed = _replayed(journal.decided(since, until), policies, config.limits, (since, until))
    if not replayed.ticks:
        raise Misconfigured(
            f"no snapshot is kept from {date(since)} to {date(until)}; cm-scale run keeps them for two days: "
            "let it run, or name another period with --since and --until"
        )
    if in_json:
        click.echo(render.as_json(_json(replayed)))
        return
    for line in _lines(replayed):
        click.echo(line)


def _policies(config: Config, folder: Path | None, names: str | None) -> tuple[Policy, ...]:
    """The named policies, or those of the configuration; each from the folder, if it is there."""
    here = {name for name, path in found(folder).items() if path.parent == folder}
    elsewhere = replace(config, policy_dir=folder)
    chosen = config.policies
    if names is not None:
        chosen = tuple(name.strip() for name in names.split(","))
        there = here | found(config.policy_dir).keys()
        if unknown := [name for name in chosen if name not in there]:
            raise Misconfigured(f'--policies: there is no policy "{unknown[0]}"; {nearest(unknown[0], there)}')
    return tuple(
        policy for name in chosen for policy in wiring.loaded_policies(elsewhere if name in here else config, (name,))
    )


def _replayed(
    decided: Iterable[tuple[Snapshot, Plan]], policies: Sequence[Policy], limits: Limits, period: tuple[float, float]
) -> Replay:
    account = Account()
    differences: list[Difference] = []
    ticks = 0
    for view, then in decided:
        now = decide(view, policies, limits)
        ticks += 1
        account.add(view, then, now)
        if differs := compare.difference(view, then, now):
            differences.append(differs)
    return Replay(*period, ticks, tuple(differences), account)


def _json(replayed: Replay) -> dict[str, Any]:
    return {
        "since": replayed.since,
        "until": replayed.until,
        "ticks": replayed.ticks,
        "differ": len(replayed.differences),
        "price_hour": replayed.account.price_hour,
        "dollars": replayed.account.dollars,
        "differences": replayed.differences,
    }


def _lines(replayed: Replay) -> Iterator[str]:
    """Ticks that differ alike, one after the other, are told once."""
    for _, group in groupby(replayed.differences, key=lambda each: each.steps):
        first, *others = group
        if others:
            yield f"{date(first.at)} to {date(others[-1].at)}, {len(others) + 1} ticks alike, the first {first.tick}"
        else:
            yield f"{date(first.at)} {first.tick}"
        for side, actions in (("then", first.then), ("now", first.now)):
            yield from (f"  only {side}: {line}" for line in render.decisions(actions))
        if first.price_hour:
            yield f"  now: {_more(first.price_hour)} an hour"
    ticks, differ, account = replayed.ticks, len(replayed.differences), replayed.account
    told = f"{render.number(ticks, 'tick')} compared, {differ or 'none'} differ{'s' if differ == 1 else ''}."
    if not differ:
        yield told
        return
    yield f"{told} Estimate for the period: {_more(account.dollars)} with the policies of now."


def _more(dollars: float) -> str:
    if round(dollars, 2) == 0:
        return "no dollar more or less"
    return f"${abs(dollars):.2f} {'more' if dollars > 0 else 'less'}"
