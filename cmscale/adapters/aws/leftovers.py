"""What do machines of EC2 leave behind, and how does it go?

A volume or a network interface goes with its machine if it was launched so, as ours are. One stays if somebody detached
it, or changed that; it is found by the same tags, and each takes a call of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.pool import CLUSTER_TAG, NODE_TAG, OPERATION_TAG
from cmscale.model import Leftover, LeftoverKind, MachineId, NodeName, OpId, Outcome, Result

_UNUSED = "available"
"""EC2's word for volumes and interfaces that belong to nothing."""


def is_part(name: MachineId) -> bool:
    """True if the id is not a machine's."""
    return name.startswith(("vol-", "eni-"))


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The volumes and interfaces of one region that belong to no machine."""

    ec2: Connection
    cluster: str

    def found(self) -> Iterator[Leftover]:
        ours = {f"tag:{CLUSTER_TAG}": [self.cluster], "status": [_UNUSED]}
        for each in self.ec2.pages("describe_volumes", "Volumes", ours):
            yield self._part(LeftoverKind.VOLUME, each["VolumeId"], each.get("Tags", ()))
        for each in self.ec2.pages("describe_network_interfaces", "NetworkInterfaces", ours):
            yield self._part(LeftoverKind.INTERFACE, each["NetworkInterfaceId"], each.get("TagSet", ()))

    def _part(self, kind: LeftoverKind, name: str, listed: Sequence[Mapping[str, str]]) -> Leftover:
        tags = {tag["Key"]: tag["Value"] for tag in listed}
        op = tags.get(OPERATION_TAG)
        node = NodeName(tags.get(NODE_TAG, ""))
        return Leftover(MachineId(name), kind, self.ec2.site, node, OpId(op) if op else None)

    def delete(self, parts: Sequence[MachineId]) -> Mapping[MachineId, Outcome]:
        return {name: self._deleted(name) for name in parts}

    def _deleted(self, name: MachineId) -> Outcome:
        # A volume that is attached again by now is refused by EC2 itself.
        call: Callable[..., Any] = self.ec2.once.delete_volume
        parameter = "VolumeId"
        if name.startswith("eni-"):
            call, parameter = self.ec2.once.delete_network_interface, "NetworkInterfaceId"
        try:
            call(**{parameter: name})
        except self.ec2.errors.any as error:
            if not self.ec2.errors.code(error).endswith(".NotFound"):
                return self.ec2.errors.outcome(error)
        return Outcome(Result.OK, machine=name)
