"""Lines of the log: for people, for programs, for journald; each says what it is about."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from cmscale.shell import logs
from cmscale.shell.logs import LogFormat


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TextIO]:
    """A file to which this test logs."""
    root = logging.getLogger()
    level = root.level
    with (tmp_path / "log").open("w+", encoding="utf-8") as file:
        yield file
        root.handlers[:] = [each for each in root.handlers if getattr(each, "stream", None) is not file]
        root.setLevel(level)


def lines(stream: TextIO) -> list[str]:
    stream.flush()
    stream.seek(0)
    return stream.read().splitlines()


def log_something() -> None:
    log = logging.getLogger("cmscale.test")
    log.warning("site %s does not answer", "east")
    with logs.about(tick="t-17"):
        log.log(logs.NOTICE, "looked")
        with logs.about(operation="o-3"):
            try:
                {}["LaunchTime"]  # type: ignore[index]
            except KeyError:
                log.exception("start t4-1 broke off")
        log.warning("again")


def test_a_line_for_people_has_the_time_the_level_and_what_it_is_about(stream: TextIO) -> None:
    logs.to(stream, LogFormat.TEXT, logging.INFO)
    log_something()
    first, second, third, *trace, last = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d WARNING site east does not answer", first)
    assert second.endswith(" NOTICE looked [tick t-17]")
    assert third.endswith(" ERROR start t4-1 broke off [tick t-17, operation o-3]")
    assert trace[-1] == "KeyError: 'LaunchTime'"
    assert last.endswith(" WARNING again [tick t-17]")


def test_a_line_for_programs_is_one_object(stream: TextIO) -> None:
    logs.to(stream, LogFormat.JSON, logging.INFO)
    log_something()
    told = [json.loads(line) for line in lines(stream)]
    assert [each["level"] for each in told] == ["warning", "notice", "error", "warning"]
    assert [each.get("tick") for each in told] == [None, "t-17", "t-17", "t-17"]
    assert [each.get("operation") for each in told] == [None, None, "o-3", None]
    assert told[0].keys() == {"at", "level", "logger", "message"}
    assert told[2]["trace"].endswith("KeyError: 'LaunchTime'")


def test_journald_is_told_how_grave_every_line_is_and_has_the_time_itself(
    stream: TextIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = os.fstat(stream.fileno())
    monkeypatch.setenv("JOURNAL_STREAM", f"{at.st_dev}:{at.st_ino}")
    logs.to(stream, LogFormat.TEXT, logging.INFO)
    log_something()
    said = lines(stream)
    assert said[:2] == ["<4>site east does not answer", "<5>looked [tick t-17]"]
    assert {line[:3] for line in said[2:-1]} == {"<3>"}


def test_libraries_of_clouds_are_silent_unless_they_warn(stream: TextIO) -> None:
    logs.to(stream, LogFormat.TEXT, logging.INFO)
    logging.getLogger("botocore.credentials").info("Found credentials in environment variables.")
    logging.getLogger("botocore.retries").warning("retrying")
    assert [line.endswith("retrying") for line in lines(stream)] == [True]
