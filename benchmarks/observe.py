"""How long does a look at a large cluster take, and how much memory does the daemon hold that takes it?

squeue, sinfo and scontrol are scripts that print what Slurm 22.05 would print for this queue. That costs a copy of the
text, told in a row of its own, where squeue itself takes 0.4 to 0.8 s; the rest is ours: parsing, the journal, the
snapshot. One job record in fifty is an array, they ask in a thousand different ways, one node in ten is up, and each
machine was launched in the last hour for a job. Memory is the most that a process of its own held in several ticks
which observe, decide and record, as a daemon's do; what a tick leaves behind is counted in Python's memory blocks.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType

from rows import Options, Row, count, options, seconds, tell

from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.adapters.slurm.hostlist import fold
from cmscale.adapters.slurm.records import ALIKE_FIELDS, GROUP_SEPARATOR, SEPARATOR, SQUEUE_FIELDS, job_row
from cmscale.journal.sql import SqlJournal
from cmscale.model import (
    HOME,
    OFF_REASON,
    Help,
    JobId,
    Limits,
    NodeName,
    Operation,
    OpId,
    Pool,
    PoolName,
    Shape,
    Site,
    SiteKind,
    SiteName,
    Verb,
)
from cmscale.shell import policies, wiring
from cmscale.shell.loop import Daemon, tick
from cmscale.shell.observe import Memory, World, observe
from cmscale.shell.schema import ClusterTable
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud

LIMIT_S = 1.5
LIMIT_MIB = 286.0
"""300 MB."""
RUNS = 7
EAST = SiteName("east")
SHAPE = Shape(8, 30000)
POOLS, ASKS = 10, 1000
LAUNCHED_AGO_S = 1800.0
END = "@END@"
"""Where a record ends; the scripts put there what cm-scale asks for."""

SCRIPTS: Mapping[str, str] = {
    "squeue": 'case "$*" in *-O*) exec sed "s/@END@/${last##*:0}/" jobs;; *) exec cat excluded;; esac',
    "sinfo": 'exec sed "s/@END@/${last##*:0}/" nodes',
    "scontrol": 'case "$*" in *config*) exec cat config;; *nodes*) exec cat shown;; *) cat calendar;; esac',
}
CONFIG = "SelectType              = select/cons_tres\nSelectTypeParameters    = CR_CORE_MEMORY\n"


# --- what Slurm would print ------------------------------------------------------------------------------------------


def job_rows(jobs: int, asks: int, submit: float) -> Iterator[list[str]]:
    chance = random.Random(1)
    each_way = [_ask(chance) for _ in range(asks)]
    plain = dict.fromkeys(SQUEUE_FIELDS, "N/A") | _PLAIN
    for number in range(1, jobs + 1):
        name, moment = str(number), str(int(submit) - jobs + number)
        words = plain | each_way[number - 1 if number <= asks else chance.randrange(asks)]
        words |= {"JobID": name, "JobArrayID": name, "ArrayJobID": name, "SubmitTime": moment, "EligibleTime": moment}
        words |= {"PriorityLong": str(4294901755 - number), "UserName": f"user{number % 300}"}
        if number % 50 == 0:
            words |= {"JobArrayID": f"{name}_[1-20%4]", "ArrayTaskID": "1-20%4"}
        if number % 3 == 0:
            words["Comment"] = "cm-scale: waits: every pool that fits is full"
        yield [words[field] for field in SQUEUE_FIELDS]


_PLAIN = {
    "Partition": "batch",
    "NTPerNode": "0",
    "OverSubscribe": "OK",
    "Feature": "(null)",
    "Reservation": "(null)",
    "Licenses": "(null)",
    "ReqNodes": "",
    "Sockets": "*",
    "State": "PENDING",
    "Account": "physics",
    "QOS": "normal",
    "StartTime": "N/A",
    "Requeue": "1",
    "NodeList": "",
    "Reason": "Resources",
    "Comment": "(null)",
}


def _ask(chance: random.Random) -> dict[str, str]:
    nodes, cpus, mem_mb = chance.choice((1, 1, 1, 1, 2, 4)), chance.choice((1, 2, 4, 8)), chance.randrange(500, 28000)
    return {
        "tres-alloc": f"cpu={nodes * cpus},mem={nodes * mem_mb}M,node={nodes},billing={nodes * cpus}",
        "NumTasks": str(nodes),
        "cpus-per-task": str(cpus),
        "MinCpus": str(cpus),
        "MinMemory": f"{mem_mb}M",
        "TimeLimit": chance.choice(("10:00", "1:00:00", "4:00:00", "1-00:00:00")),
    }


def alike_rows(pools: Iterable[Pool], up: frozenset[NodeName]) -> Iterator[list[str]]:
    """Of each pool the nodes that are up share a line, and those that are off."""
    for pool in pools:
        for on in (True, False):
            words = {
                "NodeList": fold(name for name in pool.nodes if (name in up) == on),
                "Partition": "batch*",
                "StateComplete": "allocated+cloud" if on else "down+cloud+drain",
                "Memory": str(SHAPE.mem_mb),
                "Gres": "(null)",
                "GresUsed": "gpu:0",
                "features_act": f"{pool.name},{EAST}",
                "Reason": "none" if on else OFF_REASON,
            }
            yield [words[field] for field in ALIKE_FIELDS]


def shown(pools: Iterable[Pool], up: frozenset[NodeName]) -> Iterator[str]:
    for pool in pools:
        for name in pool.nodes:
            cpus, mem_mb = (8, 28000) if name in up else (0, 0)
            yield (
                f"NodeName={name} CoresPerSocket=1  CPUAlloc={cpus} CPUEfctv={SHAPE.cpus} CPUTot={SHAPE.cpus} "
                f"CPULoad=N/A AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=10.0.0.{name} "
                f"NodeHostName={name}  RealMemory={SHAPE.mem_mb} AllocMem={mem_mb} FreeMem=N/A Sockets=8 Boards=1 "
                "State=DOWN+CLOUD+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=batch\n"
            )


# --- the cluster -----------------------------------------------------------------------------------------------------


def pools(nodes: int) -> dict[PoolName, Pool]:
    names = [PoolName(f"p{number}") for number in range(POOLS)]
    each = nodes // POOLS
    return {
        name: Pool(name, EAST, SHAPE, tuple(NodeName(f"{name}-{number}") for number in range(1, each + 1)), ("batch",))
        for name in names
    }


def up(of: Iterable[Pool]) -> frozenset[NodeName]:
    return frozenset(name for pool in of for name in pool.nodes[: len(pool.nodes) // 10])


def write(folder: Path, nodes: int, jobs: int, asks: int) -> None:
    """The commands, with what they print."""

    def records(rows: Iterable[str]) -> str:
        return "".join(f"{row}{END}\n" for row in rows)

    every = pools(nodes).values()
    asked = map(job_row, job_rows(jobs, asks, time.time()))
    (folder / "jobs").write_text(records(row.ask + GROUP_SEPARATOR + SEPARATOR.join(row.words) for row in asked))
    (folder / "nodes").write_text(records(map(SEPARATOR.join, alike_rows(every, up(every)))))
    (folder / "shown").write_text("".join(shown(every, up(every))))
    (folder / "excluded").write_text("".join(f"{number}{SEPARATOR}(null)\n" for number in range(1, jobs + 1)))
    (folder / "config").write_text(CONFIG)
    (folder / "calendar").write_text("No reservations in the system\n")
    for command, does in SCRIPTS.items():
        script = folder / command
        script.write_text(f"#!/bin/sh\ncd {folder}\nfor last; do :; done\n{does}\n")
        script.chmod(0o755)


def launch(journal: SqlJournal, cloud: Cloud, of: Iterable[Pool]) -> None:
    """The machines that are up, with their operations."""
    job = 0
    for pool in of:
        for name in sorted(up([pool])):
            job += 1
            op = OpId(f"launch-{name}")
            jobs = (JobId(str(job)),)
            operation = Operation(op, Verb.START, pool.name, (name,), cloud.clock.now(), "", jobs, (1,))
            journal.begin([operation])
            journal.finish(op, cloud.start(operation), cloud.clock.now())


def world(folder: Path, nodes: int) -> World:
    every = pools(nodes)
    journal = SqlJournal(folder / "journal.db")
    clock = VirtualClock(time.time() - LAUNCHED_AGO_S)
    cloud = Cloud(EAST, clock)
    if not journal.launches(0):
        launch(journal, cloud, every.values())
    clock.wait(LAUNCHED_AGO_S)
    return World(
        SlurmCommands(bin_dir=folder, time_limit_s=60),
        {EAST: cloud},
        journal,
        wiring.SystemClock(),
        MappingProxyType({EAST: Site(EAST, SiteKind.AWS), HOME: Site(HOME, SiteKind.ONPREM)}),
        MappingProxyType(every),
    )


# --- what is measured ------------------------------------------------------------------------------------------------


def look_s(folder: Path, nodes: int, jobs: int, runs: int) -> float:
    around, memory = world(folder, nodes), Memory()
    view = observe(around, "benchmark", memory)
    helped = sum(each.help is Help.NODES for each in view.jobs)
    if view.unseen or view.unreadable or helped < jobs or len(view.nodes) != nodes:
        raise RuntimeError(f"this look measures nothing: {view.unseen or view.unreadable[:1] or helped}")
    return seconds(lambda: observe(around, "benchmark", memory), runs)


def printing_s(folder: Path, runs: int) -> float:
    words = ("-O", f"Comment:0{END}")
    return seconds(lambda: subprocess.run([folder / "squeue", *words], check=True, capture_output=True), runs)


def of_its_own(measure: Callable[[Path, int, int, Connection], None], folder: Path, nodes: int, ticks: int) -> float:
    """What is measured in a process that has held nothing else."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(folder, nodes, ticks, there))
    process.start()
    there.close()
    try:
        return float(here.recv())
    finally:
        process.join()


def daemon(folder: Path, nodes: int) -> Daemon:
    wiring.search_for_cycles_seldom()
    decide_with = policies.load(ClusterTable.model_fields["policies"].default, None, {})
    return Daemon(world(folder, nodes), decide_with, Limits(), "benchmark")


def most_mib(folder: Path, nodes: int, ticks: int, told: Connection) -> None:
    one = daemon(folder, nodes)
    for _ in range(ticks):
        tick(one)
    status = Path("/proc/self/status").read_text()
    told.send(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def growth_blocks(folder: Path, nodes: int, ticks: int, told: Connection) -> None:
    """After two ticks, in which what is remembered comes to be remembered."""
    one = daemon(folder, nodes)
    held = []
    for _ in range(ticks + 2):
        tick(one)
        gc.collect()
        held.append(sys.getallocatedblocks())
    told.send((held[-1] - held[1]) / ticks)


def rows(told: Options) -> Iterator[Row]:
    nodes, jobs, asks, runs = (100, 200, 20, 1) if told.quick else (5000, 50000, ASKS, RUNS)
    name = f"observe_{count(jobs)}_jobs_{count(nodes)}_nodes"
    with tempfile.TemporaryDirectory(prefix="cm-scale-bench-") as made:
        folder = Path(made)
        write(folder, nodes, jobs, asks)
        most = of_its_own(most_mib, folder, nodes, 3)
        growth = of_its_own(growth_blocks, folder, nodes, 3)
        took_s = look_s(folder, nodes, jobs, runs)
        printed_s = printing_s(folder, runs)
    yield Row(f"{name}_s", took_s, "s", f"the limit of {LIMIT_S:g} s; {asks} different asks, {POOLS} pools")
    yield Row(f"{name}_printing_s", printed_s, "s", "0.4 to 0.8 s that squeue itself takes for such a queue")
    yield Row(f"{name}_rss_mib", most, "MiB", f"the limit of {LIMIT_MIB:g} MiB (300 MB) for the whole daemon")
    yield Row(f"{name}_growth_blocks", growth, "blocks", "0: nothing is left behind by a tick")


def main() -> None:
    told = options(__doc__)
    wiring.search_for_cycles_seldom()  # as the daemon does
    tell(rows(told), told)


if __name__ == "__main__":
    main()
