"""`explain job|node|tick|why-not`: why does this job wait, is this node there, was this decided?

Jobs and nodes are looked at afresh, as `plan` does; a tick is told as it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import click

from cmscale.cli import render
from cmscale.cli.looks import look
from cmscale.cli.shared import clock, configured, fail, json_option
from cmscale.core import telling
from cmscale.journal.sql import SqlJournal
from cmscale.model import Job, JobId, NodeName, Plan, Snapshot
from cmscale.shell import wiring
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.values import nearest

History = Sequence[Mapping[str, Any]]

SHOWN_OF_HISTORY = 20
SHOWN_OF_CONSOLE = 20
"""Lines."""
SHOWN_TICKS = 3


@click.group("explain")
def explain_() -> None:
    """Why does this job wait, is this node there, was this decided?"""


@explain_.command("job", short_help="Why a job waits, and what was done for it.")
@click.argument("id")
@json_option
@configured
def explain_job(config: Config, id: str, *, in_json: bool) -> None:  # noqa: A002 - the word users know
    """Everything cm-scale knows and decides about the job ID, as squeue shows it: 17, 17_4 or 17+1."""
    view, decided = _look(config)
    jobs = _jobs(view, id)
    history = _history_of(config, id, jobs)
    if not jobs and not history:
        _no_such_job(view, id)
    told = [render.job_json(decided, job, telling.job_sentences(view, decided, job)) for job in jobs]
    if in_json:
        click.echo(render.as_json({"jobs": told, "history": history}))
        return
    _print(sentence for each in told for sentence in each["sentences"])
    if not jobs:
        click.echo(f"Job {id} is no longer in the queue. What was done for it:")
    _print_history(history)


@explain_.command("why-not", short_help="Why no more is started for a job.")
@click.argument("id")
@json_option
@configured
def explain_why_not(config: Config, id: str, *, in_json: bool) -> None:  # noqa: A002 - the word users know
    """Why no more is started for the job ID: each offer with its price and the time it would take, what is against it,
    and what would change the answer."""
    view, decided = _look(config)
    jobs = _jobs(view, id)
    if not jobs:
        _no_such_job(view, id)
    told = [render.job_json(decided, job, telling.why_not(view, decided, job)) for job in jobs]
    if in_json:
        click.echo(render.as_json({"jobs": told}))
        return
    _print(sentence for each in told for sentence in each["sentences"])


@explain_.command("node", short_help="Why a node is there, and what was done with it.")
@click.argument("name")
@click.option("--console", is_flag=True, help="All that its last failed machine wrote to its console.")
@json_option
@configured
def explain_node(config: Config, name: str, *, console: bool, in_json: bool) -> None:
    """Everything cm-scale knows and decides about the node NAME, as sinfo shows it."""
    view, decided = _look(config)
    node = view.nodes.get(NodeName(name))
    if node is None:
        _no_such(f"Slurm knows no node {name}", name, view.nodes, "to see every node: cm-scale nodes --all")
    with wiring.journal_if_any(config) as journal:
        history, evidence = journal.history(node=node.name), journal.evidence(node.name)
    sentences = telling.node_sentences(view, decided, node)
    if in_json:
        told = {**render.node_json(view, node), "sentences": sentences, "history": history, "evidence": evidence}
        click.echo(render.as_json(told))
        return
    if console:
        click.echo(evidence[0].text if evidence else f"No machine of {name} has failed, as far as is known.")
        return
    _print(sentences)
    _print_history(history)
    if evidence:
        last = evidence[0]
        lines = last.text.rstrip().splitlines()
        click.echo(f"Its machine {last.machine} failed at {clock(last.at)} ({last.why}). The end of its console:")
        _print(f"  {line}" for line in lines[-SHOWN_OF_CONSOLE:])
        if len(lines) > SHOWN_OF_CONSOLE:
            click.echo(f"All of it: cm-scale explain node {name} --console")


@explain_.command("tick", short_help="What one tick saw and decided, and why.")
@click.argument("n", default="last")
@json_option
@configured
def explain_tick(config: Config, n: str, *, in_json: bool) -> None:
    """What the daemon saw and decided in the tick N: its id, the beginning of it, its last number, or "last"."""
    with wiring.journal_if_any(config) as journal:
        found = journal.stored(n)
        if found is None:
            _no_such_tick(journal, n)
    view, plan = found
    if in_json:
        told = {**render.plan_json(view, plan), "sentences": telling.tick_sentences(view, plan)}
        click.echo(render.as_json(told))
        return
    click.echo(f"Tick {view.tick} at {clock(view.now)}:")
    _print(telling.tick_sentences(view, plan))


def _look(config: Config) -> tuple[Snapshot, Plan]:
    """What is so and what would be done. A site that could not be read is told of where it matters."""
    view, decided = look(config)
    if why := view.unseen or view.unrecorded:
        fail([why])
    return view, decided


def _no_such_tick(journal: SqlJournal, name: str) -> NoReturn:
    kept = journal.ticks(0.0)
    if not kept:
        raise ConfigError(["no tick is kept yet; start the daemon: cm-scale run"])
    latest = "; ".join(f"{tick} ({clock(at)}, {what})" for at, tick, what in kept[-SHOWN_TICKS:])
    raise ConfigError([f"no tick {name} is kept; the last ones are: {latest}"])


def _jobs(view: Snapshot, name: str) -> list[Job]:
    return [job for job in view.jobs if name in {job.id, job.id.partition("_")[0], job.id.partition("+")[0], job.array}]


def _history_of(config: Config, name: str, jobs: Sequence[Job]) -> History:
    with wiring.journal_if_any(config) as journal:
        return [row for each in {name, *(job.id for job in jobs)} for row in journal.history(job=JobId(each))]


def _no_such_job(view: Snapshot, name: str) -> NoReturn:
    _no_such(f"there is no job {name} in the queue", name, [job.id for job in view.jobs], "to see the queue: squeue")


def _no_such(sentence: str, name: str, known: Sequence[str] | Mapping[NodeName, Any], where: str) -> NoReturn:
    close = nearest(name, known)
    raise ConfigError([f"{sentence}; {close if close.startswith('did') else where}"])


def _print(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        click.echo(sentence)


def _print_history(history: History) -> None:
    for row in history[-SHOWN_OF_HISTORY:]:
        result = " ".join(filter(None, (row["result"] or "under way", row["detail"])))
        click.echo(f"{clock(row['began'])} {row['verb']} {row['node']}: {result} ({row['reason']})")
