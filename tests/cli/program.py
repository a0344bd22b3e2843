"""How the tests of the command line call it, and how its reference is read."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from cmscale.cli import cm_scale
from cmscale.lab.lab import Lab

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


@dataclass(frozen=True, slots=True)
class Said:
    status: int
    out: str
    err: str

    @property
    def problems(self) -> list[str]:
        return [line.removeprefix("cm-scale: ") for line in self.err.splitlines()]


Say = Callable[..., Said]


def saying(*begin: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Say:
    """Calls cm-scale in this process as the shell does, each time with these first words and some more."""

    def say(*argv: object) -> Said:
        monkeypatch.setattr("sys.argv", ["cm-scale", *map(str, (*begin, *argv))])
        status = 0
        try:
            cm_scale.main()
        except SystemExit as end:
            status = int(end.code or 0)
        return Said(status, *capfd.readouterr())

    return say


class Program:
    """cm-scale in the environment of a lab, called in this process: a hundred calls in a few seconds."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lab = lab
        self._patch = monkeypatch
        self.environment(lab.env)

    def environment(self, env: Mapping[str, str | None]) -> None:
        for name in [name for name in os.environ if name.startswith(("AWS_", "SLURM"))]:
            if name not in env:
                self._patch.delenv(name)
        for name, value in env.items():
            if value is None:
                self._patch.delenv(name, raising=False)
            else:
                self._patch.setenv(name, value)

    def __call__(self, *argv: str | Path) -> Said:
        self._patch.setattr(sys, "argv", ["cm-scale", *map(str, argv)])
        out, err = io.StringIO(), io.StringIO()
        status = 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                cm_scale.main()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(bool(end.code))
        return Said(status, out.getvalue(), err.getvalue())

    def apart(self, *argv: str | Path) -> Said:
        """The same in a process of its own, for what takes hold of signals."""
        done = subprocess.run(self.argv(*argv), env=self.env, capture_output=True, text=True, timeout=60)
        return Said(done.returncode, done.stdout, done.stderr)

    def argv(self, *argv: str | Path) -> list[str]:
        return [sys.executable, "-m", "cmscale.cli.cm_scale", *map(str, argv)]

    @property
    def env(self) -> dict[str, str]:
        """What a process of its own is given."""
        return {**self.lab.env, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}


def section(command: str) -> str:
    """What the reference says about a command."""
    text = REFERENCE.read_text(encoding="utf-8")
    found = re.search(rf"^### `cm-scale {command}.*?`\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference.md has no section on cm-scale {command}"
    return found[1]


def documented_keys(command: str, of: str = "") -> set[str]:
    """The keys of a command's JSON object, or of one of the objects in it."""
    begin = f"- `{of}`: " if of else "JSON: "
    lines = [line for line in section(command).splitlines() if line.startswith(begin)]
    assert len(lines) == 1, f"docs/reference.md, {command}: no line begins with {begin}"
    return set(re.findall(r"`(\w+)`", lines[0].removeprefix(begin)))
