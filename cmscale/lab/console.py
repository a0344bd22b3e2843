"""What did a machine of the lab write to its console?

The booter writes it, the EC2 double reads it: a machine that never joined can then be explained.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

KEPT = 64 * 1024
"""EC2 keeps the last 64 KiB."""


def log_of(directory: Path, instance: str) -> Path:
    """The file that holds all an instance wrote."""
    return directory / "log" / f"console-{instance}.out"


def write(directory: Path, instance: str, line: str) -> None:
    with log_of(directory, instance).open("a", encoding="utf-8") as log:
        log.write(f"{line}\n")


def kept(directory: Path, instance: str) -> bytes:
    """What EC2 would still have of it; nothing before the machine wrote anything."""
    with suppress(OSError):
        return log_of(directory, instance).read_bytes()[-KEPT:]
    return b""
