"""An EC2 double for the tests of this folder: one process for all, as good as new for each."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pytest

from cmscale.lab.processes import end_child, start, wait_until
from tests.lab.double import TIMES, Double


@pytest.fixture(scope="session")
def double_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    directory = tmp_path_factory.mktemp("ec2")
    child = start(
        [sys.executable, "-m", "cmscale.lab.ec2", "--dir", directory, "--times", json.dumps(TIMES)],
        log=directory / "ec2.log",
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert wait_until((directory / "ec2.json").exists, 20), (directory / "ec2.log").read_text()
        double = Double(directory)
        yield double
        double.close()
    finally:
        end_child(child)


@pytest.fixture
def double(double_for_all: Double) -> Iterator[Double]:
    yield double_for_all
    double_for_all.control.clear_faults()
    double_for_all.control.set_rates()
    for region in double_for_all.regions:
        left = [each["id"] for each in double_for_all.control.instances() if each["region"] == region]
        if left:
            double_for_all.client(region).terminate_instances(InstanceIds=left)
    double_for_all.control.set_times(ending_s=0, forget_s=0)
    assert double_for_all.control.instances() == []
    double_for_all.control.set_times(**TIMES, tags_unseen_s=0, checks_s=0)
    seen = double_for_all.control.ask("GET", "capacity")
    double_for_all.control.set_capacity(dict.fromkeys(seen["capacity"]))
    double_for_all.control.set_limits(dict.fromkeys(seen["limits"]))
    double_for_all.control.set_prices(dict.fromkeys(seen["prices"]))
