"""What is EC2 asked for when machines of a pool are launched?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmscale.adapters.aws.userdata import user_data
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
    """A script; @CLUSTER@, @NODES@ and @CONF_SERVER@ in it become the cluster, the folded list of the nodes launched
    together, and `conf_server`."""
    conf_server: str = ""
    """Where a slurmd gets its configuration; empty: from its image."""
    market: str = "on-demand"
    promised: Shape = _NOTHING
    """What Slurm is told a node has; compared with the instance type's room by `problems`."""

    def request(self, cluster: str, operation: OpId, label: str) -> dict[str, Any]:
        """All of RunInstances but its counts and its token; Misconfigured if the user data will not do."""
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

    def script(self, cluster: str, label: str) -> bytes:
        """The user data of one launch, empty if there is none; Misconfigured if it will not do."""
        if self.user_data is None:
            return b""
        return user_data(self.user_data, {"CLUSTER": cluster, "NODES": label, "CONF_SERVER": self.conf_server})
