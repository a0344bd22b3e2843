"""What must be looked up at EC2 before machines of a pool can be launched? Each thing once, for it never changes."""

from __future__ import annotations

from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.pool import AwsPool, Facts


class Lookups:
    """What EC2 knows of images and instance types of one region."""

    def __init__(self, ec2: Connection) -> None:
        self._ec2 = ec2
        self._root_devices: dict[str, str] = {}
        self._efa: dict[str, int] = {}

    def facts(self, pool: AwsPool) -> Facts:
        """What a launch of the pool must name; raises what boto3 raises."""
        return Facts(self._root_device(pool.image), self._interfaces(pool))

    def _root_device(self, image: str) -> str:
        if image not in self._root_devices:
            (found,) = self._ec2.client.describe_images(ImageIds=[image])["Images"]
            on_disk = found.get("RootDeviceType") != "instance-store"
            self._root_devices[image] = found.get("RootDeviceName", "") if on_disk else ""
        return self._root_devices[image]

    def _interfaces(self, pool: AwsPool) -> int:
        """How many EFA interfaces each machine gets; of several types the one with the fewest counts."""
        if pool.efa is not True:
            return int(pool.efa)
        if unknown := [each for each in pool.instance_types if each not in self._efa]:
            kinds = self._ec2.client.describe_instance_types(InstanceTypes=unknown)["InstanceTypes"]  # type: ignore[arg-type]
            for kind in kinds:
                most = kind.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
                self._efa[kind["InstanceType"]] = most
        return min(self._efa.get(each, 0) for each in pool.instance_types)
