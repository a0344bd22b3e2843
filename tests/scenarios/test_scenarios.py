"""Does every story in this folder go as it is told? Each is played on a cluster in memory by the daemon itself.

A story is a TOML file: story.py tells its keys, deeds.py what can happen in it, claims.py what can be expected of it.
Whatever a story tells, no busy node is stopped, no node keeps two machines, and at the end no machine is left but those
that are to be kept.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.course import play
from tests.scenarios.sentences import WrongWord
from tests.scenarios.story import read

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*.toml"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_the_story_goes_as_it_is_told(path: Path, tmp_path: Path) -> None:
    story = read(path, tmp_path)
    wrong = list(play(story, tmp_path))
    assert not wrong, "\n".join([story.title, *wrong])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('never = ["job 1 runns"]', '"job 1 runns" is no claim; the nearest form is "job JOB runs at SITE"'),
        ('never = ["job 2 runs"]', '"job 2 runs": there is no job 2; valid: 1'),
        ('never = ["3 machines of t5"]', '"3 machines of t5": there is no pool t5; valid: t4'),
        ("neverr = []", 'the file: unknown key neverr; did you mean "never"?'),
        ('happens = [{ at = "0s", what = "t4 refuses: all" }]', '"t4 refuses: all" is no deed; the nearest form is '),
        ("timeline = [{ expect = [] }]", "[[timeline]]: expected at, by, or from and to; got nothing"),
        ('home = { node = "op1" }', '[home]: unknown key node; did you mean "nodes"?'),
    ],
)
def test_a_wrong_word_in_a_story_is_told_with_the_nearest_right_one(line: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "story.toml"
    path.write_text(f'title = "x"\nclass = "y"\nends = "1m"\njobs = [{{ id = 1 }}]\n{line}\n')
    with pytest.raises(WrongWord) as wrong:
        read(path, tmp_path)
    assert told in str(wrong.value)


def test_a_story_that_goes_otherwise_is_told_with_what_is_so(tmp_path: Path) -> None:
    path = tmp_path / "story.toml"
    path.write_text(
        """
        title = "All of this is wrong"
        class = "wrong"
        ends = "3m"
        never = ["more than 0 machines of t4"]
        jobs = [{ id = 1 }]
        timeline = [
            { at = "30s", expect = ["job 1 runs"] },
            { by = "1m", expect = ["t4 is closed: quota"] },
            { from = "1m", to = "2m", expect = ["job 1 is pending"] },
            { by = "1h", expect = ["job 1 is done"] },
        ]
        """
    )
    assert list(play(read(path, tmp_path), tmp_path)) == [
        "at the beginning: never: more than 0 machines of t4: there are 1: t4-1",
        "at 30s: not so: job 1 runs: it is PENDING (Resources; cm-scale: 1 node starting at east, about 1 min)",
        "at 1m: not by now: t4 is closed: quota: it is open",
        "at 65s: not so: job 1 is pending: it is RUNNING on t4-1",
        "the story ended before job 1 is done",
        "at the end these nodes have machines: t4-1; expected: none",
    ]
