"""What happens in the demo: a lab, five kinds of jobs, the daemon, and every machine gone again?

The story only submits and watches; what it tells is read from outside: from squeue, from the EC2 double's journal of
calls, and from what the daemon prints. Drawing is somebody else's.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ClusterShell.NodeSet import NodeSet

from cmscale.lab.lab import Lab
from cmscale.lab.processes import LabError, end_child, start, wait_until

DONE = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"})

SUBMISSIONS: Mapping[str, tuple[str, ...]] = {
    "at home": ("--ntasks=2", "--wrap=sleep 3"),
    "one GPU": ("--gres=gpu:t4:1", "--wrap=sleep 3"),
    "gang of 4": ("--nodes=4", "--ntasks-per-node=1", "--gres=gpu:t4:1", "--wrap=srun sleep 3"),
    "array of 20": ("--array=1-20", "--gres=gpu:t4:1", "--wrap=sleep 2"),
    # Slurm takes it, for twelve such nodes are declared; but the pool may have eight machines at once.
    "never fits": ("--nodes=10", "--gres=gpu:t4:1", "--constraint=aws-us-east-1", "--wrap=sleep 3"),
}
NEVER = "never fits"
FROM_CLOUD = frozenset({"one GPU", "gang of 4", "array of 20"})


@dataclass(slots=True)
class Task:
    """One job, or one task of the array, as squeue tells it."""

    id: str
    kind: str
    submitted: float | None
    state: str = "PENDING"
    started: float | None = None
    ended: float | None = None
    nodes: str = ""
    comment: str = ""

    @property
    def waits(self) -> bool:
        return self.state == "PENDING"


@dataclass(frozen=True, slots=True)
class Scene:
    """What is to be seen at one moment."""

    after_s: float
    tasks: tuple[Task, ...]
    nodes: Mapping[str, str]
    """A word for each node: off, starting, joined, busy, ending."""
    instances: int


@dataclass(slots=True)
class Story:
    """One run of the demo in a lab that is up."""

    lab: Lab
    limit_s: float
    began: float = field(default_factory=time.time)
    kinds: dict[str, str] = field(default_factory=dict)
    """The kind of each job id."""
    returned: dict[str, float] = field(default_factory=dict)
    """When sbatch returned, for each job id."""
    tasks: dict[str, Task] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    never: dict[str, str] = field(default_factory=dict)
    daemon: subprocess.Popen[bytes] | None = None
    in_time: bool = False

    # --- the daemon

    @property
    def log(self) -> Path:
        return self.lab.directory / "log" / "cm-scale.log"

    def start_daemon(self) -> None:
        """Start cm-scale as an admin would; returns when it has looked for the first time."""
        mark = self.lab.directory / "cm-scale" / "last-tick.json"
        mark.unlink(missing_ok=True)
        env = {**self.lab.env, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
        argv: list[str | Path] = [sys.executable, "-m", "cmscale.cli.cm_scale", "run", "--config", self.lab.config]
        self.daemon = start(argv, log=self.log, cwd=self.lab.directory, env=env)
        if not wait_until(lambda: mark.exists() or self._daemon_ended(), 20) or self._daemon_ended():
            raise LabError(f"cm-scale did not start: {self.log.read_text(encoding='utf-8').strip()}")

    def _daemon_ended(self) -> bool:
        return self.daemon is not None and self.daemon.poll() is not None

    def stop_daemon(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.daemon:
            self.daemon.send_signal(number)
            end_child(self.daemon, grace_s=8)

    @property
    def decisions(self) -> list[str]:
        """What the daemon said it did, a line each."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line[2:3] == ":" and line[5:6] == ":"]

    # --- the jobs

    def submit(self) -> None:
        """Submit one job of each kind, with sbatch."""
        for kind, options in SUBMISSIONS.items():
            number = self.lab.command(
                "sbatch", "--parsable", f"--job-name={kind.replace(' ', '-')}", "--output=/dev/null", *options
            ).strip()
            self.returned[number] = time.time()
            self.kinds[number] = kind

    def scenes(self, every_s: float = 0.25) -> Iterator[Scene]:
        """Look again and again until everything has run and every machine is gone, or the time is up."""
        while time.time() - self.began < self.limit_s:
            scene = self._look()
            yield scene
            self.in_time = self._over(scene)
            if self.in_time or self._daemon_ended():
                return
            time.sleep(every_s)

    def _over(self, scene: Scene) -> bool:
        can_run = [task for task in scene.tasks if task.kind != NEVER]
        ran = len(can_run) >= len(SUBMISSIONS) + 18 and all(task.state in DONE for task in can_run)
        return ran and scene.instances == 0 and bool(self.never)

    def _look(self) -> Scene:
        separator = "\x1f"
        fields = separator.join(("%i", "%F", "%T", "%V", "%S", "%e", "%N", "%k"))
        told = self.lab.command("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-r", "-t", "all", "-o", fields)
        for line in told.splitlines():
            words = line.split(separator, 7)
            if len(words) == 8 and (kind := self.kinds.get(words[1])):
                self._note(kind, words)
        for task in self.tasks.values():
            if task.kind == NEVER and "no pool can ever serve" in task.comment:
                self.never[task.id] = task.comment
        instances = self.lab.instances()
        alive = {_node(each): each["state"] for each in instances if each["state"] != "terminated"}
        return Scene(time.time() - self.began, tuple(self.tasks.values()), self._nodes(alive), len(alive))

    def _note(self, kind: str, words: list[str]) -> None:
        name, _, state, submitted, started, ended, nodes, comment = words
        task = self.tasks.setdefault(name, Task(name, kind, _time(submitted)))
        task.state, task.nodes, task.comment = state, nodes, comment
        if not task.waits:
            task.started = _time(started)
        if state in DONE:
            task.ended = _time(ended)

    def _nodes(self, alive: Mapping[str, str]) -> dict[str, str]:
        told = self.lab.command("sinfo", "-h", "-N", "-o", "%N %T")
        words = {"pending": "starting", "shutting-down": "ending", "stopping": "ending"}
        nodes = {}
        for name, state in (line.split() for line in told.splitlines()):
            busy = state.startswith(("alloc", "mix", "comp"))
            if name in self.lab.home.names:
                nodes[name] = "busy" if busy else "joined"
            elif name not in alive:
                self.joined.discard(name)
                nodes[name] = "off"
            elif alive[name] in words:
                nodes[name] = words[alive[name]]
            else:
                drained = state.startswith(("drain", "down"))
                if not drained:
                    self.joined.add(name)
                late = "ending" if name in self.joined else "starting"
                nodes[name] = "busy" if busy else late if drained else "joined"
        return nodes

    # --- what came of it

    def result(self) -> dict[str, Any]:
        """The figures of the demo; `ok` only if all of it went as promised."""
        launches = self.lab.call_log("RunInstances")
        instances = self.lab.instances()
        left = sum(1 for each in instances if each["state"] != "terminated")
        can_run = [task for task in self.tasks.values() if task.kind != NEVER]
        made = Counter(itertools.chain.from_iterable(call["instances"] for call in launches))
        reactions = self._reactions(launches)
        ok = (
            self.in_time
            and left == 0
            and bool(self.never)
            and bool(reactions)
            and all(task.state == "COMPLETED" for task in can_run)
        )
        return {
            "ok": ok,
            "jobs": [
                {
                    "id": task.id,
                    "state": task.state,
                    "submitted": task.submitted,
                    "started": task.started,
                    "ended": task.ended,
                    "nodes": list(NodeSet(task.nodes)),
                }
                for task in self.tasks.values()
            ],
            "instances_created": len(made),
            "instances_left": left,
            "launch_calls": len(launches),
            "reaction_s": round(statistics.median(reactions.values()), 3) if reactions else None,
            "never_fit": dict(self.never),
        }

    def _reactions(self, launches: list[dict[str, Any]]) -> dict[str, float]:
        """For each job that machines were started for: seconds from sbatch's return to the launch call's arrival."""
        from cmscale.journal.sql import SqlJournal
        from cmscale.model import JobId

        arrived: dict[str, float] = {}
        for call in launches:
            arrived.setdefault(call["params"].get("ClientToken", ""), call["at"])
        journal = SqlJournal(self.lab.directory / "cm-scale" / "journal.db")
        reactions: dict[str, float] = {}
        for job, returned in self.returned.items():
            ops = {row["id"] for row in journal.history(job=JobId(job)) if row["verb"] == "start"}
            first = min((arrived[op] for op in ops if op in arrived), default=None)
            if first is not None:
                reactions[job] = max(first - returned, 0.0)
        journal.dispose()
        return reactions


def _node(instance: Mapping[str, Any]) -> str:
    """The name that a machine gives itself."""
    return str(NodeSet(instance["tags"]["cm-scale:node"])[instance["index"]])


def _time(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
