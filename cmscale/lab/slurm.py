"""What does a Slurm of one's own need, and when is it ready?

One munged and one slurmctld in a directory, with a configuration that works for root and for an ordinary user, on any
cgroup version and with none. The slurmds are the business of `cmscale.lab.booter`.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cmscale.adapters.slurm.conf import node_set
from cmscale.lab.pools import PARTITION, LabPool
from cmscale.lab.processes import LabError, end_child, last_lines, start, wait_until

PACKAGES = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "munged": "munge",
    "sbatch": "slurm-client",
    "squeue": "slurm-client",
    "sinfo": "slurm-client",
    "scontrol": "slurm-client",
}
"""Each program the lab runs, and the Debian package that brings it."""

LONGEST_DIRECTORY = 48
"""Unix sockets below a directory must fit into 107 characters, of which slurmstepd's take more than fifty."""

SHORT = "cm-scale-lab-"
SOCKETS = "sockets"
"""How a directory for sockets elsewhere is named, and the link to it in the lab's own."""


def search_path() -> str:
    """PATH, and where distributions put daemons."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def find_missing() -> dict[str, str]:
    """The programs that are not installed, each with the Debian package that brings it; empty if all is there."""
    return {program: package for program, package in PACKAGES.items() if not shutil.which(program, path=search_path())}


def program(name: str) -> str:
    found = shutil.which(name, path=search_path())
    if not found:
        raise LabError(f"{name} is not installed: apt install {PACKAGES[name]}.")
    return found


def version() -> tuple[int, int]:
    """Slurm's release, as (22, 5)."""
    said = subprocess.run([program("slurmctld"), "-V"], capture_output=True, text=True, timeout=10, check=False)
    found = re.search(r"(\d+)\.(\d+)", said.stdout)
    if not found:
        raise LabError(f"slurmctld -V does not tell its version: {said.stdout}{said.stderr}")
    return int(found[1]), int(found[2])


def make_short_directory(directory: Path) -> Path:
    """A directory for unix sockets that everyone may enter: the lab's own if it will do, else a private one in /tmp."""
    if len(str(directory)) <= LONGEST_DIRECTORY and all(map(_will_do_for_munge, (directory, *directory.parents))):
        return directory
    short = Path(tempfile.mkdtemp(prefix=SHORT, dir="/tmp"))
    short.chmod(0o711)
    (directory / SOCKETS).symlink_to(short)
    return short


def remove_short_directory(directory: Path) -> None:
    """Nothing of the lab is left outside its own directory."""
    link = directory / SOCKETS
    with suppress(OSError):
        short = link.readlink()
        link.unlink()
        if short.name.startswith(SHORT):
            shutil.rmtree(short, ignore_errors=True)


def _will_do_for_munge(directory: Path) -> bool:
    """munged wants its socket reachable for all, and nobody else able to put another in its place."""
    mode = directory.stat().st_mode
    return bool(mode & stat.S_IXOTH) and bool(not mode & (stat.S_IWGRP | stat.S_IWOTH) or mode & stat.S_ISVTX)


@dataclass(frozen=True, slots=True)
class Home:
    """The nodes that the lab's site owns: CPU nodes named op1, op2..."""

    count: int = 2
    cpus: int = 4
    mem_mb: int = 8000

    @property
    def names(self) -> list[str]:
        return [f"op{number}" for number in range(1, self.count + 1)]

    @property
    def hostlist(self) -> str:
        return f"op[1-{self.count}]" if self.count else ""


@dataclass(frozen=True, slots=True)
class Controller:
    """munged and slurmctld in one directory."""

    directory: Path
    short: Path
    """Where the unix sockets are."""
    port: int
    home: Home
    home_ports: range
    pools: Sequence[LabPool]
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further lines of slurm.conf, or others in place of ours."""
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def conf(self) -> Path:
        return self.directory / "etc" / "slurm.conf"

    @property
    def include(self) -> Path:
        return self.directory / "etc" / "cm-scale.conf"

    def write(self) -> None:
        """Write all that Slurm reads, but for the include."""
        etc = self.conf.parent
        for folder in (etc, *(self.directory / name for name in ("log", "state", "run", "dev", "nodes"))):
            folder.mkdir(exist_ok=True)
        (self.short / "munge").mkdir(exist_ok=True)
        (self.short / "spool").mkdir(exist_ok=True)
        (self.short / "munge").chmod(0o711)
        now = version()
        (etc / "plugstack.conf").write_text("", encoding="utf-8")
        (etc / "cgroup.conf").write_text(
            f"CgroupPlugin={'cgroup/v1' if now < (24, 5) else 'disabled'}\n", encoding="utf-8"
        )
        (etc / "gres.conf").write_text("".join(self._gres()), encoding="utf-8")
        self.conf.write_text(self._slurm_conf(now), encoding="utf-8")

    def _slurm_conf(self, now: tuple[int, int]) -> str:
        d, me = self.directory, pwd.getpwuid(os.getuid()).pw_name
        home, ports = self.home, self.home_ports
        settings: dict[str, object] = {
            "ClusterName": "lab",
            "SlurmctldHost": f"{socket.gethostname().split('.')[0]}(127.0.0.1)",
            "SlurmctldPort": self.port,
            "SlurmUser": me,
            "SlurmdUser": me,
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.short}/munge/sock",
            "CredType": "cred/munge",
            "CommunicationParameters": "NoCtldInAddrAny",  # listen on 127.0.0.1 only
            "StateSaveLocation": d / "state",
            "SlurmdSpoolDir": f"{self.short}/spool/%n",
            "SlurmctldPidFile": d / "run/slurmctld.pid",
            "SlurmdPidFile": d / "run/slurmd-%n.pid",
            "SlurmctldLogFile": d / "log/slurmctld.log",
            "SlurmdLogFile": d / "log/slurmd-%n.log",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "MpiDefault": "none",
            "PlugStackConfig": d / "etc/plugstack.conf",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "GresTypes": "gpu",
            "SlurmdParameters": "config_overrides",
            "DefMemPerCPU": 100,
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "sched_interval=2,bf_interval=2,default_queue_depth=1000",
            "ReturnToService": 2,
            "KillWait": 1,
            "Waittime": 0,
            "MessageTimeout": 5,
            "SlurmdTimeout": 60,
            "TreeWidth": 65533,
            "MaxJobCount": 10000,
            "AccountingStorageType": "accounting_storage/none",
            "JobCompType": "jobcomp/none",
        }
        if now < (23, 2):
            settings["PrivateData"] = "cloud"  # nodes that are off show all the same
        settings |= self.settings
        lines = [f"{key}={value}" for key, value in settings.items()]
        if home.count:
            lines.append(
                f"NodeName={home.hostlist} NodeHostname={home.hostlist} NodeAddr=127.0.0.1 "
                f"Port=[{ports[0]}-{ports[-1]}] CPUs={home.cpus} RealMemory={home.mem_mb} Feature=onprem State=UNKNOWN"
            )
        members = [home.hostlist] if home.count else []
        members += [node_set(pool.name) for pool in self.pools]
        lines.append(f"Include {self.include}")
        lines.append(f"PartitionName={PARTITION} Nodes={','.join(members)} Default=YES State=UP MaxTime=INFINITE")
        return "\n".join(lines) + "\n"

    def _gres(self) -> Iterable[str]:
        """Lines of gres.conf; Slurm drops a GPU without a device file, so there is one for each."""
        for pool in self.pools:
            if pool.gpus:
                for number in range(pool.gpus):
                    _make_device(self.directory / "dev" / f"gpu{number}")
                files = f"gpu{'[0-' + str(pool.gpus - 1) + ']' if pool.gpus > 1 else '0'}"
                yield f"NodeName={pool.nodes} Name=gpu Type={pool.gpu_type} File={self.directory}/dev/{files}\n"

    def start(self, env: Mapping[str, str]) -> None:
        """Start munged and slurmctld; they may not be ready yet."""
        munge = self.short / "munge"
        key = munge / "key"
        if not key.exists():
            key.touch(0o600)
            key.write_bytes(secrets.token_bytes(128))
        munged = start(
            [program("munged"), "--foreground", "--force", "--num-threads=2"]
            + [f"--{option}={munge / name}" for option, name in _MUNGE_FILES.items()],
            log=self.directory / "log/munged.log",
            cwd=self.directory,
            env=env,
        )
        self.children.append(munged)
        if not wait_until((munge / "sock").exists, 5):
            raise LabError(f"munged does not come up: {last_lines(self.directory / 'log/munged.log')}")
        self.start_slurmctld(env)

    def start_slurmctld(self, env: Mapping[str, str]) -> None:
        self.children.append(
            start(
                [program("slurmctld"), "-D"],
                log=self.directory / "log/slurmctld.out",
                cwd=self.directory,
                env=env,
            )
        )

    def stop_slurmctld(self) -> None:
        """End slurmctld alone, and wait for its end: a new one must not meet the old one's state."""
        for child in self.children[1:]:
            end_child(child, grace_s=5)
        del self.children[1:]

    def check_alive(self) -> None:
        """Raises LabError if a daemon has ended."""
        for child, log in zip(self.children, ("munged.log", "slurmctld.log"), strict=False):
            if child.poll() is not None:
                raise LabError(
                    f"{log.removesuffix('.log')} ended with status {child.returncode}: "
                    f"{last_lines(self.directory / 'log' / log)}"
                )

    def stop(self) -> None:
        """End slurmctld, then munged, whose signature it may want to the end."""
        for child in reversed(self.children):
            end_child(child)
        self.children.clear()
        remove_short_directory(self.directory)


_MUNGE_FILES = {
    "key-file": "key",
    "socket": "sock",
    "pid-file": "pid",
    "seed-file": "seed",
    "log-file": "log",
}


def _make_device(path: Path) -> None:
    """A file that slurmd takes for a GPU: a second /dev/null where we may make one, else an empty file."""
    if path.exists():
        return
    with suppress(PermissionError):
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        return
    path.touch()
