"""`cm-scale lab ec2` serves the double by itself, tells how to reach it, and ends cleanly."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from click.testing import CliRunner

from cmscale.cli.cm_scale import cm_scale
from cmscale.lab.processes import wait_until

COMMAND = [sys.executable, "-c", "from cmscale.cli.cm_scale import main; main()", "lab", "ec2"]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folder)}
    out = (folder / "out").open("w+", encoding="utf-8")
    with out, subprocess.Popen([*COMMAND, *options], stdout=out, stderr=subprocess.STDOUT, text=True, env=env) as child:
        try:
            yield child
        finally:
            child.kill()


def said(folder: Path) -> str:
    return (folder / "out").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_it_prints_brings_the_sdk_to_it_and_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with serving(tmp_path, "--region", "eu-central-1", "--dir", str(tmp_path / "kept"), "--json") as child:
        assert wait_until(lambda: said(tmp_path).endswith("\n"), 30), said(tmp_path)
        told = json.loads(said(tmp_path))
        ec2 = boto3.client(
            "ec2",
            region_name=told["env"]["AWS_DEFAULT_REGION"],
            endpoint_url=told["env"]["AWS_ENDPOINT_URL"],
            aws_access_key_id=told["env"]["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=told["env"]["AWS_SECRET_ACCESS_KEY"],
            config=Config(proxies={}),
        )
        image = told["regions"]["eu-central-1"]["image"]
        assert len(ec2.run_instances(ImageId=image, MinCount=1, MaxCount=2)["Instances"]) == 2
        ec2.close()
        assert json.loads((tmp_path / "kept/ec2.json").read_text(encoding="utf-8"))["endpoint"] == told["endpoint"]
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
    (call,) = (tmp_path / "kept/calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(call)["action"] == "RunInstances"
    assert said(tmp_path).count("\n") == 1


@pytest.mark.slow
def test_it_prints_what_to_export_and_leaves_nothing_behind_after_ctrl_c(tmp_path: Path) -> None:
    with serving(tmp_path) as child:
        assert wait_until(lambda: "Calls: " in said(tmp_path), 30), said(tmp_path)
        assert "  export AWS_ENDPOINT_URL=http://127.0.0.1:" in said(tmp_path)
        assert "us-west-2: image ami-" in said(tmp_path)
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 0
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert "Traceback" not in said(tmp_path)


def asked(*options: str) -> tuple[int, str]:
    """What the command says to these options when it does not come to serve."""
    ran = CliRunner().invoke(cm_scale, ["lab", "ec2", *options], prog_name="cm-scale")
    return ran.exit_code, ran.output


def test_a_port_that_is_taken_and_a_region_that_is_none_are_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, said = asked("--port", port)
    assert status == 2
    assert said.startswith(f"cm-scale: port {port} of 127.0.0.1 can't be taken: ")
    assert asked("--region", "eu-centrl-1") == (
        2,
        "cm-scale: region 'eu-centrl-1' is unknown; did you mean eu-central-1?\n",
    )


def test_a_wrong_option_is_told() -> None:
    status, said = asked("--port", "nonsense")
    assert status == 2
    assert "'nonsense' is not a valid integer" in said


def test_the_help_tells_the_options_and_where_faults_are_set() -> None:
    status, said = asked("--help")
    assert status == 0
    assert all(words in said for words in ("--port", "--region", "--dir", "/_lab/"))
