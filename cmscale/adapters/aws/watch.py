"""What has EC2 announced of machines of ours, found out with as few calls as it takes?

All spot machines that are taken back are in their requests, and EC2 is asked for those at the first look of a process,
every few minutes, and whenever there is no queue. Between, the queue tells what is new. So a kill of ours, a lost event
and a message that another process has read cost nothing but minutes; and a command that looks once takes no message
away from the daemon.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf

from cmscale.adapters.aws import notices as told
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.queue import NoticeQueue
from cmscale.model import MachineId, Notice

STATUSES_S = 60.0
"""How often the statuses are read: EC2 checks each minute, and schedules days ahead."""

REQUESTS_S = 300.0
"""How often all spot requests are read although a queue tells what is new: events may get lost."""

GAP_S = 10.0
"""Who has not looked for so long has perhaps slept, while another daemon led and read the queue."""

REMEMBERED_S = 900.0
"""How long is remembered what the queue has said, after its deadline if it has one. It may be about a machine that no
listing shows yet, and by then EC2 has done what it said."""


class Watch:
    """What one process knows of the announcements of one region."""

    def __init__(self, ec2: Connection, queue: NoticeQueue, steady: Callable[[], float] = time.monotonic) -> None:
        self._ec2, self._queue, self._steady = ec2, queue, steady
        self._statuses: Sequence[told.Told] = ()
        self._statuses_at = -inf
        self._requests: Sequence[told.Told] = ()
        self._requests_at = -inf
        self._spot_at = -inf
        """When spot machines were looked at last."""
        self._heard: dict[told.Told, float] = {}
        """What the queue has said, with the time at which it is forgotten."""

    def notices(self, markets: Mapping[MachineId, str]) -> Mapping[MachineId, Sequence[Notice]]:
        """What is announced of these machines, each with its market. Raises what the SDK raises."""
        if "spot" in markets.values():
            self._look_at_spot()
        if markets and self._steady() - self._statuses_at >= STATUSES_S:
            statuses = self._ec2.pages("describe_instance_status", "InstanceStatuses", {})
            self._statuses = tuple(told.of_statuses(statuses, time.time()))
            self._statuses_at = self._steady()
        said = told.by_machine((*self._requests, *self._heard, *self._statuses))
        return {machine: notices for machine, notices in said.items() if machine in markets}

    def _look_at_spot(self) -> None:
        before, self._spot_at = self._spot_at, self._steady()
        heard = None if before == -inf else self._queue.read()
        now = time.time()
        for each in heard or ():
            deadline = each[1].deadline
            self._heard.setdefault(each, (now if deadline == inf else deadline) + REMEMBERED_S)
        self._heard = {each: until for each, until in self._heard.items() if now < until}
        old = self._steady() - self._requests_at >= REQUESTS_S
        if heard is None or old or self._spot_at - before >= GAP_S:
            call, item = "describe_spot_instance_requests", "SpotInstanceRequests"
            self._requests = tuple(told.of_requests(self._ec2.pages(call, item, {"status-code": told.MARKS})))
            self._requests_at = self._steady()
