"""`pools`: which pools are there, how many machines have they, and what do these cost?"""

from __future__ import annotations

from pathlib import Path

import click

from cmscale.cli import render
from cmscale.cli.looks import end_if_unseen, look
from cmscale.cli.shared import config_option, configured, json_option
from cmscale.cli.suggesting import suggest
from cmscale.shell import wiring
from cmscale.shell.config import Config


@click.group("pools", invoke_without_command=True, short_help="List the pools, and suggest others.")
@config_option
@json_option
@click.pass_context
def pools_(context: click.Context, /, *, path: Path | None, in_json: bool) -> None:
    """Which pools are there, what do they cost, and which others would serve? Without a command: list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, path=path, in_json=in_json)


@pools_.command("list", short_help="Every pool with its machines and its price.")
@json_option
@configured
def list_(config: Config, *, in_json: bool) -> None:
    """List every pool: its site and instance type, what a machine costs and who says so, and how many there are."""
    view, _ = look(config)
    known = wiring.markets(config)
    rows = [
        {"type": ", ".join(config.pools[pool.name].aws.types), "market": pool.market}
        | render.pool_json(view, pool, known.price(pool))
        for pool in view.pools.values()
    ]
    if in_json:
        click.echo(render.as_json({"pools": rows, "unseen": render.unseen(view)}))
    elif not rows:
        click.echo("No pool is configured. Next: cm-scale pools suggest --site SITE --gpu TYPE")
    elif not view.unseen:
        render.pool_lines(rows, render.console(), ("type", "market"))
    end_if_unseen(view)


pools_.add_command(suggest)
