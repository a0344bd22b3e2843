"""The lease in a real PostgreSQL: taken by one, lost in time, and nothing is written by who has lost it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Thread

import pytest
from sqlalchemy import URL, insert, select

from cmscale.journal.database import Database
from cmscale.journal.lease import Holder, Lease, Tenure, Term
from cmscale.journal.sql import SqlJournal
from cmscale.journal.tables import IDLE
from cmscale.lab.processes import wait_until
from cmscale.model import NodeName, Operation, OpId, PoolName, Verb
from cmscale.ports import Deposed, Unavailable
from cmscale.shell.leading import in_turn
from cmscale.shell.wiring import SystemClock
from tests.postgres.server import Server

LONG_S = 60.0
SHORT_S = 0.4

Take = Callable[..., Lease]
Fenced = Callable[[Tenure], Database]
Open = Callable[[Tenure], SqlJournal]


@pytest.fixture
def url(postgres: Server) -> URL:
    return postgres.database()


@pytest.fixture
def lease(url: URL) -> Iterator[Callable[..., Lease]]:
    """Makes the leases of as many processes as are asked for."""
    made: list[Lease] = []

    def make(name: str, lasts_s: float = LONG_S) -> Lease:
        made.append(Lease(Database(url), lasts_s, Holder(name, 1, name)))
        made[-1].database.open()
        return made[-1]

    yield make
    for each in made:
        each.database.dispose()


@pytest.fixture
def journal(url: URL) -> Iterator[Open]:
    """Opens the journal as the process of a lease does."""
    opened: list[SqlJournal] = []

    def open_(of: Tenure) -> SqlJournal:
        opened.append(SqlJournal(url, fence=of.fence))
        return opened[-1]

    yield open_
    for each in opened:
        each.dispose()


@pytest.fixture
def fenced(url: URL) -> Iterator[Fenced]:
    """Opens the database for transactions that last as long as a test likes."""
    with ExitStack() as opened:

        def open_(of: Tenure) -> Database:
            database = Database(url, fence=of.fence)
            opened.callback(database.dispose)
            return database

        yield open_


def launch(number: int) -> Operation:
    return Operation(OpId(f"op{number}"), Verb.START, PoolName("t4"), (NodeName(f"t4-{number}"),), 0.0)


def left_s(lease: Lease) -> float:
    last = lease.last()
    return last.left_s if last else 0.0


def taken(lease: Lease, within_s: float = 10.0) -> Tenure:
    """The lease, taken as soon as it is free."""
    found: list[Tenure] = []

    def is_taken() -> bool:
        with suppress(Unavailable):  # the row is still held
            found.extend(filter(None, [lease.take()]))
        return bool(found)

    assert wait_until(is_taken, within_s)
    return found[0]


def test_of_many_that_try_at_once_one_leads(lease: Take) -> None:
    leases = [lease(f"head{number}") for number in range(8)]
    with ThreadPoolExecutor(len(leases)) as threads:
        (tenure,) = filter(None, threads.map(Lease.take, leases))
    assert tenure.holds
    assert tenure.term == 1


def test_it_is_told_who_leads_and_since_when(lease: Take) -> None:
    first, second = lease("head1"), lease("head2")
    assert second.last() is None
    first.take()
    told = second.last()
    assert told
    assert (told.number, str(told.holder), told.holds) == (1, "head1 (process 1)", True)
    assert abs(told.since - time.time()) < 30
    assert 0 < told.left_s <= LONG_S


def test_renewing_puts_off_its_end(lease: Take) -> None:
    first = lease("head1")
    tenure = taken(first)
    assert wait_until(lambda: left_s(first) < LONG_S - 0.1, 5)
    before = left_s(first)
    tenure.renew()
    assert tenure.holds
    assert left_s(first) > before


def test_one_that_is_not_renewed_ends_and_its_holder_knows_before_another_one_may_take_it(lease: Take) -> None:
    first, second = taken(lease("head1", SHORT_S)), lease("head2")
    tenure = taken(second)
    assert not first.holds
    with pytest.raises(Deposed):
        first.check()
    assert tenure.term == 2


def test_one_that_is_given_back_is_free_at_once(lease: Take) -> None:
    first = taken(lease("head1"))
    first.give_back()
    assert not first.holds
    assert lease("head2").take()


def test_a_term_that_is_over_can_be_neither_renewed_nor_given_back(lease: Take) -> None:
    first = taken(lease("head1", SHORT_S))
    second = taken(lease("head2"))
    first.renew()
    first.give_back()
    assert not first.holds
    told = first.lease.last()
    assert told
    assert (told.number, told.holder, told.holds) == (2, second.lease.holder, True)


def test_whoever_cannot_reach_the_database_leads_no_longer_than_its_lease(lease: Take, postgres: Server) -> None:
    tenure = taken(lease("head1", SHORT_S))
    postgres.kill()
    with tenure.renewed():
        assert wait_until(lambda: not tenure.holds, 10)


# --- the fence -------------------------------------------------------------------------------------------------------


def test_only_the_leader_writes(lease: Take, journal: Open) -> None:
    first, second = lease("head1", SHORT_S), lease("head2")
    former = taken(first)
    begins = journal(former)
    begins.begin([launch(1)])
    follows = journal(taken(second))
    with pytest.raises(Deposed):
        begins.begin([launch(2)])
    with pytest.raises(Deposed):
        begins.finish(OpId("op1"), {}, 1.0)
    assert not former.holds
    assert [operation.id for operation in follows.under_way()] == ["op1"]


def test_whoever_writes_is_waited_for_and_its_successor_sees_what_it_wrote(lease: Take, fenced: Fenced) -> None:
    first, second = taken(lease("head1", SHORT_S)), lease("head2")
    seen: list[object] = []

    def takes() -> None:
        taken(second)
        with second.database.reading() as db:
            seen.extend(db.execute(select(IDLE.c.node)).scalars())

    successor = Thread(target=takes)
    with fenced(first).writing() as db:
        assert wait_until(lambda: left_s(second) <= 0, 5)
        successor.start()
        successor.join(0.3)
        assert successor.is_alive()
        db.execute(insert(IDLE).values(node="t4-1", since=1.0))
    successor.join(10)
    assert seen == ["t4-1"]


@pytest.mark.slow
def test_whoever_freezes_in_the_midst_of_writing_is_not_waited_for_as_long_as_it_is_frozen(
    lease: Take, fenced: Fenced
) -> None:
    first, second = taken(lease("head1", SHORT_S)), lease("head2")
    with ExitStack() as waking:
        db = waking.enter_context(fenced(first).writing())
        db.execute(insert(IDLE).values(node="t4-1", since=1.0))
        taken(second, within_s=15)
        with pytest.raises(Unavailable):
            waking.close()
    with second.database.reading() as db:
        assert db.execute(select(IDLE.c.node)).all() == []


# --- in turn ---------------------------------------------------------------------------------------------------------


class Daemon:
    """A daemon that does nothing but lead and stand by."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.clock = SystemClock()
        self.leads = False
        self.told: list[str] = []
        self.thread = Thread(target=in_turn, args=(lease, self.clock, self.lead, self.stand_by))
        self.thread.start()

    def lead(self, tenure: Tenure, last: Term | None) -> None:
        self.told.append(f"after {last.holder}" if last else "first")
        self.leads = True
        try:
            while not self.clock.wait(0.01):
                tenure.check()
            tenure.give_back()
        finally:
            self.leads = False

    def stand_by(self, why: Term | Unavailable) -> None:
        said = str(why) if isinstance(why, Unavailable) else f"behind {why.holder}"
        if said not in self.told[-1:]:
            self.told.append(said)

    def end(self) -> None:
        self.clock.ending = True
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def daemon(lease: Take) -> Iterator[Callable[[str, float], Daemon]]:
    started: list[Daemon] = []

    def start(name: str, lasts_s: float) -> Daemon:
        started.append(Daemon(lease(name, lasts_s)))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_a_standby_leads_as_soon_as_the_leader_ends_as_asked(daemon: Callable[[str, float], Daemon]) -> None:
    first = daemon("head1", 10)
    assert wait_until(lambda: first.leads, 5)
    second = daemon("head2", 10)
    assert wait_until(lambda: second.told == ["behind head1 (process 1)"], 5)
    first.end()
    began = time.monotonic()
    assert wait_until(lambda: second.leads, 5)
    assert time.monotonic() - began < 5
    assert second.told[-1] == "after head1 (process 1)"


def test_without_the_database_nobody_leads_and_with_it_one_does_again(
    daemon: Callable[[str, float], Daemon], postgres: Server
) -> None:
    heads = [daemon("head1", 1), daemon("head2", 1)]
    assert wait_until(lambda: any(head.leads for head in heads), 5)
    postgres.kill()
    assert wait_until(lambda: not any(head.leads for head in heads), 10)
    assert wait_until(lambda: all("the journal can't be" in head.told[-1] for head in heads), 30)
    postgres.start()
    assert wait_until(lambda: sum(head.leads for head in heads) == 1, 10)
