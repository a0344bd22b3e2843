"""Both ways to a real Slurm, for the suites that every way must pass.

PySlurm takes part where it can be imported and is of the release of the Slurm that runs; elsewhere its tests are
skipped with the reason.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.adapters.slurm.pyslurm.scheduler import SlurmByPyslurm
from cmscale.ports import Misconfigured

COMMANDS, PYSLURM = "by commands", "by PySlurm"
WAYS = (COMMANDS, PYSLURM)


def skip_without_pyslurm() -> None:
    if importlib.util.find_spec("pyslurm") is None:
        pytest.skip(f"PySlurm cannot be imported by {sys.executable}")


def scheduler(way: str, conf: Path, time_limit_s: float = 20.0) -> SlurmCommands:
    if way == COMMANDS:
        return SlurmCommands(conf, time_limit_s=time_limit_s)
    slurm = SlurmByPyslurm(conf, time_limit_s=time_limit_s, insist=True)
    try:
        slurm.nodes()
    except Misconfigured as error:
        pytest.skip(str(error))
    return slurm
