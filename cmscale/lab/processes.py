"""Which processes belong to the lab, and how does each of them come to its end?

Everything the lab runs is started here, in a session of its own (so that Ctrl-C reaches the lab alone, which then ends
its children in order), and is told by the kernel when its parent dies. Nothing is ever ended by name: a process is
ours because we started it, or because it descends from one that we started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None)


class LabError(Exception):
    """The lab cannot do what it was asked; the message is one sentence for the person who asked."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process as the kernel sees it; `started` tells it from a later process of the same number."""

    pid: int
    parent: int
    started: int
    zombie: bool


# --- looking ---------------------------------------------------------------------------------------------------------


def look(pid: int) -> Running | None:
    """The process of this number, or None if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = text[text.rindex(")") + 2 :].split()  # the command's name may hold blanks and brackets
    return Running(pid, int(words[1]), int(words[19]), words[0] in "ZX")


def everything() -> dict[int, Running]:
    """All processes, by number."""
    seen = (look(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {process.pid: process for process in seen if process and not process.zombie}


def descendants(roots: Iterable[int], table: Mapping[int, Running] | None = None) -> list[Running]:
    """The children of `roots`, their children, and so on; not the roots themselves."""
    table = everything() if table is None else table
    children: dict[int, list[Running]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Running] = []
    queue = list(roots)
    while queue:
        born = children.pop(queue.pop(), [])
        found += born
        queue += [process.pid for process in born]
    return found


def works_in(pid: int) -> str:
    """The working directory of a process; empty if it is gone or not ours to see."""
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/cwd").readlink())
    return ""


def runs(pid: int) -> str:
    """The program file of a process; empty if it is gone or not ours to see."""
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/exe").readlink())
    return ""


def environment(pid: int) -> frozenset[str]:
    """NAME=value of a process as it was started; empty if it is gone or not ours to see."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        return frozenset(text.split("\0"))
    return frozenset()


def alive(process: Running) -> bool:
    """True while this very process lives; a zombie does not."""
    now = look(process.pid)
    return now is not None and now.started == process.started and not now.zombie


def wait_until(holds: Callable[[], bool], seconds: float, every: float = 0.02) -> bool:
    """True as soon as `holds` does; False if it still does not after `seconds`."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(every)
    return True


def last_lines(log: Path, count: int = 5) -> str:
    """The end of a log file on one line, for a sentence about what went wrong."""
    with suppress(OSError):
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " | ".join(lines[-count:])
    return ""


# --- starting --------------------------------------------------------------------------------------------------------


def start(
    argv: Sequence[object],
    *,
    log: Path,
    cwd: Path,
    env: Mapping[str, str],
    orphaned: signal.Signals = signal.SIGKILL,
) -> subprocess.Popen[bytes]:
    """The started child. It gets `orphaned` when the *thread* that called this ends: call from a lasting one."""
    parent = os.getpid()

    def prepare() -> None:
        # Programs started by slurmctld inherit a full mask of blocked signals, SIGTERM included, which outlives exec.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _libc.prctl(PR_SET_PDEATHSIG, int(orphaned))
        if os.getppid() != parent:  # it died before we asked to be told
            os._exit(1)

    with log.open("ab") as out:
        return subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - nothing else asks the kernel for this between fork and exec
        )


def adopt_orphans() -> None:
    """From now on, descendants of this process whose parent ends become its children: none gets out of sight."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)


# --- ending ----------------------------------------------------------------------------------------------------------


def send(process: Running, number: signal.Signals) -> None:
    """Send a signal to this very process, if it still lives."""
    if alive(process):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def end(processes: Iterable[Running], *, grace_s: float = 1.5, kill_s: float = 2.0) -> list[Running]:
    """End them all, politely first; what outlives even SIGKILL comes back."""

    def left() -> list[Running]:
        return [process for process in ours if alive(process)]

    ours = list(processes)
    for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, kill_s)):
        for process in left() if seconds else ():
            send(process, number)
        wait_until(lambda: not left(), seconds)
    return left()


def end_child(child: subprocess.Popen[bytes], *, grace_s: float = 1.5) -> None:
    """End one child and take its exit status."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
    with suppress(subprocess.TimeoutExpired):
        child.wait(5)
