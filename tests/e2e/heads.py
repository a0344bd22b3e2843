"""Two head nodes beside a lab: two daemons as processes, each with its own state directory, on one journal."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from sqlalchemy import URL

from cmscale.journal.database import Database
from cmscale.journal.lease import Term, last_term
from cmscale.journal.sql import SqlJournal
from cmscale.lab.lab import Lab
from cmscale.model import Operation
from tests.e2e.daemon import soon

_BORN_READY = multiprocessing.get_context("forkserver")
# A hundred births cost what one does, if each is the fork of a process that has read the program already.
_BORN_READY.set_forkserver_preload(["__main__", "boto3", "psycopg", "cmscale.cli.cm_scale"])


def _run(config: Path, log: Path, env: Mapping[str, str]) -> None:
    """Be `cm-scale run`."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["cm-scale", "run", "--config", str(config)]
    from cmscale.cli import cm_scale

    cm_scale.main()


class Head:
    """A head node and the daemon on it."""

    def __init__(self, lab: Lab, name: str, journal: URL, lease: str) -> None:
        self.lab, self.name = lab, name
        self.state_dir = lab.directory / name
        self.state_dir.mkdir(exist_ok=True)
        self.config = lab.directory / f"{name}.toml"
        self.log = self.state_dir / "daemon.log"
        text = re.sub(r"(?m)^state_dir = .*", f'state_dir = "{self.state_dir}"', lab.config.read_text(encoding="utf-8"))
        text = text.replace("[cluster]\n", f'[cluster]\njournal = "{journal}"\nlease = "{lease}"\n')
        self.config.write_text(text, encoding="utf-8")
        self.process: ForkServerProcess | None = None
        self.is_frozen = False

    @property
    def pid(self) -> int:
        assert self.process
        assert self.process.pid
        return self.process.pid

    def start(self) -> None:
        """Start it, and wait until it leads or stands by."""
        self.log.unlink(missing_ok=True)
        self.process = _BORN_READY.Process(target=_run, args=(self.config, self.log, self.lab.env), daemon=True)
        self.process.start()
        soon(lambda: "standby; " in self.said or "leading now" in self.said, what=f"{self.name}: {self.said}")

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def leads(self, term: Term) -> bool:
        return self.process is not None and term.holder.pid == self.process.pid

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def looked_since(self, at: float) -> bool:
        """True if this process has made a look that began after then."""
        try:
            told = json.loads((self.state_dir / "last-tick.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        return bool(told["pid"] == self.pid and told["at"] > at)

    # --- what may happen to it

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)
        self.is_frozen = True

    def stop(self) -> None:
        self.send(signal.SIGTERM)

    def recover(self) -> None:
        """Wake it up, or start it again; it stands by."""
        assert self.process
        if self.is_frozen:
            self.is_frozen = False
            told = self.said.count("standby; ")
            self.send(signal.SIGCONT)
            soon(lambda: self.said.count("standby; ") > told, what=f"{self.name} to stand by: {self.said}")
        else:
            self.process.join(10)
            self.start()

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.join(5)


class Heads:
    """Both of them."""

    def __init__(self, lab: Lab, journal: URL, lease: str) -> None:
        self.lab = lab
        self.where = journal
        self.database = Database(journal, read_only=True)
        self.both = Head(lab, "head1", journal, lease), Head(lab, "head2", journal, lease)

    @cached_property
    def journal(self) -> SqlJournal:
        # To be opened when there is something in it: what lacks its tables is read in an empty copy.
        return SqlJournal(self.where, read_only=True)

    @property
    def term(self) -> Term | None:
        return last_term(self.database)

    def under_way(self) -> tuple[Operation, ...]:
        return self.journal.under_way()

    @property
    def leader(self) -> Head | None:
        """Whose lease it is now."""
        term = self.term
        return next((each for each in self.both if term and term.holds and each.leads(term)), None)

    def in_order(self) -> tuple[Head, Head]:
        """The one that leads, and the other."""
        soon(lambda: self.leader, what="a leader")
        leader = self.leader or self.both[0]
        return leader, self.both[leader is self.both[0]]

    def fail_over(self, strike: Callable[[Head], None]) -> tuple[Head, float]:
        """Strike the leader: it, and the seconds until the other one is at work."""
        leader, standby = self.in_order()
        at = time.time()
        strike(leader)
        soon(
            lambda: standby.looked_since(at) or (self.leader is standby and self.began_since(at)),
            what=f"{standby.name} to lead, which says: {standby.said}",
        )
        return leader, time.time() - at

    def began_since(self, at: float) -> bool:
        """True if an operation has been begun since then."""
        return any(operation.began > at for operation in self.under_way())

    def end(self) -> None:
        self.journal.dispose()
        self.database.dispose()
        for head in self.both:
            head.end()


@contextmanager
def heads(lab: Lab, journal: URL, lease: str) -> Iterator[Heads]:
    """Two heads whose daemons run; ended in any case."""
    both = Heads(lab, journal, lease)
    try:
        for head in both.both:
            head.start()
        yield both
    finally:
        both.end()
