"""docs/storms.md tells of every storm, as it is announced."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storms.storms import STORMS, Forecast

PAGE = (Path(__file__).parents[2] / "docs" / "storms.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("forecast", STORMS, ids=lambda each: each.name.replace(" ", "-"))
def test_the_page_tells_what_the_storm_is_and_what_it_cost(forecast: Forecast) -> None:
    assert f"| {forecast.name} | {forecast.story} |" in PAGE
    assert f"| {forecast.name} | {forecast.nodes} |" in PAGE
