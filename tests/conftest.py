"""What holds in every test."""

from __future__ import annotations

from itertools import count

import pytest

from cmscale.shell import decisions


@pytest.fixture(autouse=True)
def _writing_a_snapshot_takes_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which ticks are kept hangs on what writing one takes: a busy machine would keep others than the test wrote."""
    moments = count()
    monkeypatch.setattr(decisions, "perf_counter", lambda: next(moments) * 1e-5)
