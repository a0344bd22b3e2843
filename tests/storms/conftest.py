"""One EC2 for all storms, and each storm once. What they cost is told at the end of the run, see tests/conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.storms.storms import Forecast
from tests.storms.table import STORM, row
from tests.storms.weather import ENVIRONMENT, Double, Storm, Toll, double

Blow = Callable[[Forecast], tuple[Storm, Toll]]

_blown: dict[str, tuple[Storm, Toll]] = {}


@pytest.fixture(scope="session")
def ec2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with pytest.MonkeyPatch.context() as patch, double(tmp_path_factory.mktemp("ec2")) as running:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def blow(ec2: Double, tmp_path_factory: pytest.TempPathFactory, record_property: Callable[[str, object], None]) -> Blow:
    """A storm after it has blown; it does so once, whoever looks at it."""

    def once(forecast: Forecast) -> tuple[Storm, Toll]:
        if forecast.name not in _blown:
            storm = forecast.storm(ec2, tmp_path_factory.mktemp("storm"))
            _blown[forecast.name] = storm, storm.blow()
            record_property(STORM, row(forecast, _blown[forecast.name][1]))
        return _blown[forecast.name]

    return once
