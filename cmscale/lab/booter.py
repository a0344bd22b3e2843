"""Which of the lab's machines are switched on, and what runs on them?

`python -m cmscale.lab.booter --dir D ...` is the lab's firmware: it runs a real slurmd for each on-premises node, and
one for each running instance of the lab's EC2 after a boot time it draws. An instance learns its node's name as a real
one does, from its tags and its launch index, and waits for them if they do not say yet. When an instance is not running
any more, its slurmd, slurmstepds and job processes are killed at once, as by a power cut. What it and its
slurmd say is the instance's console.

Names listed in D/never-boot (hostlists, one a line) never come up, however often they are started.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from ClusterShell.NodeSet import NodeSet, NodeSetException

from cmscale.adapters.aws.names import node_of
from cmscale.lab import console
from cmscale.lab.control import Control
from cmscale.lab.processes import (
    LabError,
    Running,
    adopt_orphans,
    descendants,
    end,
    environment,
    everything,
    runs,
    start,
    works_in,
)
from cmscale.lab.slurm import program, remove_short_directory

EVERY_S = 0.1
NEVER = "never-boot"


@dataclass(slots=True)
class Machine:
    """A machine that is switched on; `pid` is its slurmd's once it has booted."""

    name: str
    boots_at: float
    log: Path
    pid: int = 0
    hangs: bool = False


@dataclass(slots=True)
class Booter:
    """All machines of one lab; by instance id, on-premises ones by name."""

    directory: Path
    boot_s: tuple[float, float]
    dice: random.Random
    machines: dict[str, Machine] = field(default_factory=dict)
    ending: bool = False

    def run(self, home: Iterable[str]) -> None:
        """Work until told to end, then end everything."""
        try:
            for name in home:
                log = self.directory / "log" / f"slurmd-{name}.out"
                self.machines[name] = Machine(name, 0.0, log, self._boot(name, log))
            control: Control | None = None
            while not self.ending:
                control = control or self._find_ec2()
                if control:
                    self._look(control)
                self._reap()
                time.sleep(EVERY_S)
        finally:
            end(descendants([os.getpid()]), grace_s=0)
            self._cut_off({each.name for each in self.machines.values()})
            self._reap()

    def _find_ec2(self) -> Control | None:
        with suppress(OSError):
            return Control(json.loads((self.directory / "ec2.json").read_text(encoding="utf-8"))["endpoint"])
        return None

    def _look(self, control: Control) -> None:
        """Switch machines on and off as their instances say."""
        try:
            running = {each["id"]: each for each in control.instances() if each["state"] == "running"}
        except (OSError, LabError, ValueError):
            return  # it is being ended, or busy; what runs goes on running
        now = time.monotonic()
        for instance in running.keys() - self.machines.keys():
            name = learn_name(running[instance])
            if name:
                boot_s = self.dice.uniform(*self.boot_s)
                console.write(self.directory, instance, f"firmware: {instance} is {name}, up in {boot_s:.1f} s")
                self.machines[instance] = Machine(name, now + boot_s, console.log_of(self.directory, instance))
        off = {key: each for key, each in self.machines.items() if key.startswith("i-") and key not in running}
        if off:
            self._cut_off({each.name for each in off.values() if each.pid})
            for instance in off:
                del self.machines[instance]
        never = self._never()
        for instance, machine in self.machines.items():
            if machine.pid or machine.boots_at > now:
                continue
            if machine.name not in never:
                machine.pid = self._boot(machine.name, machine.log)
            elif not machine.hangs:
                machine.hangs = True
                console.write(self.directory, instance, f"firmware: no bootable device for {machine.name}; halted")

    def _boot(self, name: str, log: Path) -> int:
        home = self.directory / "nodes" / name  # slurmstepd inherits it, and only by it can be told whose it is
        home.mkdir(exist_ok=True)
        argv = [program("slurmd"), "-D", "-b", "-N", name]
        return start(argv, log=log, cwd=home, env=os.environ).pid

    def _never(self) -> NodeSet:
        with suppress(OSError, NodeSetException):
            return NodeSet(",".join((self.directory / NEVER).read_text(encoding="utf-8").split()))
        return NodeSet()

    def _cut_off(self, names: set[str]) -> None:
        """Kill all that runs on these nodes."""
        for _ in range(3):  # a slurmd may have been starting a job while we looked
            found = self._of(names)
            if not found:
                return
            end(found, grace_s=0)

    def _of(self, names: set[str]) -> list[Running]:
        """All processes of these nodes: slurmd, its slurmstepds, their jobs."""
        if not names:
            return []
        table = everything()
        homes = {str(self.directory / "nodes" / name) for name in names}
        marks = {f"SLURMD_NODENAME={name}" for name in names}
        # slurmstepd detaches itself and overwrites its environment; jobs keep theirs and may go anywhere.
        mine = [
            process
            for process in descendants([os.getpid()], table)
            if (works_in(process.pid) in homes and "slurm" in Path(runs(process.pid)).name)
            or marks & environment(process.pid)
        ]
        return list({each.pid: each for each in mine + descendants([each.pid for each in mine], table)}.values())

    @staticmethod
    def _reap() -> None:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def told_to_end(self, _signal: int, _frame: FrameType | None) -> None:
        self.ending = True


def learn_name(instance: dict[str, Any]) -> str:
    """The node an instance is to be; empty if its tags do not say, or not yet."""
    return node_of(instance["id"], instance["tags"], instance["index"])


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cmscale.lab.booter", description="The lab's firmware")
    parser.add_argument("--dir", type=Path, required=True, help="the lab's directory")
    parser.add_argument("--boot", type=float, nargs=2, default=(2.0, 4.0), metavar="S", help="least and most boot time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--home", nargs="*", default=[], help="names of nodes that are always on")
    given = parser.parse_args(argv)
    booter = Booter(given.dir, (given.boot[0], given.boot[1]), random.Random(given.seed))  # noqa: S311 - no secret
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, booter.told_to_end)
    adopt_orphans()
    holder = os.getppid()
    booter.run(given.home)
    if os.getppid() != holder:  # it was killed, and cannot clear up
        remove_short_directory(given.dir)


if __name__ == "__main__":
    main()
