"""How calls wait for their tokens, and when they are not made."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from cmscale.adapters.aws import AwsPool
from cmscale.adapters.aws.buckets import LONGEST_WAIT_S, Buckets
from cmscale.model import Bucket, MachineId
from tests.adapters.test_aws import Connect, Ec2, connect, ec2, operation, pool, results, served

__all__ = ["connect", "ec2", "pool", "served"]
"""Fixtures."""


@dataclass
class Time:
    """Passes only while somebody waits."""

    now: float = 0.0
    waits: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.waits.append(round(seconds, 3))
        self.now += seconds


def buckets(clock: Time, **own: Bucket) -> Buckets:
    return Buckets(lambda: clock.now, clock.wait, **own)


def test_a_burst_goes_out_at_once_and_what_follows_at_the_documented_rate() -> None:
    clock = Time()
    level = buckets(clock)
    assert [level.take("RunInstances") for _ in range(8)] == [0.0] * 8
    assert clock.waits == [0.5, 0.5, 0.5]  # five at once, then two a second


def test_each_call_has_a_bucket_of_its_own() -> None:
    clock = Time()
    level = buckets(clock)
    for call, burst in {
        "CreateFleet": 50,
        "CreateTags": 100,
        "DescribeInstances": 100,
        "TerminateInstances": 100,
    }.items():
        assert [level.take(call) for _ in range(burst)] == [0.0] * burst
    assert clock.waits == []


def test_a_call_that_would_wait_too_long_is_not_made_and_takes_nothing() -> None:
    clock = Time()
    level = buckets(clock)
    assert level.take("TerminateInstances", 1000) == 0.0
    assert level.take("TerminateInstances", 100) == 5.0  # twenty machines a second
    clock.now += 5.0
    assert level.take("TerminateInstances", 100) == 0.0
    assert clock.waits == []


def test_a_thousand_machines_are_deleted_at_once() -> None:
    clock = Time()
    assert buckets(clock).take("TerminateInstances", 1000) == 0.0
    assert clock.now == 0.0


def test_what_ec2_refuses_empties_the_bucket_of_that_call_alone() -> None:
    clock = Time()
    level = buckets(clock, RunInstances=Bucket(5, 0.25))
    level.refused("RunInstances")
    assert level.take("RunInstances") == 4.0 > LONGEST_WAIT_S
    assert level.take("CreateFleet") == 0.0


def test_a_deletion_that_ec2_refuses_is_made_again_as_soon_as_calls_may_be_made() -> None:
    clock = Time()
    level = buckets(clock)
    assert level.take("TerminateInstances", 1000) == 0.0
    level.refused("TerminateInstances", 1000)
    assert level.take("TerminateInstances", 1000) == 0.0
    assert clock.waits == [0.2]  # for one call; a thousand machines would have taken 50 s


def test_threads_share_what_there_is() -> None:
    clock, lock = Time(), threading.Lock()
    waits: list[float] = []

    def note(seconds: float) -> None:
        with lock:
            waits.append(seconds)

    level = Buckets(lambda: clock.now, note, RunInstances=Bucket(5, 2))
    threads = [threading.Thread(target=level.take, args=("RunInstances",)) for _ in range(9)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(waits) == [0.5, 1.0, 1.5, 2.0]


def test_sites_of_one_account_and_region_share_their_buckets(connect: Connect, ec2: Ec2) -> None:
    clock = Time()
    shared = buckets(clock, RunInstances=Bucket(2, 0.1))
    one, other = (connect(buckets=shared) for _ in range(2))
    since = time.time()
    assert [results(each.start(operation("e1"))) for each in (one, other)] == [{"e1": "ok"}] * 2
    assert results(one.start(operation("e3"))) == {"e3": "throttled"}
    assert len(ec2.calls("RunInstances", since)) == 2


def test_a_call_that_is_not_made_says_why(connect: Connect, pool: AwsPool) -> None:
    site = connect(pool, buckets=buckets(Time(), RunInstances=Bucket(1, 0.1)))
    site.start(operation("e1"))
    (outcome,) = site.start(operation("e2")).values()
    assert outcome.detail == (
        "RequestLimitExceeded: our own bucket of RunInstances has no room for 10.0 s; the call was not made"
    )


def test_a_throttle_of_ec2_slows_the_next_call_down(connect: Connect, ec2: Ec2) -> None:
    clock = Time()
    site = connect(buckets=buckets(clock))
    ec2.fault("RunInstances", code="RequestLimitExceeded", status=503, times=1)
    assert results(site.start(operation("e1"))) == {"e1": "throttled"}
    assert clock.waits == []
    assert results(site.start(operation("e1"))) == {"e1": "ok"}
    assert clock.waits == [0.5]


def test_machines_that_are_deleted_count_one_by_one(connect: Connect) -> None:
    clock = Time()
    site = connect(buckets=buckets(clock))
    gone = [MachineId(f"i-{number:017x}") for number in range(1010)]
    assert Counter(outcome.result.value for outcome in site.delete(gone[:1000]).values()) == {"ok": 1000}
    assert Counter(outcome.result.value for outcome in site.delete(gone[1000:]).values()) == {"ok": 10}
    assert clock.waits == [0.5]
