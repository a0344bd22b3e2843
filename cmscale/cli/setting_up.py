"""`check`, `slurm-conf`: what must an admin still do before cm-scale can work, and what do we write for them?

`check` goes on after each problem, so that one look names all of them; what follows from another problem is left out.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cmscale.adapters.slurm import conf
from cmscale.cli import render
from cmscale.cli.shared import EXIT_BAD_INPUT, configured, fail, given_a_path, json_option
from cmscale.model import Pool, Site
from cmscale.ports import Unavailable
from cmscale.shell import admins, presence, wiring
from cmscale.shell import config as configuration
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.mistakes import at_line

ASKED_S = 60.0
"""How long clouds may take to tell their prices and quotas."""


@click.command(short_help="Check the configuration, Slurm and the clouds.")
@json_option
@given_a_path
def check(path: Path, *, in_json: bool) -> None:
    """Check the configuration, the policies, Slurm and the clouds; name every problem at once. Changes nothing."""
    found: dict[str, Any] = {"config": str(path)}
    try:
        config = configuration.load(path)
    except ConfigError as error:
        problems = list(error.problems)
    else:
        found |= {"cluster": config.cluster, "mode": config.mode.value}
        problems = list(dict.fromkeys(_problems(config, found)))
    if in_json:
        click.echo(render.as_json({**found, "ok": not problems, "problems": problems}))
        sys.exit(EXIT_BAD_INPUT if problems else 0)
    render.check_lines(found, render.console())
    if problems:
        click.echo(f"{render.number(len(problems), 'problem')}:")
        fail(problems)
    click.echo("Everything is in order. Next: cm-scale plan")


def _market_problems(config: Config, found: dict[str, Any], *, ask: bool) -> Iterator[str]:
    """What clouds don't tell of prices and quotas; what they tell goes into `found`, with what is odd about it."""
    known, now = wiring.markets(config, keeps=False), time.time()
    if ask:
        known.ask(now)
        known.wait(ASKED_S)
        yield from known.troubles
    pools, sites = known.pools(wiring.pools(config)), known.sites(wiring.sites_of(config), now)
    prices = {name: known.price(config.pools[name].pool) for name in pools}
    found["pools"] = [
        {
            "name": pool.name,
            "site": pool.site,
            "nodes": len(pool.nodes),
            "price_hour": pool.price_hour,
            "price_from": prices[name].source,
            "price_age_s": prices[name].age_s(now),
        }
        for name, pool in pools.items()
    ]
    beyond = (_beyond_quota(pool, sites[pool.site]) for pool in pools.values())
    uncounted = (
        f"budget {budget.name} counts nothing for pool {name}: nobody knows what its machines cost; set its price_hour"
        for budget in config.rules.budgets
        for name, price in prices.items()
        if not price.source and budget.pool in {None, name}
    )
    found["notes"] = [*filter(None, beyond), *uncounted]


def _beyond_quota(pool: Pool, site: Site) -> str:
    """That the pool may have more machines than the account."""
    wanted, allowed = pool.most * pool.quota_cpus, site.quotas.get(pool.family)
    if allowed is None or wanted <= allowed:
        return ""
    return (
        f'pool {pool.name}: its {pool.most} machines take {wanted} CPUs, and the quota "{pool.family}" of the account '
        f"allows {allowed}, which is {allowed // pool.quota_cpus} of them; no more are started"
    )


def _problems(config: Config, found: dict[str, Any]) -> Iterator[str]:
    """Every problem beyond the file itself; what is well goes into `found`."""
    try:
        found["policies"] = [policy.name for policy in wiring.loaded_policies(config)]
    except ConfigError as error:
        yield from error.problems
    unwritable = presence.state_dir_problems(config)
    yield from unwritable or wiring.journal_problems(config)
    yield from (at_line(config.path, problem) for problem in admins.problems(config))
    yield from _slurm_problems(config, found)
    sound = True
    for name in config.sites:
        try:
            problems = [_at(name, problem) for problem in wiring.provider(config, name).problems()]
        except Unavailable as error:
            problems = [str(error)]
        sound = sound and not problems
        yield from problems
    yield from _market_problems(config, found, ask=sound)


def _at(site: str, problem: str) -> str:
    return problem if problem.startswith(f"site {site}") else f"site {site}: {problem}"


# --- Slurm -----------------------------------------------------------------------------------------------------------


def _slurm_problems(config: Config, found: dict[str, Any]) -> Iterator[str]:
    path, text, unread = _slurm_conf(config)
    missing = "" if unread else _include_problem(config, path, text)
    if missing:
        yield missing
    if not unread and conf.includes(text, config.slurm.include) and not config.slurm.include.exists():
        return  # Slurm's own commands would try to read the missing file for a minute
    slurm = wiring.scheduler(config)
    try:
        found["slurm"] = ".".join(f"{part:02d}" for part in slurm.version())
        known = {node.name for node in slurm.nodes().items}
        found["backend"] = slurm.backend()
        pools = [each.pool for each in wiring.declared(config)]
        # Nodes that Slurm does not know because of the include are no problem of their own.
        declared = [pool for pool in pools if not missing or known & set(pool.nodes)]
        yield from slurm.problems(declared, configless=bool(config.slurm.conf_server))
    except Unavailable as error:
        yield str(error)
    else:
        if unread:
            yield f"{path}: {unread}, so its Include line was not checked; name the file as conf under [slurm]"


def _slurm_conf(config: Config) -> tuple[Path, str, str]:
    """The path and the text of slurm.conf, and why it could not be read."""
    path = config.slurm.conf or Path(os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf")
    try:
        return path, path.read_text(encoding="utf-8", errors="replace"), ""
    except OSError as error:
        return path, "", f"slurm.conf can't be read ({error.strerror})"


def _include_problem(config: Config, path: Path, text: str) -> str:
    include = config.slurm.include
    if not conf.includes(text, include):
        return f"{path}: this line is missing: Include {include}"
    try:
        written = include.read_text(encoding="utf-8")
    except FileNotFoundError:
        return f"{include}: the file is missing, which {path} includes; write it with: cm-scale slurm-conf"
    except OSError as error:
        return f"{include}: the file can't be read ({error.strerror})"
    if written != _text(config, text):
        return f"{include}: it does not say what {config.path} says; write it anew with: cm-scale slurm-conf"
    return ""


def _text(config: Config, slurm_conf: str) -> str:
    """What the include file must say."""
    own = {name for each in config.pools.values() for name in each.pool.partitions}
    try:
        return conf.render(wiring.declared(config), own - conf.site_partitions(slurm_conf))
    except ValueError as error:
        raise ConfigError([f"{config.path}: {error}"]) from None


@click.command("slurm-conf", short_help="Write the pools' nodes for Slurm's configuration.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write here instead.  [default: include under [slurm]]",
)
@click.option("--print", "only_print", is_flag=True, help="Print what would be written, write nothing.")
@json_option
@configured
def slurm_conf(config: Config, *, output: Path | None, only_print: bool, in_json: bool) -> None:
    """Write the one file of Slurm's configuration that is ours: the pools' nodes, node sets and partitions.

    slurm.conf itself is only read; it must include the file. Written twice, it is the same.
    """
    path, site, unread = _slurm_conf(config)
    if unread:
        raise ConfigError([f"{path}: {unread}; name the file as conf under [slurm] in {config.path}"])
    text = _text(config, site)
    target = (output or config.slurm.include).absolute()
    try:
        changed = not only_print and conf.write(target, text)
    except OSError as error:
        raise ConfigError([f"{target}: it can't be written ({error.strerror})"]) from None
    included = conf.includes(site, target)
    if in_json:
        told = {"path": target, "text": text, "changed": changed, "included": included}
        click.echo(render.as_json(told))
    elif only_print:
        click.echo(text, nl=False)
    else:
        click.echo(f"{target} is written." if changed else f"{target} says so already; it is left as it is.")
        if not included:
            click.echo(f"Add this line to {path}: Include {target}")
        if changed or not included:
            click.echo("Restart slurmctld to let it take effect (jobs survive). Next: cm-scale check")
