"""`cm-scale run`: how does the daemon start, what does it say while it runs, and when does it refuse to?

It says each decision once. What only a person can mend ends it at the start; what may heal by itself is waited for.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable

import click

from cmscale.cli import render
from cmscale.cli.shared import EXIT_BAD_INPUT, clock, configured, fail, json_option, tell
from cmscale.ports import Misconfigured, Unavailable
from cmscale.shell import presence, wiring
from cmscale.shell.config import Config
from cmscale.shell.loop import Daemon, Look, run, tick
from cmscale.shell.schema import Mode


@click.command("run", short_help='Watch and decide, again and again; in mode "act" also do it.')
@click.option("--once", is_flag=True, help="Look, decide and act once, then end.")
@click.option("--observe", "only_observe", is_flag=True, help="Decide and record, touch nothing, whatever the mode.")
@click.option("--verbose", "-v", is_flag=True, help="Log every call to standard error.")
@json_option
@configured
def run_(config: Config, *, once: bool, only_observe: bool, verbose: bool, in_json: bool) -> None:
    """Watch and decide again and again; in mode "act" also do it.

    Prints a line for each decision, once; with --json the whole plan whenever it says something new. SIGTERM and
    Ctrl-C end it cleanly.
    """
    _log(verbose=verbose)
    system_clock = wiring.SystemClock()
    system_clock.end_on_signals()
    with presence.only_daemon(config), wiring.journal(config, system_clock) as journal:
        daemon = wiring.daemon(config, journal, system_clock, may_act=not only_observe)
        _refuse_what_cannot_work(daemon)
        told = _Told(config, daemon, in_json=in_json)
        if once:
            look = tick(daemon)
            told(look)
            if render.unseen(look.view):
                sys.exit(EXIT_BAD_INPUT)
        else:
            click.echo(_greeting(config, daemon), err=True)
            run(daemon, told)


def _log(*, verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
        stream=sys.stderr,
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)


def _greeting(config: Config, daemon: Daemon) -> str:
    pools = f"{render.number(len(config.pools), 'pool')} at {render.number(len(config.sites), 'site')}"
    if daemon.may_act and daemon.world.paused:
        return f"cm-scale: paused for cluster {config.cluster}, {pools}, since {daemon.world.paused}; Ctrl-C ends it."
    if daemon.may_act:
        return f"cm-scale: acting for cluster {config.cluster}, {pools}; Ctrl-C ends it."
    how = "" if config.mode is not Mode.OBSERVE else f'; to act, set cluster.mode = "act" in {config.path}'
    return f"cm-scale: observing cluster {config.cluster}, {pools}: nothing is touched{how}."


def _refuse_what_cannot_work(daemon: Daemon) -> None:
    """End if something will not work before a person changes it."""
    asked: list[Callable[[], object]] = [daemon.world.scheduler.nodes]
    asked += [provider.list for provider in daemon.world.providers.values()]
    problems: list[str] = []
    for ask in asked:
        try:
            ask()
        except Misconfigured as problem:
            problems.append(str(problem))
        except Unavailable:
            continue  # the first tick tells it
    if problems:
        fail(problems)


class _Told:
    """Says what each tick decided, and on standard error what it could not read: once, while it stays so."""

    def __init__(self, config: Config, daemon: Daemon, *, in_json: bool) -> None:
        self.config, self.daemon, self.in_json = config, daemon, in_json
        self.before: frozenset[object] = frozenset()

    def __call__(self, look: Look) -> None:
        presence.note_tick(self.config, look, may_act=self.daemon.may_act)
        before, self.before = self.before, render.facts(look.view, look.plan)
        if self.in_json:
            if self.before != before or self.daemon.ticks == 1:
                click.echo(render.as_json(render.plan_json(look.view, look.plan)))
        elif not look.view.unseen:
            would = "" if self.daemon.may_act else "would "
            for line in render.plan_lines(render.only_news(look.plan, before), would):
                click.echo(f"{clock(look.view.now)} {line}")
        tell(line for line in render.trouble_lines(look.view) if line not in before)
