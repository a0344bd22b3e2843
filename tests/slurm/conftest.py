"""A real Slurm for the tests here: one munged, one slurmctld and slurmds, in a directory of their own."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.adapters.slurm.conf import Declared, render
from cmscale.model import Job, NodeName, NodeRecord, Pool, PoolName, Shape, SiteName

POOL = Pool(
    PoolName("t4"),
    SiteName("aws"),
    Shape(4, 15000, 1, "t4"),
    tuple(NodeName(f"t4-{number}") for number in range(1, 5)),
    ("cloud",),
    frozenset({"gpu"}),
)

_SLURM_CONF = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={d}/munge/sock
CredType=cred/munge
StateSaveLocation={d}/state
SlurmdSpoolDir={d}/spool/%n
SlurmctldPidFile={d}/run/slurmctld.pid
SlurmdPidFile={d}/run/slurmd-%n.pid
SlurmctldLogFile={d}/log/slurmctld.log
SlurmdLogFile={d}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
PlugStackConfig={d}/etc/plugstack.conf
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
KillWait=1
Waittime=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PrivateData=cloud
Licenses=matlab:4
NodeName=op1 NodeHostname=op1 NodeAddr=127.0.0.1 Port={op1} CPUs=4 RealMemory=8000 Feature=onprem State=UNKNOWN
Include {d}/etc/cm-scale.conf
PartitionName=batch Nodes=op1,cmscale_t4 Default=YES State=UP
"""


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


class Cluster:
    """Slurm on loopback. Nodes of POOL exist in its configuration alone until `boot`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.conf = directory / "etc" / "slurm.conf"
        self.slurm = SlurmCommands(self.conf)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        d = self.directory
        for name in ("munge", "state", "spool", "run", "log", "etc", "dev"):
            (d / name).mkdir()
        key = d / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        (d / "etc" / "plugstack.conf").touch()
        (d / "etc" / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (d / "dev" / "gpu0").touch()
        (d / "etc" / "gres.conf").write_text(f"NodeName=t4-[1-4] Name=gpu Type=t4 File={d}/dev/gpu0\n")
        port, op1, *cloud = _free_ports(2 + len(POOL.nodes))
        host = socket.gethostname().partition(".")[0]
        user = subprocess.check_output(["id", "-un"], text=True).strip()
        self.conf.write_text(_SLURM_CONF.format(d=d, host=host, port=port, op1=op1, user=user))
        words = {
            "NodeHostname": "t4-[1-4]",
            "NodeAddr": "127.0.0.1",
            "Port": f"[{','.join(str(each) for each in sorted(cloud))}]",
        }
        (d / "etc" / "cm-scale.conf").write_text(render([Declared(POOL, 100, words)], {"cloud"}))
        munge = d / "munge"
        self._spawn(
            "munged", "-F", f"--key-file={munge}/key", f"--socket={munge}/sock", f"--pid-file={munge}/pid",
            f"--seed-file={munge}/seed", f"--log-file={munge}/log", "--force",
        )  # fmt: skip
        self.wait((munge / "sock").exists)
        self.start_controller()
        self.boot("op1")
        self.wait(lambda: self.node("op1").states == {"IDLE"})

    def start_controller(self) -> None:
        self._spawn("slurmctld", "-D")
        self.wait(lambda: self.run("scontrol", "ping").returncode == 0)

    def boot(self, name: str) -> None:
        """A machine of this name starts, and its slurmd with it."""
        self._spawn("slurmd", "-b", "-D", "-N", name, key=name)

    def kill(self, name: str) -> None:
        """The machine, or the daemon, is gone from one moment to the next."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        # Jobs and their slurmstepd outlive the slurmd; their working folder tells whose they are.
        for folder in Path("/proc").glob("[0-9]*/cwd"):
            with suppress(OSError):
                if folder.readlink().is_relative_to(self.directory):
                    os.kill(int(folder.parent.name), signal.SIGKILL)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self._environment(), cwd=self.directory, capture_output=True, text=True, timeout=30
        )

    def submit(self, *options: str, script: str = "sleep 600") -> str:
        done = self.run("sbatch", "--parsable", "-o", "/dev/null", *options, "--wrap", script)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number: str) -> Job:
        return next(job for job in self.slurm.jobs().items if job.id == number)

    def node(self, name: str) -> NodeRecord:
        return next(node for node in self.slurm.nodes().items if node.name == name)

    def wait(self, claim: Callable[[], object], limit_s: float = 30) -> None:
        end = time.monotonic() + limit_s
        while not claim():
            assert time.monotonic() < end, f"not within {limit_s} s; see {self.directory}/log"
            time.sleep(0.05)

    def _spawn(self, program: str, *arguments: str, key: str = "") -> None:
        with (self.directory / "log" / f"{key or program}.out").open("ab") as log:
            self._processes[key or program] = subprocess.Popen(
                [shutil.which(program) or program, *arguments],
                env=self._environment(), cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
        return os.environ | {"SLURM_CONF": str(self.conf), "PATH": path}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A running Slurm with one node at home and four in the cloud, all off."""
    if not shutil.which("slurmctld", path="/usr/sbin:/sbin:" + os.environ.get("PATH", "")):
        pytest.skip("slurmctld is not installed")
    # munged wants short paths that everyone may pass through; pytest's are neither.
    directory = Path(tempfile.mkdtemp(prefix="cmt-", dir="/tmp"))
    directory.chmod(0o755)
    cluster = Cluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
