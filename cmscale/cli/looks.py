"""`plan`, `status`, `nodes`: what is there, and what would be done now?

Each looks at Slurm and the clouds afresh with the daemon's journal, so what is shown is what the daemon would decide;
nothing is touched.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cmscale.cli import render
from cmscale.cli.shared import configured, fail, given_a_path, json_option
from cmscale.core.decide import decide
from cmscale.journal.lease import Term
from cmscale.model import Plan, Snapshot
from cmscale.ports import Backend, Unavailable
from cmscale.shell import config as configuration
from cmscale.shell import presence, reload, wiring
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.observe import Memory, observe
from cmscale.shell.reaping import Search
from cmscale.shell.schema import Mode


def look(config: Config) -> tuple[Snapshot, Plan]:
    """One observe and decide with the daemon's journal, leaving no trace."""
    view, decided, _ = _look(config)
    return view, decided


def _look(config: Config, *, thoroughly: bool = False) -> tuple[Snapshot, Plan, Backend]:
    with wiring.journal_if_any(config) as journal:
        daemon = wiring.daemon(config, journal, wiring.SystemClock(), may_act=False)
        view = observe(daemon.world, daemon.name, Memory(search=Search(at_once=thoroughly)))
        # A journal that we may read may still be one that the daemon can't write.
        view = replace(view, unrecorded=view.unrecorded or presence.journal_trouble(config))
        return view, decide(view, daemon.policies, daemon.limits), daemon.world.scheduler.backend()


def end_if_unseen(view: Snapshot) -> None:
    if unseen := render.unseen(view):
        fail(unseen.values())


@click.command()
@json_option
@configured
def plan(config: Config, *, in_json: bool) -> None:
    """Look once and print what would be done now, and why. Touches nothing."""
    view, decided = look(config)
    if in_json:
        click.echo(render.as_json(render.plan_json(view, decided)))
    elif not view.unseen:
        lines = [*render.plan_lines(decided), *render.asked_again(view), *view.unreadable]
        if not lines and not render.unseen(view):
            lines = ["Nothing to do."]
        for line in lines:
            click.echo(line)
        if decided.never:
            click.echo(f"Next: cm-scale explain job {next(iter(decided.never))}")
        elif decided.actions and not presence.running_daemon(config) and not _term(config):
            to_act = "" if config.mode is Mode.ACT else f'set cluster.mode = "act" in {config.path}, then: '
            click.echo(f"No daemon is running, so this is not done. Next: {to_act}cm-scale run")
    end_if_unseen(view)


@click.command(short_help="Show the daemon, the pools and the queue.")
@json_option
@given_a_path
def status(path: Path, *, in_json: bool) -> None:
    """Show the daemon, the sites, the pools and the queue in a few lines.

    If the file can't be used and a daemon runs, what that daemon read of it before is what counts.
    """
    config, problems = _working_with(path)
    view, decided, backend = _look(config, thoroughly=True)
    daemon = _daemon(config, view.now)
    daemon["troubles"] = [*dict.fromkeys([*daemon["troubles"], *problems])]
    told = render.status_json(
        view, decided, daemon, backend, limits=config.limits, price_of=wiring.markets(config).price
    )
    if in_json:
        click.echo(render.as_json(told))
    else:
        render.status_lines(told, render.console())
    end_if_unseen(view)


def _working_with(path: Path) -> tuple[Config, list[str]]:
    """The configuration that is in effect, and what is wrong with its file."""
    try:
        return configuration.load(path), []
    except ConfigError as error:
        config = presence.in_effect(path)
        if config is None:
            raise
        return config, [reload.stays(problem) for problem in error.problems]


def _daemon(config: Config, now: float) -> dict[str, Any]:
    pid = presence.running_daemon(config)
    last = presence.last_tick(config)
    known = presence.troubles(config)
    looked = pid is not None and last.get("pid") == pid
    term = _term(config)
    return {
        "running": pid is not None,
        "pid": pid,
        "mode": last["mode"] if looked else config.mode.value,
        # A clock that was set back since then tells nothing.
        "age_s": max(now - last["at"], 0.0) if looked else None,
        "observe_s": last["observe_s"] if looked else None,
        "standby": pid is not None and wiring.may_stand_by(config) and not (term and term.holder.is_here(pid)),
        "leader": str(term.holder) if term else None,
        "leader_since": term.since if term else None,
        "term": term.number if term else None,
        "troubles": known["troubles"] if pid is not None and known.get("pid") == pid else [],
    }


def _term(config: Config) -> Term | None:
    """Whose lease it is now, if the journal is one that two daemons may share and can be asked."""
    try:
        term = wiring.last_term(config)
    except Unavailable:
        return None
    return term if term and term.holds else None


@click.command(short_help="List the nodes that have a machine.")
@click.option("--all", "every", is_flag=True, help="Nodes without a machine and nodes of the site itself, too.")
@json_option
@configured
def nodes(config: Config, *, every: bool, in_json: bool) -> None:
    """List the pools' nodes that have a machine (with --all: every node of Slurm)."""
    view, _ = look(config)
    rows = [render.node_json(view, node) for node in view.nodes.values() if every or (node.pool and node.machine)]
    if in_json:
        click.echo(render.as_json({"nodes": rows, "unseen": render.unseen(view)}))
    elif rows:
        render.node_lines(rows, view.now, render.console())
    elif not view.unseen:
        click.echo("No machine is up. Every node: cm-scale nodes --all")
    end_if_unseen(view)
