"""`policies`: which policies are there, are they fit to decide, and how does one write one's own?

What is loaded is what the daemon would load. `check` also asks each policy once about made-up snapshots: an attribute
that does not exist shows only when it is asked for, and a daemon should not be the first to ask.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cmscale.cli import render
from cmscale.cli.shared import EXIT_BAD_INPUT, configured, fail, json_option
from cmscale.shell import wiring
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.mistakes import at_line
from cmscale.shell.policies import Policy, Setting, found, settings
from cmscale.shell.schema import POLICY_NAME
from cmscale.shell.shipped import share_dir
from cmscale.shell.trial import tried
from cmscale.shell.values import nearest, shown


@click.group("policies", short_help="List, check and write policies.")
def policies_() -> None:
    """Which policies are there, are they in order, and how does one write one's own?"""


# --- list ------------------------------------------------------------------------------------------------------------


@policies_.command("list", short_help="Every policy, in the order in which they decide.")
@json_option
@configured
def list_(config: Config, *, in_json: bool) -> None:
    """List every policy that can be found: first those that decide, in their order, with their settings in effect."""
    files = found(config.policy_dir)
    names = (
        *(name for name in config.policies if name in files),
        *(name for name in files if name not in config.policies),
    )
    # A folder that is not there is told below, once; the shipped policies are none the worse for it.
    there = config if config.policy_dir and config.policy_dir.is_dir() else replace(config, policy_dir=None)
    told: list[dict[str, Any]] = []
    problems: list[str] = []
    for name in names:
        policy = _loaded(there, name, problems)
        told.append(_row(config, name, files[name], policy))
        if not in_json:
            _print_row(told[-1], policy)
    if in_json:
        click.echo(render.as_json({"policies": told}))
    elif any(row["place"] is None for row in told):
        click.echo(f"To let one of the others decide, add it to policies under [cluster] in {config.path}.")
    problems += _configuration_problems(config)
    if problems:
        fail(problems)


def _loaded(config: Config, name: str, problems: list[str]) -> Policy | None:
    """The policy, or None with what is wrong added to the problems."""
    try:
        (policy,) = wiring.loaded_policies(config, (name,))
    except ConfigError as error:
        problems += error.problems
        return None
    return policy


def _configuration_problems(config: Config) -> tuple[str, ...]:
    """What the daemon would not start with: policies, a folder or tables of policies that are not there."""
    try:
        wiring.loaded_policies(config)
    except ConfigError as error:
        return error.problems
    return ()


def _row(config: Config, name: str, path: Path, policy: Policy | None) -> dict[str, Any]:
    return {
        "name": name,
        "place": config.policies.index(name) + 1 if name in config.policies else None,
        "path": path,
        "shipped": path.parent == share_dir("policies"),
        "doc": policy.doc if policy else "",
        "settings": {each.key: each.value for each in settings(policy)} if policy else {},
    }


def _print_row(row: dict[str, Any], policy: Policy | None) -> None:
    place = f"{row['place']}." if row["place"] else "not active:"
    without = "it has no docstring" if policy else "it can't be used"
    click.echo(f"{place} {row['name']}: {row['doc'] or without}")
    click.echo(f"   {row['path']} ({_whose(row)})")
    for each in settings(policy) if policy else ():
        click.echo(f"   {each.key} = {shown(each.value)} ({_beside(each)})")


def _whose(row: dict[str, Any]) -> str:
    if row["shipped"]:
        return "shipped"
    return "the site's own, in place of the shipped one" if row["name"] in found(None) else "the site's own"


def _beside(setting: Setting) -> str:
    if setting.default is None:
        return "required"
    return "the default" if setting.value == setting.default else f"default {shown(setting.default)}"


# --- check -----------------------------------------------------------------------------------------------------------


@policies_.command("check", short_help="Load policies and try them on made-up snapshots.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option
@configured
def check(config: Config, names: tuple[str, ...], *, in_json: bool) -> None:
    """Load the named policies (all, if none is named) with their settings, and ask each about made-up snapshots.

    Neither Slurm nor a cloud is asked.
    """
    problems = [] if names else list(_configuration_problems(config))
    checked = tuple(dict.fromkeys(names or found(config.policy_dir)))
    for name in checked:
        problems += _problems(config, name)
    problems = list(dict.fromkeys(problems))
    if in_json:
        click.echo(render.as_json({"ok": not problems, "policies": checked, "problems": problems}))
        sys.exit(EXIT_BAD_INPUT if problems else 0)
    if problems:
        fail(problems)
    click.echo("1 policy is in order." if len(checked) == 1 else f"{len(checked)} policies are in order.")


def _problems(config: Config, name: str) -> Iterator[str]:
    files = found(config.policy_dir)
    if name not in files:
        looked = " and ".join(str(folder) for folder in (config.policy_dir, share_dir("policies")) if folder)
        yield f"there is no policy {shown(name)} in {looked}; {nearest(name, files)}"
        return
    if not re.fullmatch(POLICY_NAME, name):
        yield f"{files[name]}:1: no configuration can name this file; {_NAMED}"
    problems: list[str] = []
    policy = _loaded(config, name, problems)
    yield from problems
    if policy and (wrong := tried(policy)):
        yield wrong


_NAMED = "a policy's name is of lower-case letters, digits and underscores, and begins with no digit"


# --- new -------------------------------------------------------------------------------------------------------------

_TEMPLATE = '''\
"""Keep the nodes up that `nodes` names. (An example: say here, in one sentence, what your policy wishes for.)

A policy is asked at every look at the cluster. It yields a goal for each node it wishes something for: Want.UP,
Want.DRAINED, Want.OFF (stopped and kept) or Want.GONE (deleted). It does nothing itself and reads no clock: all it may
know is in the view, whose fields cmscale/model.py tells. Who fits where is told by cmscale/fit.py and cmscale/placing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.model import Goal, NodeName, Snapshot, Want


@dataclass(frozen=True, slots=True)
class Settings:
    """What [policy.NAME] may say. A float whose name ends in _s is a duration: idle_s is written idle = "5m"."""

    nodes: tuple[str, ...] = ()
    """The nodes to keep up."""


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    for node in view.nodes.values():
        # A policy before this one may have claimed the node; one without a pool is the site's, and never touched.
        if node.name in claimed or node.pool is None or node.sick:
            continue
        if node.name in settings.nodes:
            yield Goal(node.name, Want.UP, "NAME keeps it up")
'''


@policies_.command("new", short_help="Write a policy of your own to start from.")
@click.argument("name")
@click.option("--from", "source", metavar="SHIPPED", help="Copy this shipped policy.  [default: a small example]")
@json_option
@configured
def new(config: Config, name: str, source: str | None, *, in_json: bool) -> None:
    """Write NAME.py into policy_dir: a small example, or a copy of a shipped policy, to be made yours."""
    text = _text(name, source)
    path = _folder(config) / f"{name}.py"
    try:
        # "x": a policy that somebody wrote is never written over.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError([f"{path}: the file is there already, and is left as it is; choose another name"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: it can't be written ({error.strerror})"]) from None
    if in_json:
        click.echo(render.as_json({"path": path}))
        return
    click.echo(f"{path} is written. Its settings go under [policy.{name}] in {config.path}.")
    click.echo(f"Next: make it yours, then: cm-scale policies check {name}")
    if name in config.policies:
        place = config.policies.index(name) + 1
        click.echo(f"It is at place {place} of cluster.policies already: it decides once cm-scale run is started anew.")
    else:
        click.echo(f'To let it decide, add "{name}" to policies under [cluster] in {config.path}.')


def _text(name: str, source: str | None) -> str:
    """What the new file shall say; raises ConfigError if it must not be of this name."""
    shipped = found(None)
    if not re.fullmatch(POLICY_NAME, name):
        raise ConfigError([f"{shown(name)} can't be the name of a policy: {_NAMED}"])
    if source is not None and source not in shipped:
        raise ConfigError([f"there is no shipped policy {shown(source)}; {nearest(source, shipped)}"])
    if name in shipped and source != name:
        copying = f"cm-scale policies new {name} --from {name}"
        raise ConfigError([f"{name} is a shipped policy, and yours would take its place; to copy it: {copying}"])
    return shipped[source].read_text(encoding="utf-8") if source else _TEMPLATE.replace("NAME", name)


def _folder(config: Config) -> Path:
    """The site's folder, made if only it is missing."""
    folder = config.policy_dir
    if folder is None:
        why = 'it is not set; name a folder for your own policies there, e.g. policy_dir = "/etc/cm-scale/policies"'
    elif folder.is_dir():
        return folder
    elif not folder.parent.is_dir():
        why = f"neither {folder} nor the folder above it exists; make it, or name another"
    else:
        try:
            folder.mkdir()
        except OSError as error:
            why = f"the folder {folder} can't be made ({error.strerror})"
        else:
            return folder
    raise ConfigError([at_line(config.path, f"cluster.policy_dir: {why}")])
