"""What a configuration becomes: the parts of a running process that are not read from the file as they stand."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.adapters.slurm.pyslurm.scheduler import SlurmByPyslurm
from cmscale.journal.sql import SqlJournal
from cmscale.model import PoolName
from cmscale.ports import Backend
from cmscale.shell import config, wiring
from cmscale.shell.config import Config
from cmscale.shell.shipped import share_dir

FILE = """\
[cluster]
name = "c1"
mode = "act"
state_dir = "state"
policies = []

[sites.east]
kind = "aws"
region = "us-east-1"

[pools.t4]
site = "east"
nodes = "t4-[1-16]"
cpus = 4
mem_mb = 15000
partitions = ["cloud"]
helpers = "lic-1"
aws = { instance_type = "g4dn.xlarge", image = "ami-1", subnet = "subnet-1" }

[pools.licences]
site = "east"
nodes = "lic-1"
partitions = []
aws = { instance_type = "t3.small", image = "ami-1", subnet = "subnet-1" }
"""

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(old: str = "", new: str = "") -> Config:
        path = tmp_path / "x.toml"
        path.write_text(FILE.replace(old, new))
        return config.load(path)

    return load


def test_pools_share_the_quota_that_the_cloud_counts_them_against(load: Load) -> None:
    assert wiring.pools(load())[PoolName("t4")].family == "Running On-Demand G and VT instances"
    assert wiring.pools(load("cpus = 4", 'cpus = 4\nfamily = "mine"'))[PoolName("t4")].family == "mine"


def test_helpers_are_not_declared_to_slurm(load: Load) -> None:
    assert [each.pool.name for each in wiring.declared(load())] == ["t4"]


def test_machines_that_are_to_be_nodes_run_our_script_at_their_first_boot_unless_told_otherwise(load: Load) -> None:
    def given(name: str, more: str = "") -> Path | None:
        loaded = load('subnet = "subnet-1" }', f'subnet = "subnet-1"{more} }}')
        return wiring.user_data(loaded.pools[PoolName(name)])

    assert given("t4") == share_dir("etc") / "aws" / "node.sh"
    assert given("licences") is None  # it is no node of Slurm's
    assert given("t4", ", bootstrap = false") is None
    assert given("t4", ', user_data = "/boot.sh"') == given("licences", ', user_data = "/boot.sh"') == Path("/boot.sh")


def test_the_backend_of_the_configuration_decides_how_slurm_is_read(load: Load, tmp_path: Path) -> None:
    def scheduler(slurm: str) -> SlurmCommands:
        return wiring.scheduler(load("[sites.east]", f"[slurm]\n{slurm}\n[sites.east]"))

    assert type(scheduler('backend = "commands"')) is SlurmCommands
    assert type(scheduler("")) is type(scheduler('backend = "auto"')) is SlurmByPyslurm
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    bin_dir = f'bin_dir = "{tmp_path}"'
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho 'SLURM_VERSION = 22.05.8'\n")
    scontrol.chmod(0o755)
    forced = scheduler(f'backend = "pyslurm"\npyslurm_python = "{python}"\n{bin_dir}')
    assert forced.backend() == Backend("pyslurm", "PySlurm's process ended with exit status 1")


@pytest.mark.parametrize(
    ("mode", "acts", "pauses"), [("observe", False, False), ("act", True, False), ("paused", True, True)]
)
def test_a_paused_daemon_acts_and_says_why_it_is_paused(load: Load, mode: str, acts: bool, pauses: bool) -> None:
    loaded = load('"act"', f'"{mode}"')
    daemon = wiring.daemon(loaded, SqlJournal(None), wiring.SystemClock(), may_act=True)
    assert daemon.may_act == acts
    assert daemon.world.paused == (f'cluster.mode is "paused" in {loaded.path}' if pauses else "")


def test_the_clock_knows_the_hours_of_the_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC-2")  # POSIX counts westward: two hours ahead
    time.tzset()
    try:
        assert wiring.SystemClock().utc_offset_s() == 7200
    finally:
        monkeypatch.undo()
        time.tzset()
