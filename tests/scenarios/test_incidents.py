"""Has each of the thirty incidents its place in docs/incidents.md, and is what stands there there?"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORIES = {path.name: path for path in Path(__file__).parent.glob("*.toml")}
TABLE = (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8")


def test_each_incident_has_its_row() -> None:
    assert [int(number) for number in re.findall(r"^\| (\d+) \|", TABLE, re.MULTILINE)] == list(range(1, 31))


def test_the_stories_named_are_the_stories_there() -> None:
    assert set(re.findall(r"[\w-]+\.toml", TABLE)) == set(STORIES)


def test_the_tests_and_decisions_named_are_there() -> None:
    for name in re.findall(r"`(tests/\S+\.py)`", TABLE):
        assert (ROOT / name).is_file(), name
    for name in re.findall(r"\((decisions/\S+\.md)\)", TABLE):
        assert (ROOT / "docs" / name).is_file(), name


@pytest.mark.parametrize("path", STORIES.values(), ids=list(STORIES))
def test_a_story_names_its_class_and_its_incidents(path: Path) -> None:
    story = tomllib.loads(path.read_text(encoding="utf-8"))
    assert story["class"]
    assert story["incidents"]
