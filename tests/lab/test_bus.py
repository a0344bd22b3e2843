"""What EC2 tells EventBridge arrives in the queues of the rules that want it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.exceptions
import pytest

from cmscale.lab.processes import LabError, wait_until
from tests.lab.double import Double, ids

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
CHANGE = "EC2 Instance State-change Notification"


class Listener:
    """A queue with a rule for some of EC2's events."""

    def __init__(self, double: Double, kinds: list[str]) -> None:
        self.sqs, self.events = double.client(service="sqs"), double.client(service="events")
        self.url = self.sqs.create_queue(QueueName="told")["QueueUrl"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        pattern = {"source": ["aws.ec2"], "detail-type": kinds}
        self.events.put_rule(Name="told", EventPattern=json.dumps(pattern))
        self.events.put_targets(Rule="told", Targets=[{"Id": "queue", "Arn": arn}])

    def received(self, wait_s: int = 0) -> list[dict[str, Any]]:
        said = self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_s)
        found = said.get("Messages", [])
        for each in found:
            self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=each["ReceiptHandle"])
        return [json.loads(each["Body"]) for each in found]

    def close(self) -> None:
        self.events.remove_targets(Rule="told", Ids=["queue"])
        self.events.delete_rule(Name="told")
        self.sqs.delete_queue(QueueUrl=self.url)


@pytest.fixture
def listener(double: Double, request: pytest.FixtureRequest) -> Iterator[Listener]:
    listener = Listener(double, getattr(request, "param", [WARNING, REBALANCE]))
    yield listener
    listener.close()


def test_a_warning_is_told_in_the_words_of_ec2(double: Double, listener: Listener) -> None:
    (spot,) = double.run_spot()
    double.control.interrupt(spot, warning_s=60)
    (told,) = listener.received(wait_s=2)
    assert (told["source"], told["detail-type"]) == ("aws.ec2", WARNING)
    assert told["detail"] == {"instance-id": spot, "instance-action": "terminate"}
    assert told["resources"] == [f"arn:aws:ec2:us-east-1a:instance/{spot}"]
    assert (told["region"], told["account"], told["version"]) == ("us-east-1", "123456789012", "0")
    ends = datetime.fromisoformat(told["time"]) + timedelta(minutes=2)
    assert abs(ends - datetime.now(UTC) - timedelta(seconds=60)) < timedelta(seconds=10)


def test_a_recommendation_to_move_is_told_and_takes_nothing(double: Double, listener: Listener) -> None:
    (spot,) = double.run_spot()
    double.control.rebalance(spot)
    (told,) = listener.received(wait_s=2)
    assert (told["detail-type"], told["detail"]) == (REBALANCE, {"instance-id": spot})
    assert told["resources"] == [f"arn:aws:ec2:us-east-1:123456789012:instance/{spot}"]
    assert double.requests()[spot]["Status"]["Code"] == "fulfilled"
    (other,) = ids(double.run())
    with pytest.raises(LabError, match=f"{other} is no spot instance"):
        double.control.rebalance(other)


@pytest.mark.parametrize("listener", [[CHANGE]], indirect=True)
def test_changes_of_a_state_are_told_as_they_happen(double: Double, listener: Listener) -> None:
    (one,) = ids(double.run())
    seen: list[str] = []

    def comes_to(last: str) -> bool:
        seen.extend(each["detail"]["state"] for each in listener.received() if each["detail"]["instance-id"] == one)
        return last in seen

    assert wait_until(lambda: comes_to("running"), 5)
    double.client().terminate_instances(InstanceIds=[one])
    assert wait_until(lambda: comes_to("terminated"), 5)
    assert seen == ["pending", "running", "shutting-down", "terminated"]


def test_a_reader_that_waits_for_a_queue_holds_up_no_other_call(double: Double, listener: Listener) -> None:
    assert listener.received() == []
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(listener.received, wait_s=20)
        (spot,) = double.run_spot()
        assert not reader.done()
        double.control.interrupt(spot)
        assert [each["detail"]["instance-id"] for each in reader.result(timeout=10)] == [spot]


def test_a_reader_waits_as_long_as_it_says(listener: Listener) -> None:
    began = time.monotonic()
    assert listener.received(wait_s=1) == []
    assert time.monotonic() - began > 0.9


def test_a_reader_who_would_wait_longer_than_sqs_lets_anybody_is_refused(listener: Listener) -> None:
    with pytest.raises(botocore.exceptions.ClientError, match="WaitTimeSeconds is invalid"):
        listener.received(wait_s=1000)
