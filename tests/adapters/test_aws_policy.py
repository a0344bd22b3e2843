"""The rights that an admin is told to give: those that our calls need, for what is ours, and no others."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.session import get_session
from moto.iam.policy_validation import IAMPolicyDocumentValidator

from cmscale.adapters import aws
from cmscale.adapters.aws import AwsPool, rights
from cmscale.adapters.aws.policy import Document, Realm, daemon_policy, setup_policy
from cmscale.model import MachineId
from tests.adapters.test_aws import Connect, Ec2, connect, ec2, machine_ids, pool, served
from tests.adapters.test_aws_notices import QUEUE, Mail, Sent, Steady, mail

__all__ = ["connect", "ec2", "mail", "pool", "served"]
"""Fixtures."""

HERE = Path(str(aws.__file__)).parent
SERVICES = ("ec2", "sqs", "events", "iam", "pricing", "service-quotas", "ssm", "sts")
IMPLIED = {rights.TAG, rights.ROLE, "sqs:TagQueue", "events:TagResource"}
"""What a call needs besides when it tags what it makes, or gives a role away."""

ON_DEMAND = AwsPool(("g5.xlarge",), "ami-1", ("subnet-1",), ("sg-1",), key_name="ops", instance_profile="cm-scale-node")
SPOT = replace(ON_DEMAND, subnets=("subnet-1", "subnet-2"), market="spot")
REALM = Realm("hpc", "eu-central-1", (ON_DEMAND, SPOT), "auto")
"""One with all that a site may use."""


# --- every call, and no right too many -------------------------------------------------------------------------------


@cache
def operations() -> dict[str, str]:
    """The operations of all services that may concern us, by the name that they have in Python."""
    session = get_session()
    models = [session.get_service_model(service) for service in SERVICES]
    return {xform_name(name): name for model in models for name in model.operation_names}


def calls(path: Path) -> Iterator[str]:
    """The operations whose names stand in a module, as methods of a client or as the text a paginator is asked by."""
    for each in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        word = each.attr if isinstance(each, ast.Attribute) else each.value if isinstance(each, ast.Constant) else None
        if isinstance(word, str) and word in operations():
            yield operations()[word]


def needed(*, for_setup: bool) -> set[str]:
    files = [path for path in HERE.glob("*.py") if (path.name == "setup.py") is for_setup]
    return {rights.right_for(call) or f"unknown: {call}" for path in files for call in calls(path)}


def allowed(document: Document) -> set[str]:
    return {action for statement in document["Statement"] for action in statement["Action"]}


def test_the_policy_of_the_daemon_has_the_right_for_each_call_in_the_code_and_none_besides() -> None:
    assert allowed(daemon_policy([REALM])) - needed(for_setup=False) <= IMPLIED
    assert needed(for_setup=False) <= allowed(daemon_policy([REALM]))


def test_the_policy_for_setting_up_has_the_right_for_each_call_in_the_code_and_none_besides() -> None:
    assert allowed(setup_policy([REALM])) - needed(for_setup=True) <= IMPLIED
    assert needed(for_setup=True) <= allowed(setup_policy([REALM]))


def test_whatever_a_site_sends_is_allowed(connect: Connect, pool: AwsPool, mail: Mail, ec2: Ec2) -> None:
    sent, steady = Sent(), Steady()
    site = connect(replace(pool, market="spot"), notices_queue=QUEUE, steady=steady)
    site._ec2._session.events.register("before-call", sent)
    site._ec2.client.meta.events.register("before-call", sent)
    (one,) = machine_ids(site, "e1")
    site.problems()
    mail.put("litter")
    for _ in range(3):
        site.list()
        site.notices()
    site.evidence(one)
    site.stop([one])
    site.delete([one, MachineId("i-0123456789abcdef0")])
    assert {rights.right_for(call) for call in sent.calls} <= allowed(daemon_policy([REALM]))
    assert {"RunInstances", "DeleteMessageBatch", "StopInstances"} <= set(sent.calls)


@pytest.mark.parametrize("document", [daemon_policy([REALM]), setup_policy([REALM])], ids=["daemon", "setup"])
def test_a_policy_is_one_that_iam_takes(document: Document) -> None:
    text = json.dumps(document, separators=(",", ":"))
    IAMPolicyDocumentValidator(text).validate()
    assert len(text) <= 6144  # of a managed policy, without its white space


# --- for what is ours ------------------------------------------------------------------------------------------------


def may(document: Document, action: str, resource: str, **context: str) -> bool:
    """What IAM would answer, as far as our statements go: equal texts and patterns."""
    given = {key.replace("__", ":").replace("_", "-"): value for key, value in context.items()}
    return any(
        action in statement["Action"]
        and any(fnmatchcase(resource, pattern) for pattern in statement["Resource"])
        and all(_holds(test, wanted, given) for test, wanted in statement.get("Condition", {}).items())
        for statement in document["Statement"]
    )


def _holds(test: str, wanted: Mapping[str, Any], given: Mapping[str, str]) -> bool:
    every, _, test = test.rpartition(":")
    match: Callable[[str, str], bool] = {"StringEquals": eq, "StringLike": fnmatchcase}[test]
    if every:
        wanted = {key: value for key, value in wanted.items() if key in given}
    return all(
        key in given and any(match(given[key], value) for value in ([values] if isinstance(values, str) else values))
        for key, values in wanted.items()
    )


OF_THE_DAEMON = daemon_policy([REALM])
EC2 = "arn:aws:ec2:eu-central-1:123456789012:"
MACHINE = EC2 + "instance/i-1"
OURS = {"aws:ResourceTag/cm-scale:cluster": "hpc"}
THEIRS = {"aws:ResourceTag/cm-scale:cluster": "other"}


@pytest.mark.parametrize("action", rights.CHANGE)
def test_only_machines_of_our_cluster_may_be_changed(action: str) -> None:
    assert may(OF_THE_DAEMON, action, MACHINE, **OURS)
    assert not may(OF_THE_DAEMON, action, MACHINE, **THEIRS)
    assert not may(OF_THE_DAEMON, action, MACHINE)
    assert not may(OF_THE_DAEMON, action, MACHINE.replace("eu-central-1", "us-east-1"), **OURS)


@pytest.mark.parametrize(
    ("action", "what"),
    [
        (rights.LAUNCH, "instance/*"),
        (rights.LAUNCH, "volume/*"),
        (rights.LAUNCH, "network-interface/*"),
        (rights.FLEET, "fleet/*"),
        (rights.FLEET, "instance/*"),
        (rights.TEMPLATE, "launch-template/*"),
    ],
)
def test_nothing_may_be_made_without_our_cluster_s_tag(action: str, what: str) -> None:
    assert may(OF_THE_DAEMON, action, EC2 + what, **{"aws:RequestTag/cm-scale:cluster": "hpc"})
    assert not may(OF_THE_DAEMON, action, EC2 + what, **{"aws:RequestTag/cm-scale:cluster": "other"})
    assert not may(OF_THE_DAEMON, action, EC2 + what)


@pytest.mark.parametrize("action", [rights.LAUNCH, rights.FLEET, rights.NO_TEMPLATE])
def test_templates_of_our_cluster_may_be_used_and_deleted_alone(action: str) -> None:
    assert may(OF_THE_DAEMON, action, EC2 + "launch-template/lt-1", **OURS)
    assert not may(OF_THE_DAEMON, action, EC2 + "launch-template/lt-1", **THEIRS)


@pytest.mark.parametrize(
    ("action", "what"),
    [("ec2:DeleteVolume", "volume/vol-1"), ("ec2:DeleteNetworkInterface", "network-interface/eni-1")],
)
def test_what_machines_leave_behind_may_be_deleted_if_it_bears_our_tag(action: str, what: str) -> None:
    assert may(OF_THE_DAEMON, action, EC2 + what, **OURS)
    assert not may(OF_THE_DAEMON, action, EC2 + what, **THEIRS)


@pytest.mark.parametrize(
    ("what", "ours"),
    [
        ("subnet/subnet-1", True),
        ("subnet/subnet-2", True),
        ("subnet/subnet-3", False),
        ("security-group/sg-1", True),
        ("security-group/sg-2", False),
        ("key-pair/ops", True),
        ("key-pair/root", False),
        ("spot-instances-request/*", True),
        ("placement-group/near", False),
        ("capacity-reservation/cr-1", False),
    ],
)
def test_machines_may_be_launched_with_what_the_pools_name_alone(what: str, ours: bool) -> None:
    assert may(OF_THE_DAEMON, "ec2:RunInstances", EC2 + what) is ours


def test_whatever_the_code_tags_when_it_makes_it_may_be_tagged() -> None:
    trees = [ast.walk(ast.parse(path.read_text(encoding="utf-8"))) for path in HERE.glob("*.py")]
    made = [
        each for tree in trees for each in tree if isinstance(each, ast.Call) and ast.unparse(each.func) == "tagged"
    ]
    constants = [arg.value for call in made for arg in call.args if isinstance(arg, ast.Constant)]
    kinds = {kind for kind in constants if isinstance(kind, str)}
    assert {"instance", "volume"} <= kinds
    for kind in kinds:
        assert may(OF_THE_DAEMON, rights.TAG, f"{EC2}{kind}/x-1", **{"ec2:CreateAction": "CreateFleet"})


def test_tags_may_be_set_at_a_launch_and_afterwards_only_those_that_tell_the_order_of_our_machines() -> None:
    assert may(OF_THE_DAEMON, rights.TAG, MACHINE, **{"ec2:CreateAction": "RunInstances"})
    assert not may(OF_THE_DAEMON, rights.TAG, MACHINE)
    assert may(OF_THE_DAEMON, rights.TAG, MACHINE, **OURS, **{"aws:TagKeys": "cm-scale:order-0"})
    assert not may(OF_THE_DAEMON, rights.TAG, MACHINE, **OURS, **{"aws:TagKeys": "cm-scale:cluster"})
    assert not may(OF_THE_DAEMON, rights.TAG, MACHINE, **THEIRS, **{"aws:TagKeys": "cm-scale:order-0"})


def test_the_role_of_the_pools_may_be_given_to_machines_alone() -> None:
    role = "arn:aws:iam::123456789012:role/"
    to_ec2, to_lambda = ({"iam:PassedToService": f"{name}.amazonaws.com"} for name in ("ec2", "lambda"))
    assert may(OF_THE_DAEMON, rights.ROLE, role + "cm-scale-node", **to_ec2)
    assert not may(OF_THE_DAEMON, rights.ROLE, role + "cm-scale-node", **to_lambda)
    assert not may(OF_THE_DAEMON, rights.ROLE, role + "Administrator", **to_ec2)


def test_the_cluster_s_own_queue_may_be_read_alone() -> None:
    queue = "arn:aws:sqs:eu-central-1:123456789012:"
    assert may(OF_THE_DAEMON, "sqs:ReceiveMessage", queue + "cm-scale-hpc")
    assert not may(OF_THE_DAEMON, "sqs:ReceiveMessage", queue + "cm-scale-hpc2")
    named = daemon_policy([replace(REALM, notices_queue="https://sqs.eu-central-1.amazonaws.com/123456789012/ours")])
    assert may(named, "sqs:ReceiveMessage", queue + "ours")
    assert not may(named, "sqs:ReceiveMessage", queue + "cm-scale-hpc")


def test_looking_is_allowed_in_our_regions_alone() -> None:
    assert may(OF_THE_DAEMON, "ec2:DescribeInstances", "*", **{"aws:RequestedRegion": "eu-central-1"})
    assert not may(OF_THE_DAEMON, "ec2:DescribeInstances", "*", **{"aws:RequestedRegion": "us-east-1"})


def test_what_a_site_does_not_use_is_not_asked_for() -> None:
    plain = AwsPool(("c5.xlarge",), "ami-1", ("subnet-1",))
    document = daemon_policy([Realm("hpc", "us-east-1", (plain,), "auto")])
    assert not allowed(document) & {rights.ROLE, rights.FLEET, rights.TEMPLATE, *rights.HEAR}
    assert not may(document, "ec2:RunInstances", EC2.replace("eu-central-1", "us-east-1") + "spot-instances-request/*")
    assert not allowed(daemon_policy([replace(REALM, notices_queue="")])) & {*rights.HEAR}
    assert setup_policy([replace(REALM, notices_queue="")])["Statement"] == []


def test_a_pool_without_groups_gets_that_of_its_network_whose_name_is_not_known() -> None:
    document = daemon_policy([replace(REALM, pools=(ON_DEMAND, replace(SPOT, security_groups=())))])
    assert may(document, "ec2:RunInstances", EC2 + "security-group/sg-of-the-network")


@pytest.mark.parametrize(("region", "begin"), [("cn-north-1", "arn:aws-cn:"), ("us-gov-west-1", "arn:aws-us-gov:")])
def test_other_partitions_have_their_own_names(region: str, begin: str) -> None:
    document = daemon_policy([replace(REALM, region=region)])
    resources = [resource for statement in document["Statement"] for resource in statement["Resource"]]
    assert all(resource == "*" or resource.startswith(begin) for resource in resources)


def test_several_sites_are_one_policy() -> None:
    document = daemon_policy([REALM, replace(REALM, region="us-east-1", pools=(replace(SPOT, subnets=("subnet-9",)),))])
    assert may(document, "ec2:RunInstances", "arn:aws:ec2:us-east-1:1:subnet/subnet-9")
    assert may(document, "ec2:RunInstances", "arn:aws:ec2:eu-central-1:1:subnet/subnet-1")
    assert len({statement["Sid"] for statement in document["Statement"]}) == len(document["Statement"])
