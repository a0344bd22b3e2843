"""What does EC2 tell EventBridge, in which words? Each is an entry for the default bus."""

from __future__ import annotations

import json
from typing import Any

from cmscale.lab.faults import WARNING_S
from cmscale.lab.instance import Instance, State
from cmscale.lab.surroundings import ACCOUNT

Event = dict[str, Any]


def interruption(one: Instance) -> Event:
    """That EC2 takes a spot instance back; dated so that two minutes are left, as EC2 promises."""
    at = (one.taken_at or 0.0) - WARNING_S
    resource = f"arn:aws:ec2:{one.launch.zone}:instance/{one.id}"  # by zone and without an account, as EC2 has it
    detail = {"instance-id": one.id, "instance-action": "terminate"}
    return _event("EC2 Spot Instance Interruption Warning", resource, detail, at)


def rebalance(one: Instance, region: str, now: float) -> Event:
    """That a spot instance may be taken back."""
    return _event("EC2 Instance Rebalance Recommendation", _arn(one, region), {"instance-id": one.id}, now)


def state_change(one: Instance, region: str, state: State, now: float) -> Event:
    detail = {"instance-id": one.id, "state": state.value[0]}
    return _event("EC2 Instance State-change Notification", _arn(one, region), detail, now)


def _arn(one: Instance, region: str) -> str:
    return f"arn:aws:ec2:{region}:{ACCOUNT}:instance/{one.id}"


def _event(kind: str, resource: str, detail: dict[str, str], at: float) -> Event:
    return {
        "Source": "aws.ec2",
        "DetailType": kind,
        "Resources": [resource],
        "Detail": json.dumps(detail),
        "Time": at,
    }
