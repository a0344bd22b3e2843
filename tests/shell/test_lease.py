"""The lease in a real PostgreSQL: taken by one, lost in time, and nothing is written by who has lost it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Thread

import pytest
from sqlalchemy import URL, insert

from cmscale.lab.processes import wait_until
from cmscale.model import NodeName, Operation, OpId, PoolName, Verb
from cmscale.ports import Unavailable
from cmscale.shell.database import Database
from cmscale.shell.journal import SqlJournal
from cmscale.shell.leading import LeadersClock, lead_in_turn
from cmscale.shell.lease import Deposed, Holder, Lease, Term, last_term
from cmscale.shell.tables import IDLE
from cmscale.shell.wiring import SystemClock
from tests.postgres.server import Server

LONG_S = 60.0
SHORT_S = 0.4

Take = Callable[..., Lease]
Fenced = Callable[[Lease], Database]
Open = Callable[[Lease], SqlJournal]


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

    def open_(of: Lease) -> SqlJournal:
        opened.append(SqlJournal(url, fence=of.fence))
        return opened[-1]

    yield open_
    for each in opened:
        each.dispose()


@pytest.fixture
def fenced(url: URL) -> Iterator[Fenced]:
    """Opens the database for transactions that last as long as a test likes."""
    with ExitStack() as opened:

        def open_(of: Lease) -> Database:
            database = Database(url, fence=of.fence)
            opened.callback(database.dispose)
            return database

        yield open_


def launch(number: int) -> Operation:
    return Operation(OpId(f"op{number}"), Verb.START, PoolName("t4"), (NodeName(f"t4-{number}"),), 0.0)


def left_s(lease: Lease) -> float:
    last = last_term(lease.database)
    return last.left_s if last else 0.0


def is_free(lease: Lease) -> bool:
    return left_s(lease) <= 0


def test_of_many_that_try_at_once_one_leads(lease: Take) -> None:
    leases = [lease(f"head{number}") for number in range(8)]
    with ThreadPoolExecutor(len(leases)) as threads:
        taken = list(threads.map(Lease.take, leases))
    assert sum(taken) == 1
    assert [each.holds for each in leases] == taken
    assert [each.term for each in leases if each.holds] == [1]


def test_it_is_told_who_leads_and_since_when(lease: Take) -> None:
    assert last_term(lease("head1").database) is None
    first = lease("head1")
    began = time.time()
    first.take()
    told = last_term(lease("head2").database)
    assert told is not None
    assert (told.number, str(told.holder), told.holds) == (1, "head1 (process 1)", True)
    assert began - 1 < told.since < time.time() + 1
    assert 0 < told.left_s <= LONG_S


def test_renewing_puts_off_its_end(lease: Take) -> None:
    first = lease("head1")
    first.take()
    assert wait_until(lambda: left_s(first) < LONG_S - 0.1, 5)
    before = left_s(first)
    first.renew()
    assert left_s(first) > before
    assert first.term == 1


def test_one_that_is_not_renewed_ends_and_its_holder_knows_before_another_one_may_take_it(lease: Take) -> None:
    first, second = lease("head1", SHORT_S), lease("head2")
    first.take()
    while not second.take():
        time.sleep(0.01)
    assert not first.holds
    assert second.term == 2


def test_one_that_is_given_back_is_free_at_once_and_the_next_term_is_another(lease: Take) -> None:
    first, second = lease("head1"), lease("head2")
    first.take()
    first.give_back()
    assert not first.holds
    assert second.take()
    first.give_back()
    first.renew()
    assert not first.holds
    assert last_term(second.database).holder == second.holder  # type: ignore[union-attr]
    assert [first.term, second.term] == [1, 2]


def test_whoever_cannot_reach_the_database_leads_no_longer_than_its_lease(lease: Take, postgres: Server) -> None:
    first = lease("head1", SHORT_S)
    first.take()
    postgres.kill()
    with first.kept():
        assert wait_until(lambda: not first.holds, 10)
    with pytest.raises(Deposed):
        first.check()


# --- the fence -------------------------------------------------------------------------------------------------------


def test_only_the_leader_writes(lease: Take, journal: Open) -> None:
    first, second = lease("head1", SHORT_S), lease("head2")
    begins, follows = journal(first), journal(second)
    with pytest.raises(Deposed):
        begins.begin([launch(1)])
    first.take()
    begins.begin([launch(2)])
    assert wait_until(second.take, 5)
    with pytest.raises(Deposed):
        begins.begin([launch(3)])
    with pytest.raises(Deposed):
        begins.finish(OpId("op2"), {}, 1.0)
    assert [operation.id for operation in follows.under_way()] == ["op2"]


def test_whoever_writes_is_waited_for_and_its_successor_sees_what_it_wrote(
    lease: Take, journal: Open, fenced: Fenced
) -> None:
    first, second = lease("head1", SHORT_S), lease("head2")
    book = journal(second)
    first.take()
    seen: list[object] = []
    takes = Thread(target=lambda: seen.append(second.take() and book.idle()))
    with fenced(first).writing() as db:
        assert wait_until(lambda: is_free(second), 5)
        takes.start()
        takes.join(0.3)
        assert takes.is_alive()
        db.execute(insert(IDLE).values(node="t4-1", since=1.0))
    takes.join(5)
    assert seen == [{"t4-1": 1.0}]


@pytest.mark.slow
def test_whoever_freezes_in_the_midst_of_writing_is_not_waited_for_as_long_as_it_is_frozen(
    lease: Take, journal: Open, fenced: Fenced
) -> None:
    first, second = lease("head1", SHORT_S), lease("head2")
    book = journal(second)
    first.take()
    with pytest.raises(Unavailable), fenced(first).writing() as db:
        db.execute(insert(IDLE).values(node="t4-1", since=1.0))
        assert wait_until(lambda: taken(second), 10)
    assert book.idle() == {}


def taken(lease: Lease) -> bool:
    try:
        return lease.take()
    except Unavailable:  # the row is still held
        return False


# --- in turn ---------------------------------------------------------------------------------------------------------


class Daemon:
    """A daemon that does nothing but lead and stand by."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.clock = SystemClock()
        self.leads = False
        self.told: list[str] = []
        self.thread = Thread(target=lead_in_turn, args=(lease, self.clock, self.lead, self.stand_by))
        self.thread.start()

    def lead(self, last: Term | None) -> None:
        self.told.append(f"after {last.holder}" if last else "first")
        self.leads = True
        LeadersClock(self.clock, self.lease).wait(60)
        self.leads = False

    def stand_by(self, why: Term | Unavailable) -> None:
        said = str(why) if isinstance(why, Unavailable) else f"behind {why.holder}"
        if said not in self.told[-1:]:
            self.told.append(said)

    def end(self) -> None:
        self.clock.asked.set()
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
    assert wait_until(lambda: all("the journal can't be" in head.told[-1] for head in heads), 20)
    postgres.start()
    assert wait_until(lambda: sum(head.leads for head in heads) == 1, 10)
