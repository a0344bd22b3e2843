"""`pause`, `resume`: how does an admin stop cm-scale from touching machines for a while, and let it go on?

A pause is one dated fact in the journal. The daemon reads it at its next look, and goes on by itself when it ends.
"""

from __future__ import annotations

import click

from cmscale.cli import render
from cmscale.cli.overriding import carry_out
from cmscale.cli.shared import configured, date, duration_option, json_option
from cmscale.shell import wiring
from cmscale.shell.config import Config
from cmscale.shell.overrides import Do, Hold, Word


@click.command(short_help="Start and give back nothing for a while.")
@duration_option("--for", "for_s", default="1h", help='How long, such as "30m" or "2h".')
@click.option("--why", metavar="TEXT", default="", help="The reason; it may as well be given as plain words.")
@click.argument("reason", nargs=-1)
@json_option
@configured
def pause(config: Config, *, for_s: float, why: str, reason: tuple[str, ...], in_json: bool) -> None:
    """Start nothing and give nothing back for a while; what has joined is still handed over.

    The daemon obeys at its next look and goes on by itself when the time is over. A second pause replaces the first.
    """
    done = carry_out(config, Word(Do.PAUSE, for_s=for_s, why=why or " ".join(reason) or "paused by hand"))
    _tell(config, done.put[0], in_json=in_json)


@click.command(short_help="End a pause.")
@json_option
@configured
def resume(config: Config, *, in_json: bool) -> None:
    """End a pause before its time; the daemon goes on at its next look."""
    done = carry_out(config, Word(Do.CLEAR, pause=True))
    if not in_json and not wiring.paused(config):
        click.echo("Resumed. Next: cm-scale status" if done.cleared else "Nothing is paused. Next: cm-scale status")
        return
    _tell(config, None, in_json=in_json)


def _tell(config: Config, hold: Hold | None, *, in_json: bool) -> None:
    """What is so now. A file that pauses counts as well, and for ever."""
    in_file = wiring.paused(config)
    if in_json:
        told = {
            "paused": bool(hold or in_file),
            "until": hold.until if hold and not in_file else None,
            "why": in_file or (hold.why if hold else ""),
            "by": hold.by if hold and not in_file else "",
        }
        click.echo(render.as_json(told))
    elif in_file:
        click.echo(f"Paused without an end: {in_file}. To go on, change it there and start the daemon again.")
    elif hold:
        click.echo(f"Paused until {date(hold.until)}: {hold.why}. To go on earlier: cm-scale resume")
