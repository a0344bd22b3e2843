"""The daemon as a process of its own beside a lab, the commands beside it, and the lives of its machines."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ClusterShell.NodeSet import NodeSet

from cmscale.journal.sql import SqlJournal
from cmscale.lab.lab import Lab
from cmscale.lab.processes import end_child, start, wait_until
from cmscale.model import Operation

PROGRAM = (sys.executable, "-m", "cmscale.cli.cm_scale")
PACKAGE = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}


def soon(holds: Callable[[], object], seconds: float = 40.0, *, what: str = "") -> None:
    """Wait until it holds, and fail if it does not in time."""
    assert wait_until(lambda: bool(holds()), seconds, every=0.05), f"not within {seconds:g} s: {what or 'see the test'}"


def cm_scale(*words: str, env: Mapping[str, str], timeout_s: float = 30) -> subprocess.CompletedProcess[str]:
    """What a command of cm-scale says."""
    return subprocess.run(
        [*PROGRAM, *words], env={**env, **PACKAGE}, capture_output=True, text=True, timeout=timeout_s, check=False
    )


# --- the daemon ------------------------------------------------------------------------------------------------------


class Daemon:
    """`cm-scale run` beside a lab: one process at a time, which may be killed and started again."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.log = lab.directory / "log" / "cm-scale.log"
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; it has not looked yet."""
        assert self.process is None
        self.process = start(
            [*PROGRAM, "run", "--config", self.lab.config],
            log=self.log,
            cwd=self.lab.directory,
            env={**self.lab.env, **PACKAGE},
        )
        self.lives += 1

    def start_and_look(self) -> None:
        """Start it; it has looked once."""
        self.start()
        soon(lambda: self.ticks > 0, what="the first look")

    @property
    def ticks(self) -> int:
        """How often this process has looked."""
        try:
            told = json.loads((self.lab.directory / "cm-scale" / "last-tick.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return 0
        return int(told["tick"].rpartition("-")[2]) if self.process and told["pid"] == self.process.pid else 0

    def look_again(self, seconds: float = 15.0) -> None:
        """Wait until it has made a whole look that began after now."""
        goal = self.ticks + 2
        soon(lambda: self.ticks >= goal, seconds, what="two more looks")

    def kill(self) -> None:
        """SIGKILL: it can do nothing any more."""
        assert self.process
        assert self.process.poll() is None, f"it ended by itself: {self.said}"
        self.process.kill()
        self.process.wait(5)
        self.process = None

    def stop(self, seconds: float = 8.0) -> tuple[int, float]:
        """SIGTERM; its exit status, and how long it took."""
        assert self.process
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(seconds)
        self.process = None
        return status, time.monotonic() - began

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def end(self) -> None:
        if self.process:
            end_child(self.process, grace_s=2)


@contextmanager
def beside(lab: Lab) -> Iterator[Daemon]:
    """A daemon for this lab, not started yet; ended in any case."""
    daemon = Daemon(lab)
    try:
        yield daemon
    finally:
        daemon.end()


# --- the lives of machines -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Life:
    """One machine as the calls tell it: made once, by whom, and when it was really gone."""

    node: str
    id: str
    operation: str
    made: float
    deleted: float | None
    """When it was first told to end; None: it never was."""

    @property
    def gone(self) -> float:
        return float("inf") if self.deleted is None else self.deleted + ENDING_S


ENDING_S = 0.3
"""How long a machine of these labs takes to end."""

_TAG = re.compile(r"TagSpecification\.1\.Tag\.(\d+)\.Key")


def lives(lab: Lab) -> list[Life]:
    """Every machine that was ever made, oldest first. A launch repeated under its token makes nothing new."""
    calls = sorted(lab.call_log(), key=_took_effect)
    deleted: dict[str, float] = {}
    for call in calls:
        if call["action"] == "TerminateInstances":
            for machine in call["instances"]:
                deleted.setdefault(machine, _took_effect(call))
    found: dict[str, Life] = {}
    for call in calls:
        if call["action"] == "RunInstances":
            names = list(NodeSet(_tags(call["params"])["cm-scale:node"]))
            operation = call["params"]["ClientToken"]
            for node, machine in zip(names, call["instances"], strict=False):
                life = Life(str(node), machine, operation, _took_effect(call), deleted.get(machine))
                found.setdefault(machine, life)
    return list(found.values())


def _took_effect(call: Mapping[str, Any]) -> float:
    """When the double did what the call asks: at once, or at the end of a delay that goes before."""
    late = call["fault"] and not call["fault"].endswith("after")
    return float(call["at"] + (call["took_s"] if late else 0))


def _tags(params: Mapping[str, str]) -> dict[str, str]:
    keys = {name: key for name, key in params.items() if _TAG.fullmatch(name)}
    return {key: params[name.removesuffix("Key") + "Value"] for name, key in keys.items()}


def doubles(found: list[Life]) -> list[tuple[Life, Life]]:
    """Machines that were made while another one of their node was still there."""
    by_node: dict[str, list[Life]] = {}
    for life in found:
        by_node.setdefault(life.node, []).append(life)
    return [pair for own in by_node.values() for pair in pairwise(own) if pair[1].made < pair[0].gone]


def left(lab: Lab) -> list[str]:
    """The nodes whose machines are still there."""
    return [
        str(NodeSet(each["tags"]["cm-scale:node"])[each["index"]])
        for each in lab.instances()
        if each["state"] != "terminated"
    ]


# --- the journal and Slurm -------------------------------------------------------------------------------------------


@contextmanager
def journal(lab: Lab) -> Iterator[SqlJournal]:
    book = SqlJournal(lab.directory / "cm-scale" / "journal.db")
    try:
        yield book
    finally:
        book.dispose()


def under_way(lab: Lab) -> tuple[Operation, ...]:
    """Operations that the journal holds as begun and not finished."""
    with journal(lab) as book:
        return book.under_way()


def submit(lab: Lab, *options: str, script: str = "sleep 1") -> str:
    return lab.command("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script).strip()


def job(lab: Lab, number: str, field: str = "%T") -> str:
    return lab.command("squeue", "-h", "-t", "all", "-j", number, "-o", field).strip()


def states(lab: Lab, nodes: str) -> list[set[str]]:
    """Slurm's flags of each node."""
    told = lab.command("sinfo", "-h", "-N", "-n", nodes, "-O", "StateComplete:200").split()
    return [set(words.upper().split("+")) for words in told]


def parked(lab: Lab, nodes: str) -> bool:
    """True if Slurm uses none of these nodes, nor takes one for alive."""
    return all({"DRAIN", "DOWN"} <= words for words in states(lab, nodes))
