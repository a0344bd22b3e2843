"""Does a daemon grow while it runs for days?

A cluster in memory, with the journal on disk as in production: jobs come, get machines and end, tick after tick. What
is measured is what the process holds (resident), after a tenth of the ticks and after all of them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

from rows import Options, Row, count, options, tell

from cmscale.journal.sql import SqlJournal
from cmscale.model import (
    HOME,
    Ask,
    Limits,
    NodeName,
    Pool,
    PoolName,
    Shape,
    Site,
    SiteKind,
    SiteName,
)
from cmscale.shell import policies
from cmscale.shell.loop import Daemon, tick
from cmscale.shell.observe import World
from cmscale.shell.schema import ClusterTable
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud
from cmscale.sim.slurm import Slurm

EVERY_S = 4.0
JOB_EVERY = 45
"""Ticks from one job to the next."""


def main() -> None:
    told = options(__doc__)
    tell(rows(told), told)


def rows(told: Options) -> Iterator[Row]:
    ticks = 40 if told.quick else 10_000
    with tempfile.TemporaryDirectory() as folder:
        first, last = grown(Path(folder) / "journal.db", ticks)
    yield Row(f"memory_growth_{count(ticks)}_ticks_mb", last - first, "MiB", "0: memory is flat")
    yield Row(f"memory_after_{count(ticks)}_ticks_mb", last, "MiB", "300 MiB, the most that a daemon may hold")


def grown(path: Path, ticks: int) -> tuple[float, float]:
    """What the process holds after a tenth of the ticks, and after all."""
    clock = VirtualClock()
    nodes = tuple(NodeName(f"t4-{number}") for number in range(1, 9))
    pool = Pool(PoolName("t4"), SiteName("east"), Shape(4, 15000, 1, "t4"), nodes, ("batch",), price_hour=0.5)
    cloud = Cloud(pool.site, clock)
    slurm = Slurm.declaring([pool], clock, [cloud])
    sites = {pool.site: Site(pool.site, SiteKind.AWS), HOME: Site(HOME, SiteKind.ONPREM)}
    world = World(
        slurm,
        {pool.site: cloud},
        SqlJournal(path),
        clock,
        MappingProxyType(sites),
        MappingProxyType({pool.name: pool}),
    )
    shipped = policies.load(ClusterTable(name="simulated").policies, None, {"release_idle": {"idle": "60s"}})
    daemon = Daemon(world, shipped, Limits(min_up_s=0), "benchmark", may_act=True)
    held: list[float] = []
    for number in range(1, ticks + 1):
        if number % JOB_EVERY == 0:
            slurm.submit(number, Ask(partitions=("batch",), gpus_per_node=1), run_s=5)
        slurm.step()
        tick(daemon)
        clock.wait(EVERY_S)
        if number % (ticks // 10) == 0:
            # What the simulated world remembers is not the daemon's.
            slurm.done.clear()
            cloud.calls.clear()
            cloud.made.clear()
            held.append(resident_mb())
    return held[0], held[-1]


def resident_mb() -> float:
    found = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(found.split()[1]) / 1024


if __name__ == "__main__":
    main()
