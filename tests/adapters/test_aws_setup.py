"""Setting an account up: done twice it is the same, done by halves it is completed, and what is not ours stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from cmscale.adapters.aws.buckets import Buckets
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.notices import INTERRUPTION, REBALANCE
from cmscale.adapters.aws.pool import CLUSTER_TAG
from cmscale.adapters.aws.setup import Deed, Did, Setup
from cmscale.model import SiteName
from cmscale.ports import Misconfigured
from tests.adapters.test_aws import REGION, Ec2, clusters, ec2, served

__all__ = ["ec2", "served"]
"""Fixtures."""

ALL = ["queue", "rule", "queue policy", "target"]


@dataclass
class Account:
    """An account, and a hand in it."""

    ec2: Connection
    cluster: str
    sqs: Any
    events: Any

    def setup(self, named: str = "auto") -> Setup:
        return Setup(self.ec2, self.cluster, named)

    def make(self, *, dry_run: bool = False) -> dict[str, str]:
        return did(self.setup().make(dry_run=dry_run))

    def remove(self, *, dry_run: bool = False) -> dict[str, str]:
        return did(self.setup().remove(dry_run=dry_run))

    @property
    def name(self) -> str:
        return f"cm-scale-{self.cluster}"

    @property
    def queues(self) -> list[str]:
        return [url.rsplit("/", 1)[-1] for url in self.sqs.list_queues(QueueNamePrefix=self.name).get("QueueUrls", ())]

    @property
    def rules(self) -> list[str]:
        return [rule["Name"] for rule in self.events.list_rules(NamePrefix=self.name)["Rules"]]

    @property
    def url(self) -> str:
        return str(self.sqs.get_queue_url(QueueName=self.name)["QueueUrl"])

    def attributes(self) -> dict[str, str]:
        return dict(self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["All"])["Attributes"])


def did(deeds: Iterator[Deed]) -> dict[str, str]:
    return {deed.what: deed.did.value for deed in deeds}


@pytest.fixture
def account(ec2: Ec2) -> Iterator[Account]:
    given = {"endpoint_url": ec2.endpoint, "region_name": REGION}
    sqs, events = boto3.client("sqs", **given), boto3.client("events", **given)  # type: ignore[call-overload]
    yield Account(Connection(SiteName("east"), REGION, ec2.endpoint, "", Buckets()), next(clusters), sqs, events)
    sqs.close()
    events.close()


def test_an_empty_account_gets_a_queue_and_a_rule_that_bear_our_tag(account: Account) -> None:
    assert account.make() == dict.fromkeys(ALL, "made")
    assert (account.queues, account.rules) == ([account.name], [account.name])
    assert account.sqs.list_queue_tags(QueueUrl=account.url)["Tags"] == {CLUSTER_TAG: account.cluster}
    rule = account.events.describe_rule(Name=account.name)
    assert json.loads(rule["EventPattern"]) == {"source": ["aws.ec2"], "detail-type": [INTERRUPTION, REBALANCE]}
    tags = account.events.list_tags_for_resource(ResourceARN=rule["Arn"])["Tags"]
    assert tags == [{"Key": CLUSTER_TAG, "Value": account.cluster}]
    (target,) = account.events.list_targets_by_rule(Rule=account.name)["Targets"]
    assert target["Arn"] == account.attributes()["QueueArn"]


def test_the_rule_alone_may_put_messages_into_the_queue(account: Account) -> None:
    account.make()
    (statement,) = json.loads(account.attributes()["Policy"])["Statement"]
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Resource"] == account.attributes()["QueueArn"]
    arn = account.events.describe_rule(Name=account.name)["Arn"]
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": arn}}


def test_done_twice_it_is_the_same(account: Account) -> None:
    account.make()
    assert account.make() == dict.fromkeys(ALL, "there")


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(account: Account) -> None:
    assert account.make(dry_run=True) == dict.fromkeys(ALL, "made")
    assert account.queues == account.rules == []
    account.make()
    assert account.make(dry_run=True) == dict.fromkeys(ALL, "there")
    assert account.remove(dry_run=True) == {"target": "removed", "rule": "removed", "queue": "removed"}
    assert account.make() == dict.fromkeys(ALL, "there")


@pytest.mark.parametrize("after", range(1, 5))
def test_what_was_broken_off_is_completed(account: Account, after: int) -> None:
    deeds = account.setup().make()
    begun = {next(deeds).what for _ in range(after)}
    deeds.close()  # type: ignore[attr-defined]
    assert account.make() == {what: "there" if what in begun else "made" for what in ALL}


def test_what_has_been_changed_is_put_right(account: Account) -> None:
    account.make()
    account.events.disable_rule(Name=account.name)
    nobody = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": account.attributes()["QueueArn"]}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [nobody]})
    account.sqs.set_queue_attributes(QueueUrl=account.url, Attributes={"Policy": policy})
    somewhere = f"arn:aws:sqs:{REGION}:123456789012:another"
    account.events.put_targets(Rule=account.name, Targets=[{"Id": "cm-scale", "Arn": somewhere}])
    expected = {"queue": "there", "rule": "changed", "queue policy": "changed", "target": "changed"}
    assert account.make(dry_run=True) == expected
    assert account.make() == expected
    assert account.make() == dict.fromkeys(ALL, "there")
    assert account.events.describe_rule(Name=account.name)["State"] == "ENABLED"
    assert "Deny" not in account.attributes()["Policy"]


def test_a_queue_or_a_rule_of_somebody_else_is_an_error_and_stays_as_it_is(account: Account) -> None:
    account.sqs.create_queue(QueueName=account.name)
    before = account.attributes()
    with pytest.raises(Misconfigured, match=f"a queue {account.name} is there in us-east-1 without the tag"):
        account.make()
    assert account.attributes() == before
    assert account.rules == []
    account.sqs.delete_queue(QueueUrl=account.url)
    account.events.put_rule(Name=account.name, ScheduleExpression="rate(1 hour)")
    with pytest.raises(Misconfigured, match=f"a rule {account.name} is there in us-east-1 without the tag"):
        account.make()
    assert account.queues == []


def test_removing_removes_all_of_it_and_may_be_done_again(account: Account) -> None:
    account.make()
    assert account.remove() == {"target": "removed", "rule": "removed", "queue": "removed"}
    assert account.queues == account.rules == []
    assert account.remove() == {"rule": "absent", "queue": "absent"}


def test_removing_leaves_what_is_not_ours(account: Account) -> None:
    account.sqs.create_queue(QueueName=account.name)
    account.events.put_rule(Name=account.name, ScheduleExpression="rate(1 hour)")
    deeds = list(account.setup().remove())
    assert [(deed.what, deed.did) for deed in deeds] == [("rule", Did.LEFT), ("queue", Did.LEFT)]
    assert all(deed.why == f"it does not carry the tag {CLUSTER_TAG} = {account.cluster}" for deed in deeds)
    assert (account.queues, account.rules) == ([account.name], [account.name])


def test_a_rule_that_others_use_as_well_stays_for_them(account: Account) -> None:
    account.make()
    account.events.put_targets(Rule=account.name, Targets=[{"Id": "pager", "Arn": "arn:aws:sns:us-east-1:1:pager"}])
    deeds = {deed.what: deed for deed in account.setup().remove()}
    assert (deeds["rule"].did, deeds["rule"].why) == (Did.LEFT, "it has other targets: pager")
    assert [target["Id"] for target in account.events.list_targets_by_rule(Rule=account.name)["Targets"]] == ["pager"]
    assert account.queues == []


def test_the_queue_may_have_another_name(account: Account) -> None:
    name = f"ours-{account.cluster}"
    assert did(account.setup(name).make()) == dict.fromkeys(ALL, "made")
    assert account.events.list_rules(NamePrefix=name)["Rules"][0]["Name"] == name
    list(account.setup(name).remove())


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("", 'notices_queue is "", so there is nothing to set up'),
        ("https://sqs.us-east-1.amazonaws.com/1/q", "notices_queue is a URL, so the queue is not for cm-scale to make"),
        ("q" * 65, "a rule can't have the queue's name, it has more than 64 letters"),
    ],
)
def test_a_queue_that_cannot_be_made_by_us_is_told(account: Account, named: str, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        account.setup(named)


def test_a_missing_right_is_told_by_its_name(account: Account, ec2: Ec2) -> None:
    ec2.fault("", code="AccessDeniedException", status=403, message="No.", times=1)
    with pytest.raises(Misconfigured) as caught:
        account.make()
    assert str(caught.value).startswith("site east: setting up us-east-1 was broken off: AccessDenied")
    assert "(the right sqs:GetQueueUrl is missing: cm-scale aws policy)" in str(caught.value)
