"""Jobs and nodes from recorded lines: recorded/22.05 is a real queue, names.txt has the names of its jobs.

squeue.txt was recorded before Deadline, StartTime and Requeue were asked for, and has stand-ins for them; reserved.txt
has what Slurm wrote.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from cmscale.adapters.slurm import parse
from cmscale.adapters.slurm.records import (
    ALIKE_FIELDS,
    SINFO_FIELDS,
    SQUEUE_FIELDS,
    Counting,
    JobRow,
    counting,
    job_row,
    jobs,
    node_rows,
    nodes,
)
from cmscale.model import Ask, Help, Job, NodeRecord, Shape
from tests.adapters.slurm.recording import RECORDED, excluded, rows, shown, sinfo_row, squeue_row

_NOW = 1795193600.0
"""A minute or so after the recording."""

_RESERVED_NOW = 1795203800.0


@pytest.fixture(scope="module")
def queue() -> dict[str, Job]:
    reading = jobs(map(job_row, rows("22.05", "squeue.txt", SQUEUE_FIELDS)), excluded("22.05"), _NOW)
    assert not reading.unreadable
    lines = (RECORDED / "22.05" / "names.txt").read_text().splitlines()
    names = dict(line.split(" ", 1) for line in lines)
    folded = {number.partition("_")[0]: name for number, name in names.items() if "[" in number}
    return {
        folded.get(job.id)
        or f"{names[job.id]}{job.id[job.id.find('+') :] if '+' in job.id else ''}"
        + (f" {job.id}" if "_" in job.id else ""): job
        for job in reading.items
    }


@pytest.fixture(scope="module")
def reserved() -> dict[str, Job]:
    """A real queue beside reservations; the comments are the names of its jobs."""
    recorded = rows("22.05", "reserved.txt", SQUEUE_FIELDS)
    ids = [row[SQUEUE_FIELDS.index("JobID")] for row in recorded]
    reading = jobs(map(job_row, recorded), dict.fromkeys(ids, ""), _RESERVED_NOW)
    assert not reading.unreadable
    return {job.comment: job for job in reading.items}


def _one(**changes: str) -> Job:
    reading = jobs([squeue_row(**changes)], {"17": ""}, _NOW)
    assert not reading.unreadable
    return reading.items[0]


# What differs from Ask's defaults; on the recorded cluster each CPU has 100 MiB by default.
_PLAIN: dict[str, Any] = {"partitions": ("batch",), "mem_mb_per_node": 100}
_GPU: dict[str, Any] = {"partitions": ("gpu",), "mem_mb_per_node": 100}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("plain", _PLAIN),
        ("array", _PLAIN),
        ("multi", {"partitions": ("batch",), "nodes": 2, "tasks": 8, "mem_mb_per_cpu": 100}),
        (
            "ntpn",
            {
                "partitions": ("batch",),
                "nodes": 2,
                "tasks": 4,
                "cpus_per_task": 2,
                "tasks_per_node": 2,
                "cpus_per_node": 4,
                "mem_mb_per_cpu": 100,
            },
        ),
        ("gpusjob", _GPU | {"gpus": 3}),
        ("gpusnode", _GPU | {"nodes": 2, "tasks": 2, "gpus_per_node": 1, "gpu_type": "t4"}),
        ("grestype", _GPU | {"gpus_per_node": 1, "gpu_type": "t4"}),
        ("gres", _GPU | {"partitions": ("gpu", "batch"), "gpus_per_node": 1}),
        ("gputask", {"partitions": ("gpu",), "tasks": 3, "mem_mb_per_cpu": 100, "gpus_per_task": 1}),
        ("gpusock", _GPU | {"gpus_per_node": 1}),
        ("cpg", _GPU | {"gpus": 2, "cpus_per_gpu": 2}),
        ("mpg", {"partitions": ("gpu",), "gpus": 2, "mem_mb_per_gpu": 500}),
        ("gtyp", _GPU | {"gpus": 2, "gpu_type": "t4", "cpus_per_gpu": 2}),
        ("cons", _PLAIN | {"constraint": parse.constraint("aws&cloud")}),
        ("consmatch", _PLAIN | {"nodes": 2, "tasks": 2, "constraint": parse.constraint("[aws|onprem]")}),
        ("conscnt", _PLAIN | {"nodes": 3, "tasks": 3, "constraint": parse.constraint("[aws*2&onprem*1]")}),
        ("excl", _GPU | {"exclusive": True}),
        ("excluser", _GPU | {"exclusive": True}),
        ("shares", _GPU),
        ("mem", {"partitions": ("batch",), "nodes": 2, "tasks": 4, "mem_mb_per_node": 2048}),
        ("mempcpu", {"partitions": ("batch",), "tasks": 4, "mem_mb_per_cpu": 2048}),
        (
            "mempcpu2",
            {"partitions": ("batch",), "tasks": 4, "cpus_per_task": 2, "cpus_per_node": 2, "mem_mb_per_cpu": 2048},
        ),
        ("mem0", {"partitions": ("gpu",), "whole_memory": True}),
        ("nodelist", _PLAIN | {"nodes": 2, "tasks": 2, "nodelist": frozenset({"aws-1", "aws-2"})}),
        ("exclude", _PLAIN | {"exclude": frozenset({"aws-1", "op1"})}),
        ("two", _PLAIN | {"partitions": ("gpu", "batch")}),
        ("time", _PLAIN | {"limit_s": 26 * 3600}),
        ("lic", _PLAIN | {"licences": "matlab:2"}),
        ("range", {"partitions": ("batch",), "nodes": 2, "tasks": 2, "mem_mb_per_cpu": 100}),
        ("mincpu", _GPU | {"cpus_per_node": 4}),
        ("nodes9", _GPU | {"nodes": 9, "tasks": 9}),
        ("resv", _PLAIN | {"nodelist": frozenset({"op2"}), "reservation": "maint"}),
    ],
)
def test_a_recorded_job_asks_what_its_user_wrote(queue: dict[str, Job], name: str, asked: dict[str, Any]) -> None:
    assert queue[name].ask == Ask(**asked)


@pytest.mark.parametrize(
    ("name", "help_", "why"),
    [
        ("plain", Help.NO, ""),
        ("array", Help.NO, "as many tasks of its array run as it allows"),
        ("arrlist", Help.NODES, "waits behind jobs of higher priority"),
        ("gpusjob", Help.NODES, "the nodes it could use are off or taken"),
        ("cons", Help.NODES, "the nodes it could use are off or taken"),
        ("begin", Help.NO, "its begin time has not come"),
        ("dep", Help.NO, "waits for other jobs"),
        ("hold", Help.NO, "held by its user"),
        ("arrayhold", Help.NO, "held by its user"),
        ("toobig", Help.NO, "its partition cannot hold it"),
        ("nodes9", Help.NO, "asks for more nodes than its partition has or allows"),
        ("resv", Help.NO, "waits for its reservation"),
        ("het+0", Help.NO, "heterogeneous jobs are not served yet"),
        ("het+1", Help.NO, "heterogeneous jobs are not served yet"),
    ],
)
def test_a_recorded_job_says_whether_nodes_would_help(queue: dict[str, Job], name: str, help_: Help, why: str) -> None:
    assert (queue[name].help, queue[name].why) == (help_, why)


def test_a_folded_array_is_one_job_of_the_tasks_its_limit_leaves(queue: dict[str, Job]) -> None:
    waiting = queue["array"]
    assert (waiting.id, waiting.array, waiting.pending, waiting.count) == ("3", "3", True, 0)
    assert queue["arrlist"].count == 5
    assert queue["arrayhold"].count == 1000
    running = queue["array 3_3"]
    assert (running.id, running.array, running.count) == ("3_3", "3", 1)
    assert running.nodes == frozenset({"op1"})


def test_a_comment_may_contain_anything_and_forges_nothing(queue: dict[str, Job]) -> None:
    assert queue["evil"].comment == "x\x1fy\n99\x1f(null)\x1e\nz"
    assert queue["comment"].comment == "a|b ü"
    assert queue["plain"].comment == ""
    assert not [job for job in queue.values() if job.id == "99"]


def test_dates_are_numbers(queue: dict[str, Job]) -> None:
    assert queue["begin"].begin is not None
    assert queue["begin"].begin - queue["begin"].submit == pytest.approx(3600, abs=5)
    assert queue["hold"].begin is None


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        # As newer releases write them.
        ({"tres_per_node": "gres/gpu:t4=2"}, {"gpus_per_node": 2, "gpu_type": "t4"}),
        ({"tres_per_node": "gres/gpu:t4:2"}, {"gpus_per_node": 2, "gpu_type": "t4"}),
        ({"tres_per_job": "gres/gpu=3"}, {"gpus": 3}),
        ({"tres_per_task": "cpu=2,gres/gpu:h100=1", "cpus_per_task": "2"},
         {"cpus_per_task": 2, "gpus_per_task": 1, "gpu_type": "h100"}),
        ({"tres_per_task": "cpu:2", "cpus_per_task": "N/A"}, {"cpus_per_task": 2}),
        ({"cpus_per_tres": "gres/gpu:4"}, {"cpus_per_gpu": 4}),
        ({"mem_per_tres": "gres/gpu:2048"}, {"mem_mb_per_node": 0, "mem_mb_per_gpu": 2048}),
        ({"tres_per_socket": "gres:gpu:2", "Sockets": "2"}, {"gpus_per_node": 4}),
        ({"OverSubscribe": "TOPO"}, {"exclusive": True}),
        ({"OverSubscribe": "MCS"}, {"exclusive": True}),
        ({"tres_alloc": "cpu=4,mem=8G,node=4,billing=4", "MinMemory": "2G"}, {"nodes": 4, "mem_mb_per_node": 2048}),
        ({"tres_alloc": "N/A"}, {}),
    ],
)  # fmt: skip
def test_a_job_asks_the_same_in_the_words_of_other_releases(changes: dict[str, str], asked: dict[str, Any]) -> None:
    default: dict[str, Any] = {"partitions": ("batch",), "mem_mb_per_node": 100}
    assert _one(**changes).ask == Ask(**default | asked)


@pytest.mark.parametrize(
    ("changes", "help_", "why"),
    [
        ({"Feature": "[a^b]"}, Help.ASK_AGAIN, r"\[a\^b\]"),
        ({"tres_per_node": "gres:nvme:100"}, Help.NO, "nvme"),
        ({"tres_per_job": "gres:gpu:t4:1,gres:gpu:a100:1"}, Help.NO, "a100, t4"),
        ({"PriorityLong": "0", "Reason": "Resources"}, Help.NO, "held"),
        ({"Reason": "SomethingNew"}, Help.ASK_AGAIN, "SomethingNew"),
        ({"EligibleTime": str(int(_NOW) + 60)}, Help.NO, "begin time"),
        ({"EligibleTime": "N/A"}, Help.ASK_AGAIN, "not found it ready"),
    ],
)
def test_what_cannot_be_served_is_said(changes: dict[str, str], help_: Help, why: str) -> None:
    job = _one(**changes)
    assert job.help is help_
    assert re.search(why, job.why)


def test_a_constraint_of_unknown_form_is_met_by_no_node() -> None:
    assert _one(Feature="[a^b]").ask.constraint.choices == ()


def test_tasks_split_off_use_up_the_limit_of_their_array() -> None:
    array = {"ArrayJobID": "17"}
    reading = jobs(
        [
            squeue_row(JobArrayID="17_[4-19%5]", ArrayTaskID="4-19%5", **array),
            squeue_row(JobID="18", JobArrayID="17_1", ArrayTaskID="1", State="RUNNING", **array),
            squeue_row(JobID="19", JobArrayID="17_2", ArrayTaskID="2", State="COMPLETING", **array),
            squeue_row(JobID="20", JobArrayID="17_3", ArrayTaskID="3", **array),
        ],
        {"17": "", "20": ""},
        _NOW,
    )
    assert [job.count for job in reading.items] == [3, 1, 1, 1]


def test_a_job_in_one_answer_alone_is_left_for_the_next_tick() -> None:
    assert jobs([squeue_row()], {}, _NOW).items == ()
    assert len(jobs([squeue_row(State="RUNNING", NodeList="n[1-2]")], {}, _NOW).items) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"ArrayTaskID": "1,3,..."},
        {"MinMemory": "lots"},
        {"TimeLimit": "INVALID"},
        {"PriorityLong": "high"},
        {"ReqNodes": "n[1-"},
    ],
)
def test_a_job_that_cannot_be_read_costs_itself_and_one_sentence(changes: dict[str, str]) -> None:
    reading = jobs([squeue_row(**changes), squeue_row(JobID="18", JobArrayID="18")], {"17": "", "18": ""}, _NOW)
    assert [job.id for job in reading.items] == ["18"]
    assert len(reading.unreadable) == 1
    assert "job 17" in reading.unreadable[0]


def test_a_record_of_the_wrong_length_is_said() -> None:
    row = squeue_row()
    reading = jobs([JobRow(row.ask, ["1", "2"]), JobRow("batch", row.words)], {"17": ""}, _NOW)
    assert not reading.items
    assert "2 fields" in reading.unreadable[0]
    assert "job 17 could not be read: 1 fields of what it asks" in reading.unreadable[1]


def test_asks_that_are_written_alike_are_one_value() -> None:
    reading = jobs(
        [squeue_row(JobID=str(n), JobArrayID=str(n)) for n in range(3)], {str(n): "" for n in range(3)}, _NOW
    )
    assert len({id(job.ask) for job in reading.items}) == 1


def test_what_slurm_counts_decides_on_memory_and_whole_nodes() -> None:
    row = squeue_row(MinMemory="0", tres_alloc="cpu=1,mem=16000M,node=1,billing=1")
    cores = counting({"SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CORE"})
    linear = counting({"SelectType": "select/linear", "SelectTypeParameters": "CR_MEMORY"})
    memory = counting({"SelectType": "select/cons_tres", "SelectTypeParameters": "CR_CORE_MEMORY"})
    asks = [jobs([row], {"17": ""}, _NOW, counts).items[0].ask for counts in (cores, linear, memory)]
    assert [(ask.whole_memory, ask.exclusive) for ask in asks] == [(False, False), (True, True), (True, False)]
    assert memory == Counting()


def test_every_field_of_an_ask_is_set_by_some_job(queue: dict[str, Job], reserved: dict[str, Job]) -> None:
    default = Ask(())
    seen = [*queue.values(), *reserved.values()]
    never = {
        each.name
        for each in fields(Ask)
        if all(getattr(job.ask, each.name) == getattr(default, each.name) for job in seen)
    }
    assert never == set()


@pytest.mark.parametrize(
    ("name", "help_", "why"),
    [
        ("active", Help.NODES, "the nodes it could use are off or taken"),
        ("three", Help.NODES, "the nodes it could use are off or taken"),
        ("later", Help.NO, "waits for its reservation"),
        ("ended", Help.NO, "its reservation is gone"),
        ("named", Help.NO, "the nodes it asks for are reserved"),
        ("serviced", Help.NODES, "the nodes it could use are off or taken"),
    ],
)
def test_a_job_of_a_reservation_is_judged_like_any_other(
    reserved: dict[str, Job], name: str, help_: Help, why: str
) -> None:
    assert (reserved[name].help, reserved[name].why) == (help_, why)


def test_a_job_asks_for_its_reservation_until_slurm_has_deleted_it(reserved: dict[str, Job]) -> None:
    names = ("active", "three", "later", "named", "ended")
    assert [reserved[name].ask.reservation for name in names] == ["active", "active", "later", "", ""]


def test_a_job_waits_also_where_slurm_shows_what_befell_it(reserved: dict[str, Job]) -> None:
    assert reserved["ended"].pending
    released = _one(State="RESV_DEL_HOLD", Reason="Resources")
    assert (released.state, released.help) == ("PENDING", Help.NODES)
    assert _one(State="SPECIAL_EXIT", Reason="job requeued in held state", PriorityLong="0").why == (
        "held after a failed start"
    )


def test_a_running_job_has_a_start_a_deadline_and_a_word_on_running_again(reserved: dict[str, Job]) -> None:
    once = reserved["once"]
    assert (once.started, once.ask.deadline, once.ask.limit_s, once.requeue) == (
        1795203644.0,
        1795210843.0,
        1800,
        False,
    )
    assert (reserved["running"].ask.deadline, reserved["running"].requeue) == (None, True)


def test_the_start_that_slurm_expects_of_a_waiting_job_is_not_taken_for_its_start(reserved: dict[str, Job]) -> None:
    row = next(row for row in rows("22.05", "reserved.txt", SQUEUE_FIELDS) if row[-1] == "serviced")
    assert row[SQUEUE_FIELDS.index("StartTime")] == "1795205461"
    assert reserved["serviced"].started is None


def test_a_waiting_job_is_on_no_node_though_its_dead_one_still_stands_in_its_record() -> None:
    # Seen on 22.05: requeued while slurmd was silent, and the node then marked DOWN.
    assert _one(NodeList="op1", Reason="ReqNodeNotAvail, UnavailableNodes:op1").nodes == frozenset()


# --- nodes ---


def test_recorded_nodes_are_read_once_with_all_their_partitions() -> None:
    reading = nodes(rows("22.05", "sinfo.txt", SINFO_FIELDS))
    assert not reading.unreadable
    by_name = {node.name: node for node in reading.items}
    assert sorted(by_name) == ["aws-1", "aws-2", "aws-3", "aws-4", "op1", "op2"]
    off = by_name[next(name for name in by_name if name == "aws-1")]
    assert off == NodeRecord(
        name=off.name,
        states=frozenset({"IDLE", "CLOUD", "DRAIN", "POWERED_DOWN"}),
        shape=Shape(4, 16000, 1, "t4"),
        free=Shape(4, 16000, 1, "t4"),
        features=frozenset({"aws", "cloud"}),
        partitions=("batch", "gpu"),
        reason="cm-scale: off",
        address="127.0.0.1",
    )


@pytest.mark.parametrize(
    ("changes", "free"),
    [
        ({"CPUsState": "3/1/0/4", "AllocMem": "1000"}, Shape(1, 15000)),
        ({"CPUsState": "0/0/4/4"}, Shape(4, 16000)),
        ({"Gres": "gpu:t4:4(S:0-1)", "GresUsed": "gpu:t4:3(IDX:0-1,3)"}, Shape(4, 16000, 1, "t4")),
        ({"Gres": "gpu:2", "GresUsed": "gpu:1(IDX:0)"}, Shape(4, 16000, 1)),
        ({"Gres": "gpu:a:1,gpu:t4:2", "GresUsed": "gpu:a:1(IDX:0),gpu:t4:1(IDX:1)"}, Shape(4, 16000, 1, "t4")),
        ({"AllocMem": "17000"}, Shape(4, 0)),
    ],
)
def test_the_room_of_a_node_is_what_jobs_leave(changes: dict[str, str], free: Shape) -> None:
    assert nodes([sinfo_row(**changes)]).items[0].free == free


def test_a_node_that_cannot_be_read_costs_itself_and_one_sentence() -> None:
    reading = nodes([sinfo_row(CPUsState="?"), sinfo_row(NodeList="n2"), ["n3"]])
    assert [node.name for node in reading.items] == ["n2"]
    assert len(reading.unreadable) == 2
    assert "a node could not be read" in reading.unreadable[0]
    assert "node n1" in reading.unreadable[1]


def test_a_drain_reason_may_contain_anything() -> None:
    assert nodes([sinfo_row(Reason="bad\x1fdisk\n")]).items[0].reason == "bad\x1fdisk\n"


def test_nodes_that_share_a_line_are_told_apart() -> None:
    each = [
        sinfo_row(NodeList="n1", CPUsState="3/1/0/4", AllocMem="1000", NodeAddr="10.0.0.1", Reason="a  b"),
        sinfo_row(NodeList="n2", CPUsState="0/4/0/4", AllocMem="0", NodeAddr="10.0.0.2", Reason="a  b"),
    ]
    line = dict(zip(SINFO_FIELDS, each[0], strict=True)) | {"NodeList": "n[1-3]"}
    rows = node_rows([[line[field] for field in ALIKE_FIELDS]], shown(each))
    # n3 is in one of the two answers alone: it came or went between them.
    assert nodes(rows) == nodes(each)


@pytest.mark.parametrize(
    ("states", "reason", "read"),
    [
        ("idle+cloud+drain", "none", "cm-scale: off"),
        ("idle+cloud+drain", "bad disk", "bad disk"),
        ("idle+drain", "none", ""),
        ("idle+cloud", "none", ""),
    ],
)
def test_a_cloud_node_that_is_drained_without_a_reason_is_ours(states: str, reason: str, read: str) -> None:
    assert nodes([sinfo_row(StateComplete=states, Reason=reason)]).items[0].reason == read


def test_a_reason_that_our_comment_blanked_still_stands() -> None:
    blank = {"Reason": "None", "EligibleTime": str(int(_NOW - 60))}
    assert _one(**blank).help is Help.ASK_AGAIN
    assert _one(**blank, Comment="the user's own").help is Help.ASK_AGAIN
    assert _one(**blank, Comment="the user's own | cm-scale: 2 nodes starting").help is Help.NODES
    assert _one(**blank, Comment="cm-scale: 2 nodes starting", PriorityLong="0").help is Help.NO
