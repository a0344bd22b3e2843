"""`cm-scale run`: how does the daemon start, what does it say while it runs, and when does it refuse to?

It says each decision once. What only a person can mend ends it at the start; what may heal by itself is waited for.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import click

from cmscale.cli import render
from cmscale.cli.shared import EXIT_BAD_INPUT, clock, configured, date, fail, json_option, tell
from cmscale.journal.lease import Lease, Tenure, Term
from cmscale.ports import Misconfigured, Unavailable
from cmscale.shell import admins, leading, logs, presence, systemd, wiring
from cmscale.shell.beside import Beside
from cmscale.shell.config import Config
from cmscale.shell.logs import LogFormat
from cmscale.shell.loop import Daemon, Look, run, tick
from cmscale.shell.reload import Configured
from cmscale.shell.schema import Mode

ONCE_S = 60.0
"""How long `--once` waits for calls that outlast its tick."""

log = logging.getLogger(__name__)


@click.command("run", short_help='Watch and decide, again and again; in mode "act" also do it.')
@click.option("--once", is_flag=True, help="Look, decide and act once, then end.")
@click.option("--observe", "only_observe", is_flag=True, help="Decide and record, touch nothing, whatever the mode.")
@click.option("--verbose", "-v", is_flag=True, help="Log every call to standard error.")
@click.option(
    "--log-format",
    type=click.Choice([each.value for each in LogFormat]),
    help="How lines on standard error look.  [default: log.format of the configuration]",
)
@json_option
@configured
def run_(
    config: Config, *, once: bool, only_observe: bool, verbose: bool, log_format: str | None, in_json: bool
) -> None:
    """Watch and decide again and again; in mode "act" also do it.

    Prints a line for each decision, once; with --json the whole plan whenever it says something new. SIGHUP makes it
    read the configuration and the policies anew; SIGTERM and Ctrl-C end it cleanly.
    """
    system_clock = wiring.SystemClock()
    system_clock.heed_signals()
    with (
        presence.only_daemon(config),
        wiring.journal(config, system_clock) as journal,
        wiring.lease(config) as lease,
    ):
        daemon = wiring.daemon(config, journal, system_clock, may_act=not only_observe)
        _refuse_what_cannot_work(daemon)
        logs.to_standard_error(LogFormat(log_format) if log_format else config.log_format, verbose=verbose)
        configured = Configured(config, daemon, only_observe=only_observe)
        told = _Told(configured, in_json=in_json, once=once)
        if once:
            with leading_once(config, daemon, lease) if lease else nullcontext():
                look = tick(daemon)
                told(look)
                configured.ask_markets()
                daemon.world.beside.wait_for_all(ONCE_S)
                configured.markets.wait(ONCE_S)
            if render.unseen(look.view):
                sys.exit(EXIT_BAD_INPUT)
            return
        between = partial(_between, configured, told, system_clock)
        log.log(logs.NOTICE, "%s", _greeting(config, daemon))
        systemd.ready(_doing(daemon))
        with admins.listening(lambda: configured.config, journal, system_clock):
            if lease:
                leading.in_turn(lease, system_clock, partial(_lead, configured, told, between), _Standby(between))
            else:
                run(daemon, told, between)
        systemd.stopping()


def _lead(configured: Configured, told: _Told, between: Callable[[], None], tenure: Tenure, last: Term | None) -> None:
    log.log(logs.NOTICE, "leading now, in term %s", tenure.term)
    systemd.ready(_doing(configured.daemon))
    with wiring.journal(configured.config, configured.daemon.world.clock, fence=tenure.fence) as journal:
        leading.begin(configured.daemon, tenure, last, journal)
        leading.run_as_leader(configured.daemon, tenure, told, between)


def _leads(term: Term) -> str:
    return f"{term.holder} leads since {date(term.since)}" if term.holds else "nobody leads"


class _Standby:
    """Logs who leads: once, while it stays so."""

    def __init__(self, between: Callable[[], None]) -> None:
        self.between = between
        self.before = ""

    def __call__(self, why: Term | Unavailable) -> None:
        now = f"standby; {_leads(why) if isinstance(why, Term) else why}"
        if now != self.before:
            log.log(logs.NOTICE, "%s", now)
            systemd.doing(now)
        self.before = now
        self.between()


@contextmanager
def leading_once(config: Config, daemon: Daemon, lease: Lease) -> Iterator[None]:
    """Lead as long as this lasts; ends the program if another daemon does."""
    last = lease.last()
    tenure = lease.take()
    if tenure is None:
        fail([f"{_leads(last) if last else 'another daemon leads'}; one acts at a time, so nothing was done"])
    with tenure.renewed(), wiring.journal(config, daemon.world.clock, fence=tenure.fence) as journal:
        leading.begin(daemon, tenure, last, journal)
        yield
    tenure.give_back()


def _between(configured: Configured, told: _Told, system_clock: wiring.SystemClock) -> None:
    """What a running daemon does between two ticks."""
    systemd.alive()
    if system_clock.reload_asked():
        systemd.reloading()
        configured.reload()
        systemd.ready(_doing(configured.daemon))
    configured.ask_markets()
    told.troubles()


def _doing(daemon: Daemon) -> str:
    if daemon.may_act and daemon.world.paused:
        return "paused"
    return "acting" if daemon.may_act else "observing"


def _greeting(config: Config, daemon: Daemon) -> str:
    pools = f"{render.number(len(config.pools), 'pool')} at {render.number(len(config.sites), 'site')}"
    if daemon.may_act and daemon.world.paused:
        return f"paused for cluster {config.cluster}, {pools}, since {daemon.world.paused}; Ctrl-C ends it."
    if daemon.may_act:
        return f"acting for cluster {config.cluster}, {pools}; Ctrl-C ends it."
    how = "" if config.mode is not Mode.OBSERVE else f'; to act, set cluster.mode = "act" in {config.path}'
    return f"observing cluster {config.cluster}, {pools}: nothing is touched{how}."


def _refuse_what_cannot_work(daemon: Daemon) -> None:
    """End if something will not work before a person changes it."""
    world = daemon.world
    beside = Beside(world.beside.answer_s)
    looks = [beside.look(site, provider.list)[0] for site, provider in world.providers.items()]
    beside.wait(looks)
    asked: list[Callable[[], object]] = [world.scheduler.nodes]
    asked += [partial(look.answer, beside.answer_s) for look in looks]
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
    """Says what each tick decided, and logs what it could not read: once, while it stays so."""

    def __init__(self, configured: Configured, *, in_json: bool, once: bool) -> None:
        self.configured, self.in_json, self.once = configured, in_json, once
        self.before: frozenset[object] = frozenset()
        self.known_troubles: list[str] | None = None

    def __call__(self, look: Look) -> None:
        daemon = self.configured.daemon
        presence.note_tick(self.configured.config, look, may_act=daemon.may_act)
        systemd.doing(f"{_doing(daemon)}: {render.in_a_line(look.view, look.plan)}")
        before, self.before = self.before, render.facts(look.view, look.plan)
        if self.in_json:
            if self.before != before or daemon.ticks == 1:
                click.echo(render.as_json(render.plan_json(look.view, look.plan)))
        elif not look.view.unseen:
            would = "" if daemon.may_act else "would "
            for line in render.plan_lines(render.only_news(look.plan, before), would):
                click.echo(f"{clock(look.view.now)} {line}")
        troubles = [line for line in dict.fromkeys(render.trouble_lines(look.view)) if line not in before]
        if self.once:
            tell(troubles)
            return
        for line in troubles:
            log.warning("%s", line)

    def troubles(self) -> None:
        """Tell `status` and systemd what is wrong with the daemon itself, when that has changed."""
        now = self.configured.troubles
        if now != self.known_troubles:
            presence.note_troubles(self.configured.config, now)
        if now:
            systemd.doing(f"{_doing(self.configured.daemon)}; {now[0]}")
        self.known_troubles = now
