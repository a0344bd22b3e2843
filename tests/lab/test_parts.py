"""Volumes and network interfaces come as a launch asks for them, and go with their instance."""

from __future__ import annotations

import time
from typing import Any

import botocore.exceptions
import pytest

from cmscale.lab.processes import wait_until
from tests.lab.double import Double, ids, refused


def volumes(double: Double, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = double.client().describe_volumes(**more)["Volumes"]
    return found


def interfaces(double: Double, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = double.client().describe_network_interfaces(**more)["NetworkInterfaces"]
    return found


def ended(double: Double, instance: str) -> None:
    double.client().terminate_instances(InstanceIds=[instance])
    assert wait_until(lambda: double.state(instance) in {"terminated", ""}, 3)


def disk(device: str = "/dev/sda1", **ebs: Any) -> dict[str, Any]:
    return {"DeviceName": device, "Ebs": ebs}


def card(**more: Any) -> dict[str, Any]:
    return {"DeviceIndex": 0, **more}


def test_a_root_volume_is_encrypted_if_a_launch_says_so_and_goes_with_its_instance(double: Double) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "cm-scale:cluster", "Value": "lab"}]}]
    asked = [disk(Encrypted=True, VolumeSize=40, VolumeType="gp3", DeleteOnTermination=True)]
    (one,) = ids(double.run(BlockDeviceMappings=asked, TagSpecifications=tags))
    (seen,) = volumes(double, Filters=[{"Name": "tag:cm-scale:cluster", "Values": ["l*"]}])
    assert (seen["Encrypted"], seen["Size"], seen["State"], seen["Iops"]) == (True, 40, "in-use", 3000)
    assert [(each["InstanceId"], each["DeleteOnTermination"]) for each in seen["Attachments"]] == [(one, True)]
    (told,) = double.describe()[one]["BlockDeviceMappings"]
    assert (told["DeviceName"], told["Ebs"]["VolumeId"]) == ("/dev/sda1", seen["VolumeId"])
    ended(double, one)
    assert volumes(double) == []


def test_what_an_instance_has_can_be_tagged_later(double: Double) -> None:
    (one,) = ids(double.run())
    (disk_id,) = [each["VolumeId"] for each in volumes(double)]
    (card_id,) = [each["NetworkInterfaceId"] for each in interfaces(double)]
    double.client().create_tags(Resources=[one, disk_id, card_id], Tags=[{"Key": "job", "Value": "7"}])
    job = [{"Name": "tag:job", "Values": ["7"]}]
    assert (
        len(volumes(double, Filters=job)) == len(interfaces(double, Filters=job)) == len(double.describe(Filters=job))
    )
    double.client().delete_tags(Resources=[disk_id], Tags=[{"Key": "job"}])
    assert volumes(double, Filters=job) == []
    double.client().create_tags(Resources=[double.regions["us-east-1"]["vpc"]], Tags=[{"Key": "job", "Value": "7"}])
    assert [each["VpcId"] for each in double.client().describe_vpcs(Filters=job)["Vpcs"]] == [
        double.regions["us-east-1"]["vpc"]
    ]


def test_a_volume_that_shall_stay_is_left_behind_until_it_is_deleted(double: Double) -> None:
    (one,) = ids(double.run(BlockDeviceMappings=[disk(), disk("/dev/sdb", DeleteOnTermination=False)]))
    (extra,) = volumes(double, Filters=[{"Name": "attachment.device", "Values": ["/dev/sdb"]}])
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().delete_volume(VolumeId=extra["VolumeId"])
    assert refused(error) == ("VolumeInUse", 400)
    ended(double, one)
    (left,) = volumes(double)
    assert (left["VolumeId"], left["State"]) == (extra["VolumeId"], "available")
    double.client().delete_volume(VolumeId=left["VolumeId"])
    assert volumes(double) == []


def test_volumes_that_somebody_made_by_hand_are_shown_beside_those_of_instances(double: Double) -> None:
    by_hand = double.client().create_volume(AvailabilityZone="us-east-1a", Size=7)["VolumeId"]
    double.run()
    assert sorted(each["Size"] for each in volumes(double)) == [7, 8]
    assert [each["Size"] for each in volumes(double, VolumeIds=[by_hand])] == [7]
    double.client().delete_volume(VolumeId=by_hand)
    assert [each["Size"] for each in volumes(double)] == [8]


def test_an_instance_has_one_plain_interface_without_a_public_address(double: Double) -> None:
    (one,) = ids(double.run())
    told = double.describe()[one]
    (seen,) = told["NetworkInterfaces"]
    assert (seen["InterfaceType"], seen["PrivateIpAddress"]) == ("interface", told["PrivateIpAddress"])
    assert "Association" not in seen
    assert "PublicIpAddress" not in told
    (same,) = interfaces(double, Filters=[{"Name": "attachment.instance-id", "Values": [one]}])
    assert same["NetworkInterfaceId"] == seen["NetworkInterfaceId"]
    ended(double, one)
    assert interfaces(double) == []


def test_a_public_address_is_there_if_it_was_asked_for(double: Double) -> None:
    subnet = double.regions["us-east-1"]["subnet"]
    asked = [card(AssociatePublicIpAddress=True, SubnetId=subnet)]
    said = double.client().run_instances(
        ImageId=double.regions["us-east-1"]["image"], MinCount=1, MaxCount=1, NetworkInterfaces=asked
    )
    told = double.describe()[said["Instances"][0]["InstanceId"]]
    assert told["PublicIpAddress"] == told["NetworkInterfaces"][0]["Association"]["PublicIp"]


def efa(double: Double, cards: int, kind: str = "p5.48xlarge", **more: Any) -> dict[str, Any]:
    asked = [
        card(DeviceIndex=min(number, 1), NetworkCardIndex=number, InterfaceType="efa", **more)
        for number in range(cards)
    ]
    image = double.regions["us-east-1"]["image"]
    said = double.client().run_instances(
        ImageId=image, MinCount=1, MaxCount=1, InstanceType=kind, NetworkInterfaces=asked
    )
    found: dict[str, Any] = said["Instances"][0]
    return found


def test_fabric_adapters_are_what_was_asked_for_on_the_cards_that_were_named(double: Double) -> None:
    one = efa(double, 4)["InstanceId"]
    told = double.describe()[one]["NetworkInterfaces"]
    assert [each["InterfaceType"] for each in told] == ["efa"] * 4
    assert [each["Attachment"]["NetworkCardIndex"] for each in told] == [0, 1, 2, 3]
    assert [each["Attachment"]["DeviceIndex"] for each in told] == [0, 1, 1, 1]
    assert len({each["PrivateIpAddress"] for each in told}) == 4


def test_a_type_has_no_more_fabric_adapters_than_it_can_have(double: Double) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        efa(double, 1, "g4dn.xlarge")
    assert refused(error) == ("AttachmentLimitExceeded", 400)


def test_several_interfaces_have_no_public_address_and_bring_their_own_groups(double: Double) -> None:
    with pytest.raises(botocore.exceptions.ClientError, match="multiple network interfaces") as error:
        efa(double, 2, AssociatePublicIpAddress=True)
    assert refused(error)[0] == "InvalidParameterCombination"
    with pytest.raises(botocore.exceptions.ClientError, match="subnet ID") as error:
        double.run(NetworkInterfaces=[card()])
    assert refused(error)[0] == "InvalidParameterCombination"


def test_a_thousand_instances_are_launched_described_and_ended_in_a_moment(double: Double) -> None:
    began = time.monotonic()
    made = ids(double.run(1000, 1000))
    launched = time.monotonic()
    assert len(double.describe()) == 1000
    described = time.monotonic()
    double.client().terminate_instances(InstanceIds=made)
    took = (launched - began, described - launched, time.monotonic() - described)
    assert max(took) < 5, took  # each well below a second on an idle machine
