"""How does one get a hybrid cluster on one machine, with a Slurm, a cloud and nodes that boot, and get rid of it again?

    with Lab(directory) as lab:
        subprocess.run(["sbatch", "-N4", "--wrap", "hostname"], env=lab.env)

Everything lies in one directory and listens on loopback ports that are free, so labs stand side by side. Whatever ends
this process ends the lab: `down`, Ctrl-C, or a SIGKILL, of which the kernel tells the children.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from ClusterShell.NodeSet import NodeSet

from cmscale.lab.booter import NEVER
from cmscale.lab.control import Control
from cmscale.lab.ec2 import ACCESS_KEY, SECRET_KEY
from cmscale.lab.faults import Fault
from cmscale.lab.instance import Times
from cmscale.lab.pools import DEFAULT_POOLS, LabPool, write_config, write_include
from cmscale.lab.ports import Ports
from cmscale.lab.processes import (
    LabError,
    Running,
    descendants,
    end,
    end_child,
    environment,
    everything,
    last_lines,
    runs,
    start,
    wait_until,
    works_in,
)
from cmscale.lab.slurm import Controller, Home, find_missing, make_short_directory, remove_short_directory, search_path

READY_S = 30.0
OFF_REASON = "cm-scale: off"
MARKER = ".cm-scale-lab"
"""The file by which a directory is known to be a lab's, and may be cleared."""
FILES = ("lab.json", "env.sh", "cmscale.toml", "ec2.json", "calls.jsonl", NEVER)
FOLDERS = ("etc", "log", "state", "run", "dev", "nodes", "munge", "spool", "cm-scale")


class Lab:
    """One hybrid cluster."""

    def __init__(
        self,
        directory: Path,
        *,
        pools: Sequence[LabPool] = DEFAULT_POOLS,
        home: Home | None = None,
        boot_s: tuple[float, float] = (2.0, 4.0),
        seed: int = 1,
        times: Times | None = None,
        slurm: Mapping[str, object] | None = None,
        limits: Mapping[str, object] | None = None,
        policies: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """`slurm` holds lines of slurm.conf (MaxJobCount, SchedulerParameters...); `limits` and `policies` tables of
        cmscale.toml; `boot_s` the least and most time from a running instance to its slurmd, drawn with `seed`."""
        self.directory = directory.absolute()
        self.pools = tuple(pools)
        self.home = home or Home()
        self.times = times or Times()
        self._boot_s, self._seed = boot_s, seed
        self._slurm = dict(slurm or {})
        self._limits = {"min_up": "2s", **(limits or {})}
        self._policies = {"release_idle": {"idle": "4s"}, **(policies or {})}
        self._ports = Ports()
        self._lock: TextIO | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._controller: Controller | None = None
        self._control: Control | None = None
        self.endpoint = ""
        self.regions: dict[str, dict[str, Any]] = {}
        """The image, vpc, subnet and subnets (by zone) of each region."""

    # --- what clients need -------------------------------------------------------------------------------------------

    @property
    def slurm_conf(self) -> Path:
        return self.directory / "etc" / "slurm.conf"

    @property
    def include(self) -> Path:
        """The file that declares the cloud nodes; cm-scale may write it anew."""
        return self.directory / "etc" / "cm-scale.conf"

    @property
    def config(self) -> Path:
        return self.directory / "cmscale.toml"

    @property
    def variables(self) -> dict[str, str]:
        """What a client's environment must hold."""
        return {
            "SLURM_CONF": str(self.slurm_conf),
            "CMSCALE_CONFIG": str(self.config),
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1,localhost",
            # Whoever sources env.sh finds cm-scale itself, too; last, so that nothing of theirs is hidden.
            "PATH": f"{search_path()}:{Path(sys.executable).parent}",
        }

    @property
    def env(self) -> dict[str, str]:
        """A whole environment for clients: ours, without what would lead them elsewhere."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("AWS_", "SLURM", "SBATCH_", "SQUEUE_", "SINFO_", "SALLOC_", "SRUN_"))
        }
        return kept | self.variables

    def command(self, *argv: str, timeout_s: float = 20.0) -> str:
        """What a command prints in this lab; raises LabError if it fails."""
        try:
            done = subprocess.run(
                argv, env=self.env, cwd=self.directory, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"{shlex.join(argv)} took longer than {timeout_s:g} s.") from None
        if done.returncode:
            raise LabError(f"{shlex.join(argv)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def ec2(self, region: str = "us-east-1") -> Any:
        """A boto3 client of the lab's EC2 that tries each call once."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "ec2",
            region_name=region,
            endpoint_url=self.endpoint,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )

    # --- behind the curtain ------------------------------------------------------------------------------------------

    @property
    def control(self) -> Control:
        """The far side of the EC2 double: faults, capacity, times, journal."""
        if self._control is None:
            raise LabError("The lab is not up.")
        return self._control

    def call_log(self, action: str = "", since: float = 0.0) -> list[dict[str, Any]]:
        """The calls that reached the EC2 API, oldest first."""
        return self.control.calls(action, since)

    def instances(self) -> list[dict[str, Any]]:
        """All instances that are not forgotten, terminated ones too."""
        return self.control.instances()

    def set_fault(self, fault: Fault) -> None:
        """Let calls go wrong from now on."""
        self.control.set_fault(fault)

    def never_boot(self, nodes: str) -> None:
        """From now on, machines of these names (a hostlist) start and are paid for, but never come up; "" ends it."""
        draft = self.directory / f"{NEVER}.new"
        draft.write_text(nodes, encoding="utf-8")
        draft.rename(self.directory / NEVER)

    def stop_slurmctld(self) -> None:
        """Take the controller away; nodes and jobs go on."""
        self._up_controller().stop_slurmctld()

    def start_slurmctld(self, *, forgetful: bool = False) -> None:
        """Bring the controller back, with its state or, if `forgetful`, without: all cloud nodes look schedulable."""
        controller = self._up_controller()
        if forgetful:
            shutil.rmtree(self.directory / "state")
            (self.directory / "state").mkdir()
        controller.start_slurmctld(self.env)
        self._wait("slurmctld", controller, lambda: _listens(controller.port))

    def _up_controller(self) -> Controller:
        if self._controller is None:
            raise LabError("The lab is not up.")
        return self._controller

    def pids(self) -> list[Running]:
        """Every process of the lab but this one, the jobs' included."""
        own = [child.pid for child in (*self._children, *(self._controller.children if self._controller else ()))]
        table = everything()
        return [table[pid] for pid in own if pid in table] + descendants(own, table)

    # --- up and down -------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Bring everything up; on any trouble everything is down again, and LabError says what was wrong."""
        missing = find_missing()
        if missing:
            raise LabError(
                f"{', '.join(sorted(missing))} not found: apt install {' '.join(sorted(set(missing.values())))}."
            )
        if not all(map(importlib.util.find_spec, ("moto", "flask", "flask_cors", "boto3"))):
            raise LabError("The lab's cloud needs moto and boto3: pip install 'cm-scale[lab]'.")
        self._take_directory()
        try:
            self._bring_up()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End all processes of the lab; its files stay."""
        before = self.pids()
        for child in self._children:
            child.terminate()  # the booter and the cloud end side by side
        for child in self._children:
            end_child(child, grace_s=5)
        if self._controller:
            self._controller.stop()
        end(before, grace_s=0)
        if self._lock:
            end_leftovers(self.directory)
            self._lock.close()
        self._children.clear()
        self._controller = self._control = self._lock = None
        self._ports.close()

    def _take_directory(self) -> None:
        """Make the directory ours alone, and empty."""
        folder = self.directory
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{folder} can't be made ({error.strerror}).") from None
        if any(folder.iterdir()) and not (folder / MARKER).exists():
            raise LabError(f"{folder} holds files that are no lab's; choose another directory.")
        (folder / MARKER).touch()
        self._lock = take_lock(folder)
        end_leftovers(folder)
        for name in FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in FILES:
            (folder / name).unlink(missing_ok=True)

    def _bring_up(self) -> None:
        names = {pool.name: pool.names for pool in self.pools}
        ports = self._ports.take(2 + self.home.count + sum(map(len, names.values())))
        cloud_ports: dict[str, range] = {}
        place = 2 + self.home.count
        for pool, its in names.items():
            cloud_ports[pool] = ports[place : place + len(its)]
            place += len(its)
        regions = list(dict.fromkeys(pool.region for pool in self.pools)) or ["us-east-1"]
        python = [sys.executable, "-m"]
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # children import this very package
        (self.directory / "log").mkdir()

        ec2: list[str | Path] = [*python, "cmscale.lab.ec2", "--dir", self.directory, "--port", str(ports[0])]
        ec2 += [word for region in regions for word in ("--region", region)]
        ec2 += ["--times", json.dumps(asdict(self.times))]
        cloud = start(ec2, log=self.directory / "log/ec2.log", cwd=self.directory, env=here)
        self._children.append(cloud)

        self._controller = controller = Controller(
            self.directory,
            make_short_directory(self.directory),
            ports[1],
            self.home,
            ports[2 : 2 + self.home.count],
            self.pools,
            self._slurm,
        )
        controller.write()
        write_include(self.include, self.pools, cloud_ports)
        controller.start(self.env)
        self._wait("slurmctld", controller, lambda: _listens(controller.port))

        booter: list[str | Path] = [*python, "cmscale.lab.booter", "--dir", self.directory]
        booter += ["--seed", str(self._seed), "--boot", *map(str, self._boot_s), "--home", *self.home.names]
        # It is told with SIGTERM, for it must still end what runs on the nodes.
        self._children.append(
            start(
                booter,
                log=self.directory / "log/booter.log",
                cwd=self.directory,
                env={**here, **self.variables},
                orphaned=signal.SIGTERM,
            )
        )
        self._wait("the on-premises nodes", controller, self._home_is_idle)
        self._drain_clouds()
        self._wait("the EC2 double", controller, (self.directory / "ec2.json").exists)
        state = json.loads((self.directory / "ec2.json").read_text(encoding="utf-8"))
        self.endpoint, self.regions = state["endpoint"], state["regions"]
        self._control = Control(self.endpoint)
        write_config(
            self.config,
            self.pools,
            cloud_ports,
            cluster={"name": "lab", "mode": "act", "state_dir": self.directory / "cm-scale"},
            slurm={"conf": self.slurm_conf, "include": self.include},
            limits=self._limits,
            endpoint=self.endpoint,
            regions=self.regions,
            policies=self._policies,
        )
        (self.directory / "cm-scale").mkdir()
        exports = (f"export {key}={shlex.quote(value)}\n" for key, value in self.variables.items())
        (self.directory / "env.sh").write_text("".join(exports), encoding="utf-8")

    def _wait(self, what: str, controller: Controller, ready: Callable[[], bool]) -> None:
        """Wait until it is ready, and no longer than all else lives."""

        def settled() -> bool:
            controller.check_alive()
            for child, log in zip(self._children, ("ec2.log", "booter.log"), strict=False):
                if child.poll() is not None:
                    said = last_lines(self.directory / "log" / log, 1)
                    raise LabError(f"{log.removesuffix('.log')} ended with status {child.returncode}: {said}")
            return ready()

        if not wait_until(settled, READY_S):
            said = last_lines(self.directory / "log/slurmctld.log", 3)
            raise LabError(f"{what} did not come up within {READY_S:g} s; slurmctld says: {said}")

    def _home_is_idle(self) -> bool:
        if not self.home.count:
            return True
        with suppress(LabError):
            states = self.command("sinfo", "-h", "-N", "-n", self.home.hostlist, "-o", "%T").split()
            return len(states) == self.home.count and set(states) == {"idle"}
        return False

    def _drain_clouds(self) -> None:
        """Let no job be bound to a node that has no machine before cm-scale runs."""
        if self.pools:
            nodes = str(NodeSet.fromlist([pool.nodes for pool in self.pools]))
            self.command("scontrol", "update", f"nodename={nodes}", "state=drain", f"reason={OFF_REASON}")


def take_lock(directory: Path) -> TextIO:
    """The lock of a lab's directory, until it is closed or its holder dies; raises LabError if another has it."""
    lock = (directory / "lock").open("w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise LabError(f"Another lab is up in {directory}, held by another process.") from None
    return lock


def end_leftovers(directory: Path) -> int:
    """End what runs on the nodes of a lab whose keepers were all killed; tells how many processes there were.

    To be called by who holds the lock.
    """
    remove_short_directory(directory)
    nodes = f"{directory / 'nodes'}{os.sep}"
    mark = f"SLURM_CONF={directory / 'etc' / 'slurm.conf'}"
    table = everything()
    found = [process for process in table.values() if _was_on_a_node(process.pid, nodes, mark)]
    found += descendants([process.pid for process in found], table)
    unique = {process.pid: process for process in found if process.pid != os.getpid()}
    end(unique.values(), grace_s=0)
    return len(unique)


def _was_on_a_node(pid: int, nodes: str, mark: str) -> bool:
    """True for a slurmd or slurmstepd of these nodes, and for a process of their jobs."""
    if works_in(pid).startswith(nodes) and Path(runs(pid)).name.startswith("slurm"):
        return True
    words = environment(pid)
    return mark in words and any(word.startswith("SLURMD_NODENAME=") for word in words)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
