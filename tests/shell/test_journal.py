"""The journal: what it keeps, in which order, and over a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from cmscale.model import (
    Action,
    Closure,
    Creations,
    JobId,
    MachineId,
    NodeName,
    Operation,
    OpId,
    Outcome,
    Plan,
    PoolName,
    Result,
    Verb,
)
from cmscale.ports import Misconfigured
from cmscale.shell.journal import KEPT_S, SqlJournal
from tests.builders import NOW, view

T4 = PoolName("t4")
ONE, TWO = NodeName("t4-1"), NodeName("t4-2")
OK = Outcome(Result.OK, "", MachineId("i-1"))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    journal = SqlJournal(tmp_path / "state" / "journal.db")
    yield journal
    journal.dispose()


def start(op: str = "op-1", *nodes: NodeName, began: float = NOW, job: str = "17") -> Operation:
    names = nodes or (ONE, TWO)
    jobs = (JobId(job),) * len(names)
    return Operation(OpId(op), Verb.START, T4, names, began, "why", jobs, (2,) * len(names), all_or_none=True)


def test_an_operation_is_under_way_until_it_is_finished_and_comes_back_whole(journal: SqlJournal) -> None:
    journal.begin([start()])
    assert journal.under_way() == (start(),)
    journal.finish(OpId("op-1"), {ONE: OK, TWO: Outcome(Result.CAPACITY, "none left")}, NOW)
    assert journal.under_way() == ()


def test_what_was_begun_is_there_after_a_restart(journal: SqlJournal, tmp_path: Path) -> None:
    journal.begin([start("op-2", began=NOW + 1), start("op-1")])
    again = SqlJournal(tmp_path / "state" / "journal.db")
    assert [operation.id for operation in again.under_way()] == ["op-1", "op-2"]
    again.dispose()


def test_machines_count_as_created_when_made_or_perhaps_made_but_not_when_refused(journal: SqlJournal) -> None:
    journal.begin([start("op-1"), start("op-2", TWO, began=NOW + 5)])
    journal.finish(OpId("op-1"), {ONE: OK, TWO: Outcome(Result.CAPACITY)}, NOW)
    assert journal.creations({JobId("17"): NOW - 60}) == {"17": Creations(machines=2, need=2)}
    assert journal.creations({JobId("17"): NOW + 1}) == {"17": Creations(machines=1, need=2)}
    assert journal.starts(NOW - 1) == (NOW, NOW + 5)
    assert journal.starts(NOW) == (NOW + 5,)


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
    journal: SqlJournal, tmp_path: Path
) -> None:
    journal.close(T4, Closure(NOW + 10, Result.CAPACITY, "none left"))
    journal.close(T4, Closure(NOW + 20, Result.QUOTA, "limit", strikes=2))
    again = SqlJournal(tmp_path / "state" / "journal.db")
    assert again.closed() == {T4: Closure(NOW + 20, Result.QUOTA, "limit", strikes=2)}
    again.close(T4, None)
    assert journal.closed() == {}
    again.dispose()


def test_a_plan_is_kept_once_while_it_says_the_same(journal: SqlJournal) -> None:
    action = Action(Verb.START, ONE, "job 17 waits", OpId("t1-0"), T4, JobId("17"))
    journal.record(view(), Plan("t1", NOW, (action,)))
    journal.record(view(), Plan("t2", NOW + 1, (action,)))
    journal.record(view(), Plan("t3", NOW + 2))
    kept = list(journal.plans(NOW - 1))
    assert [told["actions"] for _, told in kept] == [[["start", ONE, "job 17 waits", "t4", "17", "t1-0"]], []]


def test_history_tells_what_was_done_for_a_job_and_with_a_node(journal: SqlJournal) -> None:
    journal.begin([start("op-1", ONE), start("op-2", TWO, job="18")])
    journal.finish(OpId("op-1"), {ONE: OK}, NOW)
    assert [row["node"] for row in journal.history(job=JobId("17"))] == [ONE]
    assert [(row["id"], row["result"]) for row in journal.history(node=TWO)] == [("op-2", None)]


def test_what_is_old_goes_but_never_what_is_under_way(journal: SqlJournal) -> None:
    long_ago = NOW - KEPT_S - 10
    journal.begin([start("old", ONE, began=long_ago), start("open", TWO, began=long_ago)])
    journal.finish(OpId("old"), {ONE: OK}, long_ago)
    journal.record(view(), Plan("t1", NOW))
    assert [operation.id for operation in journal.under_way()] == ["open"]
    assert journal.history(node=ONE) == ()


def test_a_journal_that_cannot_be_opened_is_named_with_the_key_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Misconfigured, match=r"journal\.db: the journal can't be opened .* state_dir"):
        SqlJournal(tmp_path / "file" / "journal.db")
    (tmp_path / "journal.db").write_text("this is no database, and long enough to be seen as none" * 50)
    with pytest.raises(Misconfigured, match="file is not a database"):
        SqlJournal(tmp_path / "journal.db")


def test_whoever_may_only_read_the_journal_can_look_while_the_daemon_writes(
    journal: SqlJournal, tmp_path: Path
) -> None:
    reader = SqlJournal(tmp_path / "state" / "journal.db", read_only=True)
    journal.begin([start()])
    assert [operation.id for operation in reader.under_way()] == ["op-1"]
    with pytest.raises(OperationalError, match="readonly"):
        reader.put_idle({ONE: NOW})
    reader.dispose()
