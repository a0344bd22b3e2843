"""`aws setup`, `aws teardown`, `aws policy`: what does cm-scale need in an account of AWS, and what may it do there?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import click

from cmscale.adapters.aws.policy import daemon_policy, setup_policy
from cmscale.adapters.aws.setup import Deed, Did, Setup
from cmscale.cli import render
from cmscale.cli.shared import configured, json_option
from cmscale.model import SiteKind, SiteName
from cmscale.shell import wiring
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.values import nearest

_WOULD = {Did.MADE: "would be made", Did.CHANGED: "would be changed", Did.REMOVED: "would be removed"}
_SAID = {Did.THERE: "is there", Did.ABSENT: "is not there", Did.LEFT: "is left alone"}

site_option = click.option("--site", metavar="SITE", help="Only this site.  [default: all sites of AWS]")
dry_option = click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing.")


@click.group("aws", short_help="Set an account of AWS up; print the rights it takes.")
def aws() -> None:
    """Prepare accounts of AWS: the queue in which EC2's warnings come, and the rights of the daemon."""


@aws.command(short_help="Make the queue in which EC2's warnings come.")
@site_option
@dry_option
@json_option
@configured
def setup(config: Config, *, site: str | None, dry_run: bool, in_json: bool) -> None:
    """Make what brings EC2's warnings for spot machines to the daemon: in each region a queue of SQS, a rule of
    EventBridge, and the queue's leave to take the rule's messages.

    What is there already is left as it is; what is somebody else's is an error.
    """
    told = _done(config, site, dry_run=dry_run, in_json=in_json, do=lambda each: each.make(dry_run=dry_run))
    if not in_json and any(deed.did in {Did.MADE, Did.CHANGED} for deed in told):
        click.echo(
            "To do so, type it without --dry-run."
            if dry_run
            else "A daemon that runs finds it within five minutes. Next: cm-scale aws policy, then cm-scale check"
        )


@aws.command(short_help="Remove what aws setup has made.")
@site_option
@dry_option
@json_option
@configured
def teardown(config: Config, *, site: str | None, dry_run: bool, in_json: bool) -> None:
    """Remove what `cm-scale aws setup` has made, and nothing else. Machines stay; a daemon that runs asks EC2 itself
    from then on.
    """
    _done(config, site, dry_run=dry_run, in_json=in_json, do=lambda each: each.remove(dry_run=dry_run))


@aws.command(short_help="Print the rights that cm-scale needs.")
@site_option
@click.option("--setup", "of_setup", is_flag=True, help="What aws setup and aws teardown need, in place of the daemon.")
@json_option
@configured
def policy(config: Config, *, site: str | None, of_setup: bool, in_json: bool) -> None:
    """Print the least that the daemon must be allowed, as a policy of IAM made from the configuration. Asks nobody."""
    realms = [wiring.aws_realm(config, name) for name in _sites(config, site)]
    document = (setup_policy if of_setup else daemon_policy)(realms)
    click.echo(render.as_json(document) if in_json else json.dumps(document, indent=2))


def _sites(config: Config, wanted: str | None) -> list[SiteName]:
    known = [name for name, each in config.sites.items() if each.site.kind is SiteKind.AWS]
    if wanted is None:
        if not known:
            raise ConfigError([f'{config.path}: there is no site of kind = "aws"'])
        return known
    if wanted not in known:
        raise ConfigError([f'there is no site "{wanted}" of kind = "aws" in {config.path}; {nearest(wanted, known)}'])
    return [SiteName(wanted)]


def _done(
    config: Config, site: str | None, *, dry_run: bool, in_json: bool, do: Callable[[Setup], Iterator[Deed]]
) -> list[Deed]:
    """Do it at each site, and tell each thing as soon as it is done: what comes after it may fail."""
    setups = [(name, wiring.aws_setup(config, name)) for name in _sites(config, site) if _has_queue(config, name, site)]
    sites: list[dict[str, Any]] = []
    told: list[Deed] = []
    for name, each in setups:
        deeds: list[Deed] = []
        for deed in do(each):
            deeds.append(deed)
            told.append(deed)
            if not in_json:
                click.echo(_line(name, deed, dry_run=dry_run))
        sites.append({"name": name, "region": config.sites[name].site.region, "queue": each.name, "deeds": deeds})
    if in_json:
        click.echo(render.as_json({"dry_run": dry_run, "sites": sites}))
    elif not setups:
        click.echo('Nothing is to be done: every site has notices_queue = "" or the URL of a queue.')
    return told


def _has_queue(config: Config, name: SiteName, wanted: str | None) -> bool:
    """Is the site's queue ours to make? Whoever names a site is told why it is not."""
    named = config.sites[name].notices_queue
    return wanted is not None or bool(named and "/" not in named)


def _line(site: SiteName, deed: Deed, *, dry_run: bool) -> str:
    said = (_WOULD.get(deed.did) if dry_run else None) or _SAID.get(deed.did) or f"is {deed.did.value}"
    return f"{site}: {deed.what} {deed.name} {said}" + (f": {deed.why}" if deed.why else "")
