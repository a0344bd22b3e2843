"""Which jobs and nodes are there, by what PySlurm knows and what only Slurm's commands do?

PySlurm is asked in a process of its own, and squeue and sinfo at the same time for the fields it does not know. All are
in squeue's and sinfo's words, so one set of rules makes jobs and nodes of them whichever way they came. What changes
Slurm is left to scontrol: it knows more than any one release of PySlurm (several nodes in a call and which of them
failed, DOWN together with DRAIN, requeueing only what has not ended), and costs a few milliseconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import Any

from cmscale.adapters.slurm import records
from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.adapters.slurm.hostlist import unfold
from cmscale.adapters.slurm.pyslurm.choice import Choice, Pyslurm, fitting
from cmscale.adapters.slurm.pyslurm.process import Broken, PyslurmProcess
from cmscale.model import Job, NodeRecord
from cmscale.ports import Backend, Reading, Unavailable

Row = tuple[str, ...]

REST_S = 600.0
"""How long the commands are used before a PySlurm that broke is tried again."""

_JOB = "JobID"
_NODE = "NodeList"
_EXCLUDED = "ExcNodes"
"""No field of every release's squeue; PySlurm knows it."""


class SlurmByPyslurm(SlurmCommands):
    """The Scheduler port, whose queue and nodes come by PySlurm where it fits; with `insist` they come no other way."""

    def __init__(
        self,
        conf: Path | None = None,
        bin_dir: Path | None = None,
        time_limit_s: float = 20.0,
        *,
        python: Path | None = None,
        insist: bool = False,
        rest_s: float = REST_S,
    ) -> None:
        super().__init__(conf, bin_dir, time_limit_s)
        program = str(python or sys.executable)

        def start() -> PyslurmProcess:
            return PyslurmProcess(program, self.environment(), time_limit_s)

        def running() -> str:
            return self.settings().get("SLURM_VERSION", "")

        self._insist = insist
        self._choice = Choice(lambda: fitting(program, start, running), insist=insist, rest_s=rest_s)

    def backend(self) -> Backend:
        try:
            return self._choice.backend()
        except Unavailable as error:
            return Backend("pyslurm" if self._insist else "commands", str(error))

    def jobs(self) -> Reading[Job]:
        pyslurm = self._choice.pyslurm()
        if pyslurm:
            try:
                return self._jobs(pyslurm)
            except Broken as error:
                self._choice.broke(error)
        return super().jobs()

    def nodes(self) -> Reading[NodeRecord]:
        pyslurm = self._choice.pyslurm()
        if pyslurm:
            try:
                return self._nodes(pyslurm)
            except Broken as error:
                self._choice.broke(error)
        return super().nodes()

    def _jobs(self, pyslurm: Pyslurm) -> Reading[Job]:
        missing = [_JOB, *(field for field in records.SQUEUE_FIELDS if field not in pyslurm.job_fields)]
        with ThreadPoolExecutor(max_workers=2) as beside:
            settings = beside.submit(self.settings)
            others = beside.submit(self.rows, "squeue", ("-h", "-a", "--local"), missing)
            answer = self._told(pyslurm, "jobs")
        told: Mapping[str, Sequence[str]] = answer["columns"]
        rows = _joined(records.SQUEUE_FIELDS, told, _JOB, missing, {row[0]: tuple(row) for row in others.result()})
        excluded = dict(zip(told[_JOB], told[_EXCLUDED], strict=True))
        read = records.jobs(map(records.job_row, rows), excluded, time.time(), records.counting(settings.result()))
        return Reading(read.items, (*answer["unreadable"], *read.unreadable))

    def _nodes(self, pyslurm: Pyslurm) -> Reading[NodeRecord]:
        missing = [_NODE, *(field for field in records.SINFO_FIELDS if field not in pyslurm.node_fields)]
        with ThreadPoolExecutor(max_workers=1) as beside:
            # Not -N: nodes that are alike share a line, which takes a tenth of the time.
            others = beside.submit(self.rows, "sinfo", ("-h", "-a", "--local"), missing)
            answer = self._told(pyslurm, "nodes")
        alike = ((unfold(row[0]), row[1:]) for row in others.result())
        by_name = {str(name): (name, *rest) for names, rest in alike for name in names}
        rows = _joined(records.SINFO_FIELDS, answer["columns"], _NODE, missing, by_name)
        read = records.nodes(_one_for_each_partition(rows))
        return Reading(read.items, (*answer["unreadable"], *read.unreadable))

    def _told(self, pyslurm: Pyslurm, what: str) -> dict[str, Any]:
        try:
            return pyslurm.process.ask(what)
        except Unavailable:
            self._choice.ask_anew()
            raise


def _joined(
    fields: Sequence[str],
    told: Mapping[str, Sequence[str]],
    key: str,
    missing: Sequence[str],
    others: Mapping[str, Row],
) -> Iterator[Row]:
    """Rows of the fields, from columns and from rows of the missing ones by their key.

    What is in one of the two answers alone came or went between them, and is read again next tick.
    """
    known = [field for field in fields if field in told]
    there = [*known, *missing]
    arrange = itemgetter(*map(there.index, fields))
    for name, row in zip(told[key], zip(*map(told.__getitem__, known), strict=True), strict=True):
        if len(other := others.get(name, ())) == len(missing):
            yield arrange(row + other)


def _one_for_each_partition(rows: Iterator[Row]) -> Iterator[Row]:
    """As `sinfo -N` tells them; PySlurm tells all partitions of a node at once."""
    at = records.SINFO_FIELDS.index("Partition")
    for row in rows:
        for partition in filter(None, row[at].split(",")):
            yield (*row[:at], partition, *row[at + 1 :])
