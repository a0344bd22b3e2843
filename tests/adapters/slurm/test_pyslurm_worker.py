"""What PySlurm's objects say in squeue's and sinfo's words."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cmscale.adapters.slurm.pyslurm import worker
from tests.adapters.slurm.pyslurms import ATTRIBUTES, BOTH


def job_words(**changes: Any) -> dict[str, str]:
    """The words of the first recorded job, changed."""
    return words(worker.JOB, BOTH["jobs"][0] | changes)


def node_words(**changes: Any) -> dict[str, str]:
    return words(worker.NODE, BOTH["nodes"][0] | changes)


def words(table: Mapping[str, worker.Field], values: dict[str, Any]) -> dict[str, str]:
    answer = worker.columns(table, type("Thing", (), values), [SimpleNamespace(**values)])
    assert not answer["unreadable"]
    return {field: column[0] for field, column in answer["columns"].items()}


@pytest.mark.parametrize("release", ATTRIBUTES)
def test_every_release_of_pyslurm_has_the_attributes_that_we_read(release: str) -> None:
    for kind, table in (("Job", worker.JOB), ("Node", worker.NODE)):
        of_release = type(kind, (), dict.fromkeys(ATTRIBUTES[release][kind]))
        assert worker.known(table, of_release) == list(table)


def test_a_field_whose_attribute_is_gone_is_not_told() -> None:
    values = BOTH["jobs"][0]
    without = {name: value for name, value in values.items() if name != "deadline"}
    answer = worker.columns(worker.JOB, type("Job", (), without), [SimpleNamespace(**without)])
    assert set(worker.JOB) - set(answer["columns"]) == {"Deadline"}


@pytest.mark.parametrize(
    ("changes", "job", "tasks", "array"),
    [
        ({}, "7", "N/A", "7"),
        ({"array_id": 5, "array_task_id": 3}, "5_3", "3", "5"),
        # PySlurm takes a 0 for "not set".
        ({"array_id": 5, "array_task_id": None}, "5_0", "0", "5"),
        ({"array_id": 5, "array_tasks_waiting": "4-9"}, "5_[4-9]", "4-9", "5"),
        ({"array_id": 5, "array_tasks_waiting": "4-9", "array_tasks_parallel": 2}, "5_[4-9]", "4-9%2", "5"),
        ({"heterogeneous_id": 6, "heterogeneous_offset": None}, "6+0", "N/A", "7"),
        ({"heterogeneous_id": 6, "heterogeneous_offset": 1}, "6+1", "N/A", "7"),
    ],
)
def test_jobs_arrays_and_components_are_named_as_squeue_names_them(
    changes: dict[str, Any], job: str, tasks: str, array: str
) -> None:
    plain = dict.fromkeys(
        ("array_id", "array_task_id", "array_tasks_waiting", "array_tasks_parallel", "heterogeneous_id")
    )
    said = job_words(**{"id": 7, **plain, **changes})
    assert (said["JobArrayID"], said["ArrayTaskID"], said["ArrayJobID"]) == (job, tasks, array)


def test_what_is_not_set_is_written_as_squeue_writes_it() -> None:
    unset = job_words(time_limit=None, deadline=None, start_time=None, sockets_per_node=None, ntasks_per_node=None)
    fields = ("TimeLimit", "Deadline", "StartTime", "Sockets", "NTPerNode")
    assert [unset[field] for field in fields] == ["UNLIMITED", "N/A", "N/A", "*", "0"]


def test_one_cpu_for_each_task_may_also_mean_that_nothing_was_said() -> None:
    assert job_words(cpus_per_task=1)["cpus-per-task"] == job_words(cpus_per_task=None)["cpus-per-task"] == "N/A"
    assert job_words(cpus_per_task=2)["cpus-per-task"] == "2"


def test_memory_is_told_whether_it_is_asked_for_each_cpu_or_node() -> None:
    assert job_words(memory_per_cpu=None, memory_per_node=1500)["MinMemory"] == "1500M"
    assert job_words(memory_per_cpu=100, memory_per_node=None)["MinMemory"] == "100M"
    assert job_words(memory_per_cpu=None, memory_per_node=None)["MinMemory"] == "0M"


def test_a_user_without_a_name_goes_by_the_number() -> None:
    assert job_words(user_id=4_000_000_001)["UserName"] == "4000000001"


@pytest.mark.parametrize(
    ("state", "allocated", "word"),
    [
        ("ALLOCATED+CLOUD", 3, "MIXED+CLOUD"),
        ("ALLOCATED+CLOUD", 4, "ALLOCATED+CLOUD"),
        ("MIXED+CLOUD+DRAIN", 3, "MIXED+CLOUD+DRAIN"),
        ("ALLOCATED", 3, "MIXED"),
        ("IDLE+CLOUD", 0, "IDLE+CLOUD"),
        ("DOWN+CLOUD+DRAIN", 0, "DOWN+CLOUD+DRAIN"),
    ],
)
def test_a_node_of_which_a_part_is_taken_is_mixed_in_every_release(state: str, allocated: int, word: str) -> None:
    assert node_words(state=state, allocated_cpus=allocated, total_cpus=4)["StateComplete"] == word


class Garbled:
    """A job of which PySlurm cannot tell one thing."""

    def __init__(self, what: str, error: Exception) -> None:
        self._what, self._error = what, error

    def __getattr__(self, name: str) -> Any:
        if name == self._what:
            raise self._error
        return BOTH["jobs"][0][name]

    def __repr__(self) -> str:
        return "pyslurm.Job(1)"


def test_a_comment_that_is_no_utf8_text_is_some_comment_and_not_none() -> None:
    garbled = Garbled("comment", UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    answer = worker.columns(worker.JOB, type("Job", (), BOTH["jobs"][0]), [garbled])
    assert answer["columns"]["Comment"] == [worker.NOT_UTF8]
    assert not answer["unreadable"]


def test_a_record_that_pyslurm_cannot_tell_costs_itself_and_a_sentence() -> None:
    good = SimpleNamespace(**BOTH["jobs"][1])
    garbled = Garbled("licenses", IndexError("list index out of range"))
    answer = worker.columns(worker.JOB, type("Job", (), BOTH["jobs"][0]), [garbled, good])
    assert answer["columns"]["JobID"] == [str(good.id)]
    assert answer["unreadable"] == ["pyslurm.Job(1) could not be read by PySlurm: IndexError: list index out of range"]
