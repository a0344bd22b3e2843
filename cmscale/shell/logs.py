"""How does a log line look, and which tick and operation is it of?

Lines for people, or one JSON object a line for programs; for journald each line begins with its priority.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import TextIO

TICK: ContextVar[str] = ContextVar("tick", default="")
OPERATION: ContextVar[str] = ContextVar("operation", default="")

NOTICE = logging.WARNING + 5
"""What is no trouble and told all the same."""

PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, NOTICE: 5, logging.INFO: 6, logging.DEBUG: 7}
"""Those of syslog, which journald reads at the beginning of a line."""


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


@contextmanager
def about(*, tick: str = "", operation: str = "") -> Iterator[None]:
    """What is logged here is of this tick, of this operation."""
    tokens = [(variable, variable.set(name)) for variable, name in ((TICK, tick), (OPERATION, operation)) if name]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


def to(stream: TextIO, form: LogFormat, level: int) -> None:
    """Log from this level on to the stream; libraries of clouds only what they warn of."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(AsJson() if form is LogFormat.JSON else AsText(for_journald=_is_journald(stream)))
    logging.addLevelName(NOTICE, "NOTICE")
    root = logging.getLogger()
    for before in [each for each in root.handlers if isinstance(each.formatter, AsText | AsJson)]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(level)
    for library in ("botocore", "urllib3", "azure"):
        logging.getLogger(library).setLevel(max(level, logging.WARNING))


def _is_journald(stream: TextIO) -> bool:
    """True if the stream is the one that systemd says it has connected to its journal."""
    try:
        about_it = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{about_it.st_dev}:{about_it.st_ino}"


class AsText(logging.Formatter):
    """2026-11-21T22:05:25 WARNING site east does not answer [tick 20261121T220501-3fa2c1-17]."""

    def __init__(self, *, for_journald: bool = False) -> None:
        # journald has the time and shows it; more lines than one become records of their own there.
        form = "%(message)s" if for_journald else "%(asctime)s %(levelname)s %(message)s"
        super().__init__(form, "%Y-%m-%dT%H:%M:%S")
        self._for_journald = for_journald

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        names = [f"{what} {name}" for what, name in (("tick", TICK.get()), ("operation", OPERATION.get())) if name]
        return super().formatMessage(record) + (f" [{', '.join(names)}]" if names else "")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if not self._for_journald:
            return text
        return "\n".join(f"<{PRIORITIES.get(record.levelno, 6)}>{line}" for line in text.splitlines())


class AsJson(logging.Formatter):
    """One object: `at`, `level`, `logger`, `message`; `tick`, `operation` and `trace` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "at": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "tick": TICK.get(),
            "operation": OPERATION.get(),
            "trace": self.formatException(record.exc_info) if record.exc_info else "",
        }
        kept = {"at", "level", "logger", "message"}
        return json.dumps({key: value for key, value in told.items() if value or key in kept}, ensure_ascii=False)


def to_standard_error(form: LogFormat, *, verbose: bool) -> None:
    to(sys.stderr, form, logging.INFO if verbose else logging.WARNING)
