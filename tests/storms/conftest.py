"""One EC2 for all storms, each storm once, and what they cost at the end of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.storms.storms import Forecast
from tests.storms.table import rows
from tests.storms.weather import ENVIRONMENT, Double, Storm, Toll, double

Blow = Callable[[Forecast], tuple[Storm, Toll]]

_blown: dict[str, tuple[Forecast, Storm, Toll]] = {}


@pytest.fixture(scope="session")
def ec2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with pytest.MonkeyPatch.context() as patch, double(tmp_path_factory.mktemp("ec2")) as running:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def blow(ec2: Double, tmp_path_factory: pytest.TempPathFactory) -> Blow:
    """A storm after it has blown; it does so once, whoever looks at it."""

    def once(forecast: Forecast) -> tuple[Storm, Toll]:
        if forecast.name not in _blown:
            storm = forecast.storm(ec2, tmp_path_factory.mktemp("storm"))
            _blown[forecast.name] = forecast, storm, storm.blow()
        return _blown[forecast.name][1:]

    return once


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _blown:
        terminalreporter.section("storms")
        for row in rows((forecast, toll) for forecast, _, toll in _blown.values()):
            terminalreporter.write_line(row)
