"""cm-scale: what an admin types. Parsing and printing only; every command has --json."""

from __future__ import annotations

import difflib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from cmscale.adapters.slurm import conf
from cmscale.cli import render
from cmscale.core import explain
from cmscale.model import JobId, NodeName, Plan, Snapshot
from cmscale.ports import Unavailable
from cmscale.shell import config as configuration
from cmscale.shell import presence, wiring
from cmscale.shell.config import Config, Mode
from cmscale.shell.loop import Daemon, Look, run, tick
from cmscale.shell.observe import Memory, observe

F = TypeVar("F", bound=Callable[..., Any])

EXIT_BAD_INPUT = 2


def main() -> None:
    """The program: every error a person can mend is a sentence on standard error and exit status 2."""
    try:
        cm_scale(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except configuration.ConfigError as error:
        _fail(*error.problems)
    except Unavailable as error:
        _fail(str(error))
    except BrokenPipeError:
        os._exit(0)  # the reader has enough; flushing at exit would only complain


def _fail(*sentences: str) -> None:
    for sentence in sentences:
        click.echo(f"cm-scale: {sentence}", err=True)
    sys.exit(EXIT_BAD_INPUT)


config_option = click.option(
    "--config",
    "-c",
    "path",
    type=click.Path(path_type=Path),
    help="The configuration file.  [default: $CMSCALE_CONFIG or /etc/cm-scale/cmscale.toml]",
)
json_option = click.option("--json", "in_json", is_flag=True, help="Print one JSON object instead of lines.")


def configured(command: F) -> F:
    """Give a command the validated configuration as its first argument."""

    @config_option
    @wraps(command)
    def with_config(path: Path | None, *args: Any, **kwargs: Any) -> Any:
        context = click.get_current_context()
        chosen = path or context.find_root().params.get("path") or configuration.default_path()
        return command(configuration.load(Path(chosen)), *args, **kwargs)

    return with_config  # type: ignore[return-value]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@config_option
@click.version_option(package_name="cm-scale", prog_name="cm-scale")
def cm_scale(path: Path | None) -> None:
    """Burst Slurm into the cloud: watch what Slurm cannot start, decide which machines should exist, make it so.

    Start with `cm-scale demo`, then copy etc/cmscale.toml and run `cm-scale check`.
    """


# --- the daemon ------------------------------------------------------------------------------------------------------


@cm_scale.command("run")
@click.option("--once", is_flag=True, help="One tick, then end.")
@click.option("--observe", "only_observe", is_flag=True, help="Decide and record, touch nothing, whatever the mode.")
@click.option("--verbose", "-v", is_flag=True, help="Log every call.")
@json_option
@configured
def run_(config: Config, *, once: bool, only_observe: bool, verbose: bool, in_json: bool) -> None:
    """Watch and decide, tick after tick; in mode "act" also do it. SIGTERM ends it cleanly."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
        stream=sys.stderr,
    )
    logging.getLogger("botocore").setLevel(logging.WARNING)
    clock = wiring.SystemClock()
    with presence.only_daemon(config), wiring.journal(config) as journal:
        daemon = wiring.daemon(config, journal, clock, may_act=not only_observe)
        _refuse_what_cannot_work(daemon)
        clock.end_on_signals()
        told = _Told(config, daemon, in_json=in_json)
        if once:
            look = tick(daemon)
            told(look)
            _exit_if_unseen(look.view)
        else:
            click.echo(_greeting(config, daemon), err=True)
            run(daemon, told)


def _greeting(config: Config, daemon: Daemon) -> str:
    pools = f"{len(config.pools)} pools at {len(config.sites)} sites"
    if daemon.may_act:
        return f"cm-scale: acting for cluster {config.cluster}, {pools}; Ctrl-C ends it."
    how = "" if config.mode is Mode.ACT else f'; to act, set cluster.mode = "act" in {config.path}'
    return f"cm-scale: observing cluster {config.cluster}, {pools}: nothing is touched{how}."


def _refuse_what_cannot_work(daemon: Daemon) -> None:
    """What only a person can mend ends us at the start; what may heal by itself is waited for."""
    for site in daemon.world.providers.values():
        with _only_misconfigured():
            site.list()
    with _only_misconfigured():
        daemon.world.scheduler.nodes()


@contextmanager
def _only_misconfigured() -> Iterator[None]:
    from cmscale.ports import Misconfigured

    try:
        yield
    except Misconfigured:
        raise
    except Unavailable as error:
        click.echo(f"cm-scale: {error}", err=True)


class _Told:
    """Says what each tick decided, once: the same lines are not repeated tick after tick."""

    def __init__(self, config: Config, daemon: Daemon, *, in_json: bool) -> None:
        self.config, self.daemon, self.in_json = config, daemon, in_json
        self.last: list[str] = []

    def __call__(self, look: Look) -> None:
        presence.note_tick(self.config, look, may_act=self.daemon.may_act)
        lines = render.plan_lines(look.view, look.plan)
        if self.in_json:
            if lines != self.last:
                click.echo(render.as_json(render.plan_json(look.view, look.plan)))
        else:
            would = "" if self.daemon.may_act else "would "
            for line in lines:
                if line not in self.last and line != "Nothing to do.":
                    doing = any(line.startswith(f"{action.verb.value} ") for action in look.plan.actions)
                    click.echo(f"{_clock(look.view.now)} {would if doing else ''}{line}")
        self.last = lines


def _clock(at: float) -> str:
    import time

    return time.strftime("%H:%M:%S", time.localtime(at))


# --- looks from beside -----------------------------------------------------------------------------------------------


def _look(config: Config) -> tuple[Snapshot, Plan, dict[JobId | NodeName, Any]]:
    """One observe and decide with the daemon's journal, leaving no trace."""
    from cmscale.core.decide import decide

    with wiring.journal_if_any(config) as journal:
        daemon = wiring.daemon(config, journal, wiring.SystemClock(), may_act=False)
        view = observe(daemon.world, daemon.name, Memory())
        return view, decide(view, daemon.policies, daemon.limits), {}


def _exit_if_unseen(view: Snapshot) -> None:
    if view.unseen:
        _fail(view.unseen)
    if unseen := [site.unseen for site in view.sites.values() if site.unseen]:
        _fail(*unseen)


@cm_scale.command()
@json_option
@configured
def plan(config: Config, *, in_json: bool) -> None:
    """Look once and print what would be done now, and why. Touches nothing."""
    view, decided, _ = _look(config)
    if in_json:
        click.echo(render.as_json(render.plan_json(view, decided)))
    elif not view.unseen:
        for line in render.plan_lines(view, decided):
            click.echo(line)
    _exit_if_unseen(view)


@cm_scale.command()
@json_option
@configured
def status(config: Config, *, in_json: bool) -> None:
    """Show the daemon, the sites, the pools and the queue in a few lines."""
    view, decided, _ = _look(config)
    pid = presence.running_daemon(config)
    last = presence.last_tick(config)
    mode = config.mode.value
    if pid and last.get("pid") == pid:
        mode = "act" if last.get("act") else "observe"
    daemon = {
        "running": pid is not None,
        "pid": pid,
        "mode": mode,
        "age_s": view.now - last["at"] if pid and last else None,
        "observe_s": last.get("observe_s") if pid else None,
    }
    told = render.status_json(view, decided, daemon)
    if in_json:
        click.echo(render.as_json(told))
    else:
        render.status_lines(told, render.console())
    _exit_if_unseen(view)


@cm_scale.command()
@click.option("--all", "every", is_flag=True, help="Nodes without a machine and nodes of the site itself, too.")
@json_option
@configured
def nodes(config: Config, *, every: bool, in_json: bool) -> None:
    """List the pools' nodes that have a machine (with --all: every node of Slurm)."""
    view, _, __ = _look(config)
    rows = [render.node_json(view, node) for node in view.nodes.values() if every or (node.pool and node.machine)]
    if in_json:
        click.echo(render.as_json({"nodes": rows}))
    elif rows:
        render.console().print(render.node_table(rows, view.now))
    elif not view.unseen:
        click.echo("No machine is up. Every node: cm-scale nodes --all")
    _exit_if_unseen(view)


@cm_scale.group("explain")
def explain_() -> None:
    """Why is this job waiting, or this node there?"""


@explain_.command("job")
@click.argument("id")
@json_option
@configured
def explain_job(config: Config, id: str, *, in_json: bool) -> None:  # noqa: A002 - the word users know
    """Everything cm-scale knows and decides about one job."""
    view, decided, _ = _look(config)
    _exit_if_unseen(view)
    jobs = [job for job in view.jobs if id in {job.id, job.id.partition("_")[0], job.id.partition("+")[0], job.array}]
    with wiring.journal_if_any(config) as journal:
        history = [row for name in {id, *(job.id for job in jobs)} for row in journal.history(job=JobId(name))]
    if not jobs and not history:
        known = difflib.get_close_matches(id, [job.id for job in view.jobs], n=1, cutoff=0.0)
        raise click.BadParameter(
            f"there is no job {id} in the queue" + (f"; did you mean {known[0]}?" if known else ""), param_hint="ID"
        )
    told = [(job, explain.job_sentences(view, decided, job)) for job in jobs]
    if in_json:
        shown = [
            {
                "id": job.id,
                "state": job.state,
                "reason": job.reason,
                "help": job.help,
                "sentences": sentences,
                "never": decided.never.get(job.id, ""),
                "note": decided.notes.get(job.id, ""),
            }
            for job, sentences in told
        ]
        click.echo(render.as_json({"jobs": shown, "history": history}))
        return
    for _job, sentences in told:
        for sentence in sentences:
            click.echo(sentence)
    if not jobs:
        click.echo(f"Job {id} is no longer in the queue.")
    _print_history(history)


@explain_.command("node")
@click.argument("id")
@json_option
@configured
def explain_node(config: Config, id: str, *, in_json: bool) -> None:  # noqa: A002 - as above
    """Everything cm-scale knows and decides about one node."""
    view, decided, _ = _look(config)
    _exit_if_unseen(view)
    node = view.nodes.get(NodeName(id))
    if node is None:
        known = difflib.get_close_matches(id, list(view.nodes), n=1, cutoff=0.0)
        raise click.BadParameter(
            f"Slurm knows no node {id}" + (f"; did you mean {known[0]}?" if known else ""), param_hint="ID"
        )
    with wiring.journal_if_any(config) as journal:
        history = list(journal.history(node=node.name))
    sentences = explain.node_sentences(decided, node)
    if in_json:
        click.echo(render.as_json({**render.node_json(view, node), "sentences": sentences, "history": history}))
        return
    for sentence in sentences:
        click.echo(sentence)
    _print_history(history)


def _print_history(history: list[dict[str, Any]]) -> None:
    for row in history[-20:]:
        result = row["result"] or "under way"
        click.echo(
            f"{_clock(row['began'])} {row['verb']} {row['node']}: {result} {row['detail'] or ''} ({row['reason']})"
        )


# --- setting up ------------------------------------------------------------------------------------------------------


@cm_scale.command()
@json_option
@configured
def check(config: Config, *, in_json: bool) -> None:
    """Check the configuration, Slurm and the clouds; name every problem at once."""
    problems: list[str] = []
    found: dict[str, Any] = {"config": str(config.path), "cluster": config.cluster, "mode": config.mode.value}
    try:
        found["policies"] = [policy.name for policy in wiring.loaded_policies(config)]
    except configuration.ConfigError as error:
        problems += error.problems
    pools = [each.pool for each in config.pools.values()]
    slurm = wiring.scheduler(config)
    try:
        found["slurm"] = ".".join(f"{part:02d}" for part in slurm.version())
        problems += slurm.problems(pools)
        problems += _include_problems(config)
    except Unavailable as error:
        problems.append(str(error))
    for name, provider in _each_provider(config, problems):
        problems += [f"site {name}: {problem}" for problem in provider.problems()]
    found["pools"] = {
        pool.name: f"{len(pool.nodes)} nodes at {pool.site}, ${pool.price_hour:g} an hour" for pool in pools
    }
    if in_json:
        click.echo(render.as_json({**found, "ok": not problems, "problems": problems}))
    else:
        for key, value in found.items():
            shown = ", ".join(f"{name} ({what})" for name, what in value.items()) if isinstance(value, dict) else value
            click.echo(f"{key:<9}{', '.join(shown) if isinstance(shown, list) else shown}")
        click.echo("Everything is in order. Next: cm-scale plan" if not problems else f"{len(problems)} problems:")
    if problems and not in_json:
        _fail(*problems)
    if problems:
        sys.exit(EXIT_BAD_INPUT)


def _each_provider(config: Config, problems: list[str]) -> Iterator[tuple[str, Any]]:
    try:
        yield from wiring.providers(config).items()
    except Unavailable as error:
        problems.append(str(error))


def _slurm_conf(config: Config) -> Path:
    return config.slurm.conf or Path(os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf")


def _include_problems(config: Config) -> list[str]:
    path = _slurm_conf(config)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        return [f"{path}: slurm.conf can't be read ({error.strerror}), so its Include line was not checked"]
    if not conf.includes(text, config.slurm.include):
        return [f"{path}: the line is missing: Include {config.slurm.include}"]
    if not config.slurm.include.exists():
        return [f"{config.slurm.include}: the file is missing; write it with: cm-scale slurm-conf"]
    owned = {name for each in config.pools.values() for name in each.pool.partitions} - conf.site_partitions(text)
    if config.slurm.include.read_text(encoding="utf-8") != conf.render(wiring.declared(config), owned):
        return [f"{config.slurm.include}: it does not say what {config.path} says; write it anew: cm-scale slurm-conf"]
    return []


@cm_scale.command("slurm-conf")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write here instead.  [default: slurm.include]")
@click.option("--print", "only_print", is_flag=True, help="Print the file, write nothing.")
@json_option
@configured
def slurm_conf(config: Config, *, output: Path | None, only_print: bool, in_json: bool) -> None:
    """Write the one file of Slurm's configuration that is ours: nodes, node sets and partitions of the pools."""
    path = _slurm_conf(config)
    try:
        site = path.read_text(encoding="utf-8")
    except OSError as error:
        raise configuration.ConfigError(
            [f"{path}: slurm.conf can't be read ({error.strerror}); name it in [slurm] conf"]
        ) from None
    owned = {name for each in config.pools.values() for name in each.pool.partitions} - conf.site_partitions(site)
    try:
        text = conf.render(wiring.declared(config), owned)
        target = output or config.slurm.include
        if only_print:
            click.echo(render.as_json({"text": text}) if in_json else text, nl=in_json)
            return
        changed = conf.write(target, text)
    except ValueError as error:
        raise configuration.ConfigError([f"{config.path}: {error}"]) from None
    except OSError as error:
        raise configuration.ConfigError([f"{target}: it can't be written ({error.strerror})"]) from None
    included = conf.includes(site, target)
    if in_json:
        click.echo(render.as_json({"path": target, "changed": changed, "included": included}))
        return
    click.echo(f"{target} is written." if changed else f"{target} says so already.")
    if not included:
        click.echo(f"Add this line to {path}: Include {target}")
    if changed:
        click.echo("Restart slurmctld to let it take effect (jobs survive), then: cm-scale check")


# --- trying it out ---------------------------------------------------------------------------------------------------


@cm_scale.group()
def lab() -> None:
    """A hybrid cluster on this machine: real Slurm, an EC2 API on loopback, machines that boot."""


directory_option = click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="The lab's directory.  [default: ~/.cache/cm-scale/lab]"
)


@contextmanager
def _lab_errors() -> Iterator[None]:
    from cmscale.lab.processes import LabError

    try:
        yield
    except LabError as error:
        _fail(str(error))
    except ImportError as error:
        _fail(f"the lab needs {error.name}: pip install 'cm-scale[lab]'")


@lab.command("up")
@directory_option
@json_option
def lab_up(directory: Path | None, *, in_json: bool) -> None:
    """Bring the lab up."""
    with _lab_errors():
        from cmscale.lab import supervisor

        info = supervisor.up(directory)
        click.echo(render.as_json(info) if in_json else info.text)


@lab.command("down")
@directory_option
@json_option
def lab_down(directory: Path | None, *, in_json: bool) -> None:
    """End the lab and everything in it."""
    with _lab_errors():
        from cmscale.lab import supervisor

        end = supervisor.down(directory)
        click.echo(render.as_json(end) if in_json else end.text)
        if end.left:
            sys.exit(1)


@lab.command("status")
@directory_option
@json_option
def lab_status(directory: Path | None, *, in_json: bool) -> None:
    """Tell whether the lab is up, and how to use it."""
    with _lab_errors():
        from cmscale.lab import supervisor

        found = supervisor.status(directory)
        click.echo(render.as_json(found) if in_json else found.text)


@cm_scale.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Keep the lab's files here.  [default: a new folder in /tmp]",
)
@click.option("--limit", "limit_s", default=180.0, show_default=True, help="Give up after so many seconds.")
@json_option
def demo(directory: Path | None, limit_s: float, *, in_json: bool) -> None:
    """From sbatch to a GPU node and back, on this machine: a lab, five kinds of jobs, the daemon, a timeline."""
    with _lab_errors():
        from cmscale.cli import demo as show

        if not show.demo(directory, limit_s, in_json=in_json):
            sys.exit(1)


if __name__ == "__main__":
    main()
