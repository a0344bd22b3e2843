"""What does Slurm's configuration say about our nodes? The one include file that cm-scale writes, and what it needs.

slurm.conf stays the site's: it includes this file, and is only read here.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from cmscale.adapters.slurm.hostlist import fold
from cmscale.model import Pool

_HEADER = """\
# Written by cm-scale from its own configuration; changes made here are lost.
# slurmctld must be restarted when the nodes change: before 24.05 `scontrol reconfigure` would end it.
"""


@dataclass(frozen=True, slots=True)
class Declared:
    """A pool, and what only Slurm's configuration says of its nodes."""

    pool: Pool
    weight: int = 1
    words: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Further words of the NodeName line; they win over ours."""


def node_set(name: str) -> str:
    """The name of the NodeSet of a pool, of a site, or of "all"."""
    return "cmscale_" + re.sub(r"[^A-Za-z0-9]", "_", name)


def render(declared: Sequence[Declared], owned: Collection[str]) -> str:
    """The include file. `owned` names the partitions that slurm.conf does not define and this file does.

    Raises ValueError if two pools or sites would give one name to different sets of nodes.
    """
    lines = [_HEADER]
    lines += [_node_line(each) for each in declared]
    lines.append("")
    lines += [f"NodeSet={name} Nodes={nodes}" for name, nodes in _node_sets(declared).items()]
    lines.append("")
    for partition in sorted(owned):
        sets = [node_set(each.pool.name) for each in declared if partition in each.pool.partitions]
        if sets:
            lines.append(f"PartitionName={partition} Nodes={','.join(sets)} State=UP")
    return "\n".join(lines).rstrip() + "\n"


def _node_line(declared: Declared) -> str:
    pool = declared.pool
    words = {"CPUs": str(pool.shape.cpus), "RealMemory": str(pool.shape.mem_mb)}
    if pool.shape.gpus:
        words["Gres"] = ":".join(filter(None, ("gpu", pool.shape.gpu_type, str(pool.shape.gpus))))
    words["Feature"] = ",".join([pool.site, *sorted(pool.features - {pool.site})])
    words["Weight"] = str(declared.weight)
    words["State"] = "CLOUD"
    words |= declared.words
    return f"NodeName={fold(pool.nodes)} " + " ".join(f"{key}={value}" for key, value in words.items())


def _node_sets(declared: Sequence[Declared]) -> dict[str, str]:
    sites: dict[str, list[str]] = {}
    for each in declared:
        sites.setdefault(each.pool.site, []).extend(each.pool.nodes)
    members: list[tuple[str, Sequence[str]]] = [(each.pool.name, each.pool.nodes) for each in declared]
    members += sites.items()
    if declared:
        members.append(("all", [node for nodes in sites.values() for node in nodes]))
    sets: dict[str, str] = {}
    for name, nodes in members:
        folded = fold(nodes)
        if sets.setdefault(node_set(name), folded) != folded:
            raise ValueError(f"two pools or sites would share the NodeSet {node_set(name)}; rename {name!r}")
    return sets


def write(path: Path, text: str) -> bool:
    """True if the file was changed. It is replaced at once: slurmctld never reads half of it."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except FileNotFoundError:
        pass
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as new:
            new.write(text)
            os.fchmod(new.fileno(), 0o644)
            new.flush()
            os.fsync(new.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


def site_partitions(slurm_conf: str) -> set[str]:
    """The partitions that a slurm.conf defines itself."""
    named = (name for line in _lines(slurm_conf) for name in re.findall(r"^PartitionName=(\S+)", line, re.IGNORECASE))
    return {name for names in named for name in names.split(",")} - {"DEFAULT"}


def includes(slurm_conf: str, include: Path) -> bool:
    """True if a slurm.conf includes our file, by its whole path or by its name alone."""
    named = (name for line in _lines(slurm_conf) for name in re.findall(r"^Include\s+(\S+)", line, re.IGNORECASE))
    return any(name in {str(include), include.name} for name in named)


def _lines(slurm_conf: str) -> Iterable[str]:
    joined = re.sub(r"\\[ \t]*\n", " ", slurm_conf)
    return (line.partition("#")[0].strip() for line in joined.splitlines())
