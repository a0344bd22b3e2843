"""What must change in Slurm's configuration before cm-scale can work?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cmscale.adapters.slurm.hostlist import expand, fold
from cmscale.model import OFF_REASON, NodeName, NodeRecord, Pool

_UNSET = frozenset({"", "(null)", "none"})


def config(text: str) -> dict[str, str]:
    """The settings that `scontrol show config` lists."""
    return dict(re.findall(r"^(\S+)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))


def problems(
    settings: Mapping[str, str],
    version: tuple[int, int],
    nodes: Iterable[NodeRecord],
    pools: Sequence[Pool],
    *,
    configless: bool = False,
) -> list[str]:
    """One sentence for each thing an admin must change; `configless`: slurmds are to ask slurmctld for its files."""
    known = {node.name: node for node in nodes}
    found = [*_settings(settings, version, pools)]
    if configless and "enable_configless" not in _words(settings.get("SlurmctldParameters", "")):
        found.append("slurm.conf: add enable_configless to SlurmctldParameters, or no slurmd can use slurm.conf_server")
    for pool in pools:
        found += _pool(pool, known)
    return found


def _settings(settings: Mapping[str, str], version: tuple[int, int], pools: Sequence[Pool]) -> Iterator[str]:
    returns = settings.get("ReturnToService", "")
    if returns != "2":
        yield (
            f"slurm.conf: ReturnToService is {returns}; set ReturnToService=2, "
            "or a node whose machine was replaced stays DOWN"
        )
    if version < (23, 2) and "cloud" not in _words(settings.get("PrivateData", "")):
        yield "slurm.conf: add cloud to PrivateData, or Slurm before 23.02 does not show nodes that are off"
    if any(pool.shape.gpus for pool in pools) and "gpu" not in _words(settings.get("GresTypes", "")):
        yield "slurm.conf: add gpu to GresTypes, or jobs cannot ask for the GPUs of the pools"
    programs = [name for name in ("SuspendProgram", "ResumeProgram") if settings.get(name, "") not in _UNSET]
    if programs:
        yield from _power_saving(settings, programs, pools)


def _power_saving(settings: Mapping[str, str], programs: Sequence[str], pools: Sequence[Pool]) -> Iterator[str]:
    partitions = _words(settings.get("SuspendExcParts", ""))
    spared = _spared(settings.get("SuspendExcNodes", ""))
    exposed = {node for pool in pools if not partitions & set(pool.partitions) for node in pool.nodes} - spared
    if exposed:
        yield (
            f"slurm.conf: {' and '.join(programs)} would power nodes that cm-scale powers; "
            f"add them: SuspendExcNodes={fold(exposed)}"
        )


def _spared(text: str) -> set[NodeName]:
    if text in _UNSET:
        return set()
    try:
        # "nodes:count" keeps only so many of them out of power saving: none of ours is safe by that.
        return set(expand(",".join(item for item in re.split(r",(?![^\[]*\])", text) if ":" not in item)))
    except ValueError:
        return set()


def _pool(pool: Pool, known: Mapping[NodeName, NodeRecord]) -> Iterator[str]:
    missing = [node for node in pool.nodes if node not in known]
    if missing:
        yield (
            f"pool {pool.name}: Slurm has no {fold(missing)} in any partition; Include the file that cm-scale writes "
            "in slurm.conf and restart slurmctld"
        )
    ours = [known[node] for node in pool.nodes if node in known]
    # Of nodes that have less than promised a job would be sent to one that cannot hold it.
    for what, promised, has in (
        ("CPUs", pool.shape.cpus, lambda node: node.shape.cpus),
        ("MiB of memory", pool.shape.mem_mb, lambda node: node.shape.mem_mb),
        (f"GPUs {pool.shape.gpu_type}".strip(), pool.shape.gpus, lambda node: _gpus(node, pool)),
    ):
        lacking = [node for node in ours if has(node) < promised]
        if lacking:
            least = min(has(node) for node in lacking)
            where = fold(node.name for node in lacking)
            yield f"pool {pool.name}: Slurm gives {where} {least} {what} where the pool promises {promised}"
    for partition in pool.partitions:
        outside = [node.name for node in ours if partition not in node.partitions]
        if outside:
            yield f"pool {pool.name}: partition {partition} lacks {fold(outside)}; add the nodes there in slurm.conf"
    for feature in sorted(pool.features):
        without = [node.name for node in ours if feature not in node.features]
        if without:
            yield (
                f"pool {pool.name}: the feature {feature} is missing on {fold(without)}; "
                "restart slurmctld with the include file as cm-scale writes it"
            )
    loose = [node.name for node in ours if "POWERED_DOWN" in node.states and not node.states & {"DRAIN", "DOWN"}]
    if loose:
        yield (
            f"pool {pool.name}: Slurm may start jobs on {fold(loose)}, which is off; run: "
            f'scontrol update nodename={fold(loose)} state=drain reason="{OFF_REASON}"'
        )


def _gpus(node: NodeRecord, pool: Pool) -> int:
    right = not pool.shape.gpu_type or node.shape.gpu_type == pool.shape.gpu_type
    return node.shape.gpus if right else 0


def _words(text: str) -> set[str]:
    return set(text.split(","))
