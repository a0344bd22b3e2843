"""Is what docs/explained.md shows what a user is told, word for word?

Each section of the page names a story and a time in it; its blocks are what is typed then, and what is printed. To
write the blocks anew, after a sentence has changed or a section was added: python -m tests.scenarios.test_explained
"""

from __future__ import annotations

import re
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from cmscale.core import telling
from cmscale.core.decide import decide
from cmscale.model import NodeName
from cmscale.shell.observe import Memory, observe
from cmscale.shell.values import duration
from tests.scenarios.course import until
from tests.scenarios.stage import Stage
from tests.scenarios.story import read

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explained.md"
WIDTH = 116

STORY = re.compile(r"\]\((?P<path>\.\./tests/scenarios/[\w/-]+\.toml)\), after (?P<time>\d+[smh])\b")
BLOCK = re.compile(r"(?m)^    \$ cm-scale explain (?P<what>job|why-not|node|tick) (?P<name>\S+)\n(?:    [^$\n].*\n)*")


def parts() -> list[str]:
    """What stands before the first heading, and each section."""
    return re.split(r"(?m)^(?=## )", PAGE.read_text(encoding="utf-8"))


SECTIONS = parts()[1:]


def retold(section: str, folder: Path) -> str:
    """The section with what is printed now."""
    named = STORY.search(section)
    assert named, f"this section names no story and time: {section}"
    stage = until(duration(named["time"]), read(PAGE.parent / named["path"], folder), folder)

    def block(asked: re.Match[str]) -> str:
        said = [line for sentence in answer(stage, asked["what"], asked["name"]) for line in broken(sentence)]
        return "".join(f"    {line}\n" for line in [f"$ cm-scale explain {asked['what']} {asked['name']}", *said])

    return BLOCK.sub(block, section)


def answer(stage: Stage, what: str, name: str) -> Iterator[str]:
    """What `cm-scale explain` says now: of a job or a node after a look of its own, of a tick as it is on record."""
    daemon = stage.cluster.daemon
    if what == "tick":
        stored = stage.cluster.journal.stored(name)
        assert stored
        yield from telling.tick_sentences(*stored)
        return
    view = observe(daemon.world, daemon.name, Memory())
    plan = decide(view, daemon.policies, daemon.limits)
    if what == "node":
        yield from telling.node_sentences(view, plan, view.nodes[NodeName(name)])
        return
    told = telling.why_not if what == "why-not" else telling.job_sentences
    for job in view.jobs:
        if name in {job.id, job.array}:
            yield from told(view, plan, job)


def broken(sentence: str) -> list[str]:
    """A sentence in lines of the page's width."""
    return textwrap.wrap(sentence, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


@pytest.mark.parametrize("section", SECTIONS, ids=[section.splitlines()[0].removeprefix("## ") for section in SECTIONS])
def test_the_page_says_what_is_printed(section: str, tmp_path: Path) -> None:
    assert retold(section, tmp_path) == section


def test_the_example_of_the_readme_stands_in_the_page() -> None:
    readme, page = (path.read_text(encoding="utf-8") for path in (ROOT / "README.md", PAGE))
    examples = [found[0] for found in BLOCK.finditer(readme)]
    assert examples
    assert all(example in page for example in examples)


if __name__ == "__main__":
    anew = parts()[:1]
    for each in SECTIONS:
        with tempfile.TemporaryDirectory() as folder:
            anew.append(retold(each, Path(folder)))
    PAGE.write_text("".join(anew), encoding="utf-8")
