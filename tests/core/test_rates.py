"""Token buckets of accounts, worked out from what was launched."""

from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as some

from cmscale.core.rates import account, tokens
from cmscale.model import Bucket, Launch, PoolName, Site, SiteKind, Snapshot
from tests.builders import EAST, NOW, WEST, pool, view

HERE = Site(EAST, SiteKind.AWS, "us-east-1", launched=Bucket(100, 2), calls=Bucket(5, 1))
THERE = Site(WEST, SiteKind.AWS, "us-west-2", launched=Bucket(100, 2), calls=Bucket(5, 1))


def after(*launches: Launch) -> Snapshot:
    sites = MappingProxyType({EAST: HERE, WEST: THERE})
    return view([pool(), pool("w", site=WEST)], sites=sites, launches=launches)


def launch(seconds_ago: float, machines: int, of: str = "t4") -> Launch:
    return Launch(NOW - seconds_ago, PoolName(of), machines)


def test_an_account_that_launched_nothing_has_full_buckets() -> None:
    machines, calls = tokens(after())
    assert machines[account(HERE)] == 100
    assert calls[account(HERE)] == 5


def test_a_launch_takes_a_token_a_machine_and_one_a_call_and_both_refill() -> None:
    machines, calls = tokens(after(launch(10, 60), launch(2, 30)))
    assert machines[account(HERE)] == 100 - 60 + 8 * 2 - 30 + 2 * 2
    assert calls[account(HERE)] == 5
    assert machines[account(THERE)] == 100


def test_what_was_launched_beyond_the_bucket_is_paid_back_first() -> None:
    machines, _ = tokens(after(launch(5, 120)))
    assert machines[account(HERE)] == 100 - 120 + 5 * 2


@given(some.lists(some.tuples(some.floats(0, 3600), some.integers(1, 200)), max_size=20))
def test_a_bucket_never_holds_more_than_its_burst(launches: list[tuple[float, int]]) -> None:
    ordered = sorted((launch(ago, count) for ago, count in launches), key=lambda each: each.at)
    machines, calls = tokens(after(*ordered))
    assert machines[account(HERE)] <= 100
    assert calls[account(HERE)] <= 5
