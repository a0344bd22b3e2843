"""`events`: what happened that somebody should know of?"""

from __future__ import annotations

import time

import click

from cmscale.cli import render
from cmscale.cli.shared import configured, date, duration_option, json_option
from cmscale.shell import wiring
from cmscale.shell.config import Config


@click.command(short_help="Tell what happened.")
@duration_option("--since", "since_s", default="1d", help="How long ago to begin.")
@json_option
@configured
def events(config: Config, since_s: float, *, in_json: bool) -> None:
    """Tell what happened that somebody should know of, the newest last: pools that were closed or opened, boots that
    failed, machines that were taken back, pauses, policies that failed."""
    since = time.time() - since_s
    with wiring.journal_if_any(config) as journal:
        happened = journal.events(since)
    if in_json:
        click.echo(render.as_json({"events": happened}))
        return
    for event in happened:
        what = " ".join(filter(None, (event.kind.value, event.subject)))
        click.echo(f"{date(event.at)} {what}: {event.text}")
    if not happened:
        click.echo(f"Nothing happened since {date(since)}.")
