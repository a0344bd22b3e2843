"""How does the site's own script run before a node's machine is started or given back?

One process for each node, in a session of its own, so that it can be ended with all its children. Its environment tells
what it runs for; what it writes is logged, and the sentence that tells its failure ends with its last line.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

from cmscale.model import JobId, NodeName, PoolName, SiteName

log = logging.getLogger(__name__)

LAST_BYTES = 16 * 1024
"""How much of what a script wrote is read."""

LONGEST_LINE = 200


class Kind(Enum):
    PROLOG = "prolog"
    EPILOG = "epilog"


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of one pool."""

    prolog: Path | None = None
    """Runs before a machine is started; if it fails, the machine is not."""
    epilog: Path | None = None
    """Runs before a machine is given back; its failure is only told."""
    limit_s: float = 10.0

    def of(self, kind: Kind) -> Path | None:
        return self.prolog if kind is Kind.PROLOG else self.epilog


@dataclass(frozen=True, slots=True)
class Call:
    """What a script is called for."""

    kind: Kind
    node: NodeName
    pool: PoolName
    site: SiteName
    job: JobId | None = None
    cluster: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {
            "CMSCALE_CLUSTER": self.cluster,
            "CMSCALE_SITE": self.site,
            "CMSCALE_POOL": self.pool,
            "CMSCALE_NODE": self.node,
            "CMSCALE_JOB": self.job or "",
            "CMSCALE_SCRIPT": self.kind.value,
            # Names that scripts written for another manager's auto scaling may read.
            "AS_NODE": self.node,
            "AS_SCRIPT_TYPE": self.kind.value,
            "AS_RESOURCE_PROVIDER": self.pool,
            "AS_ENGINE": "slurm" if self.job else "unknown",
        }


def run_script(path: Path, call: Call, limit_s: float) -> str:
    """Why the script failed, in one sentence; empty if it did not. Ends it with its children past the limit."""
    # A file takes what a child writes that outlives the script; a pipe would make us wait for that child.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                [path],
                env={**os.environ, **call.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"the {call.kind.value} {path} can't be run for {call.node} ({error.strerror})"
        failure = _ended(process, limit_s)
        said = _last(output)
    for line in said:
        log.debug("%s %s for %s: %s", call.kind.value, path, call.node, line)
    return f"the {call.kind.value} {path} {failure} for {call.node}{_quoted(said)}" if failure else ""


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> str:
    """How it ended, if not well."""
    try:
        status = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"was ended after its limit of {limit_s:g} s"
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended with status {status}" if status else ""


def _last(output: IO[bytes]) -> list[str]:
    output.seek(max(output.seek(0, os.SEEK_END) - LAST_BYTES, 0))
    text = output.read().decode(errors="replace")
    return [line for line in map(str.strip, text.splitlines()) if line]


def _quoted(said: list[str]) -> str:
    return f": {said[-1][:LONGEST_LINE]}" if said else ""
