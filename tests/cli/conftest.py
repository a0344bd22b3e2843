from __future__ import annotations

from collections.abc import Iterator

import pytest

from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from tests.cli.program import Program


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    times = Times(pending_s=0.1, stopping_s=0.1, ending_s=0.1)
    with Lab(tmp_path_factory.mktemp("lab"), boot_s=(0.2, 0.5), times=times) as one:
        yield one


@pytest.fixture
def cm_scale(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(lab, monkeypatch)
