"""A PySlurm for tests: what a real one of 22.5.3 told, in the shape of any release, beside what the commands told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from cmscale.adapters.slurm.pyslurm.scheduler import SlurmByPyslurm
from cmscale.adapters.slurm.records import SINFO_FIELDS, SQUEUE_FIELDS
from tests.adapters.slurm.recording import shown

HERE = Path(__file__).parent
STANDIN = HERE / "standin"
"""A folder for PYTHONPATH."""

BOTH: dict[str, Any] = json.loads((HERE / "recorded/pyslurm/22.5.3.json").read_text())
"""`jobs` and `nodes` as PySlurm told them, and `squeue`, `excluded`, `sinfo` (by -N) and `sinfo_alike` (without) of the
same moment."""

ATTRIBUTES: dict[str, dict[str, list[str]]] = {
    release: {kind: names.split() for kind, names in kinds.items()}
    for release, kinds in json.loads((HERE / "recorded/pyslurm/attributes.json").read_text()).items()
}
"""What Job and Node have in each release."""

MakePyslurm = Callable[..., dict[str, str]]


def told(version: str = "22.5.3", **changes: Any) -> dict[str, Any]:
    """What STANDIN is to be."""
    slurm = [int(part) for part in version.split(".")]
    same = {key: BOTH[key] for key in ("jobs", "nodes")}
    return {"version": version, "slurm": slurm, "attributes": ATTRIBUTES[version], **same, **changes}


class Recorded(SlurmByPyslurm):
    """Beside PySlurm it has the recorded answers of Slurm's commands."""

    def __init__(self, environment: dict[str, str], slurmctld: str = "22.05.8", **options: Any) -> None:
        super().__init__(**options)
        self._given = environment
        self.slurmctld = slurmctld
        self.asked: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
        """Of squeue and sinfo: the command, its options, the fields."""

    def environment(self) -> dict[str, str]:
        return self._given

    def settings(self) -> dict[str, str]:
        return {"SLURM_VERSION": self.slurmctld, "SelectTypeParameters": "CR_CORE_MEMORY"}

    @contextmanager
    def _listed(self, command: str, options: Sequence[str], wanted: str) -> Iterator[Iterator[str]]:
        parts = re.split(r":0([\x1d\x1f]),", wanted)
        fields, between = parts[::2], parts[1::2]
        self.asked.append((command, tuple(options), tuple(fields)))
        known: Sequence[str]
        if command == "squeue":
            known, rows = SQUEUE_FIELDS, BOTH["squeue"]
        elif set(fields) <= {"NodeList", "Gres", "GresUsed"}:
            known, rows = ("NodeList", "Gres", "GresUsed"), BOTH["sinfo_alike"]
        else:
            known, rows = SINFO_FIELDS, BOTH["sinfo"]
        at = [known.index(field) for field in fields]
        yield ("".join(chain(*zip((row[each] for each in at), [*between, ""], strict=True))) for row in rows)

    def _ask(self, command: str, *words: str) -> str:
        if (command, *words[:3]) != ("scontrol", "-a", "show", "nodes"):
            raise AssertionError(f"nothing is recorded of {command} {words}")
        return shown(BOTH["sinfo"])

    def _excluded(self) -> dict[str, str]:
        excluded: dict[str, str] = BOTH["excluded"]
        return excluded
