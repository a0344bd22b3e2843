"""How long does `cm-scale plan` take on a real Slurm with 1,000 cloud nodes and 10,000 waiting jobs?

A lab with six pools and no machine running, none at home either. The queue holds 10,000 job records: 9,800 single jobs,
each submitted by an sbatch of its own, and 200 folded arrays, which ask in some five hundred different ways: single
CPUs, whole nodes, gangs, GPUs, constraints. slurmctld has looked at all of them once, so that each waits for a reason
that nodes would help. Timed are whole processes of `cm-scale plan`, from start to exit, and their two parts within one
process.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rows import Options, Row, count, options, seconds, tell

from cmscale.core.decide import decide
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.processes import LabError, wait_until
from cmscale.lab.slurm import Home
from cmscale.model import Help
from cmscale.shell import config, wiring
from cmscale.shell.observe import Memory, observe

LIMIT_S = 3.0
RUNS = 7
PATIENCE_S = 120.0
PROGRAM = (sys.executable, "-m", "cmscale.cli.cm_scale")

SLURM = {
    "MaxJobCount": 50000,
    "MaxArraySize": 2001,
    "MessageTimeout": 30,
    # One look at the whole queue after the submissions, then quiet: not Slurm's own scheduling is measured here.
    "SchedulerParameters": "defer,sched_interval=10,max_sched_time=20,default_queue_depth=20000,bf_interval=3600",
}
LIMITS = {"starts_per_minute": 10000, "creations_per_hour": 10000}


def pools(nodes: int) -> tuple[LabPool, ...]:
    """Six pools that have so many nodes together."""
    tenth = nodes // 10
    return (
        LabPool("cpu", f"cpu-[1-{3 * tenth}]", 8, 15000, 0.34, "c5.2xlarge"),
        LabPool("spot", f"spot-[1-{2 * tenth}]", 8, 15000, 0.13, "c5.2xlarge", features=("spot",)),
        LabPool("himem", f"himem-[1-{tenth}]", 16, 120000, 1.01, "r5.4xlarge", features=("himem",)),
        LabPool("t4", f"t4-[1-{2 * tenth}]", 4, 15000, 0.526, "g4dn.xlarge", gpus=1, gpu_type="t4"),
        LabPool("t4-west", f"t4w-[1-{tenth}]", 4, 15000, 0.6, "g4dn.xlarge", "us-west-2", 1, "t4"),
        LabPool("v100", f"v100-[1-{nodes - 9 * tenth}]", 32, 240000, 12.24, "p3.8xlarge", gpus=4, gpu_type="v100"),
    )


def asks(count: int) -> list[tuple[str, ...]]:
    """So many different ways to ask, as words for sbatch."""
    chance = random.Random(1)
    found: dict[tuple[str, ...], None] = {}
    while len(found) < count:
        found[_ask(chance)] = None
    return list(found)


def _ask(chance: random.Random) -> tuple[str, ...]:
    cpus = f"--cpus-per-task={chance.choice((1, 2, 4))}"
    memory = f"--mem={chance.choice((500, 1000, 2000, 4000, 8000))}"
    nodes = f"--nodes={chance.randint(2, 8)}"
    ways: tuple[tuple[int, tuple[str, ...]], ...] = (
        (6, (cpus, memory)),
        (3, (f"--ntasks={chance.randint(1, 32)}", f"--mem-per-cpu={chance.choice((500, 1000))}")),
        (2, (nodes, f"--ntasks-per-node={chance.choice((1, 4, 8))}")),
        (4, (cpus, memory, f"--gpus-per-node={chance.choice(('', 't4:'))}1")),
        (2, (memory, f"--gpus-per-node=v100:{chance.randint(1, 4)}", f"--nodes={chance.randint(1, 2)}")),
        (1, (cpus, f"--mem={chance.choice((32000, 64000, 100000))}", "--constraint=himem")),
        (2, (cpus, memory, f"--constraint={chance.choice(('spot', 'spot|himem', '[spot|himem]'))}")),
        (1, ("--exclusive", f"--nodes={chance.randint(1, 2)}")),
    )
    (words,) = chance.choices([words for _, words in ways], [weight for weight, _ in ways])
    return (f"--time={chance.choice((10, 30, 60, 120, 240, 480, 1440))}", *words)


def fill(lab: Lab, jobs: int) -> None:
    """So many job records in the queue, one in fifty of them an array, each with a reason to wait for."""
    chance = random.Random(2)
    script = lab.directory / "job.sh"
    script.write_text("#!/bin/sh\nsleep 60\n", encoding="ascii")
    ways = asks(max(jobs // 20, 20))
    submissions = [
        (*(chance.choice(ways)), *((f"--array=1-{chance.randint(2, 50)}",) if number % 50 == 0 else ()))
        for number in range(jobs)
    ]
    env = lab.env

    def submit(words: Sequence[str]) -> None:
        subprocess.run(
            ["sbatch", "--quiet", "--output=/dev/null", *words, script.name],
            env=env,
            cwd=lab.directory,
            check=True,
            timeout=60,
            stdout=subprocess.DEVNULL,
        )

    with ThreadPoolExecutor(max_workers=4) as threads:
        list(threads.map(submit, submissions))

    def looked_at() -> bool:
        reasons = lab.command("squeue", "-h", "-o", "%r").split("\n")[:-1]
        return len(reasons) == jobs and "None" not in reasons

    if not wait_until(looked_at, PATIENCE_S, every=1.0):
        raise LabError(f"slurmctld has not looked at {jobs} jobs within {PATIENCE_S:g} s.")


def run(lab: Lab, *words: str) -> None:
    """One process of cm-scale, from start to exit."""
    subprocess.run([*PROGRAM, *words], env=lab.env, check=True, timeout=60, stdout=subprocess.DEVNULL)


def rows(told: Options) -> Iterator[Row]:
    nodes, jobs, runs = (20, 40, 1) if told.quick else (1000, 10000, RUNS)
    size = f"{count(jobs)}_jobs_{count(nodes)}_nodes"
    with (
        tempfile.TemporaryDirectory(prefix="cm-scale-bench-") as folder,
        Lab(Path(folder) / "lab", pools=pools(nodes), home=Home(0), slurm=SLURM, limits=LIMITS) as lab,
    ):
        run(lab, "run", "--once")  # parks the nodes, as a daemon's first tick does
        version_s = seconds(lambda: run(lab, "--version"), runs)
        empty_s = seconds(lambda: run(lab, "plan"), runs)
        fill(lab, jobs)
        plan_s = seconds(lambda: run(lab, "plan"), runs)
        yield Row(f"plan_{size}_s", plan_s, "s", f"the limit of {LIMIT_S:g} s for the whole process")
        yield Row(f"plan_no_jobs_{count(nodes)}_nodes_s", empty_s, "s", f"{plan_s:.3g} s with {jobs} jobs")
        yield Row("version_s", version_s, "s", f"{empty_s:.3g} s for a plan without jobs")
        yield from parts(lab, runs, size)


def parts(lab: Lab, runs: int, size: str) -> Iterator[Row]:
    """What a daemon's tick pays: no start of a process, and it has parsed most of the queue's words before."""
    os.environ.update(lab.variables)
    settings = config.load(lab.config)
    with wiring.journal_if_any(settings) as journal:
        daemon = wiring.daemon(settings, journal, wiring.SystemClock(), may_act=False)
        memory = Memory()
        view = observe(daemon.world, "benchmark", memory)
        helped = sum(1 for job in view.jobs if job.help is Help.NODES)
        if view.unseen or helped < 0.9 * len(view.jobs):
            raise LabError(f"Of {len(view.jobs)} jobs only {helped} wait for nodes: {view.unseen}")
        observe_s = seconds(lambda: observe(daemon.world, "benchmark", memory), runs)
        decide_s = seconds(lambda: decide(view, daemon.policies, daemon.limits), runs)
    asked = len({job.ask for job in view.jobs})
    yield Row(f"observe_{size}_s", observe_s, "s", f"the limit of {LIMIT_S:g} s for the whole plan")
    yield Row(f"decide_{size}_s", decide_s, "s", "Cluster Autoscaler's published goal: a loop in 60 s at 1,000 nodes")
    yield Row("decided_jobs_per_s", len(view.jobs) / decide_s, "jobs/s", "Karpenter's benchmark demands 100 pods/s")
    yield Row("different_asks", asked, "asks", f"{len(view.jobs)} job records")


def main() -> None:
    told = options(__doc__)
    wiring.search_for_cycles_seldom()  # as the daemon does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the lab is taken down, and its files go
    began = time.monotonic()
    try:
        tell(rows(told), told)
    except LabError as error:
        sys.exit(f"benchmarks/plan.py: after {time.monotonic() - began:.0f} s: {error}")


if __name__ == "__main__":
    main()
