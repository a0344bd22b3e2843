"""Who keeps a lab while its user's shell goes on, and how is it brought up, asked after and ended from there?

`up` starts this module as a process of its own, which holds a `Lab` until it gets SIGTERM. Who it is stands in the
lab's directory; a state file whose process is gone is nobody's, and is cleared away.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from cmscale.lab.lab import MARKER, Lab, end_leftovers, take_lock
from cmscale.lab.processes import (
    LabError,
    Running,
    alive,
    descendants,
    end,
    end_child,
    look,
    wait_until,
)
from cmscale.lab.slurm import Home

UP_S = 60.0
DOWN_S = 20.0


@dataclass(frozen=True, slots=True)
class LabInfo:
    """A lab that is up."""

    directory: str
    pid: int
    started: int
    slurm_conf: str
    config: str
    endpoint: str
    env_file: str
    already: bool = False
    """It was up before."""

    @property
    def text(self) -> str:
        return (
            f"The lab in {self.directory} {'was up already' if self.already else 'is up'} (process {self.pid}).\n"
            f"  Slurm:    {self.slurm_conf}\n"
            f"  cm-scale: {self.config}\n"
            f"  EC2:      {self.endpoint}\n"
            f"Next: . {self.env_file}"
        )


@dataclass(frozen=True, slots=True)
class LabEnd:
    """How a lab was ended."""

    directory: str
    was_up: bool
    processes: int
    """How many were ended."""
    left: tuple[int, ...] = ()
    """Those that would not end."""

    @property
    def text(self) -> str:
        if self.left:
            return f"These processes of the lab in {self.directory} do not end: {', '.join(map(str, self.left))}."
        if not self.was_up:
            swept = f"; {self.processes} processes of an earlier one were ended" if self.processes else ""
            return f"No lab was up in {self.directory}{swept}."
        return f"The lab in {self.directory} is down; {self.processes} processes ended."


@dataclass(frozen=True, slots=True)
class LabStatus:
    """Whether a lab is up."""

    directory: str
    info: LabInfo | None = None
    processes: int = 0

    @property
    def text(self) -> str:
        if self.info is None:
            return f"No lab is up in {self.directory}.\nNext: cm-scale lab up"
        return f"{self.info.text}\n{self.processes} processes"


def default_directory() -> Path:
    """Where a lab is if nothing else is said."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "cm-scale" / "lab"


def up(directory: Path | None = None, *, home: int = 2) -> LabInfo:
    """The lab in this directory, brought up if it was not; raises LabError."""
    folder = (directory or default_directory()).absolute()
    info = _read(folder)
    if info:
        return LabInfo(**{**asdict(info), "already": True})
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "cmscale.lab.supervisor", "--dir", str(folder), "--home", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        ready = wait_until(lambda: _read(folder) is not None or child.poll() is not None, UP_S, every=0.05)
        info = _read(folder)
        if info:
            child.returncode = 0  # it lives on, and is no concern of this process any more
            return info
        if not ready:
            end_child(child, grace_s=DOWN_S)
        out.seek(0)
        said = out.read().decode(errors="replace").strip().splitlines()
    raise LabError(said[-1] if said else f"The lab in {folder} did not come up within {UP_S:g} s.")


def down(directory: Path | None = None) -> LabEnd:
    """End the lab in this directory, and make sure that nothing of it is left; raises LabError if another holds it."""
    folder = (directory or default_directory()).absolute()
    info = _read(folder)
    keeper = look(info.pid) if info else None
    processes = [keeper, *descendants([keeper.pid])] if keeper else []
    end(processes[:1], grace_s=DOWN_S)  # it ends the others, in order
    left = end(processes, grace_s=0)
    swept = 0
    if (folder / MARKER).exists():
        with take_lock(folder):
            swept = end_leftovers(folder)
            (folder / "lab.json").unlink(missing_ok=True)
    return LabEnd(str(folder), info is not None, len(processes) + swept, tuple(each.pid for each in left))


def status(directory: Path | None = None) -> LabStatus:
    """Whether a lab is up in this directory."""
    folder = (directory or default_directory()).absolute()
    info = _read(folder)
    return LabStatus(str(folder), info, 1 + len(descendants([info.pid])) if info else 0)


def _read(folder: Path) -> LabInfo | None:
    """The lab that is up in a folder; a state file that outlived its process counts as none."""
    try:
        info = LabInfo(**json.loads((folder / "lab.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return info if alive(Running(info.pid, 0, info.started, zombie=False)) else None


# --- the keeper ------------------------------------------------------------------------------------------------------


class _Ended(Exception):
    """We are asked to end."""


def _told_to_end(number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # once is enough; ending must not be cut short
    raise _Ended(number)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cmscale.lab.supervisor", description="Hold a lab until SIGTERM")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--home", type=int, default=2, help="how many on-premises nodes")
    given = parser.parse_args(argv)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _told_to_end)
    me = look(os.getpid())
    try:
        with Lab(given.dir, home=Home(given.home)) as lab:
            info = LabInfo(
                directory=str(lab.directory),
                pid=os.getpid(),
                started=me.started if me else 0,
                slurm_conf=str(lab.slurm_conf),
                config=str(lab.config),
                endpoint=lab.endpoint,
                env_file=str(lab.directory / "env.sh"),
            )
            draft = lab.directory / "lab.json.new"
            draft.write_text(json.dumps(asdict(info)), encoding="utf-8")
            draft.rename(lab.directory / "lab.json")
            while True:
                signal.pause()
    except _Ended:
        (given.dir / "lab.json").unlink(missing_ok=True)
    except LabError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
