"""Which machines does nothing explain, and which of them go, when?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from cmscale.core.orphans import deletions, events, explained, found, judged, orphans
from cmscale.model import (
    HOME,
    EventKind,
    Fact,
    FactKind,
    Leftover,
    LeftoverKind,
    Limits,
    Machine,
    MachineId,
    MachineState,
    NodeName,
    OpId,
    Power,
    Reap,
    Site,
    SiteKind,
    Snapshot,
)
from tests.builders import BUSY, EAST, IDLE, JOINED, NOW, WEST, fact, facts, home_node, machine, node, pool, view

OUT = frozenset({"DOWN", "CLOUD", "DRAIN"})


def stray(name: str = "web-1", **changes: Any) -> Machine:
    return replace(machine(name, op=OpId("old"), site=EAST, address="10.0.9.9"), **changes)


def remembered(seen: Snapshot, ago_s: float = 90.0) -> Snapshot:
    """The same world, in which all of it was found so long ago already."""
    known = [replace(each, at=NOW - ago_s) for each in found(seen)]
    return replace(seen, facts=MappingProxyType({**seen.facts, **facts(*known)}))


def gone(seen: Snapshot, limits: Limits | None = None) -> list[str]:
    return [action.arg for action in deletions(seen, limits or Limits())]


def against(seen: Snapshot, limits: Limits | None = None) -> list[str]:
    return [why for _, why in judged(seen, limits or Limits())]


# --- two looks -------------------------------------------------------------------------------------------------------


def test_what_nothing_explains_is_told_first_and_deleted_by_its_id_ninety_seconds_later() -> None:
    first = view(surplus=(stray(),))
    assert gone(first) == []
    assert [(event.kind, event.subject) for event in events(first)] == [(EventKind.ORPHANED, "i-web-1")]
    assert gone(remembered(first, 89.0)) == []
    (action,) = deletions(remembered(first), Limits())
    assert (action.arg, action.site, action.pool) == ("i-web-1", EAST, None)


def test_another_reason_begins_anew() -> None:
    before = remembered(view(surplus=(stray(),)))
    now = replace(before, surplus=(stray(node=NodeName("web-2")),))
    assert [each.why for each in orphans(now)] != [each.why for each in orphans(before)]
    assert gone(now) == []


def test_what_is_explained_again_is_forgotten_but_not_while_a_site_is_unseen() -> None:
    known = facts(fact(FactKind.ORPHAN, "i-1"), fact(FactKind.REAP, "i-2"), fact(FactKind.KEEP, "t4-1"))
    assert [each.subject for each in explained(view(facts=known))] == ["i-1"]
    dark = MappingProxyType({EAST: Site(EAST, SiteKind.AWS, unseen="no answer")})
    assert explained(view(facts=known, sites=dark)) == ()


def test_nothing_is_found_where_slurm_the_journal_or_the_clock_tell_nothing() -> None:
    seen = view(surplus=(stray(),))
    assert orphans(seen)
    assert orphans(replace(seen, unseen="silent")) == ()
    assert orphans(replace(seen, unrecorded="locked")) == ()
    assert orphans(replace(seen, doubt="the clock jumped")) == ()


# --- what explains a machine -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "machine_",
    [
        stray(launched=NOW - 119),
        stray(op=OpId("under-way")),
        stray(state=MachineState.ENDING),
        stray(site=WEST),
        stray(node=NodeName("west-1")),
    ],
    ids=["it is young", "its call is under way", "it ends already", "its site is unseen", "its pool's site is unseen"],
)
def test_it_is_explained_if(machine_: Machine) -> None:
    sites = {
        EAST: Site(EAST, SiteKind.AWS),
        WEST: Site(WEST, SiteKind.AWS, unseen="dark"),
        HOME: Site(HOME, SiteKind.ONPREM),
    }
    pools = [pool(), pool("west", site=WEST)]
    seen = view(pools, [node("t4-1", op=OpId("under-way"))], surplus=(machine_,), sites=MappingProxyType(sites))
    assert orphans(seen) == ()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"node": NodeName("")}, "no tag says which node it is"),
        ({}, "it is named web-1, which belongs to no pool and is unknown to Slurm"),
        ({"node": NodeName("op1")}, "it is named op1, which belongs to no pool"),
        ({"node": NodeName("t4-1"), "site": WEST}, "it is named t4-1, a node of pool t4 at east"),
        ({"node": NodeName("t4-2")}, "it is a second machine of t4-2; i-t4-2 serves it"),
    ],
)
def test_why_nothing_explains_it(changes: dict[str, Any], why: str) -> None:
    down = home_node("op1", states=OUT, reason="cm-scale: off")
    seen = view(nodes=[down, node("t4-2", Power.ON)], surplus=(stray(**changes),))
    assert [(each.why, each.spared) for each in orphans(seen)] == [(why, "")]


def test_a_second_machine_does_not_wait_since_it_would_take_the_node_from_the_one_that_serves() -> None:
    young = stray(node=NodeName("t4-2"), launched=NOW)
    assert gone(view(nodes=[node("t4-2", Power.ON)], surplus=(young,))) == ["i-web-1"]


# --- what is in doubt ------------------------------------------------------------------------------------------------


def spared(seen: Snapshot) -> str:
    (orphan,) = orphans(seen)
    assert gone(remembered(seen)) == []
    asked = facts(fact(FactKind.REAP, orphan.id))
    assert gone(remembered(replace(seen, facts=MappingProxyType({**seen.facts, **asked})))) == []
    return orphan.spared


def test_a_machine_without_the_tag_of_an_operation_may_be_anybodys() -> None:
    assert "no tag cm-scale:operation" in spared(view(surplus=(stray(op=None),)))


def test_a_machine_that_has_lost_its_name_is_spared_while_slurm_hears_a_node_at_its_address() -> None:
    lost = stray(node=NodeName(""))
    for states in (BUSY, IDLE, BUSY | {"DRAIN"}, JOINED):
        heard = node("t4-1", states=states, address="10.0.9.9", reason="")
        assert "Slurm hears node t4-1 at its address" in spared(view(nodes=[heard], surplus=(lost,)))
    over = node("t4-1", states=OUT, address="10.0.9.9")
    assert gone(remembered(view(nodes=[over], surplus=(lost,)))) == ["i-web-1"]


@pytest.mark.parametrize("states", [BUSY, IDLE, BUSY | {"DOWN"}])
def test_a_node_of_a_pool_that_was_removed_keeps_its_machine_while_slurm_may_run_jobs_there(
    states: frozenset[str],
) -> None:
    removed = home_node("web-1", states=states)
    assert "Slurm may run jobs on web-1" in spared(view(nodes=[removed], surplus=(stray(),)))


def test_its_machine_goes_once_our_own_drain_keeps_jobs_away() -> None:
    drained = home_node("web-1", states=IDLE | {"DRAIN"}, reason="cm-scale: giving back")
    assert gone(remembered(view(nodes=[drained], surplus=(stray(),)))) == ["i-web-1"]


def test_a_node_that_slurm_does_not_know_and_a_pool_does_may_come_back() -> None:
    seen = view(surplus=(stray("t4-1"),))
    unknown = MappingProxyType({name: each for name, each in seen.nodes.items() if name != "t4-1"})
    assert "cm-scale slurm-conf" in spared(replace(seen, nodes=unknown))


def test_machines_of_names_that_persons_or_the_configuration_keep_are_left_alone() -> None:
    twin = stray(node=NodeName("t4-1"))
    kept = facts(fact(FactKind.KEEP, "t4-1", why="debugged"))
    assert "debugged" in spared(view(nodes=[node("t4-1", Power.ON)], surplus=(twin,), facts=kept))
    drained = node("t4-1", Power.ON, states=IDLE | {"DRAIN"}, reason="fan")
    assert "drained by a person (fan)" in spared(view(nodes=[drained], surplus=(twin,)))
    upkeep = node("t4-1", Power.ON, states=IDLE | {"MAINT"})
    assert "maintenance" in spared(view(nodes=[upkeep], surplus=(twin,)))
    static = pool(static=True)
    assert "never deleted" in spared(view([static], [node("t4-1", Power.ON, static, kept=True)], surplus=(twin,)))


def test_nothing_goes_while_cm_scale_is_paused() -> None:
    paused = facts(fact(FactKind.PAUSE, "", why="the switch is moved"))
    seen = remembered(view(surplus=(stray(),), facts=paused))
    assert (gone(seen), against(seen)) == ([], ["paused: the switch is moved"])


# --- who has the word ------------------------------------------------------------------------------------------------


def asked(*names: str) -> tuple[Fact, ...]:
    return tuple(fact(FactKind.REAP, name, by="ada") for name in names)


def test_where_the_reaper_only_reports_a_person_has_to_say_so() -> None:
    careful = Limits(reap=Reap.REPORT)
    seen = remembered(view(surplus=(stray(),)))
    assert gone(seen, careful) == []
    assert against(seen, careful) == ['limits.reap is "report"; to delete it: cm-scale reap']
    allowed = facts(*asked("i-web-1"))
    assert gone(remembered(view(surplus=(stray(),), facts=allowed)), careful) == ["i-web-1"]
    assert gone(remembered(view(surplus=(stray(),), facts=allowed), 10.0), careful) == []


def many(count: int) -> Iterable[Machine]:
    return (stray(f"web-{number}") for number in range(count))


def test_if_far_more_would_go_than_ever_should_a_person_has_to_say_so() -> None:
    assert len(gone(remembered(view(surplus=tuple(many(10)))))) == 10
    eleven = tuple(many(11))
    assert gone(remembered(view(surplus=eleven))) == []
    assert set(against(remembered(view(surplus=eleven)))) == {
        "11 machines would go, and limits.reap_most is 10; if that is right: cm-scale reap"
    }
    allowed = facts(*asked(*(each.id for each in eleven)))
    assert len(gone(remembered(view(surplus=eleven, facts=allowed)))) == 11


# --- volumes and interfaces ------------------------------------------------------------------------------------------


def test_what_a_machine_has_left_behind_goes_when_another_look_has_shown_it_a_while_later() -> None:
    part = Leftover(MachineId("vol-1"), LeftoverKind.VOLUME, EAST, NodeName("t4-1"), OpId("old"), NOW)
    seen = remembered(view(leftovers=(replace(part, seen=NOW - 300),)), ago_s=300.0)
    assert gone(seen) == []
    assert gone(replace(seen, leftovers=(part,))) == ["vol-1"]
    assert "cm-scale:operation" in spared(view(leftovers=(replace(part, op=None),)))
