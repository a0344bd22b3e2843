"""What must an admin allow us, and no more than that?

The policies are made from the configuration alone, without asking anybody: whoever needs them has no rights yet. What
EC2 lets depend on a tag is allowed for machines of our cluster only; subnets, groups, keys and the role that machines
get are those of the pools. Images are not: they change with every update, and a policy had to change with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cmscale.adapters.aws import rights
from cmscale.adapters.aws.names import ORDER_TAG
from cmscale.adapters.aws.pool import CLUSTER_TAG, AwsPool
from cmscale.adapters.aws.queue import queue_name

VERSION = "2012-10-17"
"""Of the language in which policies are written."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Realm:
    """Where we act: one site, as the configuration names it."""

    cluster: str
    region: str
    pools: Sequence[AwsPool] = field(default_factory=tuple)
    notices_queue: str = ""

    @property
    def spot(self) -> bool:
        return any(pool.spot for pool in self.pools)

    @property
    def fleets(self) -> bool:
        """Is anything launched by fleets, from templates?"""
        return any(len(pool.offers) > 1 for pool in self.pools)

    def arn(self, service: str, what: str, account: str = "*") -> str:
        return f"arn:{_partition(self.region)}:{service}:{self.region}:{account}:{what}"

    def named(self, kind: str, names: Iterable[str]) -> list[str]:
        """What is named, or all of the kind where nothing is."""
        return [self.arn("ec2", f"{kind}/{name}") for name in sorted(set(names))] or [self.arn("ec2", f"{kind}/*")]

    @property
    def queue(self) -> str:
        return self.arn("sqs", queue_name(self.cluster, self.notices_queue))

    @property
    def rule(self) -> str:
        return self.arn("events", f"rule/{queue_name(self.cluster, self.notices_queue)}")


def daemon_policy(realms: Sequence[Realm]) -> Document:
    """What the daemon, and every command beside `aws setup` and `aws teardown`, is to be allowed."""
    return _document(_of_daemon(realms))


def setup_policy(realms: Sequence[Realm]) -> Document:
    """What `aws setup` and `aws teardown` are to be allowed."""
    heard = [realm for realm in realms if realm.notices_queue]
    queue = _statement("Queue", rights.QUEUE, (realm.queue for realm in heard))
    rule = _statement("Rule", rights.RULE, (realm.rule for realm in heard))
    return _document([queue, rule] if heard else [])


def _of_daemon(realms: Sequence[Realm]) -> Iterator[Document]:
    if not realms:
        return
    cluster, regions = realms[0].cluster, sorted({realm.region for realm in realms})
    ours = {"StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": cluster}}
    made = {"StringEquals": {f"aws:RequestTag/{CLUSTER_TAG}": cluster}}
    machines, volumes, interfaces = (
        [realm.arn("ec2", f"{kind}/*") for realm in realms] for kind in ("instance", "volume", "network-interface")
    )
    fleets, templates = (
        [realm.arn("ec2", f"{kind}/*") for realm in realms if realm.fleets] for kind in ("fleet", "launch-template")
    )
    launch, made_by = [rights.LAUNCH], ["RunInstances"]
    if fleets:
        launch, made_by = [rights.LAUNCH, rights.FLEET], ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]
    yield _statement(
        "Look", (*rights.WATCH, *rights.LOOK_UP), ["*"], {"StringEquals": {"aws:RequestedRegion": regions}}
    )
    yield _statement("LookUpPrices", rights.MONEY, ["*"])
    yield _statement("LaunchOurs", launch, [*machines, *volumes, *interfaces, *fleets], made)
    yield _statement("LaunchInto", launch, (arn for realm in realms for arn in _around(realm)))
    if templates:
        yield _statement("MakeTemplates", [rights.TEMPLATE], templates, made)
        yield _statement("UseTemplates", [*launch, rights.NO_TEMPLATE], templates, ours)
        order = {**ours, "ForAllValues:StringLike": {"aws:TagKeys": f"{ORDER_TAG}*"}}
        yield _statement("NameOurs", [rights.TAG], machines, order)
    born = [*machines, *volumes, *interfaces, *fleets, *templates]
    yield _statement("TagAtLaunch", [rights.TAG], born, {"StringEquals": {"ec2:CreateAction": made_by}})
    yield _statement("ChangeOurs", [*rights.CHANGE, *rights.CLEAN], [*machines, *volumes, *interfaces], ours)
    if roles := [arn for realm in realms for arn in _roles(realm)]:
        to = {"StringLike": {"iam:PassedToService": "ec2.amazonaws.com*"}}
        yield _statement("PassRole", [rights.ROLE], roles, to)
    if queues := [realm.queue for realm in realms if realm.spot and realm.notices_queue]:
        yield _statement("Hear", rights.HEAR, queues)


def _around(realm: Realm) -> Iterator[str]:
    """What a launch touches beside what it makes."""
    for public in ("image", "snapshot"):
        yield realm.arn("ec2", f"{public}/*", account="")
    yield from realm.named("subnet", (subnet for pool in realm.pools for subnet in pool.subnets))
    # A pool that names none gets the default group of its network, whose name is not known here.
    groups = [group for pool in realm.pools for group in pool.security_groups]
    yield from realm.named("security-group", groups if all(pool.security_groups for pool in realm.pools) else ())
    for kind, names in (
        ("key-pair", {pool.key_name for pool in realm.pools}),
        ("placement-group", {pool.placement_group for pool in realm.pools}),
        ("capacity-reservation", {pool.capacity_reservation for pool in realm.pools}),
    ):
        if some := names - {""}:
            yield from realm.named(kind, some)
    if realm.spot:
        yield realm.arn("ec2", "spot-instances-request/*")


def _roles(realm: Realm) -> Iterator[str]:
    """The roles of the pools' instance profiles: by EC2's own custom they have the same names."""
    for name in sorted({pool.instance_profile for pool in realm.pools if pool.instance_profile}):
        yield f"arn:{_partition(realm.region)}:iam::*:role/{name}"


@cache
def _partition(region: str) -> str:
    from botocore.session import Session

    return str(Session().get_partition_for_region(region))


def _statement(
    sid: str, actions: Iterable[str], resources: Iterable[str], condition: Mapping[str, Any] | None = None
) -> Document:
    statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": sorted(actions),
        "Resource": [*dict.fromkeys(resources)],
    }
    return statement | ({"Condition": dict(condition)} if condition else {})


def _document(statements: Iterable[Document]) -> Document:
    return {"Version": VERSION, "Statement": [*statements]}
