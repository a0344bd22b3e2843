"""What is offered where, and what it costs: prices of the double stand still unless a test moves them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from cmscale.lab.market import CHANGE_S, keys, price
from tests.lab.double import Double


def history(double: Double, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = double.client().describe_spot_price_history(**more)["SpotPriceHistory"]
    return found


def test_a_key_that_says_more_comes_before_one_that_says_less() -> None:
    table = {"g5.xlarge": 1.0, "g5.xlarge/us-east-1": 2.0, "g5.xlarge/us-east-1a/spot": 3.0, "*": 4.0}
    assert price(table, "g5.xlarge", "us-east-1a", "us-east-1", "spot") == 3.0
    assert price(table, "g5.xlarge", "us-east-1b", "us-east-1", "spot") == 2.0
    assert price(table, "g5.xlarge", "eu-west-1a", "eu-west-1", "spot") == 1.0
    assert price(table, "c5.large", "eu-west-1a", "eu-west-1", "spot") == 4.0
    assert keys("g5.xlarge", "us-east-1a", "us-east-1", "spot")[0] == "g5.xlarge/us-east-1a/spot"


def test_spot_is_cheaper_than_on_demand_and_no_two_zones_are_alike() -> None:
    zones = {price({}, "p5.48xlarge", f"us-east-1{zone}", "us-east-1", "spot") for zone in "abc"}
    assert len(zones) == 3
    assert max(zones) < price({}, "p5.48xlarge", "us-east-1a", "us-east-1", "on-demand")


def test_the_price_of_now_is_the_latest_of_the_history(double: Double) -> None:
    double.control.set_prices({"g5.xlarge/us-east-1a/spot": 0.5})
    now = datetime.now(UTC)
    (seen,) = history(double, InstanceTypes=["g5.xlarge"], AvailabilityZone="us-east-1a", StartTime=now)
    assert (seen["SpotPrice"], seen["ProductDescription"]) == ("0.500000", "Linux/UNIX")
    assert seen["Timestamp"] <= now


def test_the_history_goes_back_as_far_as_it_is_asked_for(double: Double) -> None:
    since = datetime.now(UTC) - timedelta(days=3)
    found = history(double, InstanceTypes=["g5.xlarge"], AvailabilityZone="us-east-1a", StartTime=since)
    times = [each["Timestamp"] for each in found]
    assert all(one - other == timedelta(seconds=CHANGE_S) for one, other in pairwise(times))
    assert times[-1] <= since < times[-2]
    assert len({each["SpotPrice"] for each in found}) > 1


def test_types_are_offered_by_zone_and_found_by_a_part_of_their_name(double: Double) -> None:
    wanted = [{"Name": "instance-type", "Values": ["p5.*", "p4d*"]}]
    said = double.client().describe_instance_type_offerings(LocationType="availability-zone", Filters=wanted)
    found = said["InstanceTypeOfferings"]
    assert {each["InstanceType"] for each in found} >= {"p5.48xlarge", "p4d.24xlarge"}
    assert all(each["Location"].startswith("us-east-1") for each in found)
    assert {each["LocationType"] for each in found} == {"availability-zone"}


def test_pages_of_offerings_hold_everything_once(double: Double) -> None:
    pages = double.client().get_paginator("describe_instance_type_offerings").paginate()
    found = [each["InstanceType"] for page in pages for each in page["InstanceTypeOfferings"]]
    assert len(found) == len(set(found)) > 500
