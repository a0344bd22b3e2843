"""How is one of Slurm's commands run and read while it prints, so that it always ends?

One process without a shell, killed with its children past a set time. A queue of 50,000 jobs is read while squeue still
writes it: that takes a third of the time away, and its 25 MB of text are never held at once.
"""

from __future__ import annotations

import codecs
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, Self, cast

_PIECE = 1 << 20


class Printing:
    """A command that runs. Leaving the block ends it, whatever it still does."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], limit_s: float) -> None:
        """Raises OSError if it cannot be run."""
        self._ends_by = time.monotonic() + limit_s
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the block
        self.late = False
        """Whether it was killed for taking too long."""
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
        except OSError:
            self._errors.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._kill()
        self._process.__exit__(kind, error, at)
        self._errors.close()

    def text(self) -> Iterator[str]:
        """What it prints, piece by piece until it has ended or was killed."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while piece := self._piece():
            yield decoder.decode(piece)
        yield decoder.decode(b"", final=True)

    def records(self, end: str) -> Iterator[str]:
        """What it prints, as the records that `end` divides. The last may lack it."""
        rest = ""
        for piece in self.text():
            *whole, rest = (rest + piece).split(end)
            yield from whole
        if rest:
            yield rest

    def ended(self) -> tuple[int, str]:
        """Its status and what it complained of, once its text was read."""
        try:
            status = self._process.wait(max(self._ends_by - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self._too_late()
            status = self._process.wait()
        self._errors.seek(0)
        return status, self._errors.read().decode("utf-8", "replace")

    def _piece(self) -> bytes:
        out = cast("IO[bytes]", self._process.stdout)
        ready = select.poll()
        ready.register(out, select.POLLIN)
        # At its very end a pipe is ready too, so nothing that is written is missed.
        if self.late or not ready.poll(max(self._ends_by - time.monotonic(), 0) * 1000):
            self._too_late()
            return b""
        return os.read(out.fileno(), _PIECE)

    def _too_late(self) -> None:
        self.late = True
        self._kill()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
