"""`pause`, `resume`: how does an admin stop cm-scale from touching machines for a while, and let it go on?

A pause is one dated fact in the journal. The daemon reads it at its next look, and goes on by itself when it ends.
"""

from __future__ import annotations

import getpass
import os
import time

import click

from cmscale.cli import render
from cmscale.cli.shared import configured, date, duration_option, json_option
from cmscale.model import Event, EventKind, Fact, FactKind
from cmscale.ports import Journal
from cmscale.shell import wiring
from cmscale.shell.config import Config


@click.command(short_help="Start and give back nothing for a while.")
@duration_option("--for", "for_s", default="1h", help='How long, such as "30m" or "2h".')
@click.argument("reason", nargs=-1)
@json_option
@configured
def pause(config: Config, *, for_s: float, reason: tuple[str, ...], in_json: bool) -> None:
    """Start nothing and give nothing back for a while; what has joined is still handed over.

    The daemon obeys at its next look and goes on by itself when the time is over. A second pause replaces the first.
    """
    now = time.time()
    fact = Fact(FactKind.PAUSE, "", now, now + for_s, " ".join(reason) or "paused by hand", _login())
    with wiring.journal(config) as journal:
        journal.put_fact(fact)
        journal.tell([Event(now, EventKind.PAUSED, "", f"paused by {fact.by} until {date(fact.until)}: {fact.why}")])
    _tell(config, fact, in_json=in_json)


@click.command(short_help="End a pause.")
@json_option
@configured
def resume(config: Config, *, in_json: bool) -> None:
    """End a pause before its time; the daemon goes on at its next look."""
    now = time.time()
    with wiring.journal(config) as journal:
        fact = _pause(journal, now)
        if fact:
            journal.drop_fact(FactKind.PAUSE, "")
            journal.tell([Event(now, EventKind.RESUMED, "", f"resumed by {_login()}; it was paused: {fact.why}")])
    if not in_json and not wiring.paused(config):
        click.echo("Resumed. Next: cm-scale status" if fact else "Nothing is paused. Next: cm-scale status")
        return
    _tell(config, None, in_json=in_json)


def _pause(journal: Journal, now: float) -> Fact | None:
    return next((fact for fact in journal.facts(now) if fact.kind is FactKind.PAUSE), None)


def _tell(config: Config, fact: Fact | None, *, in_json: bool) -> None:
    """What is so now. A file that pauses counts as well, and for ever."""
    in_file = wiring.paused(config)
    if in_json:
        told = {
            "paused": bool(fact or in_file),
            "until": fact.until if fact and not in_file else None,
            "why": in_file or (fact.why if fact else ""),
            "by": fact.by if fact and not in_file else "",
        }
        click.echo(render.as_json(told))
    elif in_file:
        click.echo(f"Paused without an end: {in_file}. To go on, change it there and start the daemon again.")
    elif fact:
        click.echo(f"Paused until {date(fact.until)}: {fact.why}. To go on earlier: cm-scale resume")


def _login() -> str:
    """Who types; behind sudo the person, not root."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except KeyError:  # a user without a name, as in containers
        return str(os.getuid())
