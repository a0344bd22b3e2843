"""What EC2 announces of machines, and by how many calls it is found out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import Any

import boto3
import pytest

from cmscale.adapters.aws import AwsPool, AwsSite
from cmscale.adapters.aws.notices import INTERRUPTION, REBALANCE, by_machine, of_event, of_statuses
from cmscale.adapters.aws.queue import AT_ONCE, LONGEST_NAME, MISSING_S, SILENT_S, queue_name
from cmscale.adapters.aws.setup import Setup
from cmscale.adapters.aws.watch import GAP_S, REMEMBERED_S, REQUESTS_S, STATUSES_S
from cmscale.model import MachineId, Means, Notice
from cmscale.ports import Unavailable
from tests.adapters.test_aws import REGION, Connect, Ec2, connect, ec2, machine_ids, pool, served, site

__all__ = ["connect", "ec2", "pool", "served", "site"]
"""Fixtures."""

QUEUE = "cm-scale-notices"


@dataclass
class Steady:
    """A clock that only counts, and only when it is told to."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Sent:
    """The names of the calls that a site has sent, in order."""

    calls: list[str] = field(default_factory=list)

    def __call__(self, model: Any, **_: Any) -> None:
        self.calls.append(model.name)

    def while_(self, looks: Callable[[], object]) -> list[str]:
        self.calls.clear()
        looks()
        return self.calls.copy()


@dataclass
class Mail:
    """A queue, and a hand that puts messages into it."""

    sqs: Any
    url: str

    def put(self, *bodies: str) -> None:
        for first in range(0, len(bodies), 10):
            entries = [
                {"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies[first : first + 10])
            ]
            self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries)

    @property
    def waiting(self) -> int:
        """Messages to be had now, and those that somebody has read and not deleted."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        there = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(map(int, there.values()))


def event(machine: str, kind: str = INTERRUPTION, at: float | None = None, **detail: str) -> str:
    """A message as EventBridge writes it."""
    when = datetime.fromtimestamp(time.time() if at is None else at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    more = {"instance-action": "terminate"} if kind == INTERRUPTION else {}
    said = {"instance-id": machine, **more, **detail}
    head = {"version": "0", "detail-type": kind, "source": "aws.ec2", "region": REGION}
    return json.dumps(
        {**head, "time": when, "resources": [f"arn:aws:ec2:us-east-1b:instance/{machine}"], "detail": said}
    )


@pytest.fixture
def mail(ec2: Ec2) -> Iterator[Mail]:
    sqs = boto3.client("sqs", endpoint_url=ec2.endpoint, region_name=REGION)
    url = sqs.create_queue(QueueName=QUEUE, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    yield Mail(sqs, url)
    sqs.delete_queue(QueueUrl=url)
    sqs.close()


@dataclass
class Spot:
    """A site with spot machines, its clock and what it sends."""

    site: AwsSite
    steady: Steady
    sent: Sent

    def look(self) -> dict[MachineId, Sequence[Notice]]:
        """What a tick asks."""
        self.site.list()
        return dict(self.site.notices())

    def later(self, seconds: float = 1.0) -> dict[MachineId, Sequence[Notice]]:
        self.steady.now += seconds
        return self.look()


@pytest.fixture
def spot(connect: Connect, pool: AwsPool) -> Callable[..., Spot]:
    """A new process's view of the spot machines of one cluster."""

    def made(queue: str = QUEUE) -> Spot:
        steady, sent = Steady(), Sent()
        site = connect(replace(pool, market="spot"), notices_queue=queue, steady=steady)
        site._ec2._session.events.register("before-call", sent)
        site._ec2.client.meta.events.register("before-call", sent)
        return Spot(site, steady, sent)

    return made


# --- spot machines ---------------------------------------------------------------------------------------------------


def test_a_spot_machine_that_is_interrupted_has_two_minutes_from_its_mark(spot: Callable[..., Spot], ec2: Ec2) -> None:
    one, _ = machine_ids((here := spot("")).site, "e1", "e2")
    ec2.interrupt(one, warning_s=60.0)
    notices = here.look()
    assert set(notices) == {one}
    (notice,) = notices[one]
    assert abs(notice.deadline - time.time() - 60) < 5
    assert notice.why == "EC2 takes the spot instance back (marked-for-termination)"


def test_an_event_of_an_interruption_is_a_notice_with_two_minutes(spot: Callable[..., Spot], mail: Mail) -> None:
    here = spot()
    one, _ = machine_ids(here.site, "e1", "e2")
    assert here.look() == {}
    at = float(int(time.time()))
    mail.put(event(one, at=at))
    assert here.later() == {one: [Notice(at + 120, "EC2 takes the spot instance back (terminate)")]}


def test_a_notice_is_remembered_after_its_message_is_deleted(spot: Callable[..., Spot], mail: Mail) -> None:
    here = spot()
    (one,) = machine_ids(here.site, "e1")
    here.look()
    mail.put(event(one))
    told = here.later()
    assert mail.waiting == 1  # whoever is killed now has not acted on it yet
    assert [here.later() for _ in range(3)] == [told] * 3
    assert mail.waiting == 0


def test_a_message_that_was_read_by_a_process_that_died_comes_again(spot: Callable[..., Spot], mail: Mail) -> None:
    dead = spot()
    (one,) = machine_ids(dead.site, "e1")
    dead.look()
    mail.put(event(one))
    mail.sqs.set_queue_attributes(QueueUrl=mail.url, Attributes={"VisibilityTimeout": "1"})
    told = dead.later()
    other = spot()
    assert other.look() == {}  # the requests of EC2 say nothing, for this event was ours
    until = time.time() + 10
    while (heard := other.later()) != told and time.time() < until:
        time.sleep(0.1)
    assert heard == told


def test_a_process_that_begins_knows_of_interruptions_whose_messages_are_gone(
    spot: Callable[..., Spot], mail: Mail, ec2: Ec2
) -> None:
    (one,) = machine_ids((first := spot()).site, "e1")
    ec2.interrupt(one, warning_s=60.0)
    assert set(first.look()) == set(spot().look()) == {one}


def test_a_command_that_looks_once_takes_no_message_away(spot: Callable[..., Spot], mail: Mail) -> None:
    (one,) = machine_ids((here := spot()).site, "e1")
    mail.put(event(one))
    assert "ReceiveMessage" not in here.sent.while_(here.look)


def test_a_notice_that_comes_before_any_listing_shows_its_machine_is_not_lost(
    spot: Callable[..., Spot], mail: Mail
) -> None:
    here = spot()
    machine_ids(here.site, "e1")
    here.look()
    markets = dict(here.site._markets or {})
    late = MachineId("i-0aaaaaaaaaaaaaaaa")
    mail.put(event(late))
    assert here.later() == {}
    assert list(here.site._watch.notices({**markets, late: "spot"})) == [late]


def test_a_recommendation_to_rebalance_is_a_warning_that_takes_nothing(spot: Callable[..., Spot], mail: Mail) -> None:
    here = spot()
    (one,) = machine_ids(here.site, "e1")
    here.look()
    mail.put(event(one, REBALANCE))
    assert here.later() == {one: [Notice(inf, "EC2 recommends to rebalance the spot instance", Means.AT_RISK)]}


def test_messages_about_machines_of_others_are_deleted(spot: Callable[..., Spot], mail: Mail) -> None:
    here = spot()
    machine_ids(here.site, "e1")
    here.look()
    mail.put(*(event(f"i-{number:017x}") for number in range(25)))
    assert here.later() == here.later() == {}
    assert mail.waiting == 0


@pytest.mark.parametrize(
    "litter",
    [
        "no JSON",
        "[]",
        "null",
        "7",
        "{}",
        json.dumps({"detail-type": INTERRUPTION, "detail": [], "time": "2026-01-01T00:00:00Z"}),
        event("i-1").replace("Z", "?"),
        event("i-1", "EC2 Instance State-change Notification", state="running"),
    ],
)
def test_litter_stops_no_look_and_is_deleted_and_told_once(
    spot: Callable[..., Spot], mail: Mail, caplog: pytest.LogCaptureFixture, litter: str
) -> None:
    here = spot()
    (one,) = machine_ids(here.site, "e1")
    here.look()
    mail.put(litter, event(one), litter)
    assert set(here.later()) == {one}
    mail.put(litter)
    assert set(here.later()) == set(here.later()) == {one}
    assert mail.waiting == 0
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"site east: queue {QUEUE}: it is ")


def test_a_long_queue_is_drained_over_several_looks(
    spot: Callable[..., Spot], mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cmscale.adapters.aws.queue.CALLS_PER_LOOK", 3)
    here = spot()
    ids = machine_ids(here.site, "e1", "e2")
    here.look()
    mail.put(event(ids[0]), *(event(f"i-{number:017x}") for number in range(3 * AT_ONCE)), event(ids[1]))
    assert here.sent.while_(here.later).count("ReceiveMessage") == 3
    for _ in range(3):
        told = here.later()
    assert set(told) == set(ids)
    assert mail.waiting == 0


def test_what_the_queue_said_is_forgotten_when_it_is_long_over(spot: Callable[..., Spot], mail: Mail) -> None:
    here = spot()
    one, two = machine_ids(here.site, "e1", "e2")
    here.look()
    mail.put(event(one, at=time.time() - 120 - REMEMBERED_S - 1), event(two, at=time.time() - 180))
    assert set(here.later()) == {two}


def test_what_ec2_announces_comes_through_the_rule_and_the_queue_that_we_set_up(
    spot: Callable[..., Spot], ec2: Ec2
) -> None:
    here = spot("auto")
    one, two, _ = machine_ids(here.site, "e1", "e2", "e3")
    here.look()
    setup = Setup(here.site._ec2, here.site._cluster)
    list(setup.make())
    ec2.interrupt(one, warning_s=120.0)
    ec2.lab("rebalances", {"instance": two})
    said = here.later()
    assert {machine: [notice.means for notice in notices] for machine, notices in said.items()} == {
        one: [Means.TAKEN],
        two: [Means.AT_RISK],
    }
    assert abs(said[one][0].deadline - time.time() - 120) < 5
    list(setup.remove())


# --- by how many calls -----------------------------------------------------------------------------------------------

STEADY = ["DescribeInstances", "ReceiveMessage"]
"""What a look takes where some machines are spot."""


def test_a_steady_look_takes_one_call_of_ec2_and_one_of_the_queue_however_many_machines_there_are(
    spot: Callable[..., Spot], mail: Mail
) -> None:
    here = spot(mail.url)
    machine_ids(here.site, "e1")
    here.look()
    assert here.sent.while_(lambda: [here.later() for _ in range(5)]) == STEADY * 5
    machine_ids(here.site, *(f"e{number}" for number in range(2, 60)))
    assert here.sent.while_(lambda: [here.later() for _ in range(5)]) == STEADY * 5


def test_ec2_itself_is_asked_for_spot_requests_at_the_first_look_and_then_seldom(
    spot: Callable[..., Spot], mail: Mail
) -> None:
    here = spot()
    machine_ids(here.site, "e1")
    assert here.sent.while_(here.look) == [
        "DescribeInstances",
        "DescribeSpotInstanceRequests",
        "DescribeInstanceStatus",
    ]
    steps = int(REQUESTS_S * 2 / 5)
    asked = here.sent.while_(lambda: [here.later(5.0) for _ in range(steps)])
    assert asked.count("DescribeSpotInstanceRequests") == 2
    assert asked.count("DescribeInstanceStatus") == REQUESTS_S * 2 / STATUSES_S
    assert asked.count("DescribeInstances") == steps


def test_who_has_not_looked_for_a_while_asks_ec2_for_what_others_may_have_read(
    spot: Callable[..., Spot], mail: Mail
) -> None:
    here = spot()
    machine_ids(here.site, "e1")
    here.look()
    assert "DescribeSpotInstanceRequests" in here.sent.while_(lambda: here.later(GAP_S))


def test_statuses_are_all_that_is_asked_where_nothing_is_spot(connect: Connect, ec2: Ec2) -> None:
    steady = Steady()
    here = connect(steady=steady, notices_queue=QUEUE)
    machine_ids(here, "e1")
    since = time.time()
    for _ in range(10):
        here.list()
        here.notices()
        steady.now += STATUSES_S / 10
    calls = [call["action"] for call in ec2.lab(f"calls?since={since}", method="GET")]
    assert calls == ["DescribeInstances", "DescribeInstanceStatus", *["DescribeInstances"] * 9]


def test_notices_take_no_call_without_machines(site: AwsSite, ec2: Ec2) -> None:
    site.list()
    since = time.time()
    assert site.notices() == {}
    assert ec2.lab(f"calls?since={since}", method="GET") == []


# --- a queue that is not there ---------------------------------------------------------------------------------------


def test_without_a_queue_ec2_is_asked_at_each_look_and_the_queue_is_looked_for_seldom(
    spot: Callable[..., Spot],
) -> None:
    here = spot("auto")
    machine_ids(here.site, "e1")
    here.look()
    asked = here.sent.while_(lambda: [here.later() for _ in range(4)])
    assert (asked.count("DescribeSpotInstanceRequests"), asked.count("GetQueueUrl")) == (4, 1)
    assert here.sent.while_(lambda: here.later(MISSING_S)).count("GetQueueUrl") == 1


def test_a_queue_that_is_made_later_is_found(spot: Callable[..., Spot], mail: Mail) -> None:
    here = spot("made-later")
    (one,) = machine_ids(here.site, "e1")
    here.look()
    here.later()
    url = mail.sqs.create_queue(QueueName="made-later")["QueueUrl"]
    Mail(mail.sqs, url).put(event(one))
    assert set(here.later(MISSING_S)) == {one}
    mail.sqs.delete_queue(QueueUrl=url)


def test_a_queue_that_is_removed_is_done_without(spot: Callable[..., Spot], mail: Mail, ec2: Ec2) -> None:
    here = spot()
    (one,) = machine_ids(here.site, "e1")
    here.look()
    mail.put(event("i-somebody-elses"))
    here.later()
    mail.sqs.delete_queue(QueueUrl=mail.url)
    ec2.interrupt(one, warning_s=60.0)
    assert set(here.later()) == set(here.later()) == {one}
    mail.sqs.create_queue(QueueName=QUEUE)


def test_a_queue_that_does_not_answer_is_told_once_and_ec2_is_asked(
    spot: Callable[..., Spot], mail: Mail, caplog: pytest.LogCaptureFixture
) -> None:
    here = spot()
    machine_ids(here.site, "e1")
    here.look()
    here.later()
    here.site._queue._url = "http://127.0.0.1:9/0/nowhere"
    asked = here.sent.while_(lambda: [here.later() for _ in range(4)])
    assert (asked.count("DescribeSpotInstanceRequests"), asked.count("ReceiveMessage")) == (4, 1)
    here.later(SILENT_S)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"site east: queue {QUEUE} can't be read, EC2 is asked instead: ")


def test_a_queue_named_by_its_url_is_not_looked_for(spot: Callable[..., Spot], mail: Mail) -> None:
    here = spot(mail.url)
    (one,) = machine_ids(here.site, "e1")
    here.look()
    mail.put(event(one))
    assert "GetQueueUrl" not in here.sent.while_(here.later)
    assert set(here.later()) == {one}


@pytest.mark.parametrize("cluster", ["hpc", "hpc.example.org", "hpc-example-org", "x" * 63])
def test_each_cluster_has_a_queue_of_its_own(cluster: str) -> None:
    others = {"hpc", "hpc.example.org", "hpc-example-org", "x" * 62 + "y", "x" * 63} - {cluster}
    assert queue_name(cluster) not in set(map(queue_name, others))
    assert len(queue_name(cluster)) <= LONGEST_NAME
    assert "." not in queue_name(cluster)


def test_a_queue_that_is_named_and_missing_is_a_problem_with_the_command_that_makes_it(
    spot: Callable[..., Spot],
) -> None:
    assert list(spot("mine").site.problems()) == [
        "site east: there is no queue mine in us-east-1: cm-scale aws setup --site east makes it"
    ]
    assert list(spot("auto").site.problems()) == list(spot("").site.problems()) == []


def test_who_may_not_ask_for_queues_does_without_and_check_names_the_right(
    spot: Callable[..., Spot], ec2: Ec2, caplog: pytest.LogCaptureFixture
) -> None:
    here = spot("auto")
    (one,) = machine_ids(here.site, "e1")
    ec2.fault("GetQueueUrl", code="AccessDenied", status=403, message="No.", times=0)
    ec2.interrupt(one, warning_s=60.0)
    assert set(here.look()) == set(here.later()) == {one}
    assert not caplog.records
    (told,) = here.site.problems()
    assert told == (
        f"site east: queue {here.site._queue.name} can't be read: AccessDenied: No. "
        '(the right sqs:GetQueueUrl is missing: cm-scale aws policy); to do without it: notices_queue = ""'
    )


def test_a_network_without_sqs_holds_few_looks_up(spot: Callable[..., Spot]) -> None:
    here = spot("auto")
    machine_ids(here.site, "e1")
    here.look()
    here.site._queue._sqs = boto3.client("sqs", endpoint_url="http://127.0.0.1:9", region_name=REGION)
    here.later()
    assert "GetQueueUrl" not in here.sent.while_(lambda: [here.later(MISSING_S / 10) for _ in range(8)])


# --- what EC2 schedules and checks -----------------------------------------------------------------------------------


def test_scheduled_events_are_notices_unless_they_are_over(site: AwsSite, ec2: Ec2) -> None:
    retired, rebooted, done, canceled, _ = machine_ids(site, "e1", "e2", "e3", "e4", "e5")
    ec2.schedule(retired, "instance-retirement", 3600.0)
    ec2.schedule(rebooted, "system-reboot", 7200.0, description="")
    ec2.schedule(done, "system-maintenance", 0.0)
    ec2.schedule(canceled, "instance-stop", 3600.0, description="[Canceled] Old host")
    notices = site.notices()
    assert {id_: [notice.why for notice in each] for id_, each in notices.items()} == {
        retired: ["EC2 has scheduled: instance-retirement (Old host)"],
        rebooted: ["EC2 has scheduled: system-reboot"],
    }
    assert abs(notices[retired][0].deadline - time.time() - 3600) < 5


def test_of_two_notices_the_earlier_comes_first(site: AwsSite, ec2: Ec2) -> None:
    (one,) = machine_ids(site, "e1")
    ec2.schedule(one, "instance-stop", 3600.0)
    ec2.schedule(one, "system-reboot", 600.0)
    assert [notice.why for notice in site.notices()[one]] == [
        "EC2 has scheduled: system-reboot (Old host)",
        "EC2 has scheduled: instance-stop (Old host)",
    ]


def test_notices_are_of_our_own_machines(site: AwsSite, connect: Connect, pool: AwsPool, ec2: Ec2) -> None:
    machine_ids(site, "e1")
    other = connect(replace(pool, market="spot"), cluster="somebody-with-notices")
    (theirs,) = machine_ids(other, "e1")
    ec2.interrupt(theirs, warning_s=60.0)
    ec2.schedule(theirs, "instance-stop", 3600.0)
    assert site.notices() == {}


@pytest.mark.parametrize("call", ["DescribeInstanceStatus", "DescribeSpotInstanceRequests"])
def test_notices_that_cannot_be_read_are_told(connect: Connect, pool: AwsPool, ec2: Ec2, call: str) -> None:
    site = connect(replace(pool, market="spot"))
    machine_ids(site, "e1")
    ec2.fault(call, code="InternalError", status=500, times=0)
    with pytest.raises(Unavailable, match="does not answer: InternalError"):
        site.notices()


NOW = 1_800_000_000.0


def status(since_s: float, **parts: str) -> dict[str, Any]:
    """An item of DescribeInstanceStatus, as the SDK gives it, with checks that have been so for a time."""
    since = datetime.fromtimestamp(NOW - since_s, UTC)
    checks = {
        part: {"Status": word, "Details": [{"Name": "reachability", "Status": "failed", "ImpairedSince": since}]}
        for part, word in parts.items()
    }
    return {"InstanceId": "i-1", "InstanceState": {"Name": "running"}, **checks}


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"SystemStatus": "impaired", "InstanceStatus": "ok"}, "its host"),
        ({"SystemStatus": "ok", "InstanceStatus": "impaired"}, "the machine itself"),
        ({"AttachedEbsStatus": "impaired"}, "one of its volumes"),
    ],
)
def test_a_check_that_has_failed_for_five_minutes_means_that_the_machine_does_not_work(
    parts: dict[str, str], what: str
) -> None:
    assert list(of_statuses([status(299, **parts)], NOW)) == []
    assert list(of_statuses([status(300, **parts)], NOW)) == [
        ("i-1", Notice(inf, f"EC2's checks say that {what} does not answer", Means.SICK))
    ]


def test_a_failed_check_is_heard_within_a_minute_and_so_is_that_it_passes_again(connect: Connect, ec2: Ec2) -> None:
    steady = Steady()
    here = connect(steady=steady)
    (one,) = machine_ids(here, "e1")
    here.list()
    assert here.notices() == {}
    ec2.lab("impairments", {"instance": one, "part": "InstanceStatus", "since_s": 400.0})
    steady.now += STATUSES_S
    assert [notice.means for notice in here.notices()[one]] == [Means.SICK]
    ec2.lab("impairments", {"instance": one, "part": "InstanceStatus", "mended": True})
    steady.now += STATUSES_S
    assert here.notices() == {}


@pytest.mark.parametrize("word", ["ok", "initializing", "insufficient-data", "not-applicable"])
def test_a_check_that_has_not_failed_says_nothing(word: str) -> None:
    assert list(of_statuses([status(900, SystemStatus=word, InstanceStatus=word)], NOW)) == []


def test_a_check_without_a_date_says_nothing_yet() -> None:
    failed = {"InstanceId": "i-1", "SystemStatus": {"Status": "impaired", "Details": [{"Name": "reachability"}]}}
    assert list(of_statuses([failed, {**failed, "SystemStatus": {"Status": "impaired"}}], NOW)) == []


def test_all_that_is_said_of_a_machine_is_kept_once_and_in_order() -> None:
    machine, soon = of_event(event("i-1", at=NOW))
    late, sick = Notice(NOW + 9e5, "retirement"), Notice(inf, "host", Means.SICK)
    told = [(machine, sick), (machine, late), (machine, soon), (machine, soon)]
    assert by_machine(told) == {machine: [soon, late, sick]}
