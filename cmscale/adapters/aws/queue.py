"""What has EC2 put into our queue since the last look?

EventBridge puts the events of EC2 there, of all machines of the region. A message is deleted one look after it was
read: whoever is killed before has not acted on it, and finds it again when its visibility timeout is over.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.notices import Told, of_event
from cmscale.model import Result

AUTO = "auto"
"""The queue is looked for under the cluster's name."""

LONGEST_NAME = 64
"""EventBridge takes no more for a rule, which has the name of its queue; SQS would take 80."""

AT_ONCE = 10
"""A call of SQS takes and gives no more messages."""

CALLS_PER_LOOK = 30
"""So 300 messages: what is more comes with the next looks."""

MISSING_S = 300.0
"""How long a queue that was not found is not looked for again..."""
SILENT_S = 30.0
"""...and one that does not answer is not asked again."""

ANSWER_S = 3.0
"""A look waits no longer for it: a private network may let us out to EC2 and not to SQS."""

NO_QUEUE = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")

log = logging.getLogger(__name__)


def queue_name(cluster: str, named: str = AUTO) -> str:
    """The name of the queue; of the cluster's own one that no other cluster has: SQS knows no dots."""
    if named != AUTO:
        return named.rsplit("/", 1)[-1]
    plain = f"cm-scale-{cluster.replace('.', '-')}"
    if "." not in cluster and len(plain) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME - 9]}-{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"


class NoticeQueue:
    """One queue of SQS, which may not be there."""

    def __init__(self, ec2: Connection, cluster: str, named: str, steady: Callable[[], float] = time.monotonic) -> None:
        self._ec2, self._named, self._steady = ec2, named, steady
        self.name = queue_name(cluster, named)
        self._url = named if _is_url(named) else ""
        self._asked_again = 0.0
        """Before then nothing is asked: there was no queue, or no answer."""
        self._heard: list[str] = []
        """The handles of messages that the last look has read."""
        self._silent = self._littered = False
        """Has it been told that the queue is silent, that it holds what does not belong there?"""

    def read(self) -> list[Told] | None:
        """What has come since the last look; None if there is no queue that could be read."""
        if not self._named or self._steady() < self._asked_again:
            return None
        told: list[Told] = []
        try:
            if not self._url:
                self._url = self._sqs.get_queue_url(QueueName=self.name)["QueueUrl"]
            self._delete()
            for messages in self._batches():
                self._heard += [message["ReceiptHandle"] for message in messages]
                told += self._understood(message["Body"] for message in messages)
        except self._ec2.errors.any as error:
            self._rest(error)
            return told or None
        self._silent = False
        return told

    def problems(self) -> Iterator[str]:
        """Why the queue can't be read. Reads nothing: messages are for the daemon."""
        if not self._named:
            return
        try:
            url = self._url or self._sqs.get_queue_url(QueueName=self.name)["QueueUrl"]
            self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        except self._ec2.errors.any as error:
            if self._ec2.errors.code(error) not in NO_QUEUE:
                said = self._ec2.errors.said(error)
                yield f'queue {self.name} can\'t be read: {said}; to do without it: notices_queue = ""'
            elif self._named != AUTO:
                yield (
                    f"there is no queue {self.name} in {self._ec2.region}: cm-scale aws setup --site {self._ec2.site} "
                    "makes it"
                )

    @cached_property
    def _sqs(self) -> Any:
        return self._ec2.service("sqs", attempts=1, answer_s=ANSWER_S)

    def _batches(self) -> Iterator[Sequence[Mapping[str, Any]]]:
        for _ in range(CALLS_PER_LOOK):
            # A short poll asks some of SQS's servers only: what it misses comes a look later.
            answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=AT_ONCE, WaitTimeSeconds=0)
            if not answer.get("Messages"):
                return
            yield answer["Messages"]

    def _understood(self, bodies: Iterable[str]) -> Iterator[Told]:
        """What the messages say. What is none of EC2's events is dropped, and told once."""
        for body in bodies:
            try:
                yield of_event(body)
            except ValueError as error:
                if not self._littered:
                    start = " ".join(body.split())[:100]
                    log.warning("site %s: queue %s: %s; it is dropped: %s", self._ec2.site, self.name, error, start)
                self._littered = True

    def _delete(self) -> None:
        for first in range(0, len(self._heard), AT_ONCE):
            handles = self._heard[first : first + AT_ONCE]
            entries = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(handles)]
            self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
        self._heard = []

    def _rest(self, error: Exception) -> None:
        """Leave the queue alone for a while; what it holds stays there."""
        errors = self._ec2.errors
        missing = errors.code(error) in NO_QUEUE
        # Whoever has no queue need not have the right to ask for one.
        unasked = self._named == AUTO and (missing or (not self._url and errors.result(error) is Result.AUTH))
        self._asked_again = self._steady() + (SILENT_S if self._url and not missing else MISSING_S)
        if missing:
            self._url = self._named if _is_url(self._named) else ""
            self._heard = []
        if not unasked and not self._silent:
            said = errors.said(error)
            log.warning("site %s: queue %s can't be read, EC2 is asked instead: %s", self._ec2.site, self.name, said)
            self._silent = True


def _is_url(named: str) -> bool:
    return bool(re.match(r"https?://", named))
