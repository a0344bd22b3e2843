"""`reap`: what is there of ours that nothing explains, and how does an admin get rid of it?

The command decides nothing by itself: it puts a word into the journal, and the daemon's own rule deletes what a second
look finds still so. While no daemon is at work the command holds its place and takes both looks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import click

from cmscale.cli import render
from cmscale.cli.daemon import leading_once
from cmscale.cli.looks import end_if_unseen
from cmscale.cli.overriding import carry_out
from cmscale.cli.shared import EXIT_BAD_INPUT, configured, fail, json_option
from cmscale.core import orphans
from cmscale.model import FactKind, MachineId, NodeName, Result, Snapshot
from cmscale.shell import presence, wiring
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.observe import Memory, observe
from cmscale.shell.overrides import Do, Word
from cmscale.shell.reaping import Search
from cmscale.shell.schema import Mode
from cmscale.shell.sweeping import Left, sweep
from cmscale.shell.values import nearest

Tell = Callable[[str], object]

ASKED_FOR_S = 3600.0
"""For how long the word stands."""

PATIENCE_S = 120.0
"""How much longer than its second look takes the daemon is waited for."""

POLL_S = 1.0

NOT_YET = "it has not been done yet; see cm-scale status"


@click.command(short_help="Delete machines of ours that nothing explains.")
@click.option("--site", metavar="SITE", help="Only what is at this site.")
@click.option("--dry-run", is_flag=True, help="List it, and delete nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@configured
def reap(config: Config, *, site: str | None, dry_run: bool, yes: bool, in_json: bool) -> None:
    """List machines, volumes and network interfaces with our tags that nothing explains, ask, and delete them.

    What is to be deleted must be found unexplained by two looks, limits.reap_after apart, so this takes a while. A
    running daemon does it; if none runs, this command.
    """
    if site is not None and site not in config.sites:
        raise ConfigError([f'there is no site "{site}"; {nearest(site, config.sites)}'])
    view = _look(config)
    found = [each for each in orphans.judged(view, config.limits) if site in {None, each[0].site}]
    told = [render.orphan_json(view, *each) for each in found]
    meant = [] if dry_run else [orphan for orphan, _ in found if not orphan.spared]
    tell: Tell = (lambda _: None) if in_json else click.echo
    for each in told:
        tell(render.orphan_line(each))
    if not found and not render.unseen(view):
        tell("All machines, volumes and network interfaces of ours are explained.")
    left: Left = {}
    if meant:
        _refuse_if_nothing_may_be_deleted(config, view)
        if not yes:
            _ask(len(meant), in_json=in_json)
        left = _deleted(config, tuple(orphan.id for orphan in meant), tell)
    _conclude([orphan.id for orphan in meant if orphan.id not in left], left, tell)
    if in_json:
        gone = [orphan.id for orphan in meant if orphan.id not in left]
        click.echo(render.as_json({"orphans": told, "deleted": gone, "left": left, "unseen": render.unseen(view)}))
    end_if_unseen(view)
    if left:
        sys.exit(EXIT_BAD_INPUT)


def _conclude(gone: Sequence[MachineId], left: Left, tell: Tell) -> None:
    if gone:
        tell(f"Deleted: {', '.join(gone)}")
    for name, why in left.items():
        tell(f"{name} is not deleted: {why}")


def _look(config: Config) -> Snapshot:
    with wiring.journal_if_any(config) as journal:
        daemon = wiring.daemon(config, journal, wiring.SystemClock(), may_act=False)
        return observe(daemon.world, daemon.name, Memory(search=Search(at_once=True)))


def _refuse_if_nothing_may_be_deleted(config: Config, view: Snapshot) -> None:
    if config.mode is Mode.OBSERVE:
        fail([f'cluster.mode is "observe" in {config.path}, so nothing is deleted'])
    if pause := view.fact(FactKind.PAUSE):
        fail([f"cm-scale is paused ({pause.why}), so nothing is deleted; to go on: cm-scale resume"])


def _ask(count: int, *, in_json: bool) -> None:
    if in_json:
        fail(["with --json nobody is asked; say --yes, or --dry-run"])
    click.confirm(f"Delete {'it' if count == 1 else f'these {count}'} for good?", abort=True)


def _deleted(config: Config, ids: Sequence[MachineId], tell: Tell) -> Left:
    """Have them deleted; gives those that were not, each with the reason."""
    began = time.time()
    carry_out(config, Word(Do.REAP, tuple(ids), ASKED_FOR_S, "cm-scale reap"))
    if presence.running_daemon(config) or ((term := wiring.last_term(config)) and term.holds):
        return _by_the_daemon(config, ids, began, tell)
    left = _by_ourselves(config, ids, tell)
    return {**_unfinished(config, [name for name in ids if name not in left], began), **left}


def _by_the_daemon(config: Config, ids: Sequence[MachineId], began: float, tell: Tell) -> Left:
    """Wait until the journal tells that they are deleted."""
    limit_s = config.limits.reap_after_s + PATIENCE_S
    tell(f"The daemon deletes what its second look finds so; it is waited for, {limit_s:.0f} s at most.")
    until = time.monotonic() + limit_s
    while (left := _unfinished(config, ids, began)) and time.monotonic() < until:
        time.sleep(POLL_S)
    return left


def _unfinished(config: Config, ids: Sequence[MachineId], since: float) -> Left:
    """Those of which the journal tells no deletion since then that ended well."""
    with wiring.journal_if_any(config) as journal:
        rows = {name: journal.history(node=NodeName(name)) for name in ids}
    ends = {name: [row for row in rows[name] if row["began"] >= since] for name in ids}
    return {
        name: f"{ends[name][-1]['result']}: {ends[name][-1]['detail']}" if ends[name] else NOT_YET
        for name in ids
        if not any(row["result"] == Result.OK.value for row in ends[name])
    }


def _by_ourselves(config: Config, ids: Sequence[MachineId], tell: Tell) -> Left:
    """Take both looks in the place of the daemon, which can't be started meanwhile."""
    clock = wiring.SystemClock()
    with (
        presence.only_daemon(config),
        wiring.journal(config, clock) as journal,
        wiring.lease(config) as lease,
    ):
        daemon = wiring.daemon(config, journal, clock, may_act=True)
        with leading_once(config, daemon, lease) if lease else nullcontext():
            tell(f"No daemon runs; the second look is taken here, in {config.limits.reap_after_s:.0f} s.")
            return sweep(daemon, frozenset(ids))
