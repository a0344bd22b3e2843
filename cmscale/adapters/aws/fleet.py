"""What is an instant fleet asked for, and what does it answer? One call that may take its machines from many offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cmscale.adapters.aws.errors import result_of
from cmscale.adapters.aws.pool import AwsPool, Offer, tagged
from cmscale.model import MachineId, Outcome, Result

FLEET_TAG = "aws:ec2:fleet-id"
"""EC2's own tag on machines of a fleet."""

MOST_TOLD = 3


def request(
    pool: AwsPool, offers: Sequence[Offer], template: str, tags: Mapping[str, str], number: int, *, together: bool
) -> dict[str, Any]:
    """All of CreateFleet but its token. Machines that come together or not at all come in one zone: EC2 promises a
    minimum for no more, and what computes together should be near."""
    options: dict[str, Any] = {"AllocationStrategy": pool.allocation_strategy}
    if together:
        options |= {"MinTargetCapacity": number, "SingleAvailabilityZone": True}
    overrides = [
        {"InstanceType": each.instance_type, "SubnetId": each.subnet, "Priority": float(place)}
        for place, each in enumerate(offers)
    ]
    specification = {"LaunchTemplateName": template, "Version": "1"}
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        "TargetCapacitySpecification": {"TotalTargetCapacity": number, "DefaultTargetCapacityType": pool.market},
        "SpotOptions" if pool.spot else "OnDemandOptions": options,
        "TagSpecifications": tagged(tags, "instance", "volume", "fleet"),
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a fleet, by offer."""

    made: Mapping[Offer, Sequence[MachineId]]
    refused: Mapping[Offer, Outcome]

    @property
    def machines(self) -> list[MachineId]:
        """Always in the same order, in which they get their names, however often EC2 is asked."""
        return sorted(machine for some in self.made.values() for machine in some)

    @property
    def said(self) -> str:
        """What the refusals say, the first of them."""
        told = [f"{offer}: {outcome.detail}" for offer, outcome in self.refused.items()]
        more = len(told) - MOST_TOLD
        return "; ".join(told[:MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")


def read(answer: Mapping[str, Any], market: str) -> Answer:
    """What CreateFleet answers, or DescribeFleets of a fleet that was made before."""
    made: dict[Offer, list[MachineId]] = {}
    for each in answer.get("Instances", ()):
        made.setdefault(_offer(each, market), []).extend(map(MachineId, each["InstanceIds"]))
    refused = {_offer(each, market): _refusal(each) for each in answer.get("Errors", ())}
    return Answer(made, refused)


def _offer(entry: Mapping[str, Any], market: str) -> Offer:
    chosen = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
    return Offer(chosen.get("InstanceType", "any type"), chosen.get("SubnetId", "any subnet"), market)


def _refusal(entry: Mapping[str, Any]) -> Outcome:
    code = str(entry.get("ErrorCode", ""))
    result = result_of(code)
    # Not TRANSIENT, which would be asked for again: under this token EC2 gives these machines and no others.
    result = Result.GONE if result is Result.TRANSIENT else result
    return Outcome(result, " ".join(f"{code}: {entry.get('ErrorMessage', '')}".split()))
