"""What EC2 is asked for, by each setting of a pool of one offer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest

from cmscale.adapters.aws import AwsPool
from cmscale.adapters.aws.pool import Facts
from cmscale.model import Result
from tests.adapters.test_aws import REGION, Connect, Ec2, connect, ec2, operation, pool, results, served

__all__ = ["connect", "ec2", "pool", "served"]
"""Fixtures."""

PLAIN = AwsPool(("p5.48xlarge",), "ami-1", ("subnet-1",), security_groups=("sg-1",))


def asked(pool: AwsPool = PLAIN, efa: int = 0, **changes: Any) -> dict[str, Any]:
    return replace(pool, **changes).request(Facts("/dev/xvda", efa), b"", {"cm-scale:cluster": "c1"})


def test_every_machine_requires_imdsv2_and_has_an_encrypted_root_volume_and_no_public_address() -> None:
    request = asked()
    assert request["MetadataOptions"]["HttpTokens"] == "required"
    (disk,) = request["BlockDeviceMappings"]
    assert disk == {
        "DeviceName": "/dev/xvda",
        "Ebs": {"Encrypted": True, "VolumeType": "gp3", "DeleteOnTermination": True},
    }
    assert request["NetworkInterfaces"] == [
        {
            "DeviceIndex": 0,
            "DeleteOnTermination": True,
            "AssociatePublicIpAddress": False,
            "Groups": ["sg-1"],
            "SubnetId": "subnet-1",
        }
    ]
    assert {each["ResourceType"] for each in request["TagSpecifications"]} == {
        "instance",
        "volume",
        "network-interface",
    }


def test_a_volume_may_be_larger_than_the_image_and_of_another_type() -> None:
    (disk,) = asked(volume_gb=200, volume_type="io2")["BlockDeviceMappings"]
    assert (disk["Ebs"]["VolumeSize"], disk["Ebs"]["VolumeType"]) == (200, "io2")


def test_a_public_address_is_asked_for_only_where_it_is_set() -> None:
    assert asked(public_address=True)["NetworkInterfaces"][0]["AssociatePublicIpAddress"] is True


def test_one_efa_interface_is_the_first_and_only_one() -> None:
    (card,) = asked(efa=1)["NetworkInterfaces"]
    assert (card["InterfaceType"], card["DeviceIndex"]) == ("efa", 0)


def test_several_efa_interfaces_are_on_a_network_card_each_and_none_has_a_public_address() -> None:
    cards = asked(efa=4)["NetworkInterfaces"]
    assert [(card["DeviceIndex"], card.get("NetworkCardIndex", 0)) for card in cards] == [
        (0, 0),
        (1, 1),
        (1, 2),
        (1, 3),
    ]
    assert {card["InterfaceType"] for card in cards} == {"efa"}
    assert not any("AssociatePublicIpAddress" in card for card in cards)
    assert all((card["SubnetId"], card["Groups"]) == ("subnet-1", ["sg-1"]) for card in cards)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"placement_group": "near"}, {"Placement": {"GroupName": "near"}}),
        ({"market": "spot"}, {"InstanceMarketOptions": {"MarketType": "spot"}}),
        (
            {"capacity_reservation": "cr-1"},
            {"CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}}},
        ),
        (
            {"capacity_reservation": "cr-1", "capacity_block": True},
            {
                "CapacityReservationSpecification": {"CapacityReservationTarget": {"CapacityReservationId": "cr-1"}},
                "InstanceMarketOptions": {"MarketType": "capacity-block"},
            },
        ),
    ],
)
def test_what_a_pool_is_bound_to_is_asked_for(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    plain = asked()
    assert {key: value for key, value in asked(**changes).items() if key not in plain} == expected


def test_efa_true_is_as_many_interfaces_as_the_type_has(connect: Connect, pool: AwsPool, ec2: Ec2) -> None:
    since = time.time()
    site = connect(replace(pool, instance_types=("p4d.24xlarge",), efa=True))
    for node in ("e1", "e2"):
        assert results(site.start(operation(node))) == {node: "ok"}
    (call, _) = ec2.calls("RunInstances", since)
    kinds = [key for key, value in call["params"].items() if key.endswith(".InterfaceType") and value == "efa"]
    assert len(kinds) == 4
    assert [len(ec2.calls(f"Describe{what}", since)) for what in ("Images", "InstanceTypes")] == [1, 1]


@pytest.mark.parametrize(("efa", "told"), [(True, "true"), (2, "2")])
def test_efa_on_a_type_that_has_none_is_a_problem(connect: Connect, pool: AwsPool, efa: bool | int, told: str) -> None:
    assert list(connect(replace(pool, efa=efa)).problems()) == [f"pool t4: efa = {told}, but a g4dn.xlarge has 0"]


def test_what_cannot_be_looked_up_is_an_outcome_and_nothing_is_launched(
    connect: Connect, ec2: Ec2, pool: AwsPool
) -> None:
    since = time.time()
    ec2.fault("DescribeImages", code="RequestLimitExceeded", status=503, times=0)
    outcomes = connect(pool).start(operation("e1"))
    assert {outcome.result for outcome in outcomes.values()} == {Result.THROTTLED}
    assert ec2.calls("RunInstances", since) == []


# --- what binds a pool to one place ----------------------------------------------------------------------------------


@pytest.fixture
def amazon(ec2: Ec2) -> Iterator[Any]:
    client = boto3.client("ec2", region_name=REGION, endpoint_url=ec2.endpoint)
    yield client
    client.close()


def test_machines_come_in_their_placement_group(connect: Connect, pool: AwsPool, amazon: Any) -> None:
    amazon.create_placement_group(GroupName="near", Strategy="cluster")
    site = connect(replace(pool, placement_group="near"))
    assert list(site.problems()) == []
    assert results(site.start(operation("e1", "e2", all_or_none=True))) == {"e1": "ok", "e2": "ok"}
    found = amazon.describe_instances(InstanceIds=[machine.id for machine in site.list()])["Reservations"]
    assert {one["Placement"]["GroupName"] for each in found for one in each["Instances"]} == {"near"}


def test_a_placement_group_that_is_not_there_is_a_problem_and_a_bad_request(connect: Connect, pool: AwsPool) -> None:
    site = connect(replace(pool, placement_group="nowhere"))
    (told,) = site.problems()
    assert told.startswith("pool t4: a launch would be refused: InvalidPlacementGroup.Unknown")
    assert results(site.start(operation("e1"))) == {"e1": "bad-request"}


def test_a_reservation_that_is_used_up_lacks_capacity(connect: Connect, pool: AwsPool, amazon: Any) -> None:
    zone = amazon.describe_subnets(SubnetIds=list(pool.subnets))["Subnets"][0]["AvailabilityZone"]
    wanted = {"InstanceType": "g4dn.xlarge", "InstancePlatform": "Linux/UNIX", "AvailabilityZone": zone}
    made = amazon.create_capacity_reservation(**wanted, InstanceCount=2, InstanceMatchCriteria="targeted")
    site = connect(replace(pool, capacity_reservation=made["CapacityReservation"]["CapacityReservationId"]))
    assert results(site.start(operation("e1", "e2"))) == {"e1": "ok", "e2": "ok"}
    assert results(site.start(operation("e3"))) == {"e3": "capacity"}
