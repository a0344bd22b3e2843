"""When do credentials end, and when is it told?"""

from __future__ import annotations

from types import MappingProxyType

from cmscale.core.expiry import Stage, events, sentence, soon, stages
from cmscale.model import HOME, Site, SiteKind, Snapshot
from tests.builders import EAST, NOW, WEST, view


def seen(in_s: float | None, unseen: str = "") -> Snapshot:
    east = Site(EAST, SiteKind.AWS, expires=None if in_s is None else NOW + in_s, expiry_margin_s=900, unseen=unseen)
    return view(sites=MappingProxyType({EAST: east, WEST: Site(WEST, SiteKind.AWS), HOME: Site(HOME, SiteKind.ONPREM)}))


def told(before: Stage, view: Snapshot) -> list[str]:
    return [event.text for event in events({EAST: before}, view)]


def test_their_end_is_told_an_hour_before_nothing_is_started_any_more_and_once() -> None:
    assert told(Stage.GOOD, seen(None)) == []
    assert told(Stage.GOOD, seen(4600)) == []
    assert told(Stage.GOOD, seen(4400)) == [
        "the credentials of site east end at 15:00; from 14:45 on nothing is started there"
    ]
    assert told(Stage.ENDING, seen(4400)) == []


def test_it_is_told_when_nothing_is_started_any_more_and_when_they_are_renewed() -> None:
    (text,) = told(Stage.ENDING, seen(800))
    assert text.startswith("the credentials of site east end at 14:00; nothing is started there until they are renewed")
    assert told(Stage.TOO_LATE, seen(90000)) == ["the credentials of site east are good again"]


def test_a_site_that_is_not_seen_tells_nothing_of_them() -> None:
    assert told(Stage.TOO_LATE, seen(None, unseen="AuthFailure")) == []
    assert stages({EAST: Stage.TOO_LATE}, seen(None, unseen="AuthFailure"))[EAST] is Stage.TOO_LATE


def test_for_how_long_they_are_good_is_said_in_words() -> None:
    sight = seen(1320)
    assert [sentence(sight, site) for site in soon(sight)] == ["the credentials of site east end at 14:08, in 22 min"]
    past = seen(-60)
    assert [sentence(past, site) for site in soon(past)] == ["the credentials of site east ended at 13:45"]
