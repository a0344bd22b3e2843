"""reap: what is listed, what is asked, and what is deleted by whom. In a lab, with and without a daemon."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.processes import wait_until
from tests.cli.program import Program, documented_keys

AFTER_S = 2


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    times = Times(pending_s=0.1, stopping_s=0.1, ending_s=0.1)
    limits = {"reap": "report", "reap_after": f"{AFTER_S}s"}
    with Lab(tmp_path_factory.mktemp("lab"), times=times, limits=limits) as one:
        yield one


def volume(lab: Lab, **more: str) -> str:
    """A volume with our cluster's tag that belongs to no machine."""
    cluster = next(line for line in lab.config.read_text().splitlines() if line.startswith("name = "))
    words = {"cm-scale:cluster": json.loads(cluster.partition(" = ")[2])} | more
    tags = [{"Key": key, "Value": value} for key, value in words.items()]
    ec2 = lab.ec2()
    made: str = ec2.create_volume(
        AvailabilityZone="us-east-1a", Size=1, TagSpecifications=[{"ResourceType": "volume", "Tags": tags}]
    )["VolumeId"]
    ec2.close()
    return made


def ours(lab: Lab) -> str:
    return volume(lab, **{"cm-scale:operation": "old", "cm-scale:node": "t4-1"})


def volumes(lab: Lab) -> set[str]:
    ec2 = lab.ec2()
    found = {each["VolumeId"] for each in ec2.describe_volumes()["Volumes"] if each["State"] == "available"}
    ec2.close()
    return found


def told(cm_scale: Program, *argv: str, status: int = 0) -> dict[str, Any]:
    said = cm_scale("reap", "--json", *argv)
    assert said.status == status, said.err
    loaded: dict[str, Any] = json.loads(said.out)
    return loaded


def test_where_everything_is_explained_it_says_so(cm_scale: Program) -> None:
    assert cm_scale("reap").out == "All machines, volumes and network interfaces of ours are explained.\n"


def test_a_dry_run_lists_with_the_keys_of_the_reference_and_deletes_nothing(cm_scale: Program) -> None:
    left = ours(cm_scale.lab)
    answer = told(cm_scale, "--dry-run")
    assert set(answer) == documented_keys("reap")
    (orphan,) = answer["orphans"]
    assert set(orphan) == documented_keys("reap", "orphans")
    assert (orphan["id"], orphan["what"], answer["deleted"]) == (left, "volume", [])
    assert left in cm_scale("status").out
    assert left in volumes(cm_scale.lab)


def test_a_program_is_not_asked_and_a_person_who_says_no_keeps_all(cm_scale: Program) -> None:
    left = ours(cm_scale.lab)
    assert cm_scale("reap", "--json").problems == ["with --json nobody is asked; say --yes, or --dry-run"]
    said = subprocess.run(
        cm_scale.argv("reap"), env=cm_scale.env, input="n\n", capture_output=True, text=True, timeout=30
    )
    assert said.returncode == 130
    assert "for good?" in said.stdout
    assert left in volumes(cm_scale.lab)


def test_an_unknown_site_is_told(cm_scale: Program) -> None:
    (problem,) = cm_scale("reap", "--site", "aws-us-east").problems
    assert problem == 'there is no site "aws-us-east"; did you mean "aws-us-east-1"?'


def test_without_a_daemon_it_takes_both_looks_itself_and_spares_what_may_not_be_ours(cm_scale: Program) -> None:
    left, strange = ours(cm_scale.lab), volume(cm_scale.lab)
    began = time.monotonic()
    said = cm_scale("reap", "--yes")
    assert said.status == 0, said.err
    assert time.monotonic() - began > AFTER_S
    assert f"No daemon runs; the second look is taken here, in {AFTER_S} s." in said.out
    assert left not in volumes(cm_scale.lab)
    assert strange in volumes(cm_scale.lab)
    assert f"reaped {left}" in cm_scale("events").out


def test_while_nothing_may_be_deleted_it_is_refused(cm_scale: Program, tmp_path: Path) -> None:
    ours(cm_scale.lab)
    observing = tmp_path / "cmscale.toml"
    text = cm_scale.lab.config.read_text(encoding="utf-8")
    observing.write_text(text.replace('mode = "act"', 'mode = "observe"'), encoding="utf-8")
    assert cm_scale("reap", "--yes", "-c", observing).problems == [
        f'cluster.mode is "observe" in {observing}, so nothing is deleted'
    ]
    cm_scale("pause", "--for", "1m", "the", "switch")
    assert cm_scale("reap", "--yes").problems == [
        "cm-scale is paused (the switch), so nothing is deleted; to go on: cm-scale resume"
    ]
    cm_scale("resume")


@pytest.mark.slow
def test_a_running_daemon_does_it(cm_scale: Program) -> None:
    lab = cm_scale.lab
    state = lab.ec2()
    made = state.run_instances(
        ImageId=lab.regions["us-east-1"]["image"],
        SubnetId=lab.regions["us-east-1"]["subnet"],
        InstanceType="g4dn.xlarge",
        MinCount=1,
        MaxCount=1,
    )["Instances"][0]["InstanceId"]
    state.close()
    left = ours(lab)
    daemon = subprocess.Popen(
        cm_scale.argv("run"), env=cm_scale.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        assert wait_until(lambda: json.loads(cm_scale("status", "--json").out)["daemon"]["age_s"] is not None, 30)
        said = cm_scale("reap", "--yes")
        assert said.status == 0, said.err + said.out
    finally:
        daemon.terminate()
        daemon.wait(10)
    assert "The daemon deletes what its second look finds so" in said.out
    assert left not in volumes(lab)
    assert made in {each["id"] for each in lab.instances() if each["state"] != "terminated"}  # a stranger's
