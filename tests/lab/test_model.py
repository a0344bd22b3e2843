"""Every answer of the double is one that the SDK's own model of EC2 describes, and every odd request is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import botocore.exceptions
import pytest
from botocore.model import ListShape, Shape, StringShape, StructureShape
from botocore.validate import ParamValidator

from cmscale.lab import wire
from cmscale.lab.ec2.actions import ACTIONS
from tests.lab.double import Double, ids, refused

ZONE = "us-east-1a"
TAGS = [{"Key": "a", "Value": "b"}]


def one(double: Double) -> str:
    return str(ids(double.run())[0])


def reserved(double: Double) -> str:
    said = double.client().create_capacity_reservation(
        InstanceType="c5.large", InstancePlatform="Linux/UNIX", InstanceCount=1, AvailabilityZone=ZONE
    )
    return str(said["CapacityReservation"]["CapacityReservationId"])


def fleet(double: Double) -> dict[str, Any]:
    """One that finds room in one of its pools."""
    double.control.set_capacity({"g5.xlarge": 0})
    data = {"ImageId": double.regions["us-east-1"]["image"]}
    double.client().create_launch_template(LaunchTemplateName="model", LaunchTemplateData=data)
    subnet = double.regions["us-east-1"]["subnet"]
    kinds = ("g5.xlarge", "g4dn.xlarge")
    overrides = [{"InstanceType": kind, "SubnetId": subnet, "Priority": 1.0, "MaxPrice": "1"} for kind in kinds]
    template = {"LaunchTemplateName": "model", "Version": "$Latest"}
    try:
        said: dict[str, Any] = double.client().create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template, "Overrides": overrides}],
            TargetCapacitySpecification={"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "spot"},
        )
    finally:
        double.client().delete_launch_template(LaunchTemplateName="model")
    return said


def left_behind(double: Double, kind: str) -> str:
    """A volume or an interface that outlived its instance."""
    if kind == "volume":
        more: dict[str, Any] = {
            "BlockDeviceMappings": [{"DeviceName": "/dev/sdb", "Ebs": {"DeleteOnTermination": False}}]
        }
        (instance,) = ids(double.run(**more))
    else:
        card = {"DeviceIndex": 0, "DeleteOnTermination": False, "SubnetId": double.regions["us-east-1"]["subnet"]}
        image = double.regions["us-east-1"]["image"]
        said = double.client().run_instances(ImageId=image, MinCount=1, MaxCount=1, NetworkInterfaces=[card])
        (instance,) = ids(said["Instances"])
    double.client().terminate_instances(InstanceIds=[instance])
    if kind == "volume":
        return str(double.client().describe_volumes()["Volumes"][0]["VolumeId"])
    return str(double.client().describe_network_interfaces()["NetworkInterfaces"][0]["NetworkInterfaceId"])


Example = Callable[[Double], Mapping[str, Any]]
"""Makes a call that the double answers in full, and gives what boto3 makes of the answer."""

EXAMPLES: dict[str, Example] = {
    "RunInstances": lambda double: double.client().run_instances(
        ImageId=double.regions["us-east-1"]["image"],
        MinCount=1,
        MaxCount=2,
        InstanceMarketOptions={"MarketType": "spot"},
        BlockDeviceMappings=[{"DeviceName": "/dev/sdb", "Ebs": {"Encrypted": True, "VolumeSize": 3}}],
        MetadataOptions={"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        TagSpecifications=[{"ResourceType": "instance", "Tags": TAGS}],
    ),
    "CreateFleet": fleet,
    "DescribeFleets": lambda double: double.client().describe_fleets(FleetIds=[fleet(double)["FleetId"]]),
    "DescribeInstances": lambda double: (one(double), double.client().describe_instances())[1],
    "DescribeInstanceStatus": lambda double: (
        one(double),
        double.client().describe_instance_status(IncludeAllInstances=True),
    )[1],
    "DescribeSpotInstanceRequests": lambda double: (
        double.run_spot(),
        double.client().describe_spot_instance_requests(),
    )[1],
    "GetConsoleOutput": lambda double: double.client().get_console_output(InstanceId=one(double)),
    "DescribeInstanceAttribute": lambda double: double.client().describe_instance_attribute(
        InstanceId=str(ids(double.run(UserData="#!/bin/sh"))[0]), Attribute="userData"
    ),
    "TerminateInstances": lambda double: double.client().terminate_instances(InstanceIds=[one(double)]),
    "StopInstances": lambda double: double.client().stop_instances(InstanceIds=[running(double)]),
    "StartInstances": lambda double: double.client().start_instances(InstanceIds=[running(double)]),
    "CreateTags": lambda double: double.client().create_tags(Resources=[one(double)], Tags=TAGS),
    "DeleteTags": lambda double: double.client().delete_tags(Resources=[one(double)], Tags=TAGS),
    "CreatePlacementGroup": lambda double: double.client().create_placement_group(GroupName="model", Strategy="spread"),
    "DescribePlacementGroups": lambda double: double.client().describe_placement_groups(),
    "DeletePlacementGroup": lambda double: double.client().delete_placement_group(GroupName="model"),
    "CreateCapacityReservation": lambda double: double.client().create_capacity_reservation(
        InstanceType="c5.large", InstancePlatform="Linux/UNIX", InstanceCount=1, AvailabilityZone=ZONE
    ),
    "DescribeCapacityReservations": lambda double: double.client().describe_capacity_reservations(
        CapacityReservationIds=[reserved(double)]
    ),
    "CancelCapacityReservation": lambda double: double.client().cancel_capacity_reservation(
        CapacityReservationId=reserved(double)
    ),
    "DescribeVolumes": lambda double: (one(double), double.client().describe_volumes())[1],
    "DeleteVolume": lambda double: double.client().delete_volume(VolumeId=left_behind(double, "volume")),
    "DescribeNetworkInterfaces": lambda double: (one(double), double.client().describe_network_interfaces())[1],
    "DeleteNetworkInterface": lambda double: double.client().delete_network_interface(
        NetworkInterfaceId=left_behind(double, "interface")
    ),
    "DescribeSpotPriceHistory": lambda double: double.client().describe_spot_price_history(InstanceTypes=["g5.xlarge"]),
    "DescribeInstanceTypeOfferings": lambda double: double.client().describe_instance_type_offerings(),
}


def running(double: Double) -> str:
    double.control.set_times(pending_s=0)
    return one(double)


def oddities(shape: Shape, value: Any, path: str = "") -> Iterator[str]:
    """Where an answer says what its shape does not know."""
    if isinstance(shape, StructureShape):
        for name, inside in value.items():
            if name not in shape.members:
                yield f"{path}.{name}"
            else:
                yield from oddities(shape.members[name], inside, f"{path}.{name}")
    elif isinstance(shape, ListShape):
        for inside in value:
            yield from oddities(shape.member, inside, f"{path}[]")
    elif isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        yield f"{path}: {value!r}"


def test_each_action_of_ours_has_an_example() -> None:
    assert set(EXAMPLES) == set(ACTIONS)


@pytest.mark.parametrize("action", EXAMPLES)
def test_an_answer_is_what_the_sdk_expects(double: Double, action: str) -> None:
    said = {key: value for key, value in EXAMPLES[action](double).items() if key != "ResponseMetadata"}
    shape = wire.model().operation_model(action).output_shape
    if shape is None:
        assert said == {}
        return
    assert said, "the example shows nothing"
    assert ParamValidator().validate(said, shape).generate_report() == ""
    assert list(oddities(shape, said)) == []


@pytest.mark.parametrize(
    ("action", "asked", "code"),
    [
        ("DescribeInstances", {"Nonsense": "1"}, "UnknownParameter"),
        ("DescribeInstances", {"MaxResults": "many"}, "InvalidParameterValue"),
        ("DescribeInstances", {"MaxResults": "3"}, "InvalidParameterValue"),
        ("DescribeInstances", {"NextToken": "nonsense"}, "InvalidParameterValue"),
        ("DescribeInstances", {"Filter.1.Name": "nonsense", "Filter.1.Value.1": "x"}, "InvalidParameterValue"),
        ("DescribeInstances", {"InstanceId.1": "nonsense"}, "InvalidInstanceID.Malformed"),
        ("TerminateInstances", {}, "MissingParameter"),
        ("RunInstances", {}, "MissingParameter"),
        ("CreateFleet", {}, "MissingParameter"),
        ("GetConsoleOutput", {}, "MissingParameter"),
        ("NoSuchAction", {}, "InvalidAction"),
    ],
)
def test_what_the_api_does_not_know_is_refused(double: Double, action: str, asked: dict[str, str], code: str) -> None:
    """Asked as no SDK would: flat, and unchecked."""
    client = double.client()

    def flat(params: dict[str, Any], **_: Any) -> None:
        params["body"] = {"Action": action, "Version": "2016-11-15", **asked}

    client.meta.events.register_last("before-call.ec2.DescribeKeyPairs", flat, unique_id="flat")
    try:
        with pytest.raises(botocore.exceptions.ClientError) as error:
            client.describe_key_pairs()
    finally:
        client.meta.events.unregister("before-call.ec2.DescribeKeyPairs", unique_id="flat")
    assert refused(error) == (code, 400)


def test_a_joker_stands_for_letters_in_every_filter(double: Double) -> None:
    made = [ids(double.run(InstanceType=kind))[0] for kind in ("g4dn.xlarge", "g5.xlarge", "g5.12xlarge")]

    def found(name: str, *wanted: str) -> set[str]:
        return set(double.describe(Filters=[{"Name": name, "Values": list(wanted)}]))

    assert found("instance-type", "g5.*") == set(made[1:])
    assert found("instance-type", "g?.xlarge") == {made[1]}
    assert found("instance-type", "g[45].xlarge") == set()
    assert found("instance-type", r"g5.\*") == set()
    assert found("instance-type", "g4dn*", "*.12xlarge") == {made[0], made[2]}


def test_a_new_instance_cannot_be_tagged_before_ec2_knows_it_everywhere(double: Double) -> None:
    double.control.set_times(tags_unseen_s=60)
    instance = one(double)
    assert instance in double.describe()
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().create_tags(Resources=[instance], Tags=TAGS)
    assert refused(error) == ("InvalidInstanceID.NotFound", 400)
    double.control.set_times(tags_unseen_s=0)
    double.client().create_tags(Resources=[instance], Tags=TAGS)
    assert double.describe()[instance]["Tags"] == TAGS
    double.client().delete_tags(Resources=[instance], Tags=[{"Key": "a", "Value": "another"}])
    assert double.describe()[instance]["Tags"] == TAGS
    double.client().delete_tags(Resources=[instance], Tags=[{"Key": "a"}])
    assert "Tags" not in double.describe()[instance]


def test_a_tag_that_is_too_long_is_refused(double: Double) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().create_tags(Resources=[one(double)], Tags=[{"Key": "a", "Value": "b" * 257}])
    assert refused(error) == ("InvalidParameterValue", 400)
