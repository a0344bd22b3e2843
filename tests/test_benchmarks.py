"""Every benchmark runs, and each of its rows says what was measured and what it is to be held against."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.name != "rows.py")


def rows(benchmark: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, benchmark, "--quick", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda path: path.stem)
def test_each_row_has_a_name_a_value_a_unit_and_what_it_is_held_against(benchmark: Path) -> None:
    told = [json.loads(line) for line in rows(benchmark, "--json").splitlines()]
    assert told
    for row in told:
        assert set(row) == {"name", "value", "unit", "against"}
        assert isinstance(row["value"], int | float)
        assert all(isinstance(row[key], str) and row[key] for key in ("name", "unit", "against"))
    assert len({row["name"] for row in told}) == len(told)


def test_without_json_the_rows_are_lines_for_people() -> None:
    lines = rows(ROOT / "benchmarks" / "decide.py").splitlines()
    assert lines
    assert all(" against " in line for line in lines)
