"""What can be had at the lab's cloud, and how are cm-scale and Slurm told of it?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet

from cmscale.adapters.slurm import conf
from cmscale.model import NodeName, Pool, PoolName, Shape, SiteName

PARTITION = "batch"
"""The one queue, which spans home and cloud."""


@dataclass(frozen=True, slots=True)
class LabPool:
    """Like machines in one region of the lab's cloud, each name on a port of its own."""

    name: str
    nodes: str
    """A folded hostlist."""
    cpus: int
    mem_mb: int
    price_hour: float
    instance_type: str
    region: str = "us-east-1"
    gpus: int = 0
    gpu_type: str = ""
    features: tuple[str, ...] = ()
    weight: int = 100
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the pool's table in cmscale.toml: max, keep, priority..."""

    @property
    def site(self) -> str:
        return f"aws-{self.region}"

    @property
    def names(self) -> list[str]:
        return list(NodeSet(self.nodes))

    def as_model(self) -> Pool:
        return Pool(
            name=PoolName(self.name),
            site=SiteName(self.site),
            shape=Shape(self.cpus, self.mem_mb, self.gpus, self.gpu_type),
            nodes=tuple(map(NodeName, self.names)),
            partitions=(PARTITION,),
            features=frozenset(self.features),
            price_hour=self.price_hour,
        )


DEFAULT_POOLS = (
    LabPool(
        "t4", "t4-[1-12]", 4, 15000, 0.526, "g4dn.xlarge", gpus=1, gpu_type="t4", features=("gpu",), more={"max": 8}
    ),
    LabPool("t4-west", "t4w-[1-4]", 4, 15000, 0.60, "g4dn.xlarge", "us-west-2", 1, "t4", ("gpu",)),
    LabPool("cpu", "cpu-[1-4]", 8, 15000, 0.34, "c5.2xlarge"),
)


def slurm_words(names: Sequence[str], ports: range) -> dict[str, str]:
    """What many nodes on one address need on their NodeName line."""
    return {"NodeHostname": str(NodeSet.fromlist(names)), "NodeAddr": "127.0.0.1", "Port": f"[{ports[0]}-{ports[-1]}]"}


def write_include(path: Path, pools: Sequence[LabPool], ports: Mapping[str, range]) -> None:
    """Write the file that declares all cloud nodes to Slurm, as `cm-scale slurm-conf` does."""
    declared = [
        conf.Declared(pool.as_model(), pool.weight, slurm_words(pool.names, ports[pool.name])) for pool in pools
    ]
    conf.write(path, conf.render(declared, owned=()))


def write_config(
    path: Path,
    pools: Sequence[LabPool],
    ports: Mapping[str, range],
    *,
    cluster: Mapping[str, Any],
    slurm: Mapping[str, Any],
    limits: Mapping[str, Any],
    endpoint: str,
    regions: Mapping[str, Mapping[str, Any]],
    policies: Mapping[str, Mapping[str, Any]],
) -> None:
    """Write the cmscale.toml of the lab; `regions` holds the image and subnet of each region."""
    tables: dict[str, Mapping[str, Any]] = {"cluster": cluster, "slurm": slurm, "limits": limits}
    tables |= {f"policy.{name}": settings for name, settings in policies.items()}
    for pool in pools:
        tables[f"sites.{pool.site}"] = {"kind": "aws", "region": pool.region, "endpoint_url": endpoint}
    for pool in pools:
        tables[f"pools.{pool.name}"] = {
            "site": pool.site,
            "nodes": pool.nodes,
            "cpus": pool.cpus,
            "mem_mb": pool.mem_mb,
            "gpus": pool.gpus,
            "gpu_type": pool.gpu_type,
            "partitions": [PARTITION],
            "features": pool.features,
            "weight": pool.weight,
            "slurm": slurm_words(pool.names, ports[pool.name]),
            "price_hour": pool.price_hour,
            "boot_limit": "60s",
            **pool.more,
        }
        tables[f"pools.{pool.name}.aws"] = {
            "instance_type": pool.instance_type,
            "image": regions[pool.region]["image"],
            "subnet": regions[pool.region]["subnet"],
        }
    text = "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    path.write_text(text, encoding="utf-8")


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)  # TOML's strings and numbers are JSON's
