"""What systemd is told, and what it is told to do with us: the shipped unit."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cmscale.shell import systemd
from cmscale.shell.shipped import share_dir

UNITS = sorted((share_dir("etc") / "systemd").glob("*.service"))
MOST_EXPOSED = 20
"""systemd's own measure, 0 to 100; it calls up to 49 "OK"."""


@pytest.fixture(params=["a path", "an abstract name"])
def told(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket on which systemd would listen."""
    address = str(tmp_path / "notify") if request.param == "a path" else f"@cm-scale-test-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0", 1))
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield listening


def test_systemd_is_told_what_it_understands(told: socket.socket) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    systemd.ready("acting:\n3 machines")
    systemd.alive()
    systemd.doing("acting")
    systemd.reloading()
    systemd.stopping()
    heard = [told.recv(4096).decode() for _ in range(5)]
    assert heard[:3] == ["READY=1\nSTATUS=acting: 3 machines", "WATCHDOG=1", "STATUS=acting"]
    assert heard[4] == "STOPPING=1"
    found = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", heard[3])
    assert found
    assert before <= int(found[1]) <= before + 60_000_000


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "/nowhere/notify"])
def test_without_somebody_who_listens_nothing_happens(address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd.alive()


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    assert program, "systemd-analyze is missing: make setup installs it"
    return subprocess.run([program, "--no-pager", *words], capture_output=True, text=True, timeout=60)


def test_units_are_shipped() -> None:
    assert "cm-scale.service" in {unit.name for unit in UNITS}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path) -> None:
    said = analyze("verify", "--man=no", unit)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_hardened(unit: Path) -> None:
    said = analyze("security", "--offline=yes", f"--threshold={MOST_EXPOSED}", unit)
    assert said.returncode == 0, said.stdout
    text = unit.read_text(encoding="utf-8")
    for line in ("NoNewPrivileges=yes", "PrivateTmp=yes", "ProtectSystem=strict", "CapabilityBoundingSet=\n"):
        assert f"\n{line}" in text


def test_the_watchdog_waits_longer_than_the_longest_tick() -> None:
    text = (share_dir("etc") / "systemd" / "cm-scale.service").read_text(encoding="utf-8")
    assert "Type=notify" in text
    assert "WatchdogSec=5min" in text
    assert "ExecReload=/bin/kill -HUP $MAINPID" in text
    assert "Restart=on-failure" in text
