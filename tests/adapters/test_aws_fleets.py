"""Pools of several types and subnets: what fleets give, what they are asked, and which machine is which node."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from cmscale.adapters.aws import AwsPool, AwsSite
from cmscale.model import MachineId, MachineState, NodeName, Operation, PoolName, Result, Shape, SiteName
from tests.adapters.test_aws import POOL, REGION, Connect, Ec2, connect, ec2, operation, results, served

__all__ = ["connect", "ec2", "served"]
"""Fixtures."""

FIRST, SECOND = "g4dn.xlarge", "g5.xlarge"


@pytest.fixture
def zones(ec2: Ec2) -> Iterator[tuple[str, ...]]:
    """Two subnets, in zones of their own; afterwards there is room in all of them again."""
    told = json.loads((ec2.folder / "ec2.json").read_text(encoding="utf-8"))
    yield tuple(told["regions"][REGION]["subnets"][f"{REGION}{letter}"] for letter in "ab")
    keys = [f"{kind}/{REGION}{letter}" for kind in (FIRST, SECOND) for letter in "ab"]
    ec2.lab("capacity", {"capacity": dict.fromkeys(keys)})


@pytest.fixture
def pool(ec2: Ec2, zones: tuple[str, ...]) -> AwsPool:
    return AwsPool((FIRST, SECOND), ec2.image, zones, promised=Shape(4, 15000, 1, "t4"))


@pytest.fixture
def site(connect: Connect) -> AwsSite:
    return connect()


def leave_room(ec2: Ec2, **by_offer: int) -> None:
    """Room for so many more machines of `first_a`, the first type in the first zone, and so on."""
    counts: dict[str, int] = {}
    there = [one for one in ec2.lab("instances", method="GET") if one["state"] not in {"terminated", "stopped"}]
    for name, room in by_offer.items():
        kind, zone = {"first": FIRST, "second": SECOND}[name[:-2]], REGION + name[-1]
        counts[f"{kind}/{zone}"] = room + sum((one["type"], one["zone"]) == (kind, zone) for one in there)
    ec2.lab("capacity", {"capacity": counts})


def offers_asked(call: dict[str, Any]) -> list[tuple[str, str]]:
    """The types and subnets of a CreateFleet call, in the order of their priorities."""
    at = "LaunchTemplateConfigs.1.Overrides."
    asked = {key.removeprefix(at): value for key, value in call["params"].items() if key.startswith(at)}
    numbers = sorted({key.partition(".")[0] for key in asked}, key=lambda number: float(asked[f"{number}.Priority"]))
    return [(asked[f"{number}.InstanceType"], asked[f"{number}.SubnetId"]) for number in numbers]


def made_of(ec2: Ec2, op: Operation) -> list[str]:
    """What the operation's machines are, such as "g4dn.xlarge a"."""
    return sorted(
        f"{one['type']} {one['zone'][-1]}"
        for one in ec2.lab("instances", method="GET")
        if one["tags"].get("cm-scale:operation") == op.id
    )


def by_name(site: AwsSite) -> dict[NodeName, MachineId]:
    return {machine.node: machine.id for machine in site.list()}


# --- names -----------------------------------------------------------------------------------------------------------


def test_many_nodes_are_one_fleet_and_one_call_that_names_its_machines(site: AwsSite, ec2: Ec2) -> None:
    since = time.time()
    op = operation(*(f"e{number}" for number in range(70)))
    outcomes = site.start(op)
    assert set(results(outcomes).values()) == {"ok"}
    assert by_name(site) == {node: outcome.machine for node, outcome in outcomes.items()}
    assert {machine.op for machine in site.list()} == {op.id}
    assert [len(ec2.calls(action, since)) for action in ("CreateFleet", "CreateTags", "RunInstances")] == [1, 1, 0]


def test_the_same_operation_again_gives_the_same_machines_the_same_names(site: AwsSite, connect: Connect) -> None:
    op = operation("e3", "e1", "e2")
    first = site.start(op)
    before = by_name(site)
    assert connect().start(replace(op, nodes=tuple(reversed(op.nodes)))) == first
    assert by_name(site) == before


def test_an_answer_lost_after_the_launch_is_asked_for_again(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("CreateFleet", cut=True, after=True, times=2)
    assert results(site.start(operation("e1", "e2"))) == {"e1": "ok", "e2": "ok"}
    assert set(by_name(site)) == {"e1", "e2"}


def test_an_answer_that_never_comes_leaves_machines_without_names_until_it_is_asked_for_again(
    site: AwsSite, ec2: Ec2
) -> None:
    ec2.fault("CreateFleet", cut=True, after=True, times=3)
    op = operation("e1", "e2")
    assert results(site.start(op)) == {"e1": "transient", "e2": "transient"}
    assert [(machine.node, machine.op) for machine in site.list()] == [("", op.id), ("", op.id)]
    assert results(site.start(op)) == {"e1": "ok", "e2": "ok"}
    assert set(by_name(site)) == {"e1", "e2"}


def test_machines_that_ec2_does_not_know_yet_are_named_a_moment_later(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("CreateTags", code="InvalidInstanceID.NotFound", times=1)
    assert results(site.start(operation("e1"))) == {"e1": "ok"}
    assert set(by_name(site)) == {"e1"}


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "UnauthorizedOperation"])
def test_machines_that_cannot_be_named_keep_their_operation_open(site: AwsSite, ec2: Ec2, code: str) -> None:
    ec2.fault("CreateTags", code=code, times=1)
    op = operation("e1", "e2")
    outcomes = site.start(op)
    assert results(outcomes) == {"e1": "transient", "e2": "transient"}
    assert outcomes[NodeName("e1")].detail.startswith(f"2 machines have no names yet: {code}")
    assert results(site.start(op)) == {"e1": "ok", "e2": "ok"}


def test_a_pool_changed_after_a_crash_finds_what_was_launched_and_names_it(
    site: AwsSite, ec2: Ec2, connect: Connect, pool: AwsPool
) -> None:
    ec2.fault("CreateTags", code="RequestLimitExceeded", times=1)
    op = operation("e1", "e2")
    site.start(op)
    changed = connect(replace(pool, instance_types=(SECOND, FIRST)))
    outcomes = changed.start(op)
    assert results(outcomes) == {"e1": "ok", "e2": "ok"}
    assert by_name(site) == {node: outcome.machine for node, outcome in outcomes.items()}


def test_what_was_launched_before_and_is_not_listed_yet_is_looked_for_again(
    site: AwsSite, ec2: Ec2, connect: Connect, pool: AwsPool
) -> None:
    op = operation("e1")
    site.start(op)
    ec2.times(unseen_s=60.0)
    changed = connect(replace(pool, instance_types=(SECOND, FIRST)))
    assert results(changed.start(op)) == {"e1": "transient"}
    ec2.times(unseen_s=0.0)
    assert results(changed.start(op)) == {"e1": "ok"}


def test_the_same_operation_is_asked_for_alike_whatever_was_learnt_in_between(site: AwsSite, ec2: Ec2) -> None:
    leave_room(ec2, first_a=1, second_a=0)
    ec2.fault("CreateFleet", cut=True, after=True, times=3)
    op = operation("e1", "e2")
    site.start(op)
    assert results(site.start(operation("e3"))) == {"e3": "ok"}  # which shows that the first offer has none left
    assert results(site.start(op)) == {"e1": "ok", "e2": "ok"}


# --- offers ----------------------------------------------------------------------------------------------------------


def test_offers_are_asked_in_their_order_each_type_in_all_subnets(
    site: AwsSite, ec2: Ec2, zones: tuple[str, ...]
) -> None:
    since = time.time()
    op = operation("e1")
    site.start(op)
    (call,) = ec2.calls("CreateFleet", since)
    assert offers_asked(call) == [(kind, zone) for kind in (FIRST, SECOND) for zone in zones]
    assert call["params"]["OnDemandOptions.AllocationStrategy"] == "prioritized"
    assert made_of(ec2, op) == [f"{FIRST} a"]


def test_what_an_offer_lacks_comes_from_the_next_and_the_next_fleet_leaves_it_out(
    site: AwsSite, ec2: Ec2, zones: tuple[str, ...]
) -> None:
    leave_room(ec2, first_a=1, first_b=0)
    op = operation("e1", "e2", "e3")
    assert set(results(site.start(op)).values()) == {"ok"}
    assert made_of(ec2, op) == [f"{FIRST} a", f"{SECOND} a", f"{SECOND} a"]
    since = time.time()
    assert results(site.start(operation("e4"))) == {"e4": "ok"}
    (call,) = ec2.calls("CreateFleet", since)
    assert offers_asked(call) == [(SECOND, zone) for zone in zones]


def test_nodes_for_which_no_offer_has_room_lack_capacity_and_are_told_where(site: AwsSite, ec2: Ec2) -> None:
    leave_room(ec2, first_a=1, first_b=0, second_a=1, second_b=0)
    outcomes = site.start(operation("e1", "e2", "e3"))
    assert results(outcomes) == {"e1": "ok", "e2": "ok", "e3": "capacity"}
    assert outcomes[NodeName("e3")].detail.startswith("EC2 had 2 of 3 machines; g4dn.xlarge in subnet-")
    assert "InsufficientInstanceCapacity" in outcomes[NodeName("e3")].detail
    assert set(by_name(site)) == {"e1", "e2"}


def test_when_nothing_is_left_all_offers_are_asked_again(site: AwsSite, ec2: Ec2) -> None:
    leave_room(ec2, first_a=0, first_b=0, second_a=0, second_b=0)
    assert results(site.start(operation("e1"))) == {"e1": "capacity"}
    leave_room(ec2, first_b=1)
    assert results(site.start(operation("e1"))) == {"e1": "ok"}


def test_an_offer_that_cannot_be_spares_the_others(ec2: Ec2, connect: Connect, pool: AwsPool) -> None:
    site = connect(replace(pool, subnets=("subnet-0123456789abcdef0", *pool.subnets)))
    assert results(site.start(operation("e1"))) == {"e1": "ok"}


def test_all_or_none_comes_in_one_zone(site: AwsSite, ec2: Ec2) -> None:
    leave_room(ec2, first_a=1, second_a=1, first_b=1, second_b=2)
    op = operation("e1", "e2", "e3", all_or_none=True)
    assert set(results(site.start(op)).values()) == {"ok"}
    assert made_of(ec2, op) == [f"{FIRST} b", f"{SECOND} b", f"{SECOND} b"]


def test_all_or_none_starts_none_when_no_zone_has_room_for_all(site: AwsSite, ec2: Ec2) -> None:
    leave_room(ec2, first_a=1, second_a=1, first_b=1, second_b=1)
    op = operation("e1", "e2", "e3", all_or_none=True)
    assert set(results(site.start(op)).values()) == {"capacity"}
    assert {machine.state for machine in site.list()} <= {MachineState.ENDING}


def test_a_throttle_is_no_lack_of_capacity_and_stands_against_no_offer(
    site: AwsSite, ec2: Ec2, zones: tuple[str, ...]
) -> None:
    ec2.fault("CreateFleet", code="RequestLimitExceeded", status=503, times=1)
    assert results(site.start(operation("e1"))) == {"e1": "throttled"}
    since = time.time()
    assert results(site.start(operation("e1"))) == {"e1": "ok"}
    assert len(offers_asked(ec2.calls("CreateFleet", since)[0])) == 2 * len(zones)


def test_spot_machines_come_from_where_they_are_likely_to_stay(ec2: Ec2, connect: Connect, pool: AwsPool) -> None:
    since = time.time()
    spot = connect(replace(pool, market="spot", allocation_strategy="price-capacity-optimized"))
    assert results(spot.start(operation("e1", all_or_none=True))) == {"e1": "ok"}
    (call,) = ec2.calls("CreateFleet", since)
    asked = call["params"]
    assert asked["TargetCapacitySpecification.DefaultTargetCapacityType"] == "spot"
    assert asked["SpotOptions.AllocationStrategy"] == "price-capacity-optimized"
    assert (asked["SpotOptions.MinTargetCapacity"], asked["SpotOptions.SingleAvailabilityZone"]) == ("1", "true")


# --- launch templates ------------------------------------------------------------------------------------------------


@pytest.fixture
def amazon(ec2: Ec2) -> Iterator[Any]:
    client = boto3.client("ec2", region_name=REGION, endpoint_url=ec2.endpoint)
    yield client
    client.close()


def templates(amazon: Any, cluster: str) -> list[str]:
    filters = [{"Name": "tag:cm-scale:cluster", "Values": [cluster]}]
    return [each["LaunchTemplateName"] for each in amazon.describe_launch_templates(Filters=filters)["LaunchTemplates"]]


def test_a_launch_template_is_made_once_for_its_content_and_found_again(
    connect: Connect, ec2: Ec2, amazon: Any
) -> None:
    since = time.time()
    for number in range(2):
        site = connect(cluster="one-template")
        assert results(site.start(operation(f"e{number}1"))) == {f"e{number}1": "ok"}
        assert results(site.start(operation(f"e{number}2"))) == {f"e{number}2": "ok"}
    assert len(templates(amazon, "one-template")) == 1
    assert [call["error"] for call in ec2.calls("CreateLaunchTemplate", since)] == [
        "",
        "InvalidLaunchTemplateName.AlreadyExistsException",
    ]


def test_a_template_that_no_pool_needs_any_more_is_swept(connect: Connect, pool: AwsPool, amazon: Any) -> None:
    connect(cluster="swept").start(operation("e1"))
    (old,) = templates(amazon, "swept")
    connect(replace(pool, volume_gb=50), cluster="swept").start(operation("e2"))
    (new,) = templates(amazon, "swept")
    assert new != old


def test_a_pool_whose_user_data_cannot_be_read_holds_up_no_other_and_then_nothing_is_swept(
    ec2: Ec2, pool: AwsPool, amazon: Any, connect: Connect
) -> None:
    connect(cluster="beside").start(operation("e1"))
    pools = {
        POOL: replace(pool, volume_gb=60),
        PoolName("broken"): replace(pool, user_data=Path("/no/such/script")),
    }
    site = AwsSite("beside", SiteName("east"), REGION, pools, endpoint_url=ec2.endpoint)
    assert results(site.start(operation("e2"))) == {"e2": "ok"}
    assert len(templates(amazon, "beside")) == 2


def test_what_is_wrong_with_one_pool_keeps_no_other_from_its_template(ec2: Ec2, pool: AwsPool, amazon: Any) -> None:
    pools = {POOL: pool, PoolName("wrong"): replace(pool, image="ami-0123456789abcdef0")}
    site = AwsSite("one-is-wrong", SiteName("east"), REGION, pools, endpoint_url=ec2.endpoint)
    assert results(site.start(operation("e1"))) == {"e1": "ok"}
    assert len(templates(amazon, "one-is-wrong")) == 1


def test_a_template_that_somebody_deleted_is_made_anew(connect: Connect, amazon: Any) -> None:
    site = connect(cluster="deleted-template")
    site.start(operation("e1"))
    (name,) = templates(amazon, "deleted-template")
    amazon.delete_launch_template(LaunchTemplateName=name)
    op = operation("e2")
    assert results(site.start(op)) == {"e2": "transient"}
    assert results(site.start(op)) == {"e2": "ok"}
    assert templates(amazon, "deleted-template") == [name]


def test_what_every_machine_is_stands_in_the_template(connect: Connect, pool: AwsPool, amazon: Any) -> None:
    connect(replace(pool, volume_gb=50), cluster="whole-template").start(operation("e1"))
    (name,) = templates(amazon, "whole-template")
    (version,) = amazon.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
    data = version["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["BlockDeviceMappings"][0]["Ebs"] == {
        "Encrypted": True,
        "DeleteOnTermination": True,
        "VolumeSize": 50,
        "VolumeType": "gp3",
    }
    assert data["NetworkInterfaces"][0]["AssociatePublicIpAddress"] is False
    tags = [{"Key": "cm-scale:cluster", "Value": "whole-template"}]
    assert {"ResourceType": "network-interface", "Tags": tags} in data["TagSpecifications"]


# --- checking --------------------------------------------------------------------------------------------------------


def test_a_sound_pool_of_several_offers_has_no_problems_and_checking_makes_nothing(site: AwsSite, ec2: Ec2) -> None:
    since = time.time()
    assert list(site.problems()) == []
    assert site.list() == ()
    assert {call["error"] for call in ec2.calls("CreateLaunchTemplate", since)} == {"DryRunOperation"}


@pytest.mark.parametrize(
    ("action", "what"), [("CreateFleet", "a fleet"), ("CreateLaunchTemplate", "a launch template")]
)
def test_a_call_of_fleets_that_would_be_refused_is_a_problem(site: AwsSite, ec2: Ec2, action: str, what: str) -> None:
    ec2.fault(action, code="UnauthorizedOperation", status=403, message="Not you.", times=0)
    (told,) = site.problems()
    assert told.startswith(f"pool t4: {what} would be refused: UnauthorizedOperation: Not you.")
    assert f"ec2:{action}" in told


def test_every_type_must_have_what_is_promised(connect: Connect, pool: AwsPool) -> None:
    site = connect(replace(pool, instance_types=(FIRST, "c5.xlarge")))
    assert list(site.problems()) == [
        "pool t4: mem_mb = 15000, but a c5.xlarge has 8192",
        "pool t4: gpus = 1, but a c5.xlarge has 0",
    ]
    assert site.start(operation("e1"))[NodeName("e1")].result is Result.OK


def test_user_data_of_a_fleet_cannot_name_the_nodes_of_a_launch(
    connect: Connect, pool: AwsPool, tmp_path: Path
) -> None:
    script = tmp_path / "boot.sh"
    script.write_text("#!/bin/sh\necho @NODES@\n")
    (told,) = connect(replace(pool, user_data=script)).problems()
    assert told.startswith(f"pool t4: user data {script} names @NODES@, which is empty for a pool of several types")


def test_after_a_call_that_is_throttled_the_rest_of_an_operation_is_not_called(site: AwsSite, ec2: Ec2) -> None:
    ec2.fault("CreateFleet", code="RequestLimitExceeded", status=503, times=0)
    since = time.time()
    outcomes = site.start(operation(*(f"k{number}" for number in range(1000))))
    assert list(results(outcomes).values()) == ["throttled"] * 1000
    assert len(ec2.calls("CreateFleet", since)) == 1


@pytest.mark.slow
def test_a_thousand_nodes_are_two_launch_calls_and_each_machine_has_a_name_of_its_own(site: AwsSite, ec2: Ec2) -> None:
    since = time.time()
    op = operation(*(f"k{number}" for number in range(1000)))
    outcomes = site.start(op)
    assert set(results(outcomes).values()) == {"ok"}
    assert [len(ec2.calls(action, since)) for action in ("CreateFleet", "CreateTags", "RunInstances")] == [2, 2, 0]
    assert by_name(site) == {node: outcome.machine for node, outcome in outcomes.items()}
    since = time.time()
    assert set(results(site.delete([*by_name(site).values()])).values()) == {"ok"}
    assert len(ec2.calls("TerminateInstances", since)) == 1
