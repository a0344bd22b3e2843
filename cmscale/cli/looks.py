"""`plan`, `status`, `nodes`, `explain`: what is there, and what would be done now?

Each looks at Slurm and the clouds afresh with the daemon's journal, so what is shown is what the daemon would decide;
nothing is touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from cmscale.cli import render
from cmscale.cli.shared import clock, configured, fail, json_option
from cmscale.core import explain
from cmscale.core.decide import decide
from cmscale.model import JobId, NodeName, Plan, Snapshot
from cmscale.shell import presence, wiring
from cmscale.shell.config import Config, ConfigError, Mode, nearest
from cmscale.shell.observe import Memory, observe

History = Sequence[Mapping[str, Any]]

SHOWN_OF_HISTORY = 20


def _look(config: Config) -> tuple[Snapshot, Plan]:
    """One observe and decide with the daemon's journal, leaving no trace."""
    with wiring.journal_if_any(config) as journal:
        daemon = wiring.daemon(config, journal, wiring.SystemClock(), may_act=False)
        view = observe(daemon.world, daemon.name, Memory())
        return view, decide(view, daemon.policies, daemon.limits)


def _end_if_unseen(view: Snapshot) -> None:
    if unseen := render.unseen(view):
        fail(unseen.values())


@click.command()
@json_option
@configured
def plan(config: Config, *, in_json: bool) -> None:
    """Look once and print what would be done now, and why. Touches nothing."""
    view, decided = _look(config)
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
        elif decided.actions and not presence.running_daemon(config):
            to_act = "" if config.mode is Mode.ACT else f'set cluster.mode = "act" in {config.path}, then: '
            click.echo(f"No daemon is running, so this is not done. Next: {to_act}cm-scale run")
    _end_if_unseen(view)


@click.command(short_help="Show the daemon, the pools and the queue.")
@json_option
@configured
def status(config: Config, *, in_json: bool) -> None:
    """Show the daemon, the sites, the pools and the queue in a few lines."""
    view, decided = _look(config)
    told = render.status_json(view, decided, _daemon(config, view.now))
    if in_json:
        click.echo(render.as_json(told))
    else:
        render.status_lines(told, render.console())
    _end_if_unseen(view)


def _daemon(config: Config, now: float) -> dict[str, Any]:
    pid = presence.running_daemon(config)
    last = presence.last_tick(config)
    if not pid or last.get("pid") != pid:
        return {"running": pid is not None, "pid": pid, "mode": config.mode.value, "age_s": None, "observe_s": None}
    return {
        "running": True,
        "pid": pid,
        "mode": Mode.ACT.value if last["act"] else Mode.OBSERVE.value,
        "age_s": now - last["at"],
        "observe_s": last["observe_s"],
    }


@click.command(short_help="List the nodes that have a machine.")
@click.option("--all", "every", is_flag=True, help="Nodes without a machine and nodes of the site itself, too.")
@json_option
@configured
def nodes(config: Config, *, every: bool, in_json: bool) -> None:
    """List the pools' nodes that have a machine (with --all: every node of Slurm)."""
    view, _ = _look(config)
    rows = [render.node_json(view, node) for node in view.nodes.values() if every or (node.pool and node.machine)]
    if in_json:
        click.echo(render.as_json({"nodes": rows, "unseen": render.unseen(view)}))
    elif rows:
        render.node_lines(rows, view.now, render.console())
    elif not view.unseen:
        click.echo("No machine is up. Every node: cm-scale nodes --all")
    _end_if_unseen(view)


@click.group("explain")
def explain_() -> None:
    """Why does this job wait, or why is this node there?"""


@explain_.command("job", short_help="Why a job waits, and what was done for it.")
@click.argument("id")
@json_option
@configured
def explain_job(config: Config, id: str, *, in_json: bool) -> None:  # noqa: A002 - the word users know
    """Everything cm-scale knows and decides about the job ID, as squeue shows it: 17, 17_4 or 17+1."""
    view, decided = _look(config)
    _end_if_unseen(view)
    jobs = [job for job in view.jobs if id in {job.id, job.id.partition("_")[0], job.id.partition("+")[0], job.array}]
    with wiring.journal_if_any(config) as journal:
        history = [row for name in {id, *(job.id for job in jobs)} for row in journal.history(job=JobId(name))]
    if not jobs and not history:
        _no_such(f"there is no job {id} in the queue", id, [job.id for job in view.jobs], "to see the queue: squeue")
    told = [render.job_json(decided, job, explain.job_sentences(view, decided, job)) for job in jobs]
    if in_json:
        click.echo(render.as_json({"jobs": told, "history": history}))
        return
    for each in told:
        for sentence in each["sentences"]:
            click.echo(sentence)
    if not jobs:
        click.echo(f"Job {id} is no longer in the queue. What was done for it:")
    _print_history(history)


@explain_.command("node", short_help="Why a node is there, and what was done with it.")
@click.argument("name")
@json_option
@configured
def explain_node(config: Config, name: str, *, in_json: bool) -> None:
    """Everything cm-scale knows and decides about the node NAME, as sinfo shows it."""
    view, decided = _look(config)
    _end_if_unseen(view)
    node = view.nodes.get(NodeName(name))
    if node is None:
        _no_such(f"Slurm knows no node {name}", name, view.nodes, "to see every node: cm-scale nodes --all")
    with wiring.journal_if_any(config) as journal:
        history = journal.history(node=node.name)
    sentences = explain.node_sentences(decided, node)
    if in_json:
        click.echo(render.as_json({**render.node_json(view, node), "sentences": sentences, "history": history}))
        return
    for sentence in sentences:
        click.echo(sentence)
    _print_history(history)


def _no_such(sentence: str, name: str, known: Sequence[str] | Mapping[NodeName, Any], where: str) -> NoReturn:
    close = nearest(name, known)
    raise ConfigError([f"{sentence}; {close if close.startswith('did') else where}"])


def _print_history(history: History) -> None:
    for row in history[-SHOWN_OF_HISTORY:]:
        result = " ".join(filter(None, (row["result"] or "under way", row["detail"])))
        click.echo(f"{clock(row['began'])} {row['verb']} {row['node']}: {result} ({row['reason']})")
