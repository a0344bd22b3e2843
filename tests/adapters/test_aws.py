from __future__ import annotations

import base64
import hashlib
import itertools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from cmscale.adapters.aws import AwsPool, AwsSite
from cmscale.adapters.aws.names import launch_calls
from cmscale.lab.processes import wait_until
from cmscale.model import (
    MachineId,
    MachineState,
    NodeName,
    Operation,
    OpId,
    PoolName,
    Result,
    Shape,
    SiteName,
    Verb,
)
from cmscale.ports import Misconfigured, Unavailable

KEY = {"AWS_ACCESS_KEY_ID": "AKIALAB0000000000000", "AWS_SECRET_ACCESS_KEY": "lab-secret-key"}
REGION = "us-east-1"
POOL = PoolName("t4")
TIMES = {"pending_s": 0.0, "stopping_s": 0.0, "ending_s": 0.3}


@dataclass(frozen=True)
class Ec2:
    """An EC2 to talk to."""

    endpoint: str
    image: str
    subnet: str
    folder: Path

    def lab(self, topic: str, given: Any = None, method: str = "POST") -> Any:
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(f"{self.endpoint}/_lab/{topic}", data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "null")

    def fault(self, action: str, **given: Any) -> None:
        self.lab("faults", {"action": action, **given})

    def leave_room_for(self, machines: int) -> None:
        """The machines of earlier tests take room too."""
        taking_none = {"terminated", "shutting-down", "stopped"}
        there = [one for one in self.lab("instances", method="GET") if one["state"] not in taking_none]
        self.lab("capacity", {"capacity": {"g4dn.xlarge": len(there) + machines}})

    def interrupt(self, machine: MachineId, warning_s: float) -> None:
        self.lab("interruptions", {"instance": machine, "warning_s": warning_s})

    def schedule(self, machine: MachineId, code: str, in_s: float, description: str = "Old host") -> None:
        self.lab("events", {"instance": machine, "code": code, "in_s": in_s, "description": description})

    def times(self, **seconds: float) -> None:
        self.lab("times", seconds)

    def calls(self, action: str, since: float) -> list[dict[str, Any]]:
        return [call for call in self.lab(f"calls?since={since}", method="GET") if call["action"] == action]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ec2]:
    folder = tmp_path_factory.mktemp("ec2")
    (folder / "log").mkdir()
    times = json.dumps(TIMES)
    command = [sys.executable, "-m", "cmscale.lab.ec2", "--dir", str(folder), "--region", REGION, "--times", times]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as server:
        try:
            for _ in range(300):
                if (folder / "ec2.json").exists() or server.poll() is not None:
                    break
                time.sleep(0.1)
            told = json.loads((folder / "ec2.json").read_text())
            region = told["regions"][REGION]
            yield Ec2(told["endpoint"], region["image"], region["subnet"], folder)
        finally:
            server.terminate()


@pytest.fixture
def ec2(served: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Ec2]:
    """An EC2 without faults, and our credentials for it; nothing of this machine's own set-up counts."""
    for name, value in KEY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    yield served
    served.lab("faults", method="DELETE")
    served.times(**TIMES)
    served.lab("capacity", {"capacity": {"g4dn.xlarge": None}, "limits": {"g4dn.xlarge": None}})


@pytest.fixture
def pool(ec2: Ec2) -> AwsPool:
    return AwsPool(("g4dn.xlarge",), ec2.image, (ec2.subnet,), promised=Shape(4, 15000, 1, "t4"))


clusters = map("cluster{}".format, itertools.count())

Connect = Callable[..., AwsSite]


@pytest.fixture
def connect(ec2: Ec2, pool: AwsPool) -> Connect:
    """Sites of one cluster that no other test uses; each a new process's view of it."""
    cluster = next(clusters)

    def connect(pool: AwsPool = pool, **given: Any) -> AwsSite:
        settings = {"endpoint_url": ec2.endpoint, **given}
        return AwsSite(settings.pop("cluster", cluster), SiteName("east"), REGION, {POOL: pool}, **settings)

    return connect


@pytest.fixture
def site(connect: Connect) -> AwsSite:
    return connect()


def operation(*nodes: str, id: str = "op1", all_or_none: bool = False) -> Operation:  # noqa: A002
    names = tuple(map(NodeName, nodes))
    return Operation(OpId(f"{id}-{time.time_ns()}"), Verb.START, POOL, names, 0.0, all_or_none=all_or_none)


def results(outcomes: Mapping[Any, Any]) -> dict[str, str]:
    return {str(item): outcome.result.value for item, outcome in outcomes.items()}


# --- starting and listing --------------------------------------------------------------------------------------------


def test_started_nodes_are_listed_under_their_names(site: AwsSite) -> None:
    before = time.time()
    op = operation("e3", "e1", "e20")
    outcomes = site.start(op)
    assert results(outcomes) == {"e3": "ok", "e1": "ok", "e20": "ok"}
    machines = {machine.node: machine for machine in site.list()}
    assert {node: machine.id for node, machine in machines.items()} == {
        node: outcome.machine for node, outcome in outcomes.items()
    }
    one = machines[NodeName("e1")]
    assert (one.state, one.op) == (MachineState.RUNNING, op.id)
    assert one.address
    assert before - 2 < one.launched < time.time() + 2


def test_the_order_of_the_operation_does_not_matter(site: AwsSite, connect: Connect) -> None:
    op = operation("b2", "a10", "a9", "x1-y2", "x1-y1", "n01", "n1")
    first = site.start(op)
    again = connect().start(replace(op, nodes=tuple(reversed(op.nodes))))
    assert first == again
    assert {machine.node: machine.id for machine in site.list()} == {node: out.machine for node, out in first.items()}


def test_many_nodes_are_one_call(site: AwsSite, ec2: Ec2) -> None:
    since = time.time()
    site.start(operation(*(f"e{n}" for n in range(30))))
    assert len(ec2.calls("RunInstances", since)) == 1
    assert len(site.list()) == 30


def test_the_same_operation_again_gives_the_same_machines(site: AwsSite, connect: Connect) -> None:
    op = operation("e1", "e2")
    assert site.start(op) == connect().start(op)
    assert len(site.list()) == 2


def test_machines_of_another_cluster_are_never_seen(site: AwsSite, connect: Connect) -> None:
    site.start(operation("e1"))
    assert connect(cluster="somebody-else").list() == ()


def test_an_answer_lost_after_the_launch_is_asked_for_again(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("RunInstances", cut=True, after=True, times=2)
    assert results(site.start(operation("e1", "e2"))) == {"e1": "ok", "e2": "ok"}
    assert len(site.list()) == 2


def test_an_answer_that_never_comes_is_transient_and_the_machines_are_found_later(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("RunInstances", cut=True, after=True, times=3)
    op = operation("e1", "e2")
    assert results(site.start(op)) == {"e1": "transient", "e2": "transient"}
    assert sorted((machine.node, machine.op) for machine in site.list()) == [("e1", op.id), ("e2", op.id)]


def test_a_pool_changed_after_a_crash_finds_what_was_launched(site: AwsSite, connect: Connect, pool: AwsPool) -> None:
    op = operation("e1", "e2")
    first = site.start(op)
    assert connect(replace(pool, instance_types=("g4dn.2xlarge",))).start(op) == first


def test_a_list_of_nodes_too_long_for_a_tag_takes_several_calls(site: AwsSite, ec2: Ec2, connect: Connect) -> None:
    since = time.time()
    nodes = [f"node{n * n:06d}-{n}" for n in range(60)]
    op = operation(*nodes)
    outcomes = site.start(op)
    assert set(results(outcomes).values()) == {"ok"}
    assert len(ec2.calls("RunInstances", since)) > 1
    assert {machine.node: machine.id for machine in site.list()} == {
        node: out.machine for node, out in outcomes.items()
    }
    assert connect().start(op) == outcomes


def test_all_settings_of_a_pool_are_asked_for(connect: Connect, pool: AwsPool, ec2: Ec2, tmp_path: Path) -> None:
    script = tmp_path / "boot.sh"
    script.write_text("#!/bin/sh\necho @CLUSTER@ @NODES@\n")
    since = time.time()
    site = connect(replace(pool, user_data=script, market="spot"), cluster="whole")
    op = operation("e1", "e2", all_or_none=True)
    assert set(results(site.start(op)).values()) == {"ok"}
    (call,) = ec2.calls("RunInstances", since)
    asked = call["params"]
    assert (asked["MinCount"], asked["MaxCount"], asked["ClientToken"]) == ("2", "2", op.id)
    assert base64.b64decode(asked["UserData"]) == b"#!/bin/sh\necho whole e[1-2]\n"
    assert asked["InstanceMarketOptions.MarketType"] == "spot"
    assert (asked["MetadataOptions.HttpTokens"], asked["MetadataOptions.InstanceMetadataTags"]) == (
        "required",
        "enabled",
    )
    for kind in "123":
        words = [asked[f"TagSpecification.{kind}.Tag.{n}.{part}"] for n in range(1, 6) for part in ("Key", "Value")]
        assert dict(zip(words[::2], words[1::2], strict=True)) == {
            "cm-scale:cluster": "whole",
            "cm-scale:node": "e[1-2]",
            "cm-scale:operation": op.id,
            "cm-scale:image": ec2.image,
            "Name": "e[1-2]",
        }


# --- launches that fail ----------------------------------------------------------------------------------------------


def test_part_of_the_nodes_start_when_there_is_room_for_part(site: AwsSite, ec2: Ec2) -> None:
    ec2.leave_room_for(2)
    outcomes = site.start(operation("e1", "e2", "e3"))
    assert results(outcomes) == {"e1": "ok", "e2": "ok", "e3": "capacity"}
    assert outcomes[NodeName("e3")].detail == "EC2 had 2 of 3 machines"
    assert {machine.node: machine.id for machine in site.list()} == {
        node: outcome.machine for node, outcome in outcomes.items() if outcome.ok
    }


def test_part_of_a_launch_asked_for_again_is_the_same_part(site: AwsSite, ec2: Ec2, connect: Connect) -> None:
    ec2.leave_room_for(2)
    op = operation("e1", "e2", "e3")
    first = site.start(op)
    ec2.leave_room_for(1)
    assert connect().start(op) == first


def test_all_or_none_starts_none_when_there_is_room_for_part(site: AwsSite, ec2: Ec2) -> None:
    ec2.leave_room_for(2)
    outcomes = site.start(operation("e1", "e2", "e3", all_or_none=True))
    assert set(results(outcomes).values()) == {"capacity"}
    assert site.list() == ()


def test_all_or_none_in_several_calls_gives_back_what_the_first_calls_made(site: AwsSite, ec2: Ec2) -> None:
    nodes = [f"node{n * n:06d}-{n}" for n in range(60)]
    op = operation(*nodes, all_or_none=True)
    second = launch_calls(op)[1]
    ec2.fault("RunInstances", code="InsufficientInstanceCapacity", status=500, match={"ClientToken": second.token})
    outcomes = site.start(op)
    assert set(results(outcomes).values()) == {"capacity"}
    assert set(outcomes) == set(op.nodes)
    assert "all or none, so" in outcomes[op.nodes[0]].detail
    assert {machine.state for machine in site.list()} <= {MachineState.ENDING}


def test_all_or_none_in_several_calls_survives_a_lost_answer(site: AwsSite, ec2: Ec2) -> None:
    op = operation(*(f"node{n * n:06d}-{n}" for n in range(60)), all_or_none=True)
    second = launch_calls(op)[1]
    ec2.fault("RunInstances", cut=True, after=True, match={"ClientToken": second.token}, times=3)
    assert set(results(site.start(op)).values()) == {"transient"}
    assert set(results(site.start(op)).values()) == {"ok"}
    assert len(site.list()) == 60


def test_the_same_operation_never_starts_machines_that_were_deleted(site: AwsSite) -> None:
    op = operation("e1", "e2")
    first = site.start(op)
    site.delete([outcome.machine for outcome in first.values() if outcome.machine])
    assert results(site.start(op)) == {"e1": "gone", "e2": "gone"}


def test_a_lack_of_capacity_is_asked_for_once(site: AwsSite, ec2: Ec2) -> None:
    since = time.time()
    ec2.fault("RunInstances", code="InsufficientInstanceCapacity", status=500, times=0)
    assert results(site.start(operation("e1"))) == {"e1": "capacity"}
    assert len(ec2.calls("RunInstances", since)) == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"image": "ami-0123456789abcdef0"}, "image"),
        ({"subnets": ("subnet-0123456789abcdef0",)}, "bad-request"),
        ({"user_data": Path("/no/such/script")}, "bad-request"),
    ],
)
def test_a_wrong_pool_is_an_outcome_of_each_node(
    connect: Connect, pool: AwsPool, changes: dict[str, Any], expected: str
) -> None:
    outcomes = connect(replace(pool, **changes)).start(operation("e1", "e2"))
    assert results(outcomes) == {"e1": expected, "e2": expected}


def test_user_data_that_is_too_long_is_told_with_its_pool_and_size_and_nothing_is_launched(
    connect: Connect, pool: AwsPool, ec2: Ec2, tmp_path: Path
) -> None:
    script = tmp_path / "boot.sh"
    script.write_text("".join(hashlib.sha256(b"%d" % number).hexdigest() for number in range(700)))
    since = time.time()
    site = connect(replace(pool, user_data=script))
    outcome = site.start(operation("e1"))[NodeName("e1")]
    assert outcome.result is Result.BAD_REQUEST
    assert outcome.detail.startswith(f"pool t4: user data {script} is 44800 bytes long, ")
    assert ec2.calls("RunInstances", since) == []
    assert list(site.problems()) == [outcome.detail]


def test_a_pool_of_another_site_is_a_bad_request(site: AwsSite) -> None:
    assert results(site.start(replace(operation("e1"), pool=PoolName("other")))) == {"e1": "bad-request"}


# --- machines that go ------------------------------------------------------------------------------------------------


def machine_ids(site: AwsSite, *nodes: str) -> list[MachineId]:
    return [outcome.machine for outcome in site.start(operation(*nodes)).values() if outcome.machine]


def test_deleted_machines_end(site: AwsSite) -> None:
    ids = machine_ids(site, "e1", "e2")
    assert set(results(site.delete(ids)).values()) == {"ok"}
    assert {machine.state for machine in site.list()} <= {MachineState.ENDING}
    time.sleep(0.5)
    assert site.list() == ()
    assert set(results(site.delete(ids)).values()) == {"ok"}


def test_an_unknown_machine_counts_as_deleted_and_spares_the_others(site: AwsSite) -> None:
    (one,) = machine_ids(site, "e1")
    unknown, odd = MachineId("i-0123456789abcdef0"), MachineId("no-id-at-all")
    outcomes = site.delete([unknown, one, odd])
    assert results(outcomes) == {unknown: "ok", one: "ok", odd: outcomes[odd].result.value}
    assert {machine.state for machine in site.list()} <= {MachineState.ENDING}


def test_hard_passes_over_the_system_of_the_machine(site: AwsSite, ec2: Ec2) -> None:
    ids, since = machine_ids(site, "e1", "e2"), time.time()
    site.stop(ids)
    site.stop(ids, hard=True)
    site.delete(ids)
    site.delete(ids, hard=True)
    for action in ("StopInstances", "TerminateInstances"):
        soft, hard = (call["params"] for call in ec2.calls(action, since))
        assert "Force" not in soft
        assert (hard["Force"], hard["SkipOsShutdown"]) == ("true", "true")


def test_a_spot_machine_cannot_be_stopped_and_spares_the_others(connect: Connect, pool: AwsPool) -> None:
    spot, site = connect(replace(pool, market="spot")), connect()
    (one, two), (other,) = machine_ids(spot, "s1", "s2"), machine_ids(site, "e1")
    outcomes = site.stop([one, other, two])
    assert results(outcomes) == {one: "bad-request", other: "ok", two: "bad-request"}
    assert outcomes[two].detail.startswith(f"UnsupportedOperation: You can't stop the Spot Instance '{two}'")


def test_a_refused_deletion_is_told_for_each_machine(site: AwsSite, ec2: Ec2) -> None:
    ids = machine_ids(site, "e1", "e2")
    ec2.fault("TerminateInstances", code="UnauthorizedOperation", status=403, message=f"not on {ids[0]}", times=0)
    assert set(results(site.delete(ids)).values()) == {"auth"}


def test_nothing_to_delete_is_no_call(site: AwsSite, ec2: Ec2) -> None:
    since = time.time()
    assert site.delete([]) == {}
    assert ec2.calls("TerminateInstances", since) == []


def test_a_machine_with_a_spoilt_tag_is_listed_without_a_node(site: AwsSite, ec2: Ec2) -> None:
    one, other = machine_ids(site, "e1", "e2")
    client = boto3.client("ec2", region_name=REGION, endpoint_url=ec2.endpoint)
    client.create_tags(Resources=[one], Tags=[{"Key": "cm-scale:node", "Value": "e[1-"}])
    client.create_tags(Resources=[other], Tags=[{"Key": "cm-scale:node", "Value": "e7"}])
    client.close()
    assert {machine.id: machine.node for machine in site.list()} == {one: "", other: ""}


def test_machines_their_volumes_and_interfaces_bear_what_made_them_and_for_whom(site: AwsSite, ec2: Ec2) -> None:
    made = replace(operation("e1"), tags={"cm-scale:user": "ada", "cm-scale:node": "e9"})
    (outcome,) = site.start(made).values()
    assert outcome.machine
    client = boto3.client("ec2", region_name=REGION, endpoint_url=ec2.endpoint)
    (instance,) = client.describe_instances(InstanceIds=[outcome.machine])["Reservations"][0]["Instances"]
    wanted = {
        "cm-scale:operation": made.id,
        "cm-scale:node": "e1",
        "cm-scale:image": ec2.image,
        "cm-scale:user": "ada",
    }
    of_machine: Any = [{"Name": "attachment.instance-id", "Values": [str(outcome.machine)]}]
    volumes = client.describe_volumes(Filters=of_machine)["Volumes"]
    interfaces = client.describe_network_interfaces(Filters=of_machine)["NetworkInterfaces"]
    client.close()
    assert (len(volumes), len(interfaces)) == (1, 1)
    for listed in (instance["Tags"], volumes[0]["Tags"], interfaces[0]["TagSet"]):
        tags = {tag["Key"]: tag["Value"] for tag in listed}
        assert wanted.items() <= tags.items()
    site.delete([outcome.machine])


# --- machines that are powered on again ------------------------------------------------------------------------------


def power_on(site: AwsSite, **machines: MachineId) -> dict[str, str]:
    return results(site.start(replace(operation(*machines), machines=tuple(machines.values()))))


def test_a_stopped_machine_stays_and_starts_again(site: AwsSite) -> None:
    (one,) = machine_ids(site, "e1")
    assert results(site.stop([one, MachineId("i-0123456789abcdef0")])) == {one: "ok", "i-0123456789abcdef0": "gone"}
    assert [machine.state for machine in site.list()] == [MachineState.STOPPED]
    on = site.start(replace(operation("e1"), machines=(one,)))
    assert (on[NodeName("e1")].result, on[NodeName("e1")].machine) == (Result.OK, one)
    assert [(machine.id, machine.state) for machine in site.list()] == [(one, MachineState.RUNNING)]


def test_a_machine_is_as_old_as_its_last_start_and_keeps_the_operation_that_launched_it(site: AwsSite) -> None:
    (one,) = machine_ids(site, "e1")
    (before,) = site.list()
    site.stop([one])
    assert wait_until(lambda: time.time() >= before.launched + 1, 3)  # EC2 tells whole seconds
    power_on(site, e1=one)
    (after,) = site.list()
    assert after.launched > before.launched
    assert after.op == before.op


def test_powering_on_again_changes_nothing(site: AwsSite) -> None:
    one, two = machine_ids(site, "e1", "e2")
    site.stop([one])
    for _ in range(2):
        assert power_on(site, e1=one, e2=two) == {"e1": "ok", "e2": "ok"}
    assert {machine.state for machine in site.list()} == {MachineState.RUNNING}


def test_a_machine_that_ended_is_gone_and_spares_the_others(site: AwsSite) -> None:
    ended, stopped = machine_ids(site, "e1", "e2")
    site.delete([ended])
    site.stop([stopped])
    unknown = MachineId("i-0123456789abcdef0")
    assert power_on(site, e1=ended, e2=stopped, e3=unknown) == {"e1": "gone", "e2": "ok", "e3": "gone"}


def test_a_machine_that_is_still_stopping_is_asked_for_again_later(site: AwsSite, ec2: Ec2) -> None:
    (one,) = machine_ids(site, "e1")
    ec2.times(stopping_s=30.0)
    site.stop([one])
    assert power_on(site, e1=one) == {"e1": "transient"}
    ec2.times(stopping_s=0.0)
    assert power_on(site, e1=one) == {"e1": "ok"}


def test_a_lack_of_capacity_is_told_for_each_machine_to_be_powered_on(site: AwsSite, ec2: Ec2) -> None:
    one, two = machine_ids(site, "e1", "e2")
    site.stop([one, two])
    ec2.leave_room_for(1)
    since = time.time()
    assert power_on(site, e1=one, e2=two) == {"e1": "capacity", "e2": "capacity"}
    assert len(ec2.calls("StartInstances", since)) == 1


# --- what machines leave behind --------------------------------------------------------------------------------------


def test_the_evidence_of_a_machine_is_the_end_of_its_console(site: AwsSite, ec2: Ec2) -> None:
    (one,) = machine_ids(site, "e1")
    assert site.evidence(one) == ""
    log = ec2.folder / "log" / f"console-{one}.out"
    log.write_bytes("é".encode() * 40_000 + b"\xffkernel panic\n")
    text = site.evidence(one)
    assert text.endswith("é\ufffdkernel panic\n")
    assert len(text.encode()) <= 64 * 1024


def test_a_machine_whose_current_console_cannot_be_had_gives_the_kept_one(site: AwsSite, ec2: Ec2) -> None:
    (one,) = machine_ids(site, "e1")
    (ec2.folder / "log" / f"console-{one}.out").write_text("kept")
    ec2.fault("GetConsoleOutput", code="UnsupportedOperation", match={"Latest": "true"}, times=0)
    assert site.evidence(one) == "kept"


def test_a_machine_that_ec2_knows_no_more_leaves_no_evidence(site: AwsSite) -> None:
    assert site.evidence(MachineId("i-0123456789abcdef0")) == ""


def test_evidence_that_cannot_be_read_is_told(site: AwsSite, ec2: Ec2) -> None:
    (one,) = machine_ids(site, "e1")
    ec2.fault("GetConsoleOutput", code="InternalError", status=500, times=0)
    with pytest.raises(Unavailable, match="does not answer: InternalError"):
        site.evidence(one)


# --- a site that does not answer -------------------------------------------------------------------------------------


def test_a_site_that_does_not_answer_is_told_by_name_region_and_endpoint(connect: Connect) -> None:
    site = connect(endpoint_url="http://127.0.0.1:9")
    with pytest.raises(Unavailable) as caught:
        site.list()
    assert not isinstance(caught.value, Misconfigured)
    assert str(caught.value).startswith("site east: EC2 in us-east-1 at http://127.0.0.1:9 does not answer: Could not")
    assert results(site.start(operation("e1"))) == {"e1": "transient"}
    assert results(site.delete([MachineId("i-1")])) == {"i-1": "transient"}


def test_refused_credentials_are_told_by_their_source(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("DescribeInstances", code="AuthFailure", status=401, message="No.", times=0)
    with pytest.raises(Misconfigured, match=r"refuses the credentials in the environment .*: AuthFailure: No"):
        site.list()


def test_missing_credentials_are_told(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEY:
        monkeypatch.delenv(name)
    site = connect()
    with pytest.raises(Misconfigured, match="no credentials for EC2 in us-east-1: none in the environment"):
        site.list()
    assert results(site.start(operation("e1"))) == {"e1": "auth"}


def test_a_missing_boto3_is_told_with_the_command_that_installs_it(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Misconfigured, match=r"site east needs boto3: pip install 'cm-scale\[aws\]'"):
        connect()


def test_a_malformed_endpoint_is_told(connect: Connect) -> None:
    with pytest.raises(Misconfigured, match="site east cannot be reached: Invalid endpoint: nonsense"):
        connect(endpoint_url="nonsense")


def test_an_unknown_profile_is_told(connect: Connect) -> None:
    with pytest.raises(Misconfigured, match="site east cannot be reached: The config profile"):
        connect(profile="nobody")


def test_a_passing_error_while_listing_is_tried_again(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("DescribeInstances", code="InternalError", status=500, times=1)
    assert site.list() == ()


# --- checking --------------------------------------------------------------------------------------------------------


def test_a_sound_site_has_no_problems_and_checking_makes_nothing(site: AwsSite) -> None:
    assert list(site.problems()) == []
    assert site.list() == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"image": "ami-0123456789abcdef0"}, "pool t4: InvalidAMIID.NotFound"),
        ({"subnets": ("subnet-0123456789abcdef0",)}, "pool t4: InvalidSubnetID.NotFound"),
        ({"instance_types": ("x9.big",)}, "pool t4: InvalidInstanceType"),
        ({"promised": Shape(8, 15000, 1)}, "pool t4: cpus = 8, but a g4dn.xlarge has 4"),
        ({"promised": Shape(4, 20000, 1)}, "pool t4: mem_mb = 20000, but a g4dn.xlarge has 16384"),
        ({"promised": Shape(4, 15000, 2)}, "pool t4: gpus = 2, but a g4dn.xlarge has 1"),
        ({"user_data": Path("/no/such/script")}, "pool t4: the user data cannot be read"),
    ],
)
def test_a_wrong_pool_is_a_problem(connect: Connect, pool: AwsPool, changes: dict[str, Any], expected: str) -> None:
    (told,) = connect(replace(pool, **changes)).problems()
    assert told.startswith(expected)


def test_several_problems_are_told_at_once(connect: Connect, pool: AwsPool) -> None:
    wrong = replace(pool, image="ami-0123456789abcdef0", promised=Shape(8, 20000, 1))
    assert len(connect(wrong).problems()) == 3


def test_a_launch_that_would_be_refused_is_a_problem(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("RunInstances", code="UnauthorizedOperation", status=403, message="Not you.", times=0)
    (told,) = site.problems()
    assert told == (
        "pool t4: a launch would be refused: UnauthorizedOperation: Not you. "
        "(the right ec2:RunInstances is missing: cm-scale aws policy)"
    )


def test_refused_credentials_are_the_only_problem(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("", code="AuthFailure", status=401, message="No.", times=0)
    (told,) = site.problems()
    assert "AuthFailure" in told


def test_a_call_that_each_tick_needs_and_that_is_refused_is_a_problem(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("DescribeInstanceStatus", code="UnauthorizedOperation", status=403, message="Not you.", times=0)
    (told,) = site.problems()
    assert told == (
        "site east: DescribeInstanceStatus is refused: UnauthorizedOperation: Not you. "
        "(the right ec2:DescribeInstanceStatus is missing: cm-scale aws policy)"
    )
