"""What reservations and hours mean for a node."""

from cmscale import hours
from cmscale.core.standing import Standing, standings
from cmscale.model import NodeName, Reservation
from tests.builders import NOW, pool

NODE = NodeName("t4-1")
HOUR = 3600.0


def standing(*reservations: Reservation, windows: tuple[str, ...] = ()) -> Standing | None:
    of = pool(hours=tuple(hours.window(text) for text in windows))
    return standings([of], reservations, NOW, 0.0).get(NODE)


def reservation(begins_in: float, lasts: float = HOUR, **changes: object) -> Reservation:
    fields = {"name": "R", "start": NOW + begins_in, "end": NOW + begins_in + lasts, "nodes": frozenset({NODE})}
    return Reservation(**(fields | changes))  # type: ignore[arg-type]


def test_a_node_without_reservations_or_hours_is_ordinary() -> None:
    assert standing() is None


def test_a_reservation_to_come_says_when_jobs_must_have_ended() -> None:
    assert standing(reservation(HOUR)) == Standing(until=NOW + HOUR)


def test_an_active_reservation_keeps_the_node_for_its_own_jobs_until_its_end() -> None:
    assert standing(reservation(-60)) == Standing(reserved="R", until=NOW + HOUR - 60)


def test_an_active_maintenance_keeps_all_jobs_off() -> None:
    found = standing(reservation(-60, maintenance=True))
    assert found
    assert found.resting == "maintenance R for another 59 min"
    assert found.reserved == ""


def test_a_reservation_that_has_ended_means_nothing() -> None:
    assert standing(reservation(-2 * HOUR)) is None


def test_the_earliest_of_several_reservations_counts() -> None:
    assert standing(reservation(3 * HOUR), reservation(HOUR, name="S")) == Standing(until=NOW + HOUR)


def test_within_the_hours_of_its_pool_a_node_serves_until_they_end_and_outside_it_rests() -> None:
    # NOW is a Monday, 13:46:40 UTC.
    within, outside = standing(windows=("mon 13:00-14:00",)), standing(windows=("tue 13:00-14:00",))
    assert within
    assert within.until == NOW + 800
    assert outside
    assert outside.resting == "t4 serves Slurm tue 13:00-14:00 only"


def test_hours_that_never_end_say_nothing_of_an_end() -> None:
    assert standing(windows=("00:00-24:00",)) is None
