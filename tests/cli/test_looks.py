"""plan, status, nodes, explain and lab status in a healthy lab: what they say, and that the reference says the same."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import boto3
import pytest

from cmscale.lab import quotas
from cmscale.lab.lab import Lab
from cmscale.lab.processes import wait_until
from cmscale.lab.supervisor import down
from cmscale.ports import Evidence
from tests.cli.program import Program, documented_keys


@pytest.fixture(scope="module")
def jobs(lab: Lab) -> dict[str, str]:
    """Jobs that wait: one for two machines, one for more machines than there can ever be."""
    options = {"burst": ("-N2", "--gres=gpu:t4:1"), "never": ("-N10", "--gres=gpu:t4:1", "-C", "aws-us-east-1")}
    made = {
        name: lab.command("sbatch", "--parsable", "--output=/dev/null", *words, "--wrap", "sleep 60").strip()
        for name, words in options.items()
    }
    assert wait_until(lambda: "None" not in lab.command("squeue", "-h", "-o", "%r"), 10)
    return made


@pytest.fixture(scope="module")
def acted(lab: Lab, jobs: dict[str, str]) -> None:
    """The daemon has acted: the nodes are parked, and machines for the job are up."""
    program = Program(lab, pytest.MonkeyPatch())
    try:
        assert wait_until(
            lambda: (
                program.apart("run", "--once").status == 0
                and lab.command("squeue", "-h", "-j", jobs["burst"], "-o", "%T").strip() == "RUNNING"
            ),
            20,
        )
    finally:
        program._patch.undo()


def loaded(cm_scale: Program, *argv: str | Path) -> dict[str, Any]:
    """The one JSON object that a command prints."""
    said = cm_scale(*argv, "--json")
    assert (said.status, said.err) == (0, "")
    told: dict[str, Any] = json.loads(said.out)
    return told


# --- before anything was done ----------------------------------------------------------------------------------------


def test_the_plan_says_what_would_be_done_and_what_to_type_next(cm_scale: Program, jobs: dict[str, str]) -> None:
    lines = cm_scale("plan").out.splitlines()
    assert f"no pool can ever serve job {jobs['never']}: aws-us-east-1 has at most 8 nodes that fit" in lines[-2]
    assert lines[-1] == f"Next: cm-scale explain job {jobs['never']}"
    assert any("t4-[1-2]" in line or "t4-[1-12]" in line for line in lines)


def test_a_look_touches_nothing(cm_scale: Program, jobs: dict[str, str]) -> None:
    lab = cm_scale.lab
    states = lab.command("sinfo", "-h", "-N", "-o", "%N %T %E")
    began = len(lab.call_log())
    for command in ("plan", "nodes", f"explain job {jobs['burst']}", "explain node t4-1"):
        assert cm_scale(*command.split()).status == 0
    assert {call["action"] for call in lab.call_log()[began:]} == {"DescribeInstances"}
    assert cm_scale("status").status == 0
    assert all(call["action"].startswith("Describe") for call in lab.call_log()[began:])
    assert lab.command("sinfo", "-h", "-N", "-o", "%N %T %E") == states
    assert not list((lab.directory / "cm-scale").iterdir())


def test_status_tells_how_to_start_a_daemon_that_is_not_running(cm_scale: Program) -> None:
    assert "not running (mode act); start it with: cm-scale run" in cm_scale("status").out


def test_no_machine_is_told_with_the_way_to_every_node(cm_scale: Program) -> None:
    assert cm_scale("nodes").out == "No machine is up. Every node: cm-scale nodes --all\n"


# --- the program as a whole ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argv", [("plan", "-c"), ("-c", "plan"), ("plan", "--config"), ("--config", "plan")])
def test_the_configuration_is_named_before_or_after_the_command(cm_scale: Program, argv: tuple[str, str]) -> None:
    config = str(cm_scale.lab.config)
    cm_scale.environment(cm_scale.lab.env | {"CMSCALE_CONFIG": "/nowhere"})
    words = [*argv, config] if argv[0] == "plan" else [argv[0], config, argv[1]]
    assert cm_scale(*words).status == 0


def test_the_name_after_the_command_counts(cm_scale: Program) -> None:
    assert cm_scale("-c", "/nowhere", "plan", "-c", cm_scale.lab.config).status == 0


def test_every_command_has_help_that_fits_eighty_columns(cm_scale: Program) -> None:
    cm_scale.environment(cm_scale.lab.env | {"COLUMNS": "80"})
    told = (
        "",
        "run",
        "plan",
        "status",
        "nodes",
        "events",
        "pause",
        "resume",
        "keep",
        "drain-site",
        "clear",
        "replay",
        "check",
        "slurm-conf",
    )
    explain = ("explain", "explain job", "explain why-not", "explain node", "explain tick")
    policies = ("policies", "policies list", "policies check", "policies new")
    pools = ("pools", "pools list", "pools suggest")
    aws = ("aws", "aws setup", "aws teardown", "aws policy", "reap")
    lab = ("lab", "lab up", "lab down", "lab status", "lab ec2", "demo")
    for command in (*told, *explain, *policies, *pools, *aws, *lab):
        said = cm_scale(*command.split(), "--help")
        assert said.status == 0
        assert max(map(len, said.out.splitlines())) <= 80
        assert len(said.out.splitlines()) > 4
        assert not any(line.endswith("...") for line in said.out.splitlines()[1:])


def test_a_reader_that_has_enough_is_no_error(cm_scale: Program, acted: None) -> None:
    line = f"{sys.executable} -m cmscale.cli.cm_scale nodes --all | head -1"
    done = subprocess.run(["bash", "-c", line], env=cm_scale.env, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.startswith("node")


# --- with machines ---------------------------------------------------------------------------------------------------


def test_a_job_that_can_never_run_is_explained(cm_scale: Program, acted: None, jobs: dict[str, str]) -> None:
    said = cm_scale("explain", "job", jobs["never"])
    assert "No pool can ever serve it: aws-us-east-1 has at most 8 nodes that fit, 10 are needed." in said.out


def test_a_job_is_explained_with_what_was_done_for_it(cm_scale: Program, acted: None, jobs: dict[str, str]) -> None:
    said = cm_scale("explain", "job", jobs["burst"])
    assert "is RUNNING on t4-1, t4-2" in said.out
    assert f"start t4-1: ok (job {jobs['burst']} waits; t4 is the cheapest that fits, $0.526 an hour)" in said.out


def test_pools_are_listed_with_what_their_machines_are_and_cost(cm_scale: Program, acted: None) -> None:
    told = loaded(cm_scale, "pools", "list")
    assert set(told) == documented_keys("pools list")
    assert {key for pool in told["pools"] for key in pool} == documented_keys("pools list", "pools")
    (t4,) = (pool for pool in told["pools"] if pool["name"] == "t4")
    assert (t4["type"], t4["up"], t4["price_hour"], t4["price_from"]) == ("g4dn.xlarge", 2, 0.526, "configuration")
    lines = cm_scale("pools").out
    assert "g4dn.xlarge" in lines
    assert "price from" not in lines  # the configuration says them all


def test_a_price_that_the_configuration_does_not_name_is_the_cloud_s_and_a_quota_that_is_too_small_is_noted(
    cm_scale: Program, acted: None, tmp_path: Path
) -> None:
    lab = cm_scale.lab
    text = (
        Path(lab.config)
        .read_text(encoding="utf-8")
        .replace("price_hour = 0.526\n", "")
        .replace("price_hour = 0.6\n", "")
    )
    path = tmp_path / "cmscale.toml"
    path.write_text(re.sub(r"^state_dir = .*$", 'state_dir = "state"', text, flags=re.MULTILINE), encoding="utf-8")
    with a_quota_of(lab, 12):
        assert cm_scale.apart("run", "--once", "--observe", "--config", path).status == 0
        note = (
            'pool t4: its 8 machines take 32 CPUs, and the quota "Running On-Demand G and VT instances" of the account'
        )
        checked = json.loads(cm_scale("check", "--json", "--config", path).out)
        assert [each[: len(note)] for each in checked["notes"]] == [note]
        assert set(checked) <= documented_keys("check")
    prices = {pool["name"]: pool for pool in loaded(cm_scale, "status", "--config", path)["pools"]}
    assert (prices["t4"]["price_hour"], prices["t4"]["price_from"]) == (0.526, "price list")
    assert 0 <= prices["t4"]["price_age_s"] < 300
    assert prices["cpu"]["price_from"] == "configuration"
    cm_scale.environment(lab.env | {"COLUMNS": "140"})
    assert "price list, " in cm_scale("pools", "--config", path).out


@contextmanager
def a_quota_of(lab: Lab, cpus: float) -> Iterator[None]:
    """The account may have so many CPUs of the family in one region, for a while."""
    client = boto3.client("service-quotas", region_name="us-east-1", endpoint_url=endpoint(lab))
    (code,) = (code for code, name in quotas.NAMES.items() if name == "Running On-Demand G and VT instances")
    try:
        client.request_service_quota_increase(ServiceCode="ec2", QuotaCode=code, DesiredValue=cpus)
        yield
    finally:
        client.request_service_quota_increase(ServiceCode="ec2", QuotaCode=code, DesiredValue=quotas.PLENTY)
        client.close()


def endpoint(lab: Lab) -> str:
    found = re.search(r'^endpoint_url = "(.+)"$', Path(lab.config).read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1]


def test_a_node_is_explained(cm_scale: Program, acted: None) -> None:
    assert "t4-1 of pool t4 at aws-us-east-1 is up; Slurm says" in cm_scale("explain", "node", "t4-1").out
    assert "it belongs to no pool" in cm_scale("explain", "node", "op1").out


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_tables_lose_columns_and_never_letters(cm_scale: Program, acted: None, columns: int) -> None:
    cm_scale.environment(cm_scale.lab.env | {"COLUMNS": str(columns)})
    for command in ("nodes", "nodes --all", "status"):
        said = cm_scale(*command.split())
        assert "…" not in said.out
        table = [line for line in said.out.splitlines() if line.startswith(("node ", "pool ", "t4", "cpu"))]
        assert len(table) >= 3
        assert max(map(len, table)) <= columns
        assert all(line == line.rstrip() for line in said.out.splitlines())
    assert ("site" in cm_scale("nodes", "--all").out.splitlines()[0].split()) == (columns >= 100)


def test_a_pipe_gets_every_column(cm_scale: Program, acted: None) -> None:
    cm_scale.environment({**cm_scale.lab.env, "COLUMNS": None})
    heading, *rows = cm_scale("nodes").out.splitlines()
    assert heading.split()[:7] == ["node", "pool", "site", "power", "slurm", "machine", "age"]
    assert len(rows) == 2


# --- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["plan", "status", "nodes", "check"])
def test_each_look_prints_one_object_with_the_keys_of_the_reference(
    cm_scale: Program, acted: None, command: str
) -> None:
    told = loaded(cm_scale, command)
    assert set(told) == documented_keys(command)
    for key, value in told.items():
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict) and key not in {"never", "notes", "unseen", "waits"}:
            assert set(inner) == documented_keys(command, key)


def test_explanations_have_the_keys_of_the_reference(cm_scale: Program, acted: None, jobs: dict[str, str]) -> None:
    job = loaded(cm_scale, "explain", "job", jobs["burst"])
    node = loaded(cm_scale, "explain", "node", "t4-1")
    assert set(job) == documented_keys("explain job")
    assert set(job["jobs"][0]) == documented_keys("explain job", "jobs")
    assert set(node) == documented_keys("explain node")
    for history in (job["history"], node["history"]):
        assert set(history[0]) == documented_keys("explain job", "history")


def test_other_explanations_have_the_keys_of_the_reference(
    cm_scale: Program, acted: None, jobs: dict[str, str]
) -> None:
    why_not = loaded(cm_scale, "explain", "why-not", jobs["never"])
    tick = loaded(cm_scale, "explain", "tick", "last")
    assert set(why_not) == documented_keys("explain why-not")
    assert set(why_not["jobs"][0]) == documented_keys("explain job", "jobs")
    assert set(tick) == documented_keys("explain tick")
    assert documented_keys("explain node", "evidence") == {field.name for field in fields(Evidence)}


def test_the_actions_of_a_plan_have_the_keys_of_the_reference(cm_scale: Program, jobs: dict[str, str]) -> None:
    cm_scale.lab.command("scontrol", "update", "nodename=cpu-4", "state=resume")
    told = loaded(cm_scale, "plan")
    assert {action["verb"] for action in told["actions"]} <= {"drain", "start", "resume", "delete"}
    assert set(told["actions"][0]) == documented_keys("plan", "actions")


def test_a_lab_is_described_with_the_keys_of_the_reference(cm_scale: Program, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    assert loaded(cm_scale, "lab", "status", "--dir", folder)["info"] is None
    assert "Next: cm-scale lab up" in cm_scale("lab", "status", "--dir", folder).out
    try:
        up = loaded(cm_scale, "lab", "up", "--dir", folder)
        told = loaded(cm_scale, "lab", "status", "--dir", folder)
        ended = loaded(cm_scale, "lab", "down", "--dir", folder)
    finally:
        down(folder)
    assert set(told) == documented_keys("lab status")
    assert set(told["info"]) == set(up) == documented_keys("lab up")
    assert set(ended) == documented_keys("lab down")
