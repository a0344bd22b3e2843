"""What has been set aside is for those who name it: placement groups, capacity reservations, capacity blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import botocore.exceptions
import pytest

from cmscale.lab.processes import wait_until
from cmscale.lab.reserved import Block
from tests.lab.double import Double, ids, refused


@pytest.fixture
def group(double: Double) -> Iterator[str]:
    double.client().create_placement_group(GroupName="gang", Strategy="cluster")
    yield "gang"
    left = [each["id"] for each in double.control.instances() if each["region"] == "us-east-1"]
    if left:
        double.client().terminate_instances(InstanceIds=left)
    assert wait_until(lambda: {each["state"] for each in double.control.instances()} <= {"terminated"}, 3)
    double.client().delete_placement_group(GroupName="gang")


def reserve(double: Double, count: int, **more: Any) -> str:
    asked = {"InstanceType": "g4dn.xlarge", "AvailabilityZone": "us-east-1a", "InstancePlatform": "Linux/UNIX"} | more
    said = double.client().create_capacity_reservation(InstanceCount=count, **asked)
    return str(said["CapacityReservation"]["CapacityReservationId"])


def into(reservation: str, **more: Any) -> dict[str, Any]:
    """The words of a launch into a reservation."""
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
    return {"CapacityReservationSpecification": target, **more}


def block(reservation: str) -> dict[str, Any]:
    return into(reservation, InstanceMarketOptions={"MarketType": "capacity-block"}, InstanceType="p5.48xlarge")


def test_a_launch_into_a_group_says_so(double: Double, group: str) -> None:
    (one,) = ids(double.run(Placement={"GroupName": group}))
    assert double.describe()[one]["Placement"]["GroupName"] == "gang"
    (seen,) = double.client().describe_placement_groups(GroupNames=[group])["PlacementGroups"]
    assert (seen["State"], seen["Strategy"]) == ("available", "cluster")


def test_an_unknown_group_is_refused(double: Double) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(Placement={"GroupName": "nobody"})
    assert refused(error) == ("InvalidPlacementGroup.Unknown", 400)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().describe_placement_groups(GroupNames=["nobody"])
    assert refused(error) == ("InvalidPlacementGroup.Unknown", 400)


def test_a_group_is_made_once_and_stays_while_it_is_used(double: Double, group: str) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().create_placement_group(GroupName=group, Strategy="cluster")
    assert refused(error)[0] == "InvalidPlacementGroup.Duplicate"
    double.run(Placement={"GroupName": group})
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().delete_placement_group(GroupName=group)
    assert refused(error)[0] == "InvalidPlacementGroup.InUse"


def test_a_reservation_is_for_launches_that_name_it_until_it_is_full(double: Double) -> None:
    double.control.set_capacity({"g4dn.xlarge/us-east-1a": 3})
    kept = reserve(double, 2)
    assert len(double.run(1, 5)) == 1  # the rest is set aside
    assert len(double.run(1, 5, **into(kept))) == 2
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(**into(kept))
    assert refused(error) == ("ReservationCapacityExceeded", 400)
    (seen,) = double.client().describe_capacity_reservations(CapacityReservationIds=[kept])["CapacityReservations"]
    assert (seen["TotalInstanceCount"], seen["AvailableInstanceCount"], seen["State"]) == (2, 0, "active")
    double.client().cancel_capacity_reservation(CapacityReservationId=kept)


def test_what_ends_in_a_reservation_makes_room_in_it_and_a_cancelled_one_gives_its_room_back(double: Double) -> None:
    double.control.set_capacity({"g4dn.xlarge": 2})
    kept = reserve(double, 2)
    first, second = ids(double.run(2, 2, **into(kept)))
    double.client().terminate_instances(InstanceIds=[first])
    assert wait_until(lambda: double.state(first) in {"terminated", ""}, 3)
    assert len(double.run(**into(kept))) == 1
    double.client().terminate_instances(InstanceIds=[second])
    assert wait_until(lambda: double.state(second) in {"terminated", ""}, 3)
    double.client().cancel_capacity_reservation(CapacityReservationId=kept)
    assert len(double.run(1, 5)) == 1  # one runs on, and takes room as any other
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(**into(kept))
    assert refused(error)[0] == "InvalidCapacityReservationState"


def test_no_more_is_set_aside_than_there_is(double: Double) -> None:
    double.control.set_capacity({"g4dn.xlarge": 1})
    with pytest.raises(botocore.exceptions.ClientError) as error:
        reserve(double, 2)
    assert refused(error)[0] == "InsufficientInstanceCapacity"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (into("cr-0123456789abcdef0"), "InvalidCapacityReservationId.NotFound"),
        ({"InstanceMarketOptions": {"MarketType": "capacity-block"}}, "InvalidParameterCombination"),
    ],
)
def test_a_launch_into_nothing_is_refused(double: Double, wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(**wrong)
    assert refused(error)[0] == code


def test_a_reservation_is_for_its_own_type_and_zone(double: Double) -> None:
    kept = reserve(double, 1, AvailabilityZone="us-east-1b")
    with pytest.raises(botocore.exceptions.ClientError, match=r"is for g4dn\.xlarge in us-east-1b"):
        double.run(**into(kept))
    double.client().cancel_capacity_reservation(CapacityReservationId=kept)


def test_a_block_has_its_own_room_and_market_and_ends_what_runs_in_it(double: Double) -> None:
    double.control.set_capacity({"p5.48xlarge": 0})
    bought = double.control.buy_block(Block("p5.48xlarge", "us-east-1a", 2, lasts_s=2.0))
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(InstanceType="p5.48xlarge", **into(bought))
    assert refused(error)[0] == "InvalidParameterCombination"
    one, two = ids(double.run(2, 2, **block(bought)))
    assert double.describe()[one]["InstanceLifecycle"] == "capacity-block"
    assert double.describe()[one]["CapacityReservationId"] == bought
    assert wait_until(lambda: double.state(two) in {"shutting-down", "terminated"}, 5)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(**block(bought))
    assert refused(error)[0] == "InvalidCapacityReservationState"


def test_a_block_that_has_not_begun_takes_nobody(double: Double) -> None:
    bought = double.control.buy_block(Block("p5.48xlarge", "us-east-1a", 2, starts_in_s=60))
    with pytest.raises(botocore.exceptions.ClientError, match="scheduled") as error:
        double.run(**block(bought))
    assert refused(error)[0] == "InvalidCapacityReservationState"
