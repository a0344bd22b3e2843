"""What must exist in an account so that the words of EC2 about our machines reach our queue?

A queue of SQS, a rule of EventBridge that picks EC2's events out, the queue as the rule's target, and the queue's leave
for that. Each is made if it is missing, put right if it is different, and left alone if it is somebody else's: ours
carry our cluster's tag. Done twice, it is the same; what was broken off is done by doing it again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.notices import INTERRUPTION, REBALANCE
from cmscale.adapters.aws.policy import VERSION, Document
from cmscale.adapters.aws.pool import CLUSTER_TAG
from cmscale.adapters.aws.queue import AUTO, LONGEST_NAME, NO_QUEUE, queue_name
from cmscale.ports import Misconfigured

TARGET = "cm-scale"
"""The id of our target among those of the rule."""

KEPT_S = 600
"""What is older tells nothing any more: a machine that is taken back is gone after two minutes."""

HIDDEN_S = 60
"""How long a message that was read stays out of sight before it comes again: longer than from look to look."""

PATTERN = {"source": ["aws.ec2"], "detail-type": [INTERRUPTION, REBALANCE]}
"""The events cannot be picked by tag: those of machines that are not ours are dropped when they are read."""


class Did(Enum):
    """What became of one thing."""

    MADE = "made"
    CHANGED = "changed"
    THERE = "there"
    REMOVED = "removed"
    ABSENT = "absent"
    LEFT = "left"
    """It is not ours, or others use it."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing, and what was done with it."""

    what: str
    name: str
    did: Did
    why: str = ""


class Setup:
    """The queue and the rule of one cluster in one region."""

    def __init__(self, ec2: Connection, cluster: str, named: str = AUTO) -> None:
        self._ec2, self._cluster = ec2, cluster
        self.name = queue_name(cluster, named)
        where = f"site {ec2.site}: notices_queue"
        if not named:
            raise Misconfigured(f'{where} is "", so there is nothing to set up; take the key away, or name a queue')
        if "/" in named:
            raise Misconfigured(f"{where} is a URL, so the queue is not for cm-scale to make; name it by its name")
        if len(self.name) > LONGEST_NAME:
            raise Misconfigured(f"{where}: a rule can't have the queue's name, it has more than {LONGEST_NAME} letters")

    def make(self, *, dry_run: bool = False) -> Iterator[Deed]:
        """Make what is missing; of a dry run, what would be done."""
        try:
            yield from self._make(dry_run=dry_run)
        except self._ec2.errors.any as error:
            raise self._failed(error) from error

    def remove(self, *, dry_run: bool = False) -> Iterator[Deed]:
        """Remove what `make` makes."""
        try:
            yield from self._remove_rule(dry_run=dry_run)
            yield from self._remove_queue(dry_run=dry_run)
        except self._ec2.errors.any as error:
            raise self._failed(error) from error

    # --- making

    def _make(self, *, dry_run: bool) -> Iterator[Deed]:
        url, rule = self._queue(), self._rule()
        for what, there in (("queue", url), ("rule", rule)):
            if there and not self._is_ours(what, there):
                raise Misconfigured(
                    f"site {self._ec2.site}: a {what} {self.name} is there in {self._ec2.region} without the tag "
                    f"{CLUSTER_TAG} = {self._cluster}, so it is not ours; name another as notices_queue"
                )
        queue = Deed("queue", self.name, Did.THERE if url else Did.MADE)
        if not url and not dry_run:
            url = self._sqs.create_queue(QueueName=self.name, Attributes=_lasting(), tags=self._tags)["QueueUrl"]
        yield queue
        picks = rule and json.loads(rule.get("EventPattern", "{}")) == PATTERN and rule["State"] == "ENABLED"
        picking = Deed("rule", self.name, Did.THERE if picks else Did.CHANGED if rule else Did.MADE)
        if not picks and not dry_run:
            rule = {"Arn": self._put_rule(tagged=not rule)}
        yield picking
        yield self._let(url, rule, dry_run=dry_run)
        yield self._aim(url, rule, dry_run=dry_run)

    def _put_rule(self, *, tagged: bool) -> str:
        """Our rule as it is to be; EventBridge takes no tags for one that is there."""
        tags = {"Tags": [{"Key": key, "Value": value} for key, value in self._tags.items()]} if tagged else {}
        answer = self._events.put_rule(
            Name=self.name,
            EventPattern=json.dumps(PATTERN),
            State="ENABLED",
            Description=f"What EC2 says of machines that it may take back, for cm-scale at {self._cluster}",
            **tags,
        )
        return str(answer["RuleArn"])

    def _let(self, url: str, rule: Mapping[str, Any], *, dry_run: bool) -> Deed:
        """The queue takes messages from the rule, and keeps them for as long as they tell anything."""
        if not url or not rule:
            return Deed("queue policy", self.name, Did.MADE)
        there = self._attributes(url)
        wanted = {**_lasting(), "Policy": json.dumps(_leave(there["QueueArn"], rule["Arn"]))}
        if {key: _read(there.get(key, "")) for key in wanted} == {key: _read(text) for key, text in wanted.items()}:
            return Deed("queue policy", self.name, Did.THERE)
        if not dry_run:
            self._sqs.set_queue_attributes(QueueUrl=url, Attributes=wanted)
        return Deed("queue policy", self.name, Did.CHANGED if "Policy" in there else Did.MADE)

    def _aim(self, url: str, rule: Mapping[str, Any], *, dry_run: bool) -> Deed:
        """The rule's events go to the queue."""
        if not url or not rule:
            return Deed("target", TARGET, Did.MADE)
        arn = self._attributes(url)["QueueArn"]
        there = self._targets()
        if there.get(TARGET) == arn:
            return Deed("target", TARGET, Did.THERE)
        if not dry_run:
            answer = self._events.put_targets(Rule=self.name, Targets=[{"Id": TARGET, "Arn": arn}])
            for failure in answer.get("FailedEntries", ()):
                raise Misconfigured(f"site {self._ec2.site}: EventBridge does not take the queue: {failure}")
        return Deed("target", TARGET, Did.CHANGED if TARGET in there else Did.MADE)

    # --- removing

    def _remove_rule(self, *, dry_run: bool) -> Iterator[Deed]:
        rule = self._rule()
        if not rule:
            yield Deed("rule", self.name, Did.ABSENT)
            return
        if not self._is_ours("rule", rule):
            yield Deed("rule", self.name, Did.LEFT, f"it does not carry the tag {CLUSTER_TAG} = {self._cluster}")
            return
        targets = self._targets()
        if TARGET in targets:
            if not dry_run:
                self._events.remove_targets(Rule=self.name, Ids=[TARGET])
            yield Deed("target", TARGET, Did.REMOVED)
        if others := sorted(set(targets) - {TARGET}):
            yield Deed("rule", self.name, Did.LEFT, f"it has other targets: {', '.join(others)}")
            return
        if not dry_run:
            self._events.delete_rule(Name=self.name)
        yield Deed("rule", self.name, Did.REMOVED)

    def _remove_queue(self, *, dry_run: bool) -> Iterator[Deed]:
        url = self._queue()
        if not url:
            yield Deed("queue", self.name, Did.ABSENT)
        elif not self._is_ours("queue", url):
            yield Deed("queue", self.name, Did.LEFT, f"it does not carry the tag {CLUSTER_TAG} = {self._cluster}")
        else:
            if not dry_run:
                self._sqs.delete_queue(QueueUrl=url)
            yield Deed("queue", self.name, Did.REMOVED)

    # --- what is there

    def _queue(self) -> str:
        """The queue's URL; empty if there is none."""
        try:
            return str(self._sqs.get_queue_url(QueueName=self.name)["QueueUrl"])
        except self._ec2.errors.any as error:
            if self._ec2.errors.code(error) in NO_QUEUE:
                return ""
            raise

    def _rule(self) -> Mapping[str, Any]:
        """The rule; empty if there is none."""
        try:
            rule: Mapping[str, Any] = self._events.describe_rule(Name=self.name)
        except self._ec2.errors.any as error:
            if self._ec2.errors.code(error) == "ResourceNotFoundException":
                return {}
            raise
        return rule

    def _is_ours(self, what: str, there: Any) -> bool:
        if what == "queue":
            tags = self._sqs.list_queue_tags(QueueUrl=there).get("Tags", {})
        else:
            listed = self._events.list_tags_for_resource(ResourceARN=there["Arn"])["Tags"]
            tags = {tag["Key"]: tag["Value"] for tag in listed}
        return bool(tags.get(CLUSTER_TAG) == self._cluster)

    def _targets(self) -> Mapping[str, str]:
        """The ARNs of the rule's targets by their ids; a rule has five at most."""
        return {each["Id"]: each["Arn"] for each in self._events.list_targets_by_rule(Rule=self.name)["Targets"]}

    def _attributes(self, url: str) -> Mapping[str, str]:
        attributes: Mapping[str, str] = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])[
            "Attributes"
        ]
        return attributes

    @property
    def _tags(self) -> dict[str, str]:
        return {CLUSTER_TAG: self._cluster}

    @cached_property
    def _sqs(self) -> Any:
        return self._ec2.service("sqs")

    @cached_property
    def _events(self) -> Any:
        return self._ec2.service("events")

    def _failed(self, error: Exception) -> Misconfigured:
        said = self._ec2.errors.said(error)
        return Misconfigured(f"site {self._ec2.site}: setting up {self._ec2.region} was broken off: {said}")


def _lasting() -> dict[str, str]:
    return {"MessageRetentionPeriod": str(KEPT_S), "VisibilityTimeout": str(HIDDEN_S)}


def _leave(queue_arn: str, rule_arn: str) -> Document:
    """The rule, and nobody else, may put messages into the queue."""
    statement = {
        "Sid": "Events",
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
    }
    return {"Version": VERSION, "Statement": [statement]}


def _read(text: str) -> Any:
    """An attribute's value, of which the order of keys says nothing."""
    try:
        return json.loads(text)
    except ValueError:
        return text
