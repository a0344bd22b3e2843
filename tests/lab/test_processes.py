"""Processes of the lab are started with a clean slate and come to an end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from cmscale.lab.ports import Ports
from cmscale.lab.processes import alive, descendants, end, end_child, look, start, wait_until


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    child = start(
        ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"],
        log=tmp_path / "log",
        cwd=tmp_path,
        env=os.environ,
    )
    process = look(child.pid)
    assert process
    assert wait_until(lambda: "ready" in (tmp_path / "log").read_text(), 5)
    assert end([process], grace_s=0.3) == []
    assert child.wait(5) == -signal.SIGKILL


def test_a_child_gets_its_signals_though_we_block_ours(tmp_path: Path) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = start(["sleep", "60"], log=tmp_path / "log", cwd=tmp_path, env=os.environ)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    began = time.monotonic()
    end_child(child, grace_s=5)
    assert child.returncode == -signal.SIGTERM
    assert time.monotonic() - began < 4


def test_children_of_children_are_found(tmp_path: Path) -> None:
    child = start(["sh", "-c", "sleep 60 & sleep 60"], log=tmp_path / "log", cwd=tmp_path, env=os.environ)
    assert wait_until(lambda: len(descendants([child.pid])) == 2, 5)
    sleepers = descendants([child.pid])
    assert end(sleepers) == []
    end_child(child)


def test_a_number_used_again_is_another_process(tmp_path: Path) -> None:
    me = look(os.getpid())
    assert me
    assert alive(me)
    assert not alive(type(me)(me.pid, me.parent, me.started - 1, zombie=False))


def test_two_labs_never_get_the_same_port() -> None:
    one, other = Ports(), Ports()
    try:
        mine, theirs = one.take(40), other.take(40)
        assert not set(mine) & set(theirs)
        one.close()
        # Another lab on this machine may give lower ports back in between, so the first free ones need not be these.
        assert any(other.take(1)[0] in mine for _ in range(100))
    finally:
        one.close()
        other.close()
