"""What does PySlurm know of Slurm's queue and nodes, in squeue's and sinfo's words?

A program by itself, run by any Python that has PySlurm: it uses nothing of cm-scale and is spoken to in lines of JSON,
{"ask": "about" | "jobs" | "nodes", "limit_s": ...} in, one line with the answer out. It answers with one column for
each field that this release of PySlurm knows, so that whoever asks can get the others elsewhere. The tables below are
all that ties us to PySlurm; their names are the same in 22.5 to 25.11.

What PySlurm garbles is left out: the resources that jobs ask (before 25.11 those of --gpus are missing, from then on
those written with a colon), the GRES of nodes (one without a count raises in 22.5 and is dropped later) and how many of
them are in use (empty in 22.5, later known only where accounting counts them).
"""

from __future__ import annotations

import gc
import json
import math
import os
import pwd
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, TextIO

NOT_UTF8 = "\ufffd"
"""In the place of a person's words that are no UTF-8 text: PySlurm raises for them."""

GRACE_S = 1
"""How long we outlive our limit, should whoever asked not end us: a call holds the GIL, but not the kernel's alarm."""

Field = tuple[tuple[str, ...], Callable[..., str]]
"""Attributes of PySlurm's object, and the word of squeue or sinfo that they make."""


def text(value: str | None) -> str:
    return value or ""


def number(value: int | None) -> str:
    return str(value or 0)


def count_or_any(value: int | None) -> str:
    return "*" if value is None else str(value)


def listed(values: Sequence[str] | None) -> str:
    return ",".join(values or ())


def moment(value: int | None) -> str:
    return str(value) if value else "N/A"


def minutes(value: int | None) -> str:
    return f"{value}:00" if value else "UNLIMITED"


def yes_or_no(value: object) -> str:
    return "1" if value else "0"


def cpus_per_task(value: int | None) -> str:
    # 1 also stands for "not said": from 23.11 on Slurm keeps what was said among the resources of each task.
    return str(value) if value and value > 1 else "N/A"


def memory(per_cpu: int | None, per_node: int | None) -> str:
    return f"{per_cpu or per_node or 0}M"


@lru_cache(maxsize=4096)
def user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def array_tasks(array: int | None, task: int | None, waiting: str | None, at_once: int | None) -> str:
    if not array:
        return "N/A"
    if waiting:
        return f"{waiting}%{at_once}" if at_once else waiting
    # PySlurm takes task 0 for none.
    return str(task or 0)


def job_array_id(  # noqa: PLR0917 - as attributes stand in the table
    number: int, array: int | None, task: int | None, waiting: str | None, het: int | None, offset: int | None
) -> str:
    if array:
        return f"{array}_[{waiting}]" if waiting else f"{array}_{task or 0}"
    return f"{het}+{offset or 0}" if het else str(number)


def state_with_mixed(state: str, allocated: int | None, total: int | None) -> str:
    # sinfo, and PySlurm from 23.2 on, call a node mixed of which a part is taken.
    base, plus, flags = state.partition("+")
    partly = base == "ALLOCATED" and 0 < (allocated or 0) < (total or 0)
    return f"MIXED{plus}{flags}" if partly else state


def cpus_by_state(allocated: int | None, total: int | None) -> str:
    taken, there = allocated or 0, total or 0
    return f"{taken}/{max(there - taken, 0)}/0/{there}"


JOB: Mapping[str, Field] = {
    "JobID": (("id",), str),
    "Partition": (("partition",), text),
    "NumTasks": (("ntasks",), number),
    "cpus-per-task": (("cpus_per_task",), cpus_per_task),
    "NTPerNode": (("ntasks_per_node",), number),
    "MinCpus": (("min_cpus_per_node",), number),
    "MinMemory": (("memory_per_cpu", "memory_per_node"), memory),
    "OverSubscribe": (("resource_sharing",), text),
    "Feature": (("constraints",), listed),
    "TimeLimit": (("time_limit",), minutes),
    "Deadline": (("deadline",), moment),
    "Reservation": (("reservation",), text),
    "Licenses": (("licenses",), listed),
    "ReqNodes": (("required_nodes",), text),
    "Sockets": (("sockets_per_node",), count_or_any),
    "JobArrayID": (
        ("id", "array_id", "array_task_id", "array_tasks_waiting", "heterogeneous_id", "heterogeneous_offset"),
        job_array_id,
    ),
    "ArrayJobID": (("array_id", "id"), lambda array, number: str(array or number)),
    "ArrayTaskID": (("array_id", "array_task_id", "array_tasks_waiting", "array_tasks_parallel"), array_tasks),
    "HetJobID": (("heterogeneous_id",), lambda het: str(het) if het else "N/A"),
    "State": (("state",), text),
    "UserName": (("user_id",), user),
    "Account": (("account",), text),
    "QOS": (("qos",), text),
    "SubmitTime": (("submit_time",), moment),
    "EligibleTime": (("eligible_time",), moment),
    "StartTime": (("start_time",), moment),
    "Requeue": (("is_requeueable",), yes_or_no),
    "PriorityLong": (("priority",), number),
    "NodeList": (("allocated_nodes",), text),
    "Reason": (("state_reason",), text),
    "Comment": (("comment",), text),
    "ExcNodes": (("excluded_nodes",), text),
}
NODE: Mapping[str, Field] = {
    "NodeList": (("name",), text),
    "Partition": (("partitions",), listed),
    "StateComplete": (("state", "allocated_cpus", "total_cpus"), state_with_mixed),
    "CPUsState": (("allocated_cpus", "total_cpus"), cpus_by_state),
    "Memory": (("real_memory",), number),
    "AllocMem": (("allocated_memory",), number),
    "features_act": (("active_features",), listed),
    "NodeAddr": (("address",), text),
    "Reason": (("reason",), text),
}
WRITTEN_BY_PEOPLE = frozenset({"Comment", "Reason"})


def known(table: Mapping[str, Field], kind: type) -> list[str]:
    """The fields whose attributes this release of PySlurm has."""
    return [field for field, (names, _) in table.items() if all(hasattr(kind, name) for name in names)]


def columns(table: Mapping[str, Field], kind: type, things: Iterable[Any]) -> dict[str, Any]:
    """A column for each field, and a sentence for each record that could not be read; that one is in no column."""
    fields, records = known(table, kind), list(things)
    with suppress(Exception):  # one record spoils the whole column; then each is read by itself
        return {"columns": {field: _column(table[field], records) for field in fields}, "unreadable": []}
    rows, unreadable = [], []
    for record in records:
        try:
            rows.append([_word(field, table[field], record) for field in fields])
        except Exception as error:  # noqa: BLE001 - whatever PySlurm says of this one
            unreadable.append(f"{record!r} could not be read by PySlurm: {type(error).__name__}: {error}")
    told = zip(*rows, strict=True) if rows else ([] for _ in fields)
    return {
        "columns": {field: list(column) for field, column in zip(fields, told, strict=True)},
        "unreadable": unreadable,
    }


def _column(field: Field, records: list[Any]) -> list[str]:
    names, word = field
    values = map(attrgetter(*names), records)
    return [word(value) for value in values] if len(names) == 1 else [word(*value) for value in values]


def _word(field: str, told_by: Field, record: Any) -> str:
    names, word = told_by
    try:
        return word(*(getattr(record, name) for name in names))
    except UnicodeDecodeError:
        if field in WRITTEN_BY_PEOPLE:
            return NOT_UTF8
        raise


def about() -> dict[str, Any]:
    import pyslurm

    built_for = pyslurm.slurm_api_version()
    return {
        "version": pyslurm.__version__,
        "slurm": [int(part) for part in built_for][:2],
        "job_fields": known(JOB, pyslurm.Job),
        "node_fields": known(NODE, pyslurm.Node),
    }


def jobs() -> dict[str, Any]:
    import pyslurm

    return columns(JOB, pyslurm.Job, pyslurm.Jobs.load().values())


def nodes() -> dict[str, Any]:
    import pyslurm

    return columns(NODE, pyslurm.Node, pyslurm.Nodes.load().values())


ANSWERS = {"about": about, "jobs": jobs, "nodes": nodes}


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, or {"error": "missing" | "refused" | "broken", "why": a sentence}."""
    signal.alarm(math.ceil(request["limit_s"]) + GRACE_S)
    # A large queue is many objects and no cycle: the search for them would cost half of the time.
    gc.disable()
    try:
        return ANSWERS[request["ask"]]()
    except ImportError as error:
        return {"error": "missing", "why": str(error)}
    except Exception as error:  # noqa: BLE001 - all that PySlurm may raise is an answer
        slurms = any(kind.__name__ == "RPCError" for kind in type(error).__mro__)
        why = str(error) if slurms else f"{type(error).__name__}: {error}"
        return {"error": "refused" if slurms else "broken", "why": why}
    finally:
        gc.enable()
        signal.alarm(0)


def serve(requests: Iterable[str], answers: TextIO) -> None:
    """Answer line by line until whoever asks is gone."""
    for line in requests:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")
        answers.flush()


def main() -> None:
    # What libslurm prints must not come between our lines.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        serve(sys.stdin, answers)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
