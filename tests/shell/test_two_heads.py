"""Two daemons over one cluster in memory, by virtual time: whoever dies or freezes, nothing is made twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from sqlalchemy import URL

from cmscale.model import EventKind, Result
from tests.builders import ask
from tests.shell.cluster import Killed
from tests.shell.heads import LEASE_S, Head, Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    heads = Pair(tmp_path / "journal.db")
    yield heads
    heads.end()


@pytest.fixture
def anywhere(where: Path | URL) -> Iterator[Pair]:
    """Two heads whose journal is in either database."""
    heads = Pair(where)
    yield heads
    heads.end()


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """A folder for many short-lived journals, none of which needs a disk."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        yield Path(folder)


def load(pair: Pair) -> None:
    """Four jobs that need five machines."""
    pair.cluster.slurm.submit(1, ask(), run_s=5)
    pair.cluster.slurm.submit(2, ask(), run_s=5, count=2)
    pair.cluster.slurm.submit(3, ask(nodes=2, tasks=2), run_s=5)


def everything_is_served_once(pair: Pair) -> None:
    pair.run_until(lambda: pair.cluster.finished)
    pair.seconds(15)
    assert len(pair.cluster.slurm.done) == 4
    assert pair.cluster.slurm.failed == {}
    assert sum(map(len, pair.cluster.cloud.made.values())) == 5
    assert pair.heads[0].journal.under_way() == ()


def test_one_leads_and_the_other_only_waits(pair: Pair) -> None:
    load(pair)
    everything_is_served_once(pair)
    first, second = pair.heads
    assert first.ticks > 50
    assert second.ticks == 0


def test_when_the_leader_stands_still_the_other_one_has_looked_within_fifteen_seconds(pair: Pair) -> None:
    load(pair)
    pair.seconds(5)
    first, second = pair.heads
    first.frozen = True
    began = pair.cluster.clock.now()
    pair.run_until(lambda: second.ticks > 0)
    assert pair.cluster.clock.now() - began <= LEASE_S + 2
    everything_is_served_once(pair)


def test_when_the_leader_gives_the_lease_back_the_other_one_leads_at_its_next_try(pair: Pair) -> None:
    pair.second()
    first, second = pair.heads
    assert first.tenure
    first.tenure.give_back()
    first.frozen = True
    pair.second()
    assert second.ticks == 1


def test_each_change_of_the_leader_is_an_event(pair: Pair) -> None:
    pair.second()
    pair.freeze(pair.heads[0], 20)
    told = [event.text for event in pair.heads[0].journal.events(0.0) if event.kind is EventKind.LEADER]
    assert told == [
        "head1 (process 1) leads now, in term 1",
        "head2 (process 1) leads now, after head1 (process 1), in term 2",
    ]


def test_the_next_leader_knows_what_the_last_one_has_learned(pair: Pair) -> None:
    pair.cluster.cloud.refuse(Result.CAPACITY)
    pair.cluster.slurm.submit(1, ask())
    pair.seconds(5)
    assert len(pair.cluster.starts) == 1
    pair.freeze(pair.heads[0], 60)
    assert pair.heads[1].ticks > 0
    assert len(pair.cluster.starts) == 1, "a pool without capacity rests, whoever leads"


# --- struck at any call ----------------------------------------------------------------------------------------------

at_other_calls = pytest.mark.parametrize(
    ("where", "first"),
    [("sqlite", 1), ("sqlite", 4), pytest.param("postgresql", 2, marks=pytest.mark.slow)],
    indirect=["where"],
)


def struck(pair: Pair, first: int, what_happens: Callable[[Head], None]) -> int:
    """Let it happen to whoever leads, again and again, at other calls each time; how often it did."""
    times = 0

    def happens_to(head: Head) -> Callable[[], None]:
        def happens() -> None:
            nonlocal times
            times += 1
            what_happens(head)

        return happens

    for head in pair.heads:
        head.gate.happens = happens_to(head)
    for round_ in range(3000):
        if pair.cluster.finished:
            break
        leader = pair.leader
        if leader and leader.gate.left <= 0:
            leader.gate.left = first + 37 * round_ % 71
        pair.second()
    for head in pair.heads:
        head.gate.left = 0
    return times


@at_other_calls
def test_killed_at_any_call_whoever_leads_is_followed_and_nothing_is_made_twice(anywhere: Pair, first: int) -> None:
    def dies(_: Head) -> None:
        raise Killed

    load(anywhere)
    assert struck(anywhere, first, dies) > 10
    everything_is_served_once(anywhere)


@at_other_calls
def test_frozen_at_any_call_whoever_led_does_nothing_when_it_wakes_up(anywhere: Pair, first: int) -> None:
    def freezes(head: Head) -> None:
        if not any(each.frozen for each in anywhere.heads):
            anywhere.freeze(head, 12)

    load(anywhere)
    assert struck(anywhere, first, freezes) > 5
    assert sum(head.deposed for head in anywhere.heads) > 0
    everything_is_served_once(anywhere)


def frozen_at_each_call(
    folder: Path, until: Callable[[Pair], bool], load: Callable[[Pair], None], meanwhile: Callable[[Pair], None]
) -> Iterator[Pair]:
    """For each call of the leader's tick that makes `until` true: two heads, of which the leader was frozen there."""

    def begun(number: int) -> Pair:
        pair = Pair(folder / f"{number}.db", lease_s=3, idle="3s")
        pair.cluster.cloud.boot_s = 2
        load(pair)
        return pair

    undisturbed = begun(0)
    before_s = -1
    while not until(undisturbed):
        undisturbed.second()
        before_s += 1
    undisturbed.end()
    for number in count(1):
        pair = begun(number)
        pair.seconds(before_s)
        leader = pair.leader
        assert leader

        def freezes(pair: Pair = pair, leader: Head = leader) -> None:
            meanwhile(pair)
            pair.freeze(leader, 5)

        leader.gate.happens = freezes
        leader.gate.left = number
        leader.gate.begins = "begin"  # until then it only reads
        pair.second()
        if leader.gate.left <= 0:
            yield pair
        pair.end()
        if leader.gate.left > 0:
            assert number > 4
            return


@pytest.mark.slow
def test_frozen_at_each_call_of_the_tick_that_launches_it_makes_no_second_machine(in_memory: Path) -> None:
    for pair in frozen_at_each_call(in_memory, lambda pair: bool(pair.cluster.starts), load, lambda _: None):
        pair.seconds(2)
        assert sum(map(len, pair.cluster.cloud.made.values())) == 5


@pytest.mark.slow
def test_frozen_at_each_call_of_the_tick_that_deletes_it_takes_no_machine_away_that_is_used_by_then(
    in_memory: Path,
) -> None:
    def one_job(pair: Pair) -> None:
        pair.cluster.slurm.submit(1, ask(), run_s=2)

    def another_job(pair: Pair) -> None:
        pair.cluster.slurm.submit(2, ask(), run_s=4)

    def deletes(pair: Pair) -> bool:
        return any(call.startswith("delete") for call in pair.cluster.cloud.calls)

    for pair in frozen_at_each_call(in_memory, deletes, one_job, another_job):
        pair.run_until(lambda pair=pair: len(pair.cluster.slurm.done) == 2, limit=60)  # type: ignore[misc]
        assert pair.cluster.slurm.failed == {}


def test_frozen_at_the_last_moment_before_a_launch_it_gets_the_machines_that_its_successor_has_made(pair: Pair) -> None:
    load(pair)
    first, second = pair.heads
    first.last_moment.happens = lambda: pair.freeze(first, 20)
    first.last_moment.begins = "start"
    first.last_moment.left = 1
    pair.run_until(lambda: second.ticks > 0)
    assert len(pair.cluster.starts) > len(pair.cluster.cloud.made), "one of them was asked for by both"
    everything_is_served_once(pair)
