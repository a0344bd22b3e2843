"""What a cloud and a node itself announce, and what it comes to."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from cmscale.core.announced import NOTHING, Announced, announced, of_reason
from cmscale.model import Means, Notice
from tests.builders import notice

MIDNIGHT = 1_800_057_600.0
"""A midnight of UTC."""


def test_where_nothing_is_said_nothing_is_announced() -> None:
    assert announced((), "", MIDNIGHT) is NOTHING
    assert announced((), "cm-scale: off", MIDNIGHT) is NOTHING


def test_of_several_deadlines_the_earliest_counts_and_other_words_stand_beside_it() -> None:
    late, soon = notice(MIDNIGHT + 9e5), notice(MIDNIGHT + 120)
    sick, risk = Notice(inf, "host", Means.SICK), Notice(inf, "rebalance", Means.AT_RISK)
    assert announced((risk, late, sick, soon), "", MIDNIGHT) == Announced(soon, "host", "rebalance")


@pytest.mark.parametrize(
    ("now", "time", "deadline"),
    [
        (MIDNIGHT, "00:02:00", MIDNIGHT + 120),
        (MIDNIGHT + 180, "00:02:00", MIDNIGHT + 120),
        (MIDNIGHT - 60, "00:01:00", MIDNIGHT + 60),
        (MIDNIGHT + 60, "23:59:59", MIDNIGHT - 1),
        (MIDNIGHT + 0.5, "00:00:00", MIDNIGHT),
    ],
)
def test_a_time_without_a_date_is_the_nearest_one(now: float, time: str, deadline: float) -> None:
    own = of_reason(f"cm-scale: notice by {time} UTC: taken back", now)
    assert own is not None
    assert own.deadline == pytest.approx(deadline, abs=1e-3)
    assert (own.why, own.means) == ("taken back", Means.TAKEN)


@settings(derandomize=True)
@given(now=some.floats(0, 4e9), ahead_s=some.integers(-43199, 43199))
def test_what_a_node_writes_within_half_a_day_is_read_as_it_was_meant(now: float, ahead_s: int) -> None:
    deadline = int(now) + ahead_s
    hours, minutes, seconds = deadline // 3600 % 24, deadline // 60 % 60, deadline % 60
    own = of_reason(f"cm-scale: notice by {hours:02}:{minutes:02}:{seconds:02} UTC: why", now)
    assert own is not None
    assert own.deadline == pytest.approx(deadline, abs=1e-3)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "cm-scale: giving back",
        "notice by 00:02:00 UTC: a person's",
        "cm-scale: notice by 24:00:00 UTC: no such time",
        "cm-scale: notice by 00:02 UTC: no seconds",
        "cm-scale: notice by 00:02:00: no zone",
        "cm-scale: notice by 00:02:00 UTC: ",
    ],
)
def test_another_reason_is_no_notice(reason: str) -> None:
    assert of_reason(reason, MIDNIGHT) is None


def test_of_the_cloud_s_word_and_the_node_s_the_earlier_counts() -> None:
    own = "cm-scale: notice by 00:01:00 UTC: the node's"
    taken = announced((notice(MIDNIGHT + 120, "the cloud's"),), own, MIDNIGHT).taken
    assert taken is not None
    assert taken.why == "the node's"
    taken = announced((notice(MIDNIGHT + 30, "the cloud's"),), own, MIDNIGHT).taken
    assert taken is not None
    assert taken.why == "the cloud's"
