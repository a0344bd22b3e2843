"""`pools suggest`: which pools would serve, as entries to be pasted into the configuration?

What is alike in the pools that the site has already (image, subnet, groups...) is taken from the first of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import click

from cmscale.adapters.aws.catalogue import NothingFits, Offer, Wish
from cmscale.cli import render
from cmscale.cli.shared import configured, fail, json_option
from cmscale.model import SiteName
from cmscale.ports import Unavailable
from cmscale.shell import wiring
from cmscale.shell.config import Config, PoolSettings
from cmscale.shell.values import nearest

SHOWN = 3
"""How many pools are suggested."""

SEEN_BY_SLURM = 0.95
"""What firmware and kernel leave of a machine's memory; Slurm drains a node that has less than it was told."""

PLACEHOLDERS: Mapping[str, Any] = {"image": "ami-0123456789abcdef0"}
"""What must be filled in where the site has no pool yet."""

_COPIED = ("image", "security_groups", "key_name", "instance_profile", "user_data")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A pool that could be added."""

    name: str
    offer: Offer
    toml: str

    @property
    def row(self) -> dict[str, Any]:
        kind = self.offer.type
        return {
            "name": self.name,
            "type": kind.name,
            "cpus": kind.cpus,
            "mem_mb": kind.mem_mb,
            "gpus": kind.gpus,
            "gpu_type": kind.gpu_type,
            "gpu_mem_mb": kind.gpu_mem_mb,
            "efa": kind.efa,
            "price_hour": self.offer.price_hour,
            "zones": self.offer.zones,
            "toml": self.toml,
        }


@click.command(short_help="Print pools that would serve, ready to paste into the configuration.")
@click.option("--site", required=True, metavar="SITE", help="Where the machines shall be: a site of the configuration.")
@click.option("--gpu", default="", metavar="TYPE", help='The GPU as Slurm\'s Gres names it, such as "h100".')
@click.option("--count", "gpus", type=click.IntRange(1), help="How many GPUs a machine must have.  [default: 1]")
@click.option("--cpus", type=click.IntRange(1), default=1, help="How many CPUs a machine must have.")
@click.option("--mem-gb", type=click.FloatRange(0), default=0.0, help="How much memory a machine must have, in GiB.")
@click.option("--nodes", type=click.IntRange(1), default=8, show_default=True, help="How many names the pool gets.")
@click.option("--spot", is_flag=True, help="Spot machines, which are cheaper and may be taken back.")
@json_option
@configured
def suggest(
    config: Config,
    *,
    site: str,
    gpu: str,
    gpus: int | None,
    cpus: int,
    mem_gb: float,
    nodes: int,
    spot: bool,
    in_json: bool,
) -> None:
    """Print pools of a site's cloud whose machines have at least what is asked, the cheapest first.

    They are entries for the configuration; nothing is changed. A machine with GPUs is suggested only if some are asked
    for.
    """
    if site not in config.sites:
        fail([f'there is no site "{site}" in {config.path}; {nearest(site, config.sites)}'])
    wish = Wish(gpu.lower(), gpus or (1 if gpu else 0), cpus, math.ceil(mem_gb * 1024), "spot" if spot else "on-demand")
    market = wiring.market(config, SiteName(site))
    alike = [each for each in config.pools.values() if each.pool.site == site]
    zones = market.zones({subnet for each in alike for subnet in each.aws.nets})
    entries = _Entries(config, SiteName(site), wish, nodes, alike, zones)
    found = list(entries.of(_offers(config, SiteName(site), wish)[:SHOWN]))
    if in_json:
        told = {"site": site, "market": wish.market, "pools": [each.row for each in found]}
        click.echo(render.as_json(told))
    else:
        click.echo("\n".join(each.toml for each in found), nl=False)


def _offers(config: Config, site: SiteName, wish: Wish) -> Sequence[Offer]:
    market = wiring.market(config, site)
    try:
        found = market.suitable(wish)
    except NothingFits as error:
        fail([f"{error}; {nearest(wish.gpu_type, error.words)}" if error.words else str(error)])
    try:
        offers = market.offers(found, wish.market, priced=config.sites[site].prices)
    except Unavailable as error:
        click.echo(f"cm-scale: {error}; what follows is without prices", err=True)
        offers = market.offers(found, wish.market, priced=False)
    if not offers:
        fail([f"no zone of {config.sites[site].site.region} has {', '.join(each.name for each in found[:SHOWN])}"])
    return offers


@dataclass(frozen=True, slots=True)
class _Entries:
    """How an offer is written down as a pool of one site."""

    config: Config
    site: SiteName
    wish: Wish
    nodes: int
    alike: Sequence[PoolSettings]
    """The pools that the site has."""
    zones: Mapping[str, str]
    """Of their subnets."""

    def of(self, offers: Sequence[Offer]) -> Iterator[Suggestion]:
        names = self._names(offers)
        for place, (name, offer) in enumerate(zip(names, offers, strict=True), 1):
            subnet = self._subnet(offer)
            head = [f"# {place}. {self._told(offer)}"]
            if not self.alike:
                head.append("# Put your own image in the place of this one.")
            if subnet not in self.zones:
                head.append(f"# Put a subnet of yours in the place of this one, in {' or '.join(offer.zones)}.")
            tables = {f"pools.{name}": self._pool(name, offer), f"pools.{name}.aws": self._aws(offer, subnet)}
            yield Suggestion(name, offer, "\n".join([*head, *map(_table, tables, tables.values())]))

    def _pool(self, name: str, offer: Offer) -> dict[str, Any]:
        kind = offer.type
        gpus = {"gpus": kind.gpus, "gpu_type": kind.gpu_type} if kind.gpus else {}
        return {
            "site": self.site,
            "nodes": f"{name}-[1-{self.nodes}]" if self.nodes > 1 else f"{name}-1",
            "cpus": kind.cpus,
            "mem_mb": int(kind.mem_mb * SEEN_BY_SLURM) // 100 * 100,
            **gpus,
            "partitions": list(self.alike[0].pool.partitions if self.alike else ()) or ["cloud"],
            "market": self.wish.market,
        }

    def _aws(self, offer: Offer, subnet: str) -> dict[str, Any]:
        first = self.alike[0].aws.model_dump(mode="json", include={*_COPIED}) if self.alike else PLACEHOLDERS
        return {"instance_type": offer.type.name, "subnet": subnet} | {key: each for key, each in first.items() if each}

    def _subnet(self, offer: Offer) -> str:
        """A subnet of the site's pools in the cheapest zone that has one; or what says that none will do."""
        fitting = sorted((offer.zones.index(zone), net) for net, zone in self.zones.items() if zone in offer.zones)
        return fitting[0][1] if fitting else f"subnet-in-{offer.zones[0]}"

    def _told(self, offer: Offer) -> str:
        kind = offer.type
        gpus = f", {kind.gpus} {kind.gpu_type} of {kind.gpu_mem_mb / 1024:.0f} GiB" if kind.gpus else ""
        efa = f", {render.number(kind.efa, 'EFA interface')}" if kind.efa else ""
        price = "at a price that nobody knows" if offer.price_hour is None else f"${offer.price_hour:g} an hour"
        return (
            f"{kind.name}: {kind.cpus} CPUs, {kind.mem_mb / 1024:g} GiB{gpus}{efa}; {price} {self.wish.market}; "
            f"in {', '.join(offer.zones)}"
        )

    def _names(self, offers: Sequence[Offer]) -> Iterator[str]:
        """Names that no pool has, and of whose nodes Slurm knows none from another pool."""
        taken = {
            *map(str, self.config.pools),
            *(str(n) for each in self.config.pools.values() for n in each.pool.nodes),
        }
        for offer in offers:
            market = "-spot" if self.wish.market == "spot" else ""
            kind = f"{offer.type.name.replace('.', '-')}{market}"
            first = f"{offer.type.gpu_type.replace('_', '-')}{market}" if offer.type.gpus else kind
            for name in chain([first, kind], (f"{kind}-{number}" for number in count(2))):
                own = {name, *(f"{name}-{number}" for number in range(1, self.nodes + 1))}
                if not own & taken:
                    break
            taken |= own
            yield name


def _table(name: str, keys: Mapping[str, Any]) -> str:
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
