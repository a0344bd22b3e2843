"""Is Slurm read by PySlurm or by its commands, and why?

PySlurm is taken if it, the libslurm it was built with and slurmctld are of one release. Whether it fits is found out
again whenever its process is started, so a Slurm that was upgraded meanwhile is noticed. A PySlurm that breaks costs
no more than its speed: the commands read for a while, then it gets another try.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cmscale.adapters.slurm.pyslurm.process import Broken, Missing, PyslurmProcess
from cmscale.ports import Backend, Misconfigured, Unavailable

log = logging.getLogger(__name__)

OLDEST, NEWEST = (22, 5), (25, 11)

NEEDED = {"job_fields": {"JobID", "ExcNodes"}, "node_fields": {"NodeList", "Partition"}}
"""What the commands cannot add; everything else they can."""


class Unfit(Exception):
    """This PySlurm is not for this Slurm."""


@dataclass(frozen=True, slots=True)
class Pyslurm:
    """A PySlurm that fits, and what it knows."""

    process: PyslurmProcess
    why: str
    job_fields: frozenset[str]
    node_fields: frozenset[str]


def fitting(python: str, start: Callable[[], PyslurmProcess], running: Callable[[], str]) -> Pyslurm:
    """The PySlurm of this Python, if it is for the Slurm that runs. Raises Missing, Unfit, Broken, Unavailable."""
    nowhere = f"PySlurm cannot be imported by {python}"
    if python == sys.executable and importlib.util.find_spec("pyslurm") is None:
        raise Missing(nowhere)  # most often so, and told without a process
    slurmctld = running()
    process = start()
    try:
        about = process.ask("about")
    except Missing as error:
        raise Missing(f"{nowhere} ({error})") from None
    try:
        why = _fits(about, slurmctld)
    except Unfit:
        process.close()
        raise
    return Pyslurm(process, why, frozenset(about["job_fields"]), frozenset(about["node_fields"]))


def _fits(about: Mapping[str, Any], slurmctld: str) -> str:
    version: str = about["version"]
    built_for: Sequence[int] = about["slurm"]
    release, running = _release(version), _release(slurmctld)
    if not OLDEST <= release <= NEWEST:
        raise Unfit(f"PySlurm {version} is installed, of which cm-scale knows the releases 22.5 to 25.11")
    if release != tuple(built_for):
        raise Unfit(f"PySlurm {version} was built for Slurm {'.'.join(map(str, built_for))}")
    if release != running:
        raise Unfit(f"PySlurm {version} is installed, and slurmctld is {slurmctld or 'of a release it does not tell'}")
    for which, needed in NEEDED.items():
        if lacking := needed.difference(about[which]):
            raise Unfit(f"PySlurm {version} does not tell {', '.join(sorted(lacking))}")
    return f"PySlurm {version} and slurmctld {slurmctld} are of one release"


def _release(version: str) -> tuple[int, int]:
    """Of "22.05.8" and of "22.5.3" it is (22, 5)."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


class Choice:
    """Which of the two is used now."""

    def __init__(self, find: Callable[[], Pyslurm], *, insist: bool, rest_s: float) -> None:
        """With `insist` it is PySlurm or nothing."""
        self._find = find
        self._insist = insist
        self._rest_s = rest_s
        self._one_at_a_time = threading.Lock()
        self._pyslurm: Pyslurm | None = None
        self._why_not = ""
        self._try_again_at: float | None = None

    def backend(self) -> Backend:
        """Raises as `pyslurm` does."""
        pyslurm = self.pyslurm()
        return Backend("pyslurm", pyslurm.why) if pyslurm else Backend("commands", self._why_not)

    def pyslurm(self) -> Pyslurm | None:
        """The PySlurm to ask; None: the commands are to be used. Raises Unavailable if that can't be found out."""
        with self._one_at_a_time:
            resting = self._why_not and (self._try_again_at is None or time.monotonic() < self._try_again_at)
            if self._pyslurm is None and not resting:
                self._choose()
            return self._pyslurm

    def _choose(self) -> None:
        try:
            self._pyslurm, self._why_not, self._try_again_at = self._find(), "", None
        except (Missing, Unfit) as error:
            if self._insist:
                raise Misconfigured(
                    f'slurm.backend is "pyslurm", but {error}; install the PySlurm that was built for this Slurm, '
                    'or set backend = "auto" under [slurm]'
                ) from None
            self._why_not, self._try_again_at = str(error), None
        except Broken as error:
            self._rest(error)

    def broke(self, error: Broken) -> None:
        """PySlurm did not work."""
        with self._one_at_a_time:
            self._pyslurm = None
            self._rest(error)

    def _rest(self, error: Broken) -> None:
        if self._insist:
            raise Unavailable(str(error)) from None
        self._why_not = f"{error}; it is tried again after {self._rest_s / 60:g} min"
        self._try_again_at = time.monotonic() + self._rest_s
        log.warning("%s; until then Slurm's commands are used", self._why_not)

    def ask_anew(self) -> None:
        """slurmctld did not answer: it may come back as another release."""
        with self._one_at_a_time:
            self._pyslurm, self._why_not, self._try_again_at = None, "", None
