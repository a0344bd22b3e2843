"""Calls go wrong as a test wants it: once in a while, too fast, or with a word on when to come again."""

from __future__ import annotations

import botocore.exceptions
import pytest

from cmscale.lab.faults import DOCUMENTED, Fault, Faults, Rate
from cmscale.lab.processes import LabError
from tests.lab.double import Double, refused


def hits(faults: Faults, action: str, times: list[float], **params: str) -> list[bool]:
    """Of calls at these times, which are hit?"""
    return [faults.take(action, "us-east-1", params, now) is not None for now in times]


def test_every_third_answer_can_be_cut_after_its_effect(double: Double) -> None:
    double.control.set_fault(Fault("RunInstances", cut=True, after=True, every=3, times=2))
    lost = 0
    for number in range(7):
        try:
            double.run(ClientToken=f"every third {number}")
        except botocore.exceptions.ConnectionClosedError:
            lost += 1
            assert number in {2, 5}
    assert lost == 2
    assert len(double.describe()) == 7


def test_an_answer_may_say_when_to_come_again(double: Double) -> None:
    double.control.set_fault(Fault("RunInstances", "RequestLimitExceeded", status=503, retry_after_s=7))
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.run()
    assert error.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "7"


def test_a_fault_of_a_service_that_speaks_json_is_told_in_json(double: Double) -> None:
    double.control.set_fault(Fault("ListQueues", "AccessDeniedException", status=403))
    with pytest.raises(botocore.exceptions.ClientError) as error:
        double.client(service="sqs").list_queues()
    assert refused(error) == ("AccessDeniedException", 403)


def test_calls_above_a_rate_are_throttled_until_tokens_are_back(double: Double) -> None:
    double.control.set_rates(Rate(per_s=5, burst=3, together=True))
    began = double.control.ask("GET", "clock")["now"]
    try:
        answered = []
        for at_s in (0.0, 0.0, 0.0, 0.0, 0.2, 0.2, 60.0):
            double.control.set_clock(began + at_s)
            answered.append(_status_of_a_look(double))
    finally:
        double.control.set_clock(None)
    assert answered == [200, 200, 200, 503, 200, 503, 200]


def _status_of_a_look(double: Double) -> int:
    try:
        double.describe()
    except botocore.exceptions.ClientError as error:
        return int(error.response["ResponseMetadata"]["HTTPStatusCode"])
    return 200


def test_a_bucket_counts_the_calls_of_its_action_and_region_alone() -> None:
    faults = Faults()
    faults.add_rate(Rate(1, 2, "RunInstances"))
    assert hits(faults, "RunInstances", [0.0, 0.0, 0.0, 0.5, 1.0, 1.0]) == [False, False, True, True, False, True]
    assert hits(faults, "DescribeInstances", [0.0] * 9) == [False] * 9
    assert faults.take("RunInstances", "us-west-2", {}, 1.0) is None


def test_a_bucket_of_machines_counts_what_launches_of_both_kinds_ask_for() -> None:
    faults = Faults()
    for rate in DOCUMENTED:
        faults.add_rate(rate)
    fleet = {"TargetCapacitySpecification.TotalTargetCapacity": "500"}
    assert hits(faults, "CreateFleet", [0.0], **fleet) == [False]
    assert hits(faults, "RunInstances", [0.0], MaxCount="500") == [False]
    assert hits(faults, "CreateFleet", [0.0, 100.0, 250.0], **fleet) == [True, True, False]
    assert hits(faults, "TerminateInstances", [0.0], **{f"InstanceId.{n}": "i-1" for n in range(1000)}) == [False]


def test_rates_that_are_set_anew_replace_those_before_and_can_be_looked_at(double: Double) -> None:
    double.control.set_rates(Rate(5, 3))
    double.control.set_rates(Rate(2, 1, "RunInstances"))
    (seen,) = double.control.ask("GET", "rates")
    assert (seen["per_s"], seen["burst"], seen["action"]) == (2, 1, "RunInstances")
    with pytest.raises(LabError, match="nonsense"):
        double.control.ask("POST", "rates", {"nonsense": 1})
