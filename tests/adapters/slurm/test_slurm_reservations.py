"""Reservations from recorded lines: recorded/22.05/reservations.txt was read with Central European time."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from cmscale.adapters.slurm.reservations import read
from cmscale.model import NodeName, Reservation
from tests.adapters.slurm.recording import RECORDED

_NOW = 1795203721.0
_PLACE = ZoneInfo("Europe/Berlin")
_LINE = (
    "ReservationName=ada StartTime=1795203643 EndTime=1795207243 Duration=01:00:00 Nodes=t4-[1-2] NodeCnt=2 "
    "Flags=SPEC_NODES Users=ada Accounts=(null) State=ACTIVE"
)


@pytest.fixture(scope="module")
def recorded() -> dict[str, Reservation]:
    reading = read((RECORDED / "22.05" / "reservations.txt").read_text(), _NOW)
    assert not reading.unreadable
    return {reservation.name: reservation for reservation in reading.items}


def test_a_reservation_of_a_user_is_read(recorded: dict[str, Reservation]) -> None:
    assert recorded["active"] == Reservation(
        "active",
        1795203643.0,
        1795207243.0,
        frozenset({NodeName("t4-1"), NodeName("t4-2")}),
        users=frozenset({"root"}),
        flags=frozenset({"SPEC_NODES"}),
    )
    assert recorded["active"].active(_NOW)


def test_one_that_begins_later_is_not_active(recorded: dict[str, Reservation]) -> None:
    later = recorded["later"]
    assert not later.active(_NOW)
    assert later.active(later.start)
    assert later.accounts == {"physics", "chemistry"}


def test_maintenance_is_told_by_its_flag(recorded: dict[str, Reservation]) -> None:
    assert [name for name, reservation in recorded.items() if reservation.maintenance] == ["service"]
    assert recorded["service"].flags == {"MAINT", "DAILY", "SPEC_NODES"}


def test_one_of_licences_has_no_nodes_and_one_of_a_partition_has_all_of_its_nodes(
    recorded: dict[str, Reservation],
) -> None:
    assert recorded["lic"].nodes == frozenset()
    assert recorded["all"].nodes == {"t4-1", "t4-2", "t4-3", "t4-4"}
    assert recorded["half"].nodes == {"op1"}


def test_a_name_may_look_like_a_field(recorded: dict[str, Reservation]) -> None:
    assert recorded["a b Nodes=op1"].nodes == {"op1", "t4-3"}


def test_a_change_of_the_clocks_moves_no_reservation(recorded: dict[str, Reservation]) -> None:
    over_autumn, over_spring = recorded["a b Nodes=op1"], recorded["all"]
    assert over_autumn.start == datetime(2027, 10, 31, 1, 30, tzinfo=_PLACE).timestamp()
    assert over_autumn.end == datetime(2027, 10, 31, 3, 30, tzinfo=_PLACE).timestamp()
    assert over_autumn.end - over_autumn.start == 3 * 3600
    assert over_spring.end == datetime(2027, 3, 28, 23, tzinfo=_PLACE).timestamp()
    assert over_spring.end - over_spring.start == 24 * 3600


def test_one_that_has_ended_is_left_out(recorded: dict[str, Reservation]) -> None:
    end = recorded["active"].end
    text = (RECORDED / "22.05" / "reservations.txt").read_text()
    assert "active" in {each.name for each in read(text, end - 1).items}
    assert "active" not in {each.name for each in read(text, end).items}


@pytest.mark.parametrize("text", ["No reservations in the system\n", "", "\n"])
def test_there_may_be_none(text: str) -> None:
    assert read(text, _NOW) == read("", _NOW)
    assert not read(text, _NOW).items


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("StartTime=1795203643", "StartTime=2026-11-20T20:40:43", "a time of '2026-11-20T20:40:43'"),
        ("EndTime=1795207243", "EndTime=Unknown", "ada has no start or no end"),
        ("t4-[1-2]", "t4-[1-", "is no list of nodes"),
        ("ReservationName", "Reservation", "names no reservation, start and end"),
    ],
)
def test_one_that_cannot_be_read_costs_itself_and_one_sentence(before: str, after: str, told: str) -> None:
    reading = read(f"{_LINE.replace(before, after)}\n{_LINE.replace('ada', 'bob')}\n", _NOW)
    assert [reservation.name for reservation in reading.items] == ["bob"]
    assert len(reading.unreadable) == 1
    assert told in reading.unreadable[0]


def test_fields_that_a_release_leaves_out_are_nothing() -> None:
    line = "ReservationName=bare StartTime=1795203643 EndTime=1795207243 Duration=01:00:00 State=ACTIVE"
    (bare,) = read(line, _NOW).items
    assert (bare.nodes, bare.users, bare.flags) == (frozenset(), frozenset(), frozenset())
