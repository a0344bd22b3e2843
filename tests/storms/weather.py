"""What does a storm do to a whole daemon, and what does the daemon make of it?

Everything but Slurm is the real thing: the daemon's own loop with its journal on disk, its provider with the AWS SDK,
HTTP, and the lab's EC2 in a process of its own. Slurm is the one in memory, so that a thousand nodes fit; it sees as
alive what EC2 shows as running, once that has booted. The clock is virtual, and EC2's stands still between its steps:
an hour takes as long as the calls made in it, and no busy machine changes the course of a storm.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import boto3
from botocore.config import Config
from mypy_boto3_ec2 import EC2Client

from cmscale.adapters.aws import AwsPool, AwsSite
from cmscale.adapters.aws.buckets import Buckets
from cmscale.journal.sql import SqlJournal
from cmscale.lab.booter import learn_name
from cmscale.lab.control import Control
from cmscale.lab.ec2 import ACCESS_KEY, SECRET_KEY
from cmscale.lab.processes import end_child, last_lines, start, wait_until
from cmscale.model import (
    HOME,
    Limits,
    MachineId,
    NodeName,
    Operation,
    OpId,
    Pool,
    PoolName,
    Site,
    SiteKind,
    SiteName,
    Verb,
)
from cmscale.shell.beside import Beside
from cmscale.shell.loop import Daemon, Look, run
from cmscale.shell.observe import World
from cmscale.shell.periods import Periods
from cmscale.shell.spending import Rules
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud, Flaw
from cmscale.sim.slurm import Slurm
from tests.builders import ask
from tests.shell.cluster import Deadly, Fuse, Killed, shipped

REGION = "us-east-1"
SITE = SiteName("aws-us-east-1")
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
TIMES = {"pending_s": 5.0, "stopping_s": 5.0, "ending_s": 5.0, "forget_s": 3600.0, "unseen_s": 0.0}

WEEK_S = 7 * 86400.0

BOOT_S = 20.0
IDLE_S = 10.0
LIMITS = Limits(starts_per_minute=10**6, creations_per_hour=10**6, min_up_s=0)
"""Only the cloud's own limits count."""
NEIGHBOURS = "DescribeRegions"
"""What others in the account call, and nobody else."""
PATIENCE_S = 120.0
"""How long a tick waits for an answer, on the wall's clock: a busy machine is no storm of ours."""
CALM_S = 30.0
"""How long nothing may stir before a storm is held to be over."""


@dataclass(frozen=True)
class Double:
    """The lab's EC2 in a process of its own; storms follow one another in it, each as a cluster of its own."""

    endpoint: str
    home: Mapping[str, Any]
    """The image and the subnets of the region."""
    control: Control
    beginnings: Iterator[float] = field(default_factory=partial(count, VirtualClock().at, WEEK_S))
    """When the next storm begins: what one has left behind is forgotten by then."""

    def client(self) -> EC2Client:
        """EC2, as others in the account call it."""
        config = Config(retries={"total_max_attempts": 1}, proxies={})
        return boto3.client("ec2", region_name=REGION, endpoint_url=self.endpoint, config=config)


@contextmanager
def double(directory: Path) -> Iterator[Double]:
    child = start(
        [sys.executable, "-m", "cmscale.lab.ec2", "--dir", directory, "--region", REGION],
        log=directory / "ec2.log",
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        if not wait_until((directory / "ec2.json").exists, 30):
            raise RuntimeError(f"the lab's EC2 did not start: {last_lines(directory / 'ec2.log')}")
        said = json.loads((directory / "ec2.json").read_text(encoding="utf-8"))
        yield Double(said["endpoint"], said["regions"][REGION], Control(said["endpoint"]))
    finally:
        end_child(child)


# --- what machines do ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Booted:
    """A machine whose slurmd runs."""

    id: MachineId
    node: NodeName
    flaws: frozenset[Flaw] = frozenset()


@dataclass
class Machines:
    """What runs on the instances that EC2 shows, and who they are."""

    control: Control
    cluster: str
    clock: VirtualClock
    doomed: Callable[[int], bool] = lambda _number: False
    """Which machines never boot, of the first, the second..."""
    seen: dict[MachineId, dict[str, Any]] = field(default_factory=dict)
    """All of the cluster that there ever were, as they were last seen."""
    names: dict[MachineId, NodeName] = field(default_factory=dict)
    numbers: dict[MachineId, int] = field(default_factory=dict)
    running_since: dict[MachineId, float] = field(default_factory=dict)
    twice: set[NodeName] = field(default_factory=set)
    """Nodes that ever had two living machines at once."""

    def look(self) -> None:
        """See what has become of them by now."""
        now = self.clock.now()
        living: Counter[NodeName] = Counter()
        for each in self.control.instances():
            if each["tags"].get("cm-scale:cluster") != self.cluster:
                continue
            id_ = MachineId(each["id"])
            self.seen[id_] = each
            self.numbers.setdefault(id_, len(self.numbers))
            if not self.names.get(id_):
                self.names[id_] = NodeName(learn_name(each))
            if each["state"] == "running":
                self.running_since.setdefault(id_, now)
            else:
                self.running_since.pop(id_, None)
            if each["state"] in {"pending", "running"} and self.names[id_]:
                living[self.names[id_]] += 1
        self.twice |= {name for name, number in living.items() if number > 1}

    @property
    def alive(self) -> Mapping[NodeName, Booted]:
        """Those whose slurmd runs, by node."""
        now = self.clock.now()
        return {
            self.names[id_]: Booted(id_, self.names[id_])
            for id_, since in self.running_since.items()
            if now - since >= BOOT_S and not self.doomed(self.numbers[id_])
        }

    @property
    def there(self) -> list[MachineId]:
        """Those that still exist."""
        return [id_ for id_, each in self.seen.items() if each["state"] != "terminated"]


# --- the world -------------------------------------------------------------------------------------------------------


@dataclass
class Weather(VirtualClock):
    """A clock with a world on it: when time passes, EC2 and Slurm go on."""

    goes_on: Callable[[], None] = lambda: None
    work_counts: bool = False
    """What the daemon does takes the time that it takes the processor, however busy the machine is; otherwise none."""
    at_work_since: float = field(default_factory=time.process_time)

    def now(self) -> float:
        return self.at + (time.process_time() - self.at_work_since if self.work_counts else 0.0)

    def steady(self) -> float:
        return self.now()

    def wait(self, seconds: float) -> bool:
        if seconds > 0:
            self.at = self.now() + seconds
            self.at_work_since = time.process_time()
            self.goes_on()
            self.at_work_since = time.process_time()
        return self.ended


@dataclass(frozen=True)
class Toll:
    """What a storm has cost, and what it has left behind."""

    storm: str
    wanted: int
    """Nodes, one for each job."""
    done: int
    """Jobs that ran to their end."""
    made: int
    """Machines."""
    calls: Mapping[str, int]
    """By action."""
    last_job_s: float
    """From the beginning to the end of the last job."""
    looks: int
    lives: int
    twice: frozenset[NodeName]
    """Nodes that ever had two living machines at once."""
    left: tuple[MachineId, ...]
    """Machines that are there when all is over."""
    open: int
    """Operations that the journal still holds open."""
    took_s: float
    """Of this process's time on a processor; a busy machine takes longer."""

    @property
    def calls_per_node(self) -> float:
        return sum(self.calls.values()) / self.wanted


@dataclass
class Life(Fuse):
    """One process of the daemon: once it is dead, nothing of it does anything more."""

    dead: bool = False

    def burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.dead = True
        if self.dead:
            raise Killed

    def goes_out(self, **_: Any) -> None:
        """A call to EC2 is about to be sent, or its answer has come and nobody has read it yet."""
        self.burn()


@dataclass
class Storm:
    """One cluster in one storm."""

    name: str
    double: Double
    journal_at: Path
    pools: Sequence[Pool]
    offers: Mapping[PoolName, AwsPool]
    doomed: Callable[[int], bool] = lambda _number: False
    tick_s: float = 5.0
    work_counts: bool = False
    deaths: Iterator[int] = field(default_factory=partial(iter, ()))
    """After how many calls each life ends; those that follow the last one go on."""
    lives: int = 0
    looks: list[Look] = field(default_factory=list)
    wanted: int = 0
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    always: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Weather(next(self.double.beginnings), goes_on=self._goes_on, work_counts=self.work_counts)
        self.began, self.began_for_real = self.clock.now(), time.process_time()
        control = self.double.control
        control.set_clock(self.began)
        control.set_times(**TIMES)
        control.clear_faults()
        control.set_rates()
        control.set_capacity(dict.fromkeys(control.ask("GET", "capacity")["capacity"]))
        self.machines = Machines(control, self.name, self.clock, self.doomed)
        self.slurm = Slurm.declaring(self.pools, self.clock, [cast(Cloud, self.machines)])
        self.last_job = self.began
        self.calm_since = inf
        self.ends_by = inf
        self.over = self._calm

    def submit(self, nodes: int, run_s: float = 30.0) -> None:
        """An array of jobs, each for a node of its own."""
        self.wanted += nodes
        self.slurm.submit(self.wanted, ask(), run_s=run_s, count=nodes)

    def begin_with_all_machines(self) -> None:
        """The daemon finds them up and idle."""
        site = self._site()
        for each in self.pools:
            site.start(Operation(OpId(f"{self.name}-{each.name}"), Verb.START, each.name, each.nodes, self.began))
        self.clock.wait(TIMES["pending_s"])
        self.clock.wait(BOOT_S)

    def each_step(self, happens: Callable[[], None]) -> None:
        """Whenever time has passed."""
        self.always.append(happens)

    def after(self, seconds: float, happens: Callable[[], None]) -> None:
        self.due.append((self.clock.now() + seconds, happens))

    def blow(self, limit_s: float = 3600.0, over: Callable[[], bool] | None = None) -> Toll:
        """Until it is over: all is calm, and has been for a while."""
        self.ends_by = self.began + limit_s
        self.over = over or self._calm
        while not self.clock.ended:
            journal, daemon = self._born()
            try:
                with suppress(Killed):
                    run(daemon, self.looks.append)
                open_ = len(journal.under_way())
            finally:
                journal.dispose()
            self.clock.wait(self.tick_s)  # until it is started again
        return Toll(
            self.name,
            self.wanted,
            len(self.slurm.done),
            len(self.machines.seen),
            Counter(each["action"] for each in self.calls() if each["action"] != NEIGHBOURS),
            self.last_job - self.began,
            len(self.looks),
            self.lives,
            frozenset(self.machines.twice),
            tuple(self.machines.there),
            open_,
            time.process_time() - self.began_for_real,
        )

    def calls(self, action: str = "") -> list[dict[str, Any]]:
        """The calls of this storm that reached EC2."""
        return self.double.control.calls(action, since=self.began)

    # --- inside

    def _born(self) -> tuple[SqlJournal, Daemon]:
        """A fresh process of the daemon: nothing but the journal is left of the one before."""
        self.lives += 1
        journal = SqlJournal(self.journal_at, keeps=True, used=self.lives > 1, now=self.clock.now)
        site = self._site()
        sites = {SITE: Site(SITE, SiteKind.AWS, REGION), HOME: Site(HOME, SiteKind.ONPREM)}
        life = Life(next(self.deaths, 0))
        for client in (site._ec2.client, site._ec2.once):
            client.meta.events.register("before-send.ec2", self._date_call)
            client.meta.events.register("before-send.ec2", life.goes_out)
            client.meta.events.register("needs-retry.ec2", life.goes_out)
        world = World(
            scheduler=Deadly(self.slurm, life),
            providers={SITE: Deadly(site, life)},
            journal=Deadly(journal, life),
            clock=self.clock,
            sites=MappingProxyType(sites),
            pools=MappingProxyType({each.name: each for each in self.pools}),
            rules=Rules(periods=Periods(UTC)),
            beside=Beside(PATIENCE_S),
        )
        policies = shipped(release_idle={"idle": f"{IDLE_S:.0f}s"})
        return journal, Daemon(
            world, policies, LIMITS, f"{self.name}-life{self.lives}", tick_s=self.tick_s, may_act=True
        )

    def _site(self) -> AwsSite:
        buckets = Buckets(self.clock.steady, wait=lambda _: None)
        return AwsSite(self.name, SITE, REGION, self.offers, endpoint_url=self.double.endpoint, buckets=buckets)

    def _date_call(self, **_: Any) -> None:
        if self.work_counts:
            self.double.control.set_clock(self.clock.now())

    def _goes_on(self) -> None:
        now = self.clock.now()
        self.double.control.set_clock(now)
        for each in [each for each in self.due if each[0] <= now]:
            self.due.remove(each)
            each[1]()
        for happens in self.always:
            happens()
        self.machines.look()
        before = len(self.slurm.done)
        self.slurm.step()
        if len(self.slurm.done) > before:
            self.last_job = now
        self.clock.ended = self.over() or now > self.ends_by

    def _calm(self) -> bool:
        """Every job is done and every machine gone."""
        now = self.clock.now()
        still = not self.slurm.queue and not self.slurm.running and not self.machines.there
        self.calm_since = min(self.calm_since, now) if still else inf
        return now - self.calm_since >= CALM_S
