"""`events`: what happened that somebody should know of?"""

from __future__ import annotations

import time

import click

from cmscale.cli import render
from cmscale.cli.shared import configured, date, duration_option, json_option
from cmscale.model import EventKind
from cmscale.shell import wiring
from cmscale.shell.config import Config
from cmscale.shell.values import nearest


def _kinds(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> frozenset[EventKind]:
    known = {kind.value: kind for kind in EventKind}
    for value in values:
        if value not in known:
            raise click.BadParameter(f'there are no events of kind "{value}"; {nearest(value, known)}', context, option)
    return frozenset(known[value] for value in values or known)


@click.command(short_help="Tell what happened.")
@duration_option("--since", "since_s", default="1d", help="How long ago to begin.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", callback=_kinds, help="Only events of this kind.")
@json_option
@configured
def events(config: Config, since_s: float, *, kinds: frozenset[EventKind], in_json: bool) -> None:
    """Tell what happened that somebody should know of, the newest last: pools that were closed or opened, boots that
    failed, machines that were taken back, what admins have overruled, policies that failed."""
    since = time.time() - since_s
    with wiring.journal_if_any(config) as journal:
        happened = [event for event in journal.events(since) if event.kind in kinds]
    if in_json:
        click.echo(render.as_json({"events": happened}))
        return
    for event in happened:
        what = " ".join(filter(None, (event.kind.value, event.subject)))
        click.echo(f"{date(event.at)} {what}: {event.text}")
    if not happened:
        click.echo(f"Nothing happened since {date(since)}.")
