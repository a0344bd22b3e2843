"""What stands against a job: not ever, or not now, and what each pool would cost it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from cmscale.model import (
    Ask,
    Closure,
    Constraint,
    Fact,
    FactKind,
    Part,
    PoolName,
    Power,
    Queue,
    Result,
    Shape,
    Site,
    SiteKind,
    Snapshot,
)
from cmscale.placing.offers import Offer, never, obstacles, offers, spent, stock
from tests.builders import BUSY, EAST, NOW, OFF, WEST, ask, home_node, node, pool, view


def queue(**changes: Any) -> MappingProxyType[str, Queue]:
    return MappingProxyType({"batch": Queue("batch", **changes)})


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        (ask(gpus_per_node=4), "has 1 of the 4 GPUs"),
        (ask(gpu_type="h100"), "has t4 GPUs, not h100"),
        (ask(partitions=("debug",)), "is not in partition debug"),
        (ask(nodes=9, tasks=9), "at most 4 nodes that fit, 9 are needed"),
        (ask(mem_mb_per_node=10**6), "of memory"),
        (ask(constraint=Constraint("fast", ((Part(0, (frozenset({"fast"}),)),),))), "--constraint=fast"),
    ],
)
def test_a_job_that_no_node_could_ever_hold_is_told_why(asks: Ask, words: str) -> None:
    assert words in never(asks, stock(view()))


def test_a_job_that_fits_somewhere_even_if_all_is_taken_is_not_hopeless() -> None:
    assert never(ask(nodes=4, tasks=4), stock(view())) == ""
    assert never(ask(gpus_per_node=0, cpus_per_task=8), stock(view(nodes=[home_node()]))) == ""


def test_two_sites_do_not_add_up_for_a_gang() -> None:
    seen = view([pool("e", 8), pool("w", 4, site=WEST)])
    assert "east has at most 8 nodes that fit, 10 are needed" in never(ask(nodes=10, tasks=10), stock(seen))


def test_two_sites_do_add_up_where_the_partition_mixes_them() -> None:
    seen = view([pool("e", 8), pool("w", 4, site=WEST)], queues=queue(mix_sites=True))
    assert never(ask(nodes=10, tasks=10), stock(seen)) == ""


def test_what_holds_for_a_time_makes_no_job_hopeless() -> None:
    names = [node(f"t4-{at}", reserved="school", until=NOW + 60, resting="maintenance") for at in range(1, 5)]
    assert never(ask(limit_s=None), stock(view(nodes=names))) == ""
    assert never(ask(reservation="other"), stock(view())) == ""


def test_a_job_whose_partition_starts_no_machines_that_fit_is_hopeless() -> None:
    seen = view([pool("cheap")], queues=queue(pools=frozenset({PoolName("own")})))
    assert never(ask(), stock(seen)) == "pool cheap starts no machines for partition batch"
    assert obstacles(ask(), stock(seen), spent(seen)) == []


FULL = tuple(node(f"t4-{at}", Power.ON, states=BUSY, free=Shape(0, 0)) for at in range(1, 5))
SHUT = MappingProxyType({PoolName("t4"): Closure(NOW + 60, Result.CAPACITY, "no t4 left")})
LOST = MappingProxyType({EAST: Site(EAST, SiteKind.AWS, unseen="no answer")})
RESTS = MappingProxyType(
    {
        (FactKind.QUARANTINE, f"t4-{at}"): Fact(FactKind.QUARANTINE, f"t4-{at}", NOW, NOW + 9, "it never joined")
        for at in range(1, 5)
    }
)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (view(nodes=FULL), "all 4 machines are in use"),
        (view(closed=SHUT), "closed (capacity: no t4 left)"),
        (view(sites=LOST), "east could not be read (no answer)"),
        (view(facts=RESTS), "t4-1 is in quarantine (it never joined)"),
        (view([pool(count=1)], [node("t4-1", resting="maintenance")]), "t4-1 rests (maintenance)"),
        (view([pool(count=1)], [node("t4-1", states=OFF, reason="mine")]), "t4-1 is drained by a person (mine)"),
        (view(), "the 4 more machines it may have go to jobs before it"),
        (view([pool(max=1)], [node("t4-2", Power.OFF)]), "the 1 more machines it may have"),
    ],
)
def test_a_job_that_waits_is_told_what_stands_against_each_pool_that_suits_it(seen: Snapshot, words: str) -> None:
    (why,) = obstacles(ask(), stock(seen), spent(seen))
    assert why.startswith("t4: ")
    assert words in why


def test_offers_are_told_the_cheapest_first_each_with_its_price_and_when_it_would_be_ready() -> None:
    near, far = pool("near", price_hour=0.5, boot_s=120), pool("far", price_hour=0.4, boot_s=300, site=WEST)
    unfit = pool("unfit", partitions=("other",))
    told = offers(view([near, far, unfit]), ask(nodes=2, tasks=2))
    assert told == [
        Offer(PoolName("far"), WEST, 2, 0.8, 300, ""),
        Offer(PoolName("near"), EAST, 2, 1.0, 120, ""),
    ]


def test_a_pool_with_room_on_nodes_that_are_up_is_ready_at_once() -> None:
    (told,) = offers(view(nodes=[node("t4-1", Power.ON)]), ask())
    assert told.ready_in_s == 0


@pytest.mark.parametrize(
    ("seen", "asks", "words"),
    [
        (view(closed=SHUT), ask(), "t4: closed (capacity: no t4 left)"),
        (view(nodes=FULL), ask(), "t4: all 4 machines are in use"),
        (view(nodes=FULL[1:]), ask(nodes=2, tasks=2), "t4: 1 more machines can be started, 2 are needed"),
        (view([pool(count=1)], [node(reserved="school")]), ask(), "t4 is reserved (school)"),
        (view(), ask(limit_s=600, deadline=NOW + 700), "t4 would let it end after its deadline"),
        (view(), ask(reservation="school"), "t4 is not in the job's reservation school"),
        (
            view([pool(count=1, boot_s=60)], [node(until=NOW + 1800)]),
            ask(limit_s=3600),
            "t4 may serve for another 30 min (until a reservation or its hours' end), and the job may take 61 min",
        ),
    ],
)
def test_an_offer_that_cannot_be_taken_says_why(seen: Snapshot, asks: Ask, words: str) -> None:
    (told,) = offers(seen, asks)
    assert told.obstacle == words
