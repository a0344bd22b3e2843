"""How is the process that has PySlurm started, asked and ended?

PySlurm holds the GIL in every call to slurmctld, 19 s and more of one that is away, so nothing of it may run in a
process of ours; and it is under the GPL. The process is asked one thing at a time. It is ended when it overruns its
time, when it has answered with an error, when it is dropped and when we end; it ends itself when we are gone.

    Unavailable   slurmctld did not answer it in time, or refused it
    Missing       it has no PySlurm
    Broken        it died, or answered what we do not understand: no word about slurmctld
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from cmscale.ports import Unavailable

PROGRAM = Path(__file__).with_name("worker.py")
_CHUNK = 1 << 20


class Missing(Exception):
    """There is no PySlurm that can be imported."""


class Broken(Exception):
    """PySlurm did not work."""


class PyslurmProcess:
    """PySlurm, at the other end of two pipes."""

    def __init__(self, python: str, environment: Mapping[str, str], time_limit_s: float) -> None:
        self._time_limit_s = time_limit_s
        self._one_at_a_time = threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long-lived as the process that writes it
        # PYTHONSAFEPATH: the folder of the program is no place to import from.
        own = {name: value for name, value in environment.items() if not name.startswith("PYSLURM_")}
        try:
            self._process = subprocess.Popen(
                [python, str(PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=own | {"PYTHONSAFEPATH": "1"},
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise Missing(f"{python} could not be run ({error.strerror})") from None
        self._end = weakref.finalize(self, _end, self._process, self._errors)

    def ask(self, what: str) -> dict[str, Any]:
        """The answer. An error is the last thing that this process says."""
        with self._one_at_a_time:
            if not self._end.alive:
                raise Unavailable("PySlurm's process was ended by an error that it gave another call")
            try:
                return self._understood(self._answer(what))
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        self._end()

    def _answer(self, what: str) -> bytes:
        until = time.monotonic() + self._time_limit_s
        request = json.dumps({"ask": what, "limit_s": self._time_limit_s}).encode() + b"\n"
        to, answers = _pipes(self._process)
        if self._process.poll() is not None:
            raise Broken(self._last_words())
        try:
            os.write(to.fileno(), request)
        except BrokenPipeError:
            raise Broken(self._last_words()) from None
        ready = select.poll()
        ready.register(answers, select.POLLIN)
        line = bytearray()
        while not line.endswith(b"\n"):
            if not ready.poll(max(until - time.monotonic(), 0) * 1000):
                raise Unavailable(f"PySlurm gave no answer within {self._time_limit_s:g} s")
            chunk = os.read(answers.fileno(), _CHUNK)
            if not chunk:
                raise Broken(self._last_words())
            line += chunk
        return bytes(line)

    def _understood(self, line: bytes) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise Broken(f"PySlurm's process answered {line[:80]!r}") from None
        why = answer.get("why", "")
        match answer.get("error"):
            case None:
                return answer
            case "missing":
                raise Missing(why)
            case "refused":
                raise Unavailable(f"PySlurm got no answer from slurmctld: {why}")
            case _:
                raise Broken(f"PySlurm failed: {why}")

    def _last_words(self) -> str:
        """How it died, with what libslurm wrote before."""
        status = self._process.wait()
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"PySlurm's process ended {how}" + (f": {last}" if last else "")


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdin is None or process.stdout is None:
        raise AssertionError("started with pipes")
    return process.stdin, process.stdout


def _end(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()
    for pipe in _pipes(process):
        pipe.close()
    process.wait()
    errors.close()
