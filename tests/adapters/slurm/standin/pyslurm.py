"""Stands in for PySlurm where a test puts this folder in PYTHONPATH: the classes of a release, with recorded objects.

What it is to be stands in the JSON file that STANDIN names: `version`, `slurm`, `attributes` (of Job and Node), `jobs`,
`nodes`, and `deed`: what it does when it is asked for jobs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_TOLD: dict[str, Any] = json.loads(Path(os.environ["STANDIN"]).read_text(encoding="utf-8"))
__version__: str = _TOLD["version"]

if "import_error" in _TOLD:
    raise ImportError(_TOLD["import_error"])
print("what a library prints is no answer")


class RPCError(Exception):
    """As PySlurm's own."""


def slurm_api_version() -> tuple[int, ...]:
    return tuple(_TOLD["slurm"])


class _Thing:
    def __init__(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


Job = type("Job", (_Thing,), dict.fromkeys(_TOLD["attributes"]["Job"]))
Node = type("Node", (_Thing,), dict.fromkeys(_TOLD["attributes"]["Node"]))


def _do(deed: str) -> None:
    match deed:
        case "hang":
            time.sleep(60)
        case "crash":
            sys.stderr.write("pyslurm: error: a word of libslurm\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        case "refuse":
            raise RPCError("Unable to contact slurm controller (connect failure)")
        case "fail":
            raise TypeError("an integer is required")


class Jobs:
    @staticmethod
    def load() -> dict[int, Any]:
        _do(_TOLD.get("deed", ""))
        return {each["id"]: Job(each) for each in _TOLD["jobs"]}


class Nodes:
    @staticmethod
    def load() -> dict[str, Any]:
        return {each["name"]: Node(each) for each in _TOLD["nodes"]}
