"""May a call go out to EC2 now? Amazon grants each account, in each region, a bucket of tokens for each of its calls.

A call takes a token, and one that changes many machines takes as many from a second bucket. When a bucket will soon
have room the call waits for it, in its own thread; otherwise it is not made, and fails as EC2 itself would fail it.
What EC2 refuses all the same empties the bucket: somebody else takes from it, too.

How many machines are launched at once is no matter of this: the guards of the core see to that, out of the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from cmscale.adapters.aws.errors import result_of
from cmscale.model import Bucket, Result

if TYPE_CHECKING:
    import boto3

LONGEST_WAIT_S = 2.0
"""A call waits so long at most: less than a tick waits for its answer."""

REQUESTS: Mapping[str, Bucket] = {
    "Describe": Bucket(100, 20),
    "Get": Bucket(100, 20),
    "CreateTags": Bucket(100, 10),
    "DeleteTags": Bucket(100, 10),
    "RunInstances": Bucket(5, 2),
    "StartInstances": Bucket(5, 2),
    "TerminateInstances": Bucket(100, 5),
    "": Bucket(50, 5),
}
"""What each call has, or the calls that begin so; "": all others. (Amazon EC2 Developer Guide, "Request throttling for
the Amazon EC2 API", request token buckets: the categories, and the actions that have one of their own.)"""

RESOURCES: Mapping[str, Bucket] = {"TerminateInstances": Bucket(1000, 20), "StopInstances": Bucket(1000, 20)}
"""As above, resource token buckets: a token for each machine. Those of RunInstances and StartInstances are the core's,
and CreateFleet's is documented nowhere: its machines are counted with those of RunInstances there."""

_MACHINES = "cm-scale:machines"
"""Of how many machines a call is, in the SDK's notes on it."""


@dataclass(slots=True)
class _Level:
    """What a bucket holds; less than nothing when it is promised to calls that wait."""

    bucket: Bucket
    content: float
    at: float

    def wait_s(self, amount: float, now: float) -> float:
        """How long until there is so much; more than the bucket can hold goes when it is full."""
        self.content = min(self.bucket.burst, self.content + (now - self.at) * self.bucket.refill)
        self.at = now
        return max(0.0, min(amount, self.bucket.burst) - self.content) / self.bucket.refill


class Buckets:
    """The buckets of one account in one region, for all threads and sites that share them. They begin full."""

    def __init__(
        self, steady: Callable[[], float] = time.monotonic, wait: Callable[[float], None] = time.sleep, **own: Bucket
    ) -> None:
        self._steady, self._wait = steady, wait
        self._requests = {**REQUESTS, **own}
        self._levels: dict[tuple[str, str], _Level] = {}
        self._lock = Lock()

    def take(self, call: str, machines: int = 0) -> float:
        """Let a call go: 0 once it may, after a wait perhaps; or how long it would have to wait, which is too long."""
        with self._lock:
            now = self._steady()
            wanted = [(self._level("requests", call, self._of(call), now), 1)]
            if call in RESOURCES and machines:
                wanted.append((self._level("machines", call, RESOURCES[call], now), machines))
            wait_s = max(level.wait_s(amount, now) for level, amount in wanted)
            if wait_s > LONGEST_WAIT_S:
                return wait_s
            for level, amount in wanted:
                level.content -= amount
        if wait_s:
            self._wait(wait_s)
        return 0.0

    def refused(self, call: str, machines: int = 0) -> None:
        """EC2 says that there is no token left for the call. Its machines were not touched, and cost nothing.

        Else who is refused once would be silent for as long as if they had been.
        """
        with self._lock:
            now = self._steady()
            level = self._level("requests", call, self._of(call), now)
            level.content, level.at = min(level.content, 0.0), now
            if call in RESOURCES:
                self._level("machines", call, RESOURCES[call], now).content += machines

    def guard(self, session: boto3.Session) -> None:
        """From now on the session's calls to EC2 take from these buckets."""
        session.events.register("before-parameter-build.ec2", self._before)
        session.events.register("after-call.ec2", self._after)

    def _before(self, params: Mapping[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        from botocore.exceptions import ClientError

        context[_MACHINES] = len(params.get("InstanceIds") or ())
        if wait_s := self.take(model.name, context[_MACHINES]):
            said = f"our own bucket of {model.name} has no room for {wait_s:.1f} s; the call was not made"
            raise ClientError({"Error": {"Code": "RequestLimitExceeded", "Message": said}}, model.name)

    def _after(self, parsed: Mapping[str, Any], model: Any, context: Mapping[str, Any], **_: Any) -> None:
        if result_of(str(parsed.get("Error", {}).get("Code", ""))) is Result.THROTTLED:
            self.refused(model.name, context[_MACHINES])

    def _of(self, call: str) -> Bucket:
        word = (
            call
            if call in self._requests
            else next((each for each in ("Describe", "Get") if call.startswith(each)), "")
        )
        return self._requests[word]

    def _level(self, kind: str, call: str, bucket: Bucket, now: float) -> _Level:
        return self._levels.setdefault((kind, call), _Level(bucket, bucket.burst, now))
