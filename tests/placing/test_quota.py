"""What the account may not have is not asked for, and jobs go elsewhere."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from cmscale.core.guards import Bench, Proposal, admit
from cmscale.core.steps import step
from cmscale.model import (
    Limits,
    Node,
    NodeName,
    Pool,
    PoolName,
    Power,
    Site,
    SiteKind,
    Snapshot,
)
from cmscale.placing.offers import spent
from cmscale.placing.quota import quotas
from cmscale.placing.room import Room
from tests.builders import EAST, NOW, WEST, ask, goal, machine, node, pool, view

T4 = pool("t4", family="G", quota_cpus=4)
BIG = pool("big", family="G", quota_cpus=16, price_hour=2.0)
WESTERN = pool("w", family="G", quota_cpus=4, site=WEST, price_hour=0.9)


def seen(most: int | None, *nodes: Node, pools: tuple[Pool, ...] = (T4,), west: int | None = None) -> Snapshot:
    """What there is, where the account may have so many CPUs of the family in the east and in the west."""
    sites = {
        name: Site(name, SiteKind.AWS, name, account="a", quotas={"G": allowed} if allowed is not None else {})
        for name, allowed in ((EAST, most), (WEST, west))
    }
    return view(pools, nodes, sites=MappingProxyType(sites))


def placed(view: Snapshot, asks: int) -> list[str]:
    return [each.name for placement in Room.of(view, frozenset()).place(ask(), asks) for each in placement.new]


def refused(view: Snapshot, *names: str) -> list[str]:
    proposals = [
        Proposal(goal(name), view.nodes[NodeName(name)], step(view.nodes[NodeName(name)], goal(name), NOW))
        for name in names
    ]
    return [f"{each.goal.node}: {each.guard}" for each in admit(proposals, Bench.of(view, Limits(), ()))[1]]


def test_jobs_get_as_many_machines_as_the_quota_leaves() -> None:
    up = node("t4-1", Power.ON, free=T4.shape.less(T4.shape))
    coming = node("t4-2", Power.STARTING, free=T4.shape.less(T4.shape))
    assert placed(seen(12, up, coming), 4) == ["t4-3"]
    assert placed(seen(11, up, coming), 4) == []


def test_what_the_quota_does_not_leave_is_taken_elsewhere() -> None:
    assert placed(seen(8, pools=(T4, WESTERN)), 4) == ["t4-1", "t4-2", "w-1", "w-2"]


def test_a_quota_that_is_not_known_bounds_nothing() -> None:
    assert placed(seen(None), 4) == ["t4-1", "t4-2", "t4-3", "t4-4"]
    assert placed(seen(0, pools=(pool("t4", family="G"),)), 4) == ["t4-1", "t4-2", "t4-3", "t4-4"]
    assert placed(seen(0, pools=(pool("t4", family="P", quota_cpus=4),)), 1) == ["t4-1"]


def test_pools_of_a_family_share_what_is_left() -> None:
    assert placed(seen(20, pools=(T4, BIG)), 8) == ["t4-1", "t4-2", "t4-3", "t4-4"]
    assert refused(seen(20, pools=(T4, BIG)), "t4-1", "big-1", "t4-2") == ["t4-2: within_quota"]


def test_two_sites_of_an_account_and_region_share_its_quota_and_two_regions_do_not() -> None:
    both = seen(8, node("t4-1", Power.ON), pools=(T4, WESTERN), west=8)
    assert {name: quota.left for name, quota in quotas(both).items()} == {"t4": 4, "w": 8}
    near = {name: Site(name, SiteKind.AWS, "r", account="a", quotas={"G": 8}) for name in (EAST, WEST)}
    one = view((T4, WESTERN), [node("t4-1", Power.ON)], sites=MappingProxyType(near))
    assert {name: quota.left for name, quota in quotas(one).items()} == {"t4": 4, "w": 4}


def test_a_machine_that_is_powered_off_counts_for_nothing_until_it_is_powered_on() -> None:
    off = node("t4-1", Power.OFF, machine=machine("t4-1"), kept=True)
    assert refused(seen(4, off), "t4-1", "t4-2") == ["t4-2: within_quota"]


@pytest.mark.parametrize(("most", "said"), [(3, "of which 3 are left, and a machine takes 4"), (8, "is in use")])
def test_it_is_said_why_nothing_is_started(most: int, said: str) -> None:
    one = pool("t4", 1, family="G", quota_cpus=4)
    nodes = [node("t4-1", Power.ON, one)] if most == 8 else []
    assert said in spent(seen(most, *nodes, pools=(one,)))[PoolName("t4")]
