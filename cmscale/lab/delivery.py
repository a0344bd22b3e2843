"""How does an event come from a rule of EventBridge through a queue of SQS to its reader?

As moto has it, it comes without the account it is from, and each message costs several counts of all the others, sent
and received: a queue of 1,000 would keep everybody waiting for minutes. So these steps are ours, within moto's objects.
"""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

Event = dict[str, Any]


def install() -> None:
    """Let moto's rules deliver so; to do it twice is to do it once."""
    from moto.events import models, utils
    from moto.sqs.models import SQSBackend

    parser: Any = utils.EventTemplateParser
    rule: Any = models.Rule
    if getattr(rule, "delivers_whole", False):
        return
    transformed, sent = parser.parse, rule._send_to_sqs_queue  # noqa: SLF001 - there is no other place to stand

    def parse(input_template: str, input_paths_map: dict[str, Any], event: Event) -> Event:
        if input_template:
            return dict(transformed(input_template, input_paths_map, event))
        return {key: value for key, value in event.items() if key != "ingestion-time"}

    def send(one: Any, queue_name: str, event: Event, group_id: str | None = None) -> None:
        if group_id:
            sent(one, queue_name, event, group_id)
        else:
            _put(one, queue_name, event)

    queues: Any = SQSBackend
    queues.is_message_valid_based_on_retention_period = _is_kept
    parser.parse, rule._send_to_sqs_queue, rule.delivers_whole = staticmethod(parse), send, True  # noqa: SLF001


def _put(rule: Any, queue_name: str, event: Event) -> None:
    from moto.core.utils import iso_8601_datetime_without_milliseconds, utcfromtimestamp
    from moto.sqs.models import Message, sqs_backends

    queue = sqs_backends[rule.account_id][rule.region_name].queues.get(queue_name)
    if queue is None:
        return  # as SQS: an event for a queue that is gone is lost
    told = event | {"time": iso_8601_datetime_without_milliseconds(utcfromtimestamp(int(event["time"])))}
    message = Message(str(uuid4()), json.dumps(told))
    message.mark_sent(delay_seconds=int(getattr(queue, "delay_seconds", 0) or 0))
    queue.add_message(message)


def _is_kept(backend: Any, queue_name: str, message: Any) -> bool:
    """Is a message young enough for its queue?"""
    kept_s = int(backend.get_queue(queue_name).message_retention_period)
    return bool(time.time() < message.sent_timestamp / 1000 + kept_s)
