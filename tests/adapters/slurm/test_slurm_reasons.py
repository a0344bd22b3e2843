"""Slurm's reasons, and whether more nodes would help."""

from __future__ import annotations

from pathlib import Path

import pytest

from cmscale.adapters.slurm.reasons import judge
from cmscale.model import Help

_WORDS = (Path(__file__).parent / "recorded" / "reasons.txt").read_text().splitlines()


@pytest.mark.parametrize(
    "reason",
    [
        "Resources",
        "Priority",
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "ReqNodeNotAvail",
        "ReqNodeNotAvail, UnavailableNodes:aws-[1-4]",
        "ReqNodeNotAvail, May be reserved for other job",
    ],
)
def test_more_nodes_help_a_job_that_waits_for_nodes(reason: str) -> None:
    assert judge(reason)[0] is Help.NODES


@pytest.mark.parametrize(
    "reason",
    [
        "ReqNodeNotAvail, Reserved for maintenance",
        "ReqNodeNotAvail,Reserved for maintenance",
        "JobHeldUser",
        "BeginTime",
        "Dependency",
        "DependencyNeverSatisfied",
        "Licenses",
        "JobArrayTaskLimit",
        "QOSMaxCpuPerUserLimit",
        "QOSGrpNewThingLimit",
        "AssocGrpNodeLimit",
        "MaxJobsPerAccount",
        "Job is at or exceeds QOS normal's group wall limit of 5 with 6",
        "uid 1000 not in group permitted to use this partition (gpu). groups allowed: staff",
        "Reservation maint was deleted",
        "burst_buffer/lua: slurm_bb_data_in: no such\nbucket",
        "job requeued in held state",
    ],
)
def test_more_nodes_do_not_help_a_job_that_waits_for_something_else(reason: str) -> None:
    assert judge(reason)[0] is Help.NO


@pytest.mark.parametrize("reason", ["", "None", "SchedDefer", "NodeDown", "RaisedSignal:53(Real-time signal 19)"])
def test_a_job_that_slurm_has_not_judged_is_asked_again(reason: str) -> None:
    assert judge(reason)[0] is Help.ASK_AGAIN


def test_an_unknown_reason_is_shown() -> None:
    help_, why = judge("WaitsForTheMoon")
    assert help_ is Help.ASK_AGAIN
    assert "WaitsForTheMoon" in why


@pytest.mark.parametrize("word", _WORDS)
def test_every_reason_of_releases_22_05_to_25_11_is_in_the_table(word: str) -> None:
    assert "does not know" not in judge(word)[1]
