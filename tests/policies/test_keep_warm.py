"""keep_warm: as many up as the pool says, or as is usual at this hour."""

from types import MappingProxyType
from typing import Any

import pytest

from cmscale.model import FactKind, Node, NodeName, Pool, PoolName, Power, Snapshot
from policies.keep_warm import Settings, propose
from tests.builders import JOINED, fact, facts, node, notice, pool, view

NOBODY: frozenset[NodeName] = frozenset()


def kept(seen: Snapshot, claimed: frozenset[NodeName] = NOBODY, **settings: Any) -> list[str]:
    return [goal.node for goal in propose(seen, claimed, Settings(**settings))]


def test_a_pool_without_keep_keeps_nothing() -> None:
    assert kept(view()) == []


def test_nodes_that_are_up_are_kept_before_others_are_started() -> None:
    seen = view([pool(keep=2)], [node("t4-3", Power.ON), node("t4-2", Power.STARTING), node("t4-4", Power.ON)])
    assert kept(seen) == ["t4-3", "t4-4"]
    assert kept(view([pool(keep=2)])) == ["t4-1", "t4-2"]


def test_a_node_that_is_being_given_back_is_kept_only_if_no_other_is_up() -> None:
    going = node("t4-1", Power.ON, states=JOINED, reason="cm-scale: giving back")
    assert kept(view([pool(keep=1)], [going, node("t4-2", Power.ON)])) == ["t4-2"]
    assert kept(view([pool(keep=1)], [going])) == ["t4-1"]


def test_nodes_that_serve_the_queue_count_as_kept() -> None:
    seen = view([pool(keep=2)], [node("t4-1", Power.ON)])
    assert kept(seen, frozenset({NodeName("t4-1")})) == ["t4-2"]
    assert kept(seen, frozenset({NodeName("t4-1"), NodeName("t4-2")})) == ["t4-3"]


def test_where_more_serve_the_queue_than_shall_be_kept_nothing_is_added() -> None:
    four = [node(f"t4-{number}", Power.ON) for number in range(1, 5)]
    assert kept(view([pool(keep=1)], four), frozenset(each.name for each in four[:3])) == []
    assert kept(view(), frozenset({NodeName("t4-1")})) == []


@pytest.mark.parametrize(
    "going",
    [
        node("t4-1", Power.ON, sick="lost"),
        node("t4-1", Power.ON, resting="maintenance"),
        node("t4-1", Power.ON, notice=notice()),
    ],
    ids=["sick", "resting", "taken back"],
)
def test_a_node_that_has_to_go_is_neither_kept_nor_counted(going: Node) -> None:
    seen = view([pool(keep=1)], [going])
    assert kept(seen) == kept(seen, frozenset({going.name})) == ["t4-2"]


def test_a_name_that_rests_after_a_failure_is_not_started() -> None:
    assert kept(view([pool(keep=1)], facts=facts(fact(FactKind.QUARANTINE, "t4-1")))) == ["t4-2"]


# --- hours, forecast, pools ------------------------------------------------------------------------------------------


def test_machines_are_kept_in_the_hours_that_are_set_only() -> None:
    seen = view([pool(keep=1)])  # it is Monday, 13:46
    assert kept(seen, hours=("mon-fri 08:00-18:00",)) == ["t4-1"]
    assert kept(seen, hours=("sat,sun 00:00-24:00", "20:00-06:00")) == []


def usual(of: Pool, busy: float) -> Snapshot:
    return view([of], usual=MappingProxyType({PoolName("t4"): busy}))


def test_a_share_of_the_nodes_that_are_usually_busy_is_kept_rounded_up() -> None:
    seen = usual(pool(count=9), 5.0)
    assert len(kept(seen)) == 0
    assert len(kept(seen, forecast=0.5)) == 3
    assert len(kept(usual(pool(count=9), 30.0), forecast=0.1)) == 3


def test_a_forecast_never_asks_for_more_than_the_pool_may_have_nor_less_than_it_keeps() -> None:
    assert len(kept(usual(pool(count=9, max=4), 50.0), forecast=1.0)) == 4
    assert len(kept(usual(pool(count=9, keep=2), 1.0), forecast=1.0)) == 2


def test_the_reason_says_whether_the_floor_or_the_forecast_keeps_it() -> None:
    seen = usual(pool(keep=1), 2.0)
    assert {goal.reason for goal in propose(seen, NOBODY, Settings())} == {"t4 keeps 1 up"}
    assert {goal.reason for goal in propose(seen, NOBODY, Settings(forecast=1.0))} == {
        "t4 has usually 2 busy nodes at this hour"
    }


def test_other_pools_than_those_that_are_set_are_not_kept_warm() -> None:
    assert kept(view([pool("a", keep=1), pool("b", keep=1)]), only_pools=("b",)) == ["b-1"]


def test_settings_that_mean_nothing_are_told() -> None:
    with pytest.raises(ValueError, match=r"forecast is 1\.5; expected a share from 0 to 1"):
        Settings(forecast=1.5)
    with pytest.raises(ValueError, match=r'there is no day "mo" .* did you mean "mon"'):
        Settings(hours=("mo 08:00-18:00",))
