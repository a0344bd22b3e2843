"""`keep`, `drain-site`, `clear`: how does an admin overrule cm-scale for a while, and take it back?

Each is a dated fact in the journal, as a pause is. The daemon reads it at its next look and goes on by itself when it
ends.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from shlex import quote

import click

from cmscale.adapters.slurm.hostlist import fold
from cmscale.cli import render
from cmscale.cli.shared import F, configured, date, json_option, required_duration
from cmscale.shell import admins, overrides, wiring
from cmscale.shell.config import Config
from cmscale.shell.overrides import Do, Done, Hold, Kind, Word, together
from cmscale.shell.values import hostlist, nearest

DRAINING = "drain_sites"


def carry_out(config: Config, word: Word) -> Done:
    """Have it done: by our own hand if this user is root or the daemon's, else by the daemon."""
    if not admins.by_own_hand(config):
        return admins.ask(config, word)
    with wiring.journal(config) as journal:
        return overrides.carry_out(word, config, journal, time.time(), admins.author(os.environ))


def _names(context: click.Context, argument: click.Parameter, value: Sequence[str]) -> tuple[str, ...]:
    """The names of one or several hostlists, each once."""
    try:
        return tuple(dict.fromkeys(name for text in value for name in hostlist(text)))
    except ValueError as error:
        raise click.BadParameter(str(error), context, argument) from None


def _kind(context: click.Context, option: click.Parameter, value: str | None) -> Kind | None:
    try:
        return Kind(value) if value else None
    except ValueError:
        close = nearest(value or "", [kind.value for kind in Kind])
        raise click.BadParameter(f'nothing of the kind "{value}" can be cleared; {close}', context, option) from None


def _dated(example: str) -> Callable[[F], F]:
    """The options that each override has: when it ends, and why it is."""

    def with_options(command: F) -> F:
        for_s = required_duration("--for", "for_s", help=f'How long, such as "{example}".')
        why = click.option("--why", required=True, metavar="TEXT", help="The reason, for those who meet it later.")
        return for_s(why(command))

    return with_options


@click.command(short_help="Keep nodes as they are for a while.")
@click.argument("nodes", nargs=-1, required=True, callback=_names, metavar="NODE...")
@_dated("2h")
@json_option
@configured
def keep(config: Config, *, nodes: tuple[str, ...], for_s: float, why: str, in_json: bool) -> None:
    """Keep the nodes NODE, such as t4-3 or t4-[1-4], as they are for a while: they are not drained, powered off,
    deleted or emptied.

    A node that is off is not started by it, and what its cloud takes back is drained all the same. A second keep of a
    node replaces the first.
    """
    done = carry_out(config, Word(Do.KEEP, nodes, for_s, why))
    if in_json:
        click.echo(render.as_json({"overrides": done.put}))
        return
    first, names = done.put[0], fold(nodes)
    how = f"cm-scale clear {quote(names)}"
    click.echo(f"{names}: kept until {date(first.until)} ({first.why}). To end it earlier: {how}")
    click.echo("A keep starts nothing: what is off stays off until a job needs it.")


@click.command("drain-site", short_help="Leave a site for a while.")
@click.argument("site")
@_dated("1d")
@json_option
@configured
def drain_site(config: Config, *, site: str, for_s: float, why: str, in_json: bool) -> None:
    """Leave the site SITE for a while: nothing is started there, machines without jobs go, and jobs that run end first.

    When the time is over, or after cm-scale clear SITE, machines are started there again.
    """
    done = carry_out(config, Word(Do.DRAIN_SITE, (site,), for_s, why))
    if in_json:
        click.echo(render.as_json({"overrides": done.put}))
        return
    (drain,) = done.put
    click.echo(f"{site}: drained until {date(drain.until)} ({drain.why}). To end it earlier: cm-scale clear {site}")
    if DRAINING not in config.policies:
        lacking = f"policy {DRAINING}, which gives machines back, is not among cluster.policies in {config.path}"
        click.echo(f"Only starts stop: {lacking}.")


@click.command(short_help="End keeps, drains, rests and closures before their time.")
@click.argument("names", nargs=-1, callback=_names, metavar="[NODE|POOL|SITE]...")
@click.option("--pause", is_flag=True, help="End the pause, as cm-scale resume does.")
@click.option(
    "--only", metavar="KIND", callback=_kind, help=f"Just what is of this kind: {', '.join(k.value for k in Kind)}."
)
@click.option("--list", "listed", is_flag=True, help="List what can be cleared; as does no name at all.")
@json_option
@configured
def clear(
    config: Config, *, names: tuple[str, ...], pause: bool, only: Kind | None, listed: bool, in_json: bool
) -> None:
    """End what stands against the named nodes, pools and sites before its time: a keep, the drain of a site, the rest
    (quarantine) of a node whose machine failed, the memory of a pool that refused.

    Without a name it lists what can be cleared.
    """
    if listed or not (names or pause):
        with wiring.journal_if_any(config) as journal:
            standing = overrides.holds(journal.facts(time.time()), journal.closed())
        done = Done(standing=tuple(hold for hold in standing if only in {None, hold.kind}))
    else:
        done = carry_out(config, Word(Do.CLEAR, names, pause=pause, only=only))
    if in_json:
        click.echo(render.as_json({"cleared": done.cleared, "standing": done.standing}))
    elif listed or not (names or pause):
        _list(done.standing)
    else:
        for line in _lines(done.cleared):
            click.echo(f"Cleared: {line}")
        if not done.cleared:
            click.echo("There is nothing of it to clear. What can be cleared: cm-scale clear --list")


def _lines(cleared: Iterable[Hold]) -> list[str]:
    return [f"{hold.kind.value} {names}".strip() + f" (by {hold.by}: {hold.why})" for hold, names in together(cleared)]


def _list(standing: Sequence[Hold]) -> None:
    if not standing:
        click.echo("Nothing stands that could be cleared.")
        return
    now = time.time()
    # A closure whose time is over lasts until one machine has come well.
    ends = [(hold, names, date(hold.until) if hold.until > now else "a try") for hold, names in together(standing)]
    render.hold_lines(ends, render.console())
    click.echo("To end one before its time: cm-scale clear NAME, or cm-scale clear --pause")
