"""The EC2 double answers as EC2 does, over real HTTP, to the real boto3."""

from __future__ import annotations

import base64
import http.client
import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.exceptions
import pytest

from cmscale.lab import console
from cmscale.lab.faults import Fault, Impairment, Scheduled
from cmscale.lab.processes import LabError, wait_until
from tests.lab.double import Double, ids, refused

CLUSTER = {"Key": "cm-scale:cluster", "Value": "lab"}


def test_a_launch_gets_as_many_as_there_are_between_min_and_max(double: Double) -> None:
    double.control.set_capacity({"g4dn.xlarge/us-east-1a": 3})
    assert len(double.run(1, 5)) == 3
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(1, 5)
    assert refused(error) == ("InsufficientInstanceCapacity", 500)


def test_a_launch_that_cannot_have_its_min_gets_nothing(double: Double) -> None:
    double.control.set_capacity({"g4dn.xlarge": 3})
    with pytest.raises(botocore.exceptions.ClientError):
        double.run(4, 4)
    assert double.describe() == {}


def test_capacity_of_one_zone_leaves_the_other_alone(double: Double) -> None:
    double.control.set_capacity({"g4dn.xlarge/us-east-1a": 0})
    other = double.regions["us-east-1"]["subnets"]["us-east-1b"]
    assert double.run(SubnetId=other)[0]["Placement"]["AvailabilityZone"] == "us-east-1b"


def test_a_quota_is_not_a_lack_of_capacity(double: Double) -> None:
    double.control.set_limits({"g4dn.xlarge/us-east-1": 1})
    double.run()
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run()
    assert refused(error) == ("InstanceLimitExceeded", 400)


def test_what_is_ended_makes_room(double: Double) -> None:
    double.control.set_capacity({"g4dn.xlarge": 1})
    first = double.run()
    double.client().terminate_instances(InstanceIds=ids(first))
    assert wait_until(lambda: double.state(first[0]["InstanceId"]) == "terminated", 2)
    assert len(double.run()) == 1


def test_the_same_token_gives_the_same_instances(double: Double) -> None:
    first = ids(double.run(1, 3, ClientToken="same"))
    assert ids(double.run(1, 3, ClientToken="same")) == first
    assert sorted(double.describe()) == sorted(first)


def test_the_same_token_gives_the_same_instances_after_their_end(double: Double) -> None:
    first = ids(double.run(1, 2, ClientToken="ended"))
    double.client().terminate_instances(InstanceIds=first)
    time.sleep(1.2)  # beyond forget_s
    again = double.run(1, 2, ClientToken="ended")
    assert ids(again) == first
    assert {each["State"]["Name"] for each in again} == {"terminated"}


def test_the_same_token_for_something_else_is_refused(double: Double) -> None:
    double.run(1, 3, ClientToken="other")
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(1, 4, ClientToken="other")
    assert refused(error) == ("IdempotentParameterMismatch", 400)


def test_a_token_counts_in_one_region_only(double: Double) -> None:
    here, there = double.run(ClientToken="both"), double.run(ClientToken="both", region="us-west-2")
    assert ids(here) != ids(there)
    assert ids(there)[0] in double.describe("us-west-2")
    assert ids(there)[0] not in double.describe()


def test_launch_indexes_count_from_nought_in_each_launch_and_stay(double: Double) -> None:
    first, second = double.run(3, 3), double.run(2, 2)
    assert [each["AmiLaunchIndex"] for each in first] == [0, 1, 2]
    assert [each["AmiLaunchIndex"] for each in second] == [0, 1]
    double.client().terminate_instances(InstanceIds=[first[0]["InstanceId"]])
    seen = double.describe()
    assert [seen[each["InstanceId"]]["AmiLaunchIndex"] for each in first + second] == [0, 1, 2, 0, 1]


def test_states_take_their_time_and_the_ended_vanish(double: Double) -> None:
    instance = double.run()[0]["InstanceId"]
    seen = [double.state(instance)]

    def goes_to(last: str) -> bool:
        state = double.state(instance)
        if state != seen[-1]:
            seen.append(state)
        return state == last

    assert wait_until(lambda: goes_to("running"), 3)
    double.client().stop_instances(InstanceIds=[instance])
    assert wait_until(lambda: goes_to("stopped"), 3)
    double.client().start_instances(InstanceIds=[instance])
    assert wait_until(lambda: goes_to("running"), 3)
    double.client().terminate_instances(InstanceIds=[instance])
    assert wait_until(lambda: goes_to(""), 3)
    assert seen == [
        *("pending", "running", "stopping", "stopped", "pending", "running"),
        *("shutting-down", "terminated", ""),
    ]


def test_an_ended_instance_cannot_be_started(double: Double) -> None:
    instance = double.run()[0]["InstanceId"]
    double.client().terminate_instances(InstanceIds=[instance])
    double.client().terminate_instances(InstanceIds=[instance])  # ending twice is fine
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().start_instances(InstanceIds=[instance])
    assert refused(error) == ("IncorrectInstanceState", 400)


def test_one_unknown_id_spares_all(double: Double) -> None:
    instance = double.run()[0]["InstanceId"]
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().terminate_instances(InstanceIds=[instance, "i-0123456789abcdef0"])
    assert refused(error) == ("InvalidInstanceID.NotFound", 400)
    assert double.state(instance) in {"pending", "running"}


def test_filters_choose_by_tag_and_state(double: Double) -> None:
    tags = [{"ResourceType": "instance", "Tags": [CLUSTER, {"Key": "cm-scale:node", "Value": "t4-[1-2]"}]}]
    ours = ids(double.run(2, 2, TagSpecifications=tags))
    double.run()
    cluster = {"Name": "tag:cm-scale:cluster", "Values": ["lab"]}
    live = {"Name": "instance-state-name", "Values": ["pending", "running"]}
    node = {"Name": "tag:cm-scale:node", "Values": ["t4-[1-2]"]}
    assert sorted(double.describe(Filters=[cluster, live, node])) == sorted(ours)
    double.client().terminate_instances(InstanceIds=ours[:1])
    assert sorted(double.describe(Filters=[cluster, live])) == ours[1:]
    assert double.describe(Filters=[{"Name": "tag:cm-scale:cluster", "Values": ["another"]}]) == {}


def test_tags_can_be_added_later(double: Double) -> None:
    instance = double.run()[0]["InstanceId"]
    double.client().create_tags(Resources=[instance], Tags=[CLUSTER])
    assert double.describe()[instance]["Tags"] == [CLUSTER]


def test_pages_hold_everything_once(double: Double) -> None:
    for _ in range(4):
        double.run(3, 3)
    pages = list(double.client().get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}))
    found = [each["InstanceId"] for page in pages for group in page["Reservations"] for each in group["Instances"]]
    assert len(pages) == 3
    assert len(found) == len(set(found)) == 12


def test_a_hundred_instances_are_described_in_a_moment(double: Double) -> None:
    double.run(100, 100)
    began = time.monotonic()
    assert len(double.describe()) == 100
    assert time.monotonic() - began < 0.3


def test_addresses_are_on_loopback_and_differ(double: Double) -> None:
    addresses = {each["PrivateIpAddress"] for each in double.run(20, 20)}
    assert len(addresses) == 20
    assert all(each.startswith("127.64.") for each in addresses)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
        ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
        ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
        ({"InstanceType": "z9.huge"}, "InvalidParameterValue"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ({"DryRun": True}, "DryRunOperation"),
    ],
)
def test_what_a_launch_names_must_exist(double: Double, wrong: dict[str, Any], code: str) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run(**wrong)
    assert refused(error)[0] == code
    assert double.describe() == {}


def test_user_data_is_handed_on_as_it_came_and_is_not_too_long(double: Double) -> None:
    (one,) = ids(double.run(UserData="#!/bin/sh\necho hello\n"))
    said = double.client().describe_instance_attribute(InstanceId=one, Attribute="userData")
    assert base64.b64decode(said["UserData"]["Value"]) == b"#!/bin/sh\necho hello\n"
    with pytest.raises(botocore.exceptions.ClientError, match="limited to 16384 bytes") as error:
        double.run(UserData="x" * 16385)
    assert refused(error) == ("InvalidParameterValue", 400)


def test_other_credentials_are_refused(double: Double) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client(key="AKIASOMEBODYELSE0000").describe_instances()
    assert refused(error) == ("AuthFailure", 401)
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client(service="sts", key="AKIASOMEBODYELSE0000").get_caller_identity()
    assert refused(error) == ("InvalidClientTokenId", 403)


def test_the_rest_of_the_api_is_there_too(double: Double) -> None:
    home = double.regions["us-east-1"]
    assert double.client(service="sts").get_caller_identity()["Account"] == "123456789012"
    assert double.client().describe_subnets(SubnetIds=[home["subnet"]])["Subnets"][0]["VpcId"] == home["vpc"]
    assert double.client().describe_images(ImageIds=[home["image"]])["Images"][0]["Name"] == "lab"
    kinds = double.client().describe_instance_types(InstanceTypes=["g4dn.xlarge"])["InstanceTypes"]
    assert kinds[0]["VCpuInfo"]["DefaultVCpus"] == 4
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client().get_spot_placement_scores(InstanceTypes=["g5.xlarge"], TargetCapacity=1)
    assert refused(error)[0] == "UnsupportedOperation"


def test_a_launch_cut_after_its_effect_is_found_by_its_token(double: Double) -> None:
    double.control.set_fault(Fault("RunInstances", cut=True, after=True))
    with pytest.raises(botocore.exceptions.ConnectionClosedError):
        double.run(3, 3, ClientToken="cut after")
    made = sorted(double.describe())
    assert len(made) == 3
    assert sorted(ids(double.run(3, 3, ClientToken="cut after"))) == made


def test_a_launch_cut_before_its_effect_made_nothing(double: Double) -> None:
    double.control.set_fault(Fault("RunInstances", cut=True))
    with pytest.raises(botocore.exceptions.ConnectionClosedError):
        double.run(ClientToken="cut before")
    assert double.describe() == {}


def test_faults_hit_the_calls_they_are_meant_for(double: Double) -> None:
    double.control.set_fault(
        Fault("RunInstances", "RequestLimitExceeded", status=503, match={"InstanceType": "c5.large"}, times=2)
    )
    double.run()
    for _ in range(2):
        with pytest.raises(botocore.exceptions.ClientError) as error:
            double.run(InstanceType="c5.large")
        assert refused(error) == ("RequestLimitExceeded", 503)
    double.run(InstanceType="c5.large")


def test_a_slow_call_holds_up_no_other(double: Double) -> None:
    double.control.set_fault(Fault("RunInstances", delay_s=1.0))
    began = time.monotonic()
    slow = http.client.HTTPConnection(double.endpoint.removeprefix("http://"), timeout=5)
    slow.request("POST", "/", "Action=RunInstances", {"Content-Type": "application/x-www-form-urlencoded"})
    time.sleep(0.1)
    double.describe()
    assert time.monotonic() - began < 0.9
    assert slow.getresponse().status == http.HTTPStatus.UNAUTHORIZED  # it was not even signed
    assert time.monotonic() - began > 1.0
    slow.close()


def test_the_journal_tells_what_was_asked_and_what_came_of_it(double: Double) -> None:
    began = time.time()
    made = ids(double.run(1, 2, ClientToken="told"))
    double.control.set_capacity({"g4dn.xlarge": 0})
    with pytest.raises(botocore.exceptions.ClientError):
        double.run(ClientToken="told no")
    yes, no = double.control.calls("RunInstances", since=began)
    assert (yes["instances"], yes["error"], yes["params"]["ClientToken"]) == (made, "", "told")
    assert (no["instances"], no["error"], no["status"]) == ([], "InsufficientInstanceCapacity", 500)
    lines = (double.directory / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[-1]) == no


def test_a_new_instance_may_be_unseen_for_a_while(double: Double) -> None:
    double.control.set_times(unseen_s=0.5)
    try:
        instance = double.run()[0]["InstanceId"]
        assert instance not in double.describe()
        assert wait_until(lambda: instance in double.describe(), 2)
    finally:
        double.control.set_times(unseen_s=0.0)


def test_a_wrong_word_to_the_control_side_is_told(double: Double) -> None:
    with pytest.raises(LabError, match="nonsense"):
        double.control.ask("POST", "faults", {"nonsense": 1})


# --- spot instances, events and consoles -----------------------------------------------------------------------------


def test_a_spot_instance_has_a_request_and_others_have_none(double: Double) -> None:
    (spot,) = double.run_spot()
    (other,) = ids(double.run())
    seen = double.describe()
    assert seen[spot]["InstanceLifecycle"] == "spot"
    assert "InstanceLifecycle" not in seen[other]
    (request,) = double.requests().values()
    assert request["SpotInstanceRequestId"] == seen[spot]["SpotInstanceRequestId"]
    assert (request["InstanceId"], request["State"], request["Status"]["Code"]) == (spot, "active", "fulfilled")


def test_a_spot_instance_of_a_one_time_request_cannot_be_stopped(double: Double) -> None:
    (spot,) = double.run_spot()
    assert wait_until(lambda: double.state(spot) == "running", 3)
    with pytest.raises(botocore.exceptions.ClientError, match="one-time Spot Instance request") as error:
        double.client().stop_instances(InstanceIds=[spot])
    assert refused(error) == ("UnsupportedOperation", 400)


def test_a_quota_of_spot_instances_is_told_as_such(double: Double) -> None:
    double.control.set_limits({"g4dn.xlarge": 0})
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run_spot()
    assert refused(error) == ("MaxSpotInstanceCountExceeded", 400)


def test_an_interrupted_spot_instance_is_marked_and_ends_when_its_warning_is_over(double: Double) -> None:
    one, other = double.run_spot(2)
    double.control.interrupt(one, warning_s=1.0)
    ends = datetime.now(UTC) + timedelta(seconds=1)
    marked = double.requests(Filters=[{"Name": "status-code", "Values": ["marked-for-termination"]}])
    assert set(marked) == {one}
    assert abs(marked[one]["Status"]["UpdateTime"] + timedelta(seconds=120) - ends) < timedelta(seconds=2)
    assert double.state(one) in {"pending", "running"}
    assert wait_until(lambda: double.state(one) in {"shutting-down", "terminated"}, 3)
    assert double.requests()[one]["Status"]["Code"] == "instance-terminated-no-capacity"
    assert double.state(other) == "running"


def test_the_request_of_an_instance_that_its_user_ended_says_so(double: Double) -> None:
    (spot,) = double.run_spot()
    double.client().terminate_instances(InstanceIds=[spot])
    request = double.requests()[spot]
    assert (request["State"], request["Status"]["Code"]) == ("closed", "instance-terminated-by-user")


def test_only_a_spot_instance_can_be_interrupted(double: Double) -> None:
    (other,) = ids(double.run())
    with pytest.raises(LabError, match=f"{other} is no spot instance"):
        double.control.interrupt(other)


def test_pages_of_spot_requests_hold_everything_once(double: Double) -> None:
    made = double.run_spot(12)
    pages = double.client().get_paginator("describe_spot_instance_requests").paginate(PaginationConfig={"PageSize": 5})
    found = [[each["InstanceId"] for each in page["SpotInstanceRequests"]] for page in pages]
    assert list(map(len, found)) == [5, 5, 2]
    assert sorted(each for page in found for each in page) == sorted(made)


def test_a_scheduled_event_is_shown_before_and_after_it_has_stopped_its_instance(double: Double) -> None:
    one, other = ids(double.run(2, 2))
    double.control.schedule(Scheduled(one, "instance-stop", in_s=1.0, description="Old host"))
    double.control.schedule(Scheduled(other, "system-reboot", in_s=1.0))
    assert wait_until(lambda: double.state(one) == "running", 3)
    (event,) = double.events(one, Filters=[{"Name": "event.code", "Values": ["instance-stop"]}])
    assert (event["Code"], event["Description"]) == ("instance-stop", "Old host")
    assert event["NotBefore"] > datetime.now(UTC) - timedelta(seconds=1)
    assert wait_until(lambda: double.state(one) == "stopped", 3)
    (event,) = double.events(other)
    assert event["Description"].startswith("[Completed] ")
    double.client().start_instances(InstanceIds=[one])
    assert wait_until(lambda: double.state(one) == "running", 3)


def test_an_event_that_was_canceled_does_nothing(double: Double) -> None:
    (one,) = ids(double.run())
    double.control.schedule(Scheduled(one, in_s=0.0, description="[Canceled] Old host"))
    assert wait_until(lambda: double.state(one) == "running", 3)
    assert double.events(one)[0]["Description"] == "[Canceled] Old host"


def test_a_check_that_fails_is_shown_with_since_when_until_it_passes_again(double: Double) -> None:
    one, other = ids(double.run(2, 2))
    assert wait_until(lambda: double.state(one) == double.state(other) == "running", 3)
    double.control.impair(Impairment(one, "InstanceStatus", since_s=300))

    def checks() -> dict[str, tuple[str, str]]:
        said = double.client().describe_instance_status()["InstanceStatuses"]
        return {each["InstanceId"]: (each["SystemStatus"]["Status"], each["InstanceStatus"]["Status"]) for each in said}

    assert checks() == {one: ("ok", "impaired"), other: ("ok", "ok")}
    wanted = [{"Name": "instance-status.status", "Values": ["impaired"]}]
    (seen,) = double.client().describe_instance_status(Filters=wanted)["InstanceStatuses"]
    (detail,) = seen["InstanceStatus"]["Details"]
    assert (seen["InstanceId"], detail["Status"]) == (one, "failed")
    assert abs(datetime.now(UTC) - detail["ImpairedSince"] - timedelta(seconds=300)) < timedelta(seconds=10)
    double.control.impair(Impairment(one, "InstanceStatus", mended=True))
    assert checks()[one] == ("ok", "ok")
    double.control.set_times(checks_s=60)
    assert set(checks().values()) == {("initializing", "initializing")}
    with pytest.raises(LabError, match="Nonsense is no check; there are SystemStatus"):
        double.control.ask("POST", "impairments", {"instance": one, "part": "Nonsense"})


def test_the_launch_time_is_that_of_the_last_start(double: Double) -> None:
    (one,) = ids(double.run())
    first = double.describe()[one]["LaunchTime"]
    assert wait_until(lambda: double.state(one) == "running", 3)
    double.client().start_instances(InstanceIds=[one])  # it runs already, so this starts nothing
    assert double.describe()[one]["LaunchTime"] == first
    double.client().stop_instances(InstanceIds=[one])
    assert wait_until(lambda: double.state(one) == "stopped", 3)
    assert wait_until(lambda: time.time() >= first.timestamp() + 1, 3)  # EC2 tells whole seconds
    double.client().start_instances(InstanceIds=[one])
    assert double.describe()[one]["LaunchTime"] > first


def test_the_console_is_empty_until_the_machine_writes_and_keeps_the_last_64_kib(double: Double) -> None:
    (one,) = ids(double.run())
    assert "Output" not in double.client().get_console_output(InstanceId=one)
    (double.directory / "log").mkdir(exist_ok=True)
    console.write(double.directory, one, "x" * 70_000)
    console.write(double.directory, one, "login:")
    output = double.client().get_console_output(InstanceId=one)["Output"]
    assert len(output) == 64 * 1024
    assert output.endswith("x\nlogin:\n")


def test_a_stopped_clock_is_moved_on_by_hand(double: Double) -> None:
    double.control.set_clock(1_000_000.0)
    try:
        (made,) = ids(double.run())
        assert double.state(made) == "pending"
        assert double.describe()[made]["LaunchTime"].timestamp() == 1_000_000.0
        double.control.set_clock(1_000_000.3)
        assert double.state(made) == "running"
        assert double.control.calls("RunInstances")[-1]["at"] == 1_000_000.0
    finally:
        double.control.set_clock(None)
    assert abs(double.control.ask("GET", "clock")["now"] - time.time()) < 60
