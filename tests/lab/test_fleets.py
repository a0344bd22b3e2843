"""Instant fleets of the EC2 double take their machines as EC2's do, over real HTTP, by the real boto3."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import botocore.exceptions
import pytest

from tests.lab.double import Double, ids, refused

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
_NAMES = count(1)


@pytest.fixture
def template(double: Double) -> Iterator[dict[str, str]]:
    """A launch template that names an image and a type."""
    name = f"template-{next(_NAMES)}"
    data: dict[str, Any] = {
        "ImageId": double.regions["us-east-1"]["image"],
        "InstanceType": "g4dn.xlarge",
        "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "from", "Value": "template"}]}],
    }
    double.client().create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    yield {"LaunchTemplateName": name, "Version": "$Latest"}
    double.client().delete_launch_template(LaunchTemplateName=name)


def over(double: Double, zone: str, kind: str = "g4dn.xlarge", **more: Any) -> dict[str, Any]:
    """An override: this type in this zone's subnet."""
    return {"InstanceType": kind, "SubnetId": double.regions["us-east-1"]["subnets"][zone], **more}


def fleet(
    double: Double,
    template: dict[str, str],
    overrides: list[dict[str, Any]],
    target: int,
    spot: bool = True,
    **more: Any,
) -> dict[str, Any]:
    said: dict[str, Any] = double.client().create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template, "Overrides": overrides}],
        TargetCapacitySpecification={
            "TotalTargetCapacity": target,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        **more,
    )
    return said


def zones(said: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["AvailabilityZone"], len(each["InstanceIds"])) for each in said["Instances"]]


def kinds(said: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["InstanceType"], len(each["InstanceIds"])) for each in said["Instances"]]


def all_of(said: dict[str, Any]) -> list[str]:
    return [id_ for each in said["Instances"] for id_ in each["InstanceIds"]]


def test_a_fleet_walks_its_pools_and_says_which_had_too_little(double: Double, template: dict[str, str]) -> None:
    double.control.set_capacity({"g4dn.xlarge/us-east-1a/spot": 3, "g4dn.xlarge/us-east-1b": 0, "g5.xlarge": 4})
    wanted = [over(double, A), over(double, B), over(double, A, "g5.xlarge"), over(double, C, "m5.large")]
    said = fleet(double, template, wanted, 10, SpotOptions={"AllocationStrategy": "capacity-optimized-prioritized"})
    assert [(each["InstanceType"], len(each["InstanceIds"])) for each in said["Instances"]] == [
        *(("g4dn.xlarge", 3), ("g5.xlarge", 4), ("m5.large", 3)),
    ]
    told = [(each["ErrorCode"], each["LaunchTemplateAndOverrides"]["Overrides"]["SubnetId"]) for each in said["Errors"]]
    assert {code for code, _ in told} == {"InsufficientInstanceCapacity"}
    assert len(told) == 2  # the pool that had nothing is tried last, when nothing is wanted any more
    assert {each["Lifecycle"] for each in said["Errors"] + said["Instances"]} == {"spot"}


def test_the_machines_of_a_fleet_carry_the_tags_of_its_call_and_of_its_template(
    double: Double, template: dict[str, str]
) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "cm-scale:node", "Value": "g-[1-2]"}]}]
    said = fleet(double, template, [over(double, A), over(double, B)], 2, TagSpecifications=tags)
    for each in double.describe(InstanceIds=all_of(said)).values():
        has = {tag["Key"]: tag["Value"] for tag in each["Tags"]}
        assert has["cm-scale:node"] == "g-[1-2]"
        assert has["from"] == "template"
        assert has["aws:ec2:fleet-id"] == said["FleetId"]
        assert has["aws:ec2launchtemplate:version"] == "1"


def test_the_same_token_gives_the_same_fleet_and_makes_nothing(double: Double, template: dict[str, str]) -> None:
    double.control.set_capacity({"g4dn.xlarge": 2})
    said = fleet(double, template, [over(double, A)], 3, ClientToken="fleet")
    double.control.set_capacity({"g4dn.xlarge": 9})
    again = fleet(double, template, [over(double, A)], 3, ClientToken="fleet")
    assert [again[key] for key in ("FleetId", "Instances", "Errors")] == [
        said[key] for key in ("FleetId", "Instances", "Errors")
    ]
    assert len(double.describe()) == 2
    with pytest.raises(botocore.exceptions.ClientError) as error:
        fleet(double, template, [over(double, A)], 4, ClientToken="fleet")
    assert refused(error) == ("IdempotentParameterMismatch", 400)


def test_a_token_of_a_fleet_is_no_token_of_a_launch(double: Double, template: dict[str, str]) -> None:
    made = all_of(fleet(double, template, [over(double, A)], 1, ClientToken="both kinds"))
    assert ids(double.run(ClientToken="both kinds")) != made


@pytest.mark.parametrize(
    ("strategy", "first"),
    [("lowest-price", B), ("capacity-optimized", C), ("price-capacity-optimized", A)],
)
def test_a_strategy_says_where_spot_machines_come_from(
    double: Double, template: dict[str, str], strategy: str, first: str
) -> None:
    double.control.set_capacity({f"g4dn.xlarge/{zone}/spot": room for zone, room in ((A, 5), (B, 1), (C, 9))})
    double.control.set_prices({f"g4dn.xlarge/{zone}/spot": cost for zone, cost in ((A, 0.2), (B, 0.1), (C, 0.3))})
    wanted = [over(double, zone) for zone in (A, B, C)]
    said = fleet(double, template, wanted, 4, SpotOptions={"AllocationStrategy": strategy})
    assert zones(said)[0][0] == first
    assert len(all_of(said)) == 4


def test_priorities_order_on_demand_pools_and_cost_orders_them_without(
    double: Double, template: dict[str, str]
) -> None:
    wanted = [over(double, A, "g5.xlarge", Priority=2.0), over(double, A, "m5.large", Priority=3.0)]
    wanted.append(over(double, A, "c5.4xlarge", Priority=1.0))
    given = {"AllocationStrategy": "prioritized"}
    assert kinds(fleet(double, template, wanted, 1, spot=False, OnDemandOptions=given)) == [("c5.4xlarge", 1)]
    assert kinds(fleet(double, template, wanted, 1, spot=False)) == [("m5.large", 1)]


def test_capacity_that_two_pools_share_is_given_once(double: Double, template: dict[str, str]) -> None:
    double.control.set_capacity({"g4dn.xlarge/us-east-1": 3})
    said = fleet(double, template, [over(double, A), over(double, B)], 5)
    assert len(all_of(said)) == 3
    assert len(said["Errors"]) == 2


def test_markets_have_capacity_of_their_own(double: Double, template: dict[str, str]) -> None:
    double.control.set_capacity({"g4dn.xlarge/us-east-1a/spot": 0})
    assert all_of(fleet(double, template, [over(double, A)], 1)) == []
    assert len(all_of(fleet(double, template, [over(double, A)], 1, spot=False))) == 1


def test_a_minimum_is_met_in_one_zone_or_nothing_is_launched(double: Double, template: dict[str, str]) -> None:
    wanted = [over(double, A), over(double, B), over(double, B, "g5.xlarge")]
    one_zone = {"MinTargetCapacity": 4, "SingleAvailabilityZone": True}
    double.control.set_capacity({"*/us-east-1a": 3, "g4dn.xlarge/us-east-1b": 1, "g5.xlarge": 2})
    said = fleet(double, template, wanted, 4, spot=False, OnDemandOptions=one_zone)
    assert all_of(said) == []
    assert said["Errors"][-1]["ErrorCode"] == "UnfulfillableCapacity"
    double.control.set_capacity({"g5.xlarge": 3})
    said = fleet(double, template, wanted, 4, spot=False, OnDemandOptions=one_zone)
    assert zones(said) == [(B, 1), (B, 3)]


def test_weights_count_for_the_target(double: Double, template: dict[str, str]) -> None:
    wanted = [over(double, A, "g4dn.12xlarge", WeightedCapacity=4.0)]
    assert kinds(fleet(double, template, wanted, 10)) == [("g4dn.12xlarge", 3)]


def test_both_markets_may_be_had_in_one_fleet(double: Double, template: dict[str, str]) -> None:
    said = double.client().create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template, "Overrides": [over(double, A)]}],
        TargetCapacitySpecification={
            "TotalTargetCapacity": 5,
            "OnDemandTargetCapacity": 2,
            "DefaultTargetCapacityType": "spot",
        },
    )
    assert {each["Lifecycle"]: len(each["InstanceIds"]) for each in said["Instances"]} == {"on-demand": 2, "spot": 3}


def test_an_override_that_names_nothing_is_an_error_of_its_own(double: Double, template: dict[str, str]) -> None:
    wanted = [{"SubnetId": "subnet-0123456789abcdef0"}, over(double, A)]
    said = fleet(double, template, wanted, 1)
    assert [each["ErrorCode"] for each in said["Errors"]] == ["InvalidSubnetID.NotFound"]
    assert len(all_of(said)) == 1


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"Type": "maintain"}, "UnsupportedOperation"),
        ({"SpotOptions": {"MinTargetCapacity": 2}}, "InvalidParameterCombination"),
        ({"SpotOptions": {"AllocationStrategy": "prioritized"}}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "image", "Tags": []}]}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_a_fleet_that_ec2_would_not_take_is_refused(
    double: Double, template: dict[str, str], wrong: dict[str, Any], code: str
) -> None:
    asked: dict[str, Any] = {
        "Type": "instant",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": [over(double, A)]}],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
    }
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().create_fleet(**asked | wrong)
    assert refused(error)[0] == code
    assert double.describe() == {}


def test_an_unknown_template_or_version_is_refused(double: Double, template: dict[str, str]) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        fleet(double, {"LaunchTemplateName": "nobody"}, [], 1)
    assert refused(error)[0] == "InvalidLaunchTemplateName.NotFoundException"
    with pytest.raises(botocore.exceptions.ClientError) as error:
        fleet(double, template | {"Version": "7"}, [], 1)
    assert refused(error)[0] == "InvalidLaunchTemplateId.VersionNotFound"


def test_an_instant_fleet_is_described_by_its_id_alone(double: Double, template: dict[str, str]) -> None:
    said = fleet(double, template, [over(double, A)], 2)
    (seen,) = double.client().describe_fleets(FleetIds=[said["FleetId"]])["Fleets"]
    assert seen["Type"] == "instant"
    assert all_of(seen) == all_of(said)
    assert double.client().describe_fleets()["Fleets"] == []


def test_a_launch_may_use_a_template_too(double: Double, template: dict[str, str]) -> None:
    said = double.client().run_instances(MinCount=1, MaxCount=1, LaunchTemplate=template, InstanceType="m5.large")
    assert said["Instances"][0]["InstanceType"] == "m5.large"
    assert {"Key": "from", "Value": "template"} in said["Instances"][0]["Tags"]
