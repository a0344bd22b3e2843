"""The journal: what it keeps, in which order, and over a restart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import URL, func, insert, select, update

from cmscale.journal import decisions, tables
from cmscale.journal.decisions import MOST_BYTES, SNAPSHOTS_KEPT_S
from cmscale.journal.sql import SqlJournal
from cmscale.journal.tables import BUSY, EVENTS, EVIDENCE, FACTS, ITEMS, KEPT_S, OPERATIONS, PLANS, SNAPSHOTS
from cmscale.model import (
    Action,
    Closure,
    Creations,
    Event,
    EventKind,
    Fact,
    FactKind,
    JobId,
    Launch,
    MachineId,
    NodeName,
    Operation,
    OpId,
    Outcome,
    Override,
    Plan,
    PoolName,
    Result,
    Snapshot,
    Verb,
)
from cmscale.ports import Evidence, Misconfigured, Unavailable
from tests.builders import NOW, view

T4 = PoolName("t4")
ONE, TWO = NodeName("t4-1"), NodeName("t4-2")
OK = Outcome(Result.OK, "", MachineId("i-1"))


@pytest.fixture
def journal(where: Path | URL) -> Iterator[SqlJournal]:
    journal = SqlJournal(where)
    yield journal
    journal.dispose()


def start(op: str = "op-1", *nodes: NodeName, began: float = NOW, job: str = "17") -> Operation:
    names = nodes or (ONE, TWO)
    jobs = (JobId(job),) * len(names)
    return Operation(OpId(op), Verb.START, T4, names, began, "why", jobs, (2,) * len(names), all_or_none=True)


def test_an_operation_is_under_way_until_it_is_finished_and_comes_back_whole(journal: SqlJournal) -> None:
    begun = replace(start(), tags={"cm-scale:user": "ada"})
    journal.begin([begun])
    assert journal.under_way() == (begun,)
    journal.finish(OpId("op-1"), {ONE: OK, TWO: Outcome(Result.CAPACITY, "none left")}, NOW)
    assert journal.under_way() == ()


def test_what_was_begun_is_there_after_a_restart(journal: SqlJournal, where: Path | URL) -> None:
    journal.begin([start("op-2", began=NOW + 1), start("op-1")])
    again = SqlJournal(where)
    assert [operation.id for operation in again.under_way()] == ["op-1", "op-2"]
    again.dispose()


def test_machines_count_as_created_when_made_or_perhaps_made_but_not_when_refused(journal: SqlJournal) -> None:
    journal.begin([start("op-1"), start("op-2", TWO, began=NOW + 5)])
    journal.finish(OpId("op-1"), {ONE: OK, TWO: Outcome(Result.CAPACITY)}, NOW)
    assert journal.creations({JobId("17"): NOW - 60}) == {"17": Creations(2, need=2, first=NOW, refused=1)}
    assert journal.creations({JobId("17"): NOW + 1}) == {"17": Creations(1, need=2, first=NOW + 5)}
    assert journal.creations({JobId("18"): NOW - 60}) == {}


def test_a_launch_that_must_only_be_repeated_is_no_refusal(journal: SqlJournal) -> None:
    journal.begin([start()])
    journal.finish(OpId("op-1"), {ONE: Outcome(Result.TRANSIENT), TWO: Outcome(Result.QUOTA)}, NOW)
    assert journal.creations({JobId("17"): NOW}) == {"17": Creations(0, need=2, first=NOW, refused=1)}


def test_creations_are_told_of_more_jobs_than_a_query_has_parameters(journal: SqlJournal) -> None:
    journal.begin([start(job="39999")])
    assert list(journal.creations({JobId(str(number)): 0.0 for number in range(40_000)})) == ["39999"]


def test_launches_are_told_oldest_first_with_the_machines_they_made_or_may_have_made(journal: SqlJournal) -> None:
    journal.begin([start("op-2", began=NOW + 5), start("op-1"), start("op-3", ONE, began=NOW + 6)])
    journal.finish(OpId("op-1"), {ONE: OK, TWO: Outcome(Result.CAPACITY)}, NOW)
    journal.finish(OpId("op-3"), {ONE: Outcome(Result.CAPACITY)}, NOW)
    assert journal.launches(NOW - 1) == (Launch(NOW, T4, 1), Launch(NOW + 5, T4, 2))
    assert journal.launches(NOW) == (Launch(NOW + 5, T4, 2),)


def test_the_job_of_each_started_node_is_known(journal: SqlJournal) -> None:
    journal.begin([start("op-1", ONE), start("op-2", TWO, job="18"), replace(start("op-3", ONE), jobs=(None,))])
    assert journal.jobs_of({OpId("op-2"), OpId("op-3"), OpId("unknown")}) == {("op-2", TWO): "18"}
    assert journal.jobs_of([]) == {}


def test_a_node_was_used_from_its_start_until_it_was_given_back_or_until_now(journal: SqlJournal) -> None:
    journal.begin([start("op-1", began=NOW)])
    journal.finish(OpId("op-1"), {ONE: OK, TWO: OK}, NOW)
    journal.begin([Operation(OpId("op-2"), Verb.STOP, T4, (ONE,), NOW + 100)])
    assert journal.used_s(NOW - 500, NOW + 300) == {ONE: 100, TWO: 300}
    assert journal.used_s(NOW + 60, NOW + 300) == {ONE: 40, TWO: 240}
    assert journal.used_s(NOW + 100, NOW + 300) == {TWO: 200}


def test_the_use_of_nodes_is_counted_anew_once_a_minute(journal: SqlJournal) -> None:
    assert journal.used_s(NOW - 100, NOW) == {}
    journal.begin([start("op-1", ONE)])
    assert journal.used_s(NOW - 41, NOW + 59) == {}
    assert journal.used_s(NOW - 40, NOW + 60) == {ONE: 60}


def test_a_fresh_machine_is_known_until_it_is_deleted(journal: SqlJournal) -> None:
    journal.begin([start("op-1", ONE)])
    journal.finish(OpId("op-1"), {ONE: OK}, NOW)
    (machine,) = journal.fresh(NOW - 1)
    assert (machine.id, machine.node, machine.op) == ("i-1", ONE, "op-1")
    assert journal.fresh(NOW + 1) == ()
    journal.begin([Operation(OpId("op-2"), Verb.DELETE, T4, (ONE,), NOW, machines=(MachineId("i-1"),))])
    assert journal.fresh(NOW - 1) == ()


def test_idle_nodes_are_remembered_and_forgotten(journal: SqlJournal) -> None:
    journal.put_idle({ONE: NOW, TWO: NOW})
    journal.put_idle({ONE: None, TWO: NOW + 1})
    assert journal.idle() == {TWO: NOW + 1}


def test_what_stands_against_a_pool_is_remembered_over_a_restart_until_it_is_lifted(
    journal: SqlJournal, where: Path | URL
) -> None:
    journal.close(T4, Closure(NOW + 10, Result.CAPACITY, "none left"))
    journal.close(T4, Closure(NOW + 20, Result.QUOTA, "limit", strikes=2))
    again = SqlJournal(where)
    assert again.closed() == {T4: Closure(NOW + 20, Result.QUOTA, "limit", strikes=2)}
    again.close(T4, None)
    assert journal.closed() == {}
    again.dispose()


def test_a_fact_holds_until_it_ends_is_replaced_or_dropped(journal: SqlJournal, where: Path | URL) -> None:
    pause = Fact(FactKind.PAUSE, "", NOW, NOW + 60, "the network is being mended", "alice")
    longer = Fact(FactKind.PAUSE, "", NOW, math.inf, "until somebody says otherwise", "bob")
    resting = Fact(FactKind.QUARANTINE, ONE, NOW, NOW + 10, "its machine failed")
    for fact in (pause, resting, longer):
        journal.put_fact(fact)
    again = SqlJournal(where)
    assert again.facts(NOW) == (longer, resting)
    assert again.facts(NOW + 10) == (longer,)
    again.drop_fact(FactKind.PAUSE, "")
    assert journal.facts(NOW) == (resting,)
    again.dispose()


def test_a_word_of_a_person_changes_all_it_means_or_nothing_and_is_told_each_time(journal: SqlJournal) -> None:
    pause = Fact(FactKind.PAUSE, "", NOW, NOW + 60, "the network is being mended", "alice")
    said = Event(NOW, EventKind.OVERRIDE, "", "alice on head1: pause for 1m: the network is being mended")
    journal.close(T4, Closure(NOW + 300, Result.CAPACITY, "none left"))
    with journal._database.writing() as db:
        db.exec_driver_sql("ALTER TABLE events RENAME TO away")
    with pytest.raises(Unavailable):
        journal.override(Override(said, put=(pause,), opened=(T4,)))
    with journal._database.writing() as db:
        db.exec_driver_sql("ALTER TABLE away RENAME TO events")
    assert journal.facts(NOW) == ()
    assert list(journal.closed()) == [T4]
    for _ in range(2):
        journal.override(Override(said, put=(pause,), opened=(T4,)))
    assert journal.facts(NOW) == (pause,)
    assert journal.closed() == {}
    assert journal.events(0.0) == (said, said)


# --- what was seen ---------------------------------------------------------------------------------------------------

WEEK_S = 7 * 86400.0


def test_usual_is_the_mean_of_the_busiest_moments_of_this_hour_in_the_last_four_weeks(journal: SqlJournal) -> None:
    for weeks_ago, most in ((5, 100), (4, 4), (3, 3), (2, 2), (1, 7)):
        at = NOW - weeks_ago * WEEK_S
        for busy in (0, most, 1):
            journal.put_busy({T4: busy}, at)
        journal.put_busy({T4: 1000}, at + 3600)
    journal.put_busy({T4: 1000}, NOW)
    assert journal.usual(NOW) == {T4: 4}
    assert journal.usual(NOW + 2 * 3600) == {}


def test_a_week_in_which_nobody_looked_does_not_count_as_a_quiet_one(journal: SqlJournal) -> None:
    journal.put_busy({T4: 6, PoolName("cpu"): 0}, NOW - 3 * WEEK_S)
    journal.put_busy({T4: 2}, NOW - WEEK_S)
    assert journal.usual(NOW) == {T4: 4, "cpu": 0}


def test_the_busiest_moment_of_an_hour_outlives_a_restart_within_it(journal: SqlJournal, where: Path | URL) -> None:
    journal.put_busy({T4: 5}, NOW)
    again = SqlJournal(where)
    again.put_busy({T4: 2}, NOW + 1)
    assert again.usual(NOW + WEEK_S) == {T4: 5}
    again.put_busy({T4: 1}, NOW + 6 * WEEK_S)
    assert again.usual(NOW + WEEK_S) == {}
    again.dispose()


def test_events_are_told_oldest_first_and_not_again_within_the_hour(journal: SqlJournal) -> None:
    closed = Event(NOW, EventKind.CLOSED, T4, "t4 is closed for 5 min: none left")
    other = replace(closed, at=NOW + 1, text="t4 is closed for 10 min: none left")
    journal.tell([other, closed, replace(closed, at=NOW + 3599)])
    journal.tell([])
    assert journal.events(NOW) == (closed, other)
    journal.tell([replace(closed, at=NOW + 3600)])
    assert [event.at for event in journal.events(NOW + 1)] == [NOW + 1, NOW + 3600]


def test_evidence_of_failed_machines_is_kept_by_node_the_last_one_first(journal: SqlJournal) -> None:
    journal.keep_evidence(ONE, MachineId("i-1"), NOW, "it has not joined", "kernel panic")
    journal.keep_evidence(ONE, MachineId("i-2"), NOW + 1, "it has not joined", "a" + "b" * 100_000)
    journal.keep_evidence(ONE, MachineId("i-1"), NOW, "it has not joined", "kernel panic, more of it")
    last, first = journal.evidence(ONE)
    assert first == Evidence(ONE, MachineId("i-1"), NOW, "it has not joined", "kernel panic, more of it")
    assert (last.machine, set(last.text)) == ("i-2", {"b"})
    assert journal.evidence(TWO) == ()


# --- what was decided ------------------------------------------------------------------------------------------------

START = Action(Verb.START, ONE, "job 17 waits", OpId("t1-0"), T4, JobId("17"))


def seen(at: float, tick: str = "t") -> Snapshot:
    return view(now=at, tick=tick)


def test_a_plan_is_kept_once_while_it_says_the_same(journal: SqlJournal) -> None:
    journal.record(seen(NOW), Plan("t1", NOW, (START,)))
    journal.record(seen(NOW + 1), Plan("t2", NOW + 1, (replace(START, op=OpId("t2-0"), reason="for 61 s"),)))
    journal.record(seen(NOW + 2), Plan("t3", NOW + 2))
    kept = list(journal.plans(NOW - 1))
    assert [told["actions"] for _, told in kept] == [[["start", ONE, "job 17 waits", "t4", "17", "t1-0"]], []]


def test_a_snapshot_is_kept_with_its_plan_when_the_plan_is_new_and_every_five_minutes(journal: SqlJournal) -> None:
    kept = {at: (seen(NOW + at, f"d-{at}"), Plan(f"d-{at}", NOW + at, (START,) * (at > 2))) for at in (1, 2, 5, 6, 305)}
    for sight, plan in kept.values():
        journal.record(sight, plan)
    assert list(journal.decided(NOW, NOW + 600)) == [kept[1], kept[5], kept[305]]
    assert list(journal.snapshots(NOW + 5, NOW + 5)) == [kept[5][0]]
    assert [(at, tick, said) for at, tick, said in journal.ticks(NOW + 5)] == [
        (NOW + 5, "d-5", "1 start"),
        (NOW + 305, "d-305", "1 start"),
    ]


def test_after_a_snapshot_none_is_written_for_a_while_and_then_what_was_said_last(journal: SqlJournal) -> None:
    at_once = NOW + 1e-6
    journal.record(seen(NOW, "t1"), Plan("t1", NOW))
    journal.record(seen(at_once, "t2"), Plan("t2", at_once, (START,)))
    assert [tick for _, tick, _ in journal.ticks(NOW)] == ["t1"]
    journal.record(seen(NOW + 60, "t3"), Plan("t3", NOW + 60, (START,)))
    assert [tick for _, tick, _ in journal.ticks(NOW)] == ["t1", "t3"]


def test_a_tick_is_found_by_its_id_its_beginning_its_number_or_as_the_last(journal: SqlJournal) -> None:
    for at, tick in enumerate(("2026-aa-1", "2026-aa-12", "2027-bb-1")):
        journal.record(seen(NOW + at, tick), Plan(tick, NOW + at, (START,) if at % 2 else ()))
    for name, tick in (("2026-aa-1",) * 2, ("12", "2026-aa-12"), ("2027-", "2027-bb-1"), ("last", "2027-bb-1")):
        found = journal.stored(name)
        assert found
        assert (found[0], found[1].tick) == (journal.snapshot_of(name), tick)
    assert journal.stored("2") is None
    with pytest.raises(Misconfigured, match="2 ticks fit 1: 2027-bb-1, 2026-aa-1; name one of them whole"):
        journal.stored("1")


def test_snapshots_are_kept_for_two_days(journal: SqlJournal) -> None:
    for tick, at in (("t1", NOW), ("t2", NOW + 86400), ("t3", NOW + SNAPSHOTS_KEPT_S + 1)):
        journal.record(seen(at, tick), Plan(tick, at))
    assert [tick for _, tick, _ in journal.ticks(0)] == ["t2", "t3"]
    assert len(list(journal.plans(0))) == 3


def test_the_oldest_snapshots_go_when_there_are_too_many_bytes(journal: SqlJournal) -> None:
    for number in range(3):
        journal.record(seen(NOW + number * 1000, f"t{number}"), Plan(f"t{number}", NOW + number * 1000))
    with journal._database.writing() as db:
        db.execute(update(SNAPSHOTS).where(SNAPSHOTS.c.tick == "t1").values(bytes=MOST_BYTES))
    journal.record(seen(NOW + 3000, "t3"), Plan("t3", NOW + 3000))
    assert [tick for _, tick, _ in journal.ticks(0)] == ["t2", "t3"]


def test_a_snapshot_that_this_version_cannot_read_is_left_out_and_named(
    journal: SqlJournal, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2):
        journal.record(seen(NOW + number, f"t{number}"), Plan(f"t{number}", NOW, (START,) * number))
    with journal._database.writing() as db:
        db.execute(update(SNAPSHOTS).where(SNAPSHOTS.c.tick == "t0").values(view=b"of another world"))
    assert [sight.tick for sight in journal.snapshots(NOW, NOW + 1)] == ["t1"]
    assert "tick t0 is left out" in caplog.text


def test_history_tells_what_was_done_for_a_job_and_with_a_node(journal: SqlJournal) -> None:
    journal.begin([start("op-1", ONE), start("op-2", TWO, job="18")])
    journal.finish(OpId("op-1"), {ONE: OK}, NOW)
    assert [row["node"] for row in journal.history(job=JobId("17"))] == [ONE]
    assert [(row["id"], row["result"]) for row in journal.history(node=TWO)] == [("op-2", None)]


def test_what_is_old_goes_but_never_what_is_under_way(journal: SqlJournal) -> None:
    long_ago = NOW - KEPT_S - 10
    journal.begin([start("old", ONE, began=long_ago), start("open", TWO, began=long_ago)])
    journal.finish(OpId("old"), {ONE: OK}, long_ago)
    journal.tell([Event(long_ago, EventKind.OPENED, T4, "t4 is open again")])
    journal.keep_evidence(ONE, MachineId("i-1"), long_ago, "it has not joined", "kernel panic")
    journal.record(view(), Plan("t1", NOW))
    assert [operation.id for operation in journal.under_way()] == ["open"]
    assert not any((journal.history(node=ONE), journal.events(0), journal.evidence(ONE)))


def test_what_machines_and_clouds_write_is_kept_whatever_it_is(journal: SqlJournal) -> None:
    journal.keep_evidence(ONE, MachineId("i-1"), NOW, "it has not joined", "boot\0loader \udcff ready")
    journal.begin([start("op-1", ONE)])
    journal.finish(OpId("op-1"), {ONE: Outcome(Result.TRANSIENT, "\0")}, NOW)
    (kept,) = journal.evidence(ONE)
    assert kept.text == "boot\ufffdloader ? ready"
    assert journal.history(node=ONE)[0]["detail"] == "\ufffd"


def test_over_years_the_journal_stays_as_large_as_a_month(journal: SqlJournal) -> None:
    def rows() -> list[int]:
        tables = (OPERATIONS, ITEMS, EVENTS, EVIDENCE, PLANS, FACTS, BUSY, SNAPSHOTS)
        with journal._database.reading() as db:
            return [db.execute(select(func.count()).select_from(table)).scalar() or 0 for table in tables]

    after: list[list[int]] = []
    for day in range(0, 730, 10):
        now = NOW + day * 86400.0
        journal.begin([start(f"op-{day}", began=now)])
        journal.finish(OpId(f"op-{day}"), {ONE: OK, TWO: OK}, now)
        journal.tell([Event(now, EventKind.OPENED, T4, "t4 is open again")])
        journal.keep_evidence(ONE, MachineId(f"i-{day}"), now, "it has not joined", "kernel panic")
        journal.put_fact(Fact(FactKind.QUARANTINE, NodeName(f"t4-{day}"), now, now + 600, "it failed"))
        journal.put_busy({T4: 1}, now)
        journal.record(seen(now, f"t{day}"), Plan(f"t{day}", now, (replace(START, arg=str(day)),)))
        after.append(rows())
    assert after[-1] == after[10]
    assert max(after[-1]) <= 2 * 7


def test_what_is_too_much_goes_as_well_the_oldest_first_and_some_at_a_time(
    journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "MOST_PLANS", 10)
    monkeypatch.setattr(tables, "FORGOTTEN_AT_ONCE", 8)
    with journal._database.writing() as db:
        db.execute(
            insert(PLANS), [{"tick": f"t{number}", "at": NOW - 30 + number, "plan": "{}"} for number in range(30)]
        )
    counts = []
    for number in range(1, 5):
        now = NOW + number * 600
        journal.record(seen(now, f"u{number}"), Plan(f"u{number}", now, (replace(START, arg=str(number)),)))
        counts.append(len(list(journal.plans(0))))
    assert counts == [23, 16, 10, 10]
    assert [at for at, _ in journal.plans(0)][-1] == NOW + 2400


# --- the file --------------------------------------------------------------------------------------------------------


def test_a_journal_that_cannot_be_opened_is_named_with_the_key_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Misconfigured, match=r"journal\.db: the journal can't be opened .* state_dir"):
        SqlJournal(tmp_path / "file" / "journal.db")
    (tmp_path / "journal.db").write_text("this is no database, and long enough to be seen as none" * 50)
    with pytest.raises(Misconfigured, match="file is not a database"):
        SqlJournal(tmp_path / "journal.db")


def test_whoever_may_only_read_the_journal_can_look_while_the_daemon_writes(
    journal: SqlJournal, where: Path | URL
) -> None:
    reader = SqlJournal(where, read_only=True)
    journal.begin([start()])
    assert [operation.id for operation in reader.under_way()] == ["op-1"]
    with pytest.raises(Unavailable, match=r"read.?only"):
        reader.put_idle({ONE: NOW})
    reader.dispose()
