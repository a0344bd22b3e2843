from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.slurm.pyslurms import STANDIN, told

Standin = Callable[..., dict[str, str]]


@pytest.fixture
def standin(tmp_path: Path) -> Standin:
    """The environment of a process that finds a PySlurm of this version, which does as it is told."""
    path = tmp_path / "standin.json"

    def be(version: str = "22.5.3", **changes: Any) -> dict[str, str]:
        path.write_text(json.dumps(told(version, **changes)))
        return {**os.environ, "PYTHONPATH": str(STANDIN), "STANDIN": str(path)}

    return be
