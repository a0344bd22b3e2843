"""What is EC2 asked for when machines of a pool are launched?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmscale.model import OpId, Shape

CLUSTER_TAG = "cm-scale:cluster"
NODE_TAG = "cm-scale:node"
OPERATION_TAG = "cm-scale:operation"

_NOTHING = Shape(0, 0)


@dataclass(frozen=True, slots=True)
class AwsPool:
    """What the configuration says of a pool's machines, in EC2's words."""

    instance_type: str
    image: str
    subnet: str
    security_groups: tuple[str, ...] = ()
    key_name: str = ""
    instance_profile: str = ""
    user_data: Path | None = None
    """A script; @CLUSTER@ and @NODES@ in it become the cluster and the folded list of the nodes launched together."""
    market: str = "on-demand"
    promised: Shape = _NOTHING
    """What Slurm is told a node has; compared with the instance type's room by `problems`."""

    @property
    def goods(self) -> str:
        """What its machines are on the market."""
        return f"{self.market} {self.instance_type} in {self.subnet}"

    def request(self, cluster: str, operation: OpId, label: str) -> dict[str, Any]:
        """All of RunInstances but its counts and its token; OSError if the user data cannot be read."""
        tags = {CLUSTER_TAG: cluster, NODE_TAG: label, OPERATION_TAG: operation, "Name": label}
        tag_list = [{"Key": key, "Value": value} for key, value in tags.items()]
        request: dict[str, Any] = {
            "ImageId": self.image,
            "InstanceType": self.instance_type,
            "SubnetId": self.subnet,
            "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list} for kind in ("instance", "volume")],
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        }
        if self.security_groups:
            request["SecurityGroupIds"] = list(self.security_groups)
        if self.key_name:
            request["KeyName"] = self.key_name
        if self.instance_profile:
            request["IamInstanceProfile"] = {"Name": self.instance_profile}
        if self.user_data:
            request["UserData"] = self.script(cluster, label)
        if self.market == "spot":
            request["InstanceMarketOptions"] = {"MarketType": "spot"}
        return request

    def script(self, cluster: str, label: str) -> str:
        """The user data of one launch; empty if there is none."""
        if self.user_data is None:
            return ""
        return self.user_data.read_text(encoding="utf-8").replace("@CLUSTER@", cluster).replace("@NODES@", label)
