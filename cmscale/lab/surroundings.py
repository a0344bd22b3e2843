"""What surrounds the instances of the lab's EC2: networks, addresses, images, groups, keys, and every other service?

All of it is moto, which is kept behind this one module. It is not safe for threads: callers take turns.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from typing import Any

from cmscale.lab.instances import Launch, Refused

ACCOUNT = "123456789012"


class Surroundings:
    """moto, with an image and two subnets of the lab in each region."""

    def __init__(self, regions: Iterable[str]) -> None:
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # loading them takes longer than all the rest
        from moto.ec2.models import ec2_backends
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._app = DomainDispatcherApplication(create_backend_app)
        self._backends: Any = ec2_backends[ACCOUNT]
        self.homes = {name: self._settle(name, number) for number, name in enumerate(regions)}
        """The lab's image and networks, by region."""

    def _settle(self, name: str, number: int) -> dict[str, Any]:
        """Networks on loopback, so that what runs on an instance is reached at the instance's address."""
        backend = self._backends[name]
        vpc = backend.create_vpc(f"127.{64 + number}.0.0/16")
        subnets = {
            f"{name}{letter}": backend.create_subnet(
                vpc.id, f"127.{64 + number}.{16 * place}.0/20", availability_zone=f"{name}{letter}"
            ).id
            for place, letter in enumerate("ab")
        }
        image = backend.register_image(name="lab", description="An image that boots as a slurmd of the lab")
        return {"image": image.id, "vpc": vpc.id, "subnet": subnets[f"{name}a"], "subnets": subnets}

    def take_address(self, region: str, subnet: str) -> str:
        try:
            return str(self._backends[region].get_subnet(subnet).get_available_subnet_ip(instance=None))
        except (StopIteration, RuntimeError):
            raise Refused(
                "InsufficientFreeAddressesInSubnet", f"There are no free addresses in subnet '{subnet}'."
            ) from None

    def free_address(self, region: str, subnet: str, address: str) -> None:
        self._backends[region].get_subnet(subnet).del_subnet_ip(address)

    def answer(self, environ: dict[str, Any], action: str) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
        """moto's status, headers and body for a request."""
        got: list[Any] = []
        try:
            body = b"".join(self._app(environ, lambda status, headers, *_: got.extend((status, headers))))
        except Exception as error:
            # Whatever moto lacks, it raises in its own way.
            raise Refused("UnsupportedOperation", f"moto does not model {action}: {error}") from error
        status = int(got[0].split()[0])
        if status >= 500:
            raise Refused("UnsupportedOperation", f"moto does not model {action}.")
        return status, tuple((key, value) for key, value in got[1] if key.lower() != "content-length"), body

    def check_launch(self, region: str, asked: Mapping[str, Any], params: Mapping[str, str]) -> Launch:
        """A RunInstances call with all it names looked up; refuses what does not exist."""
        if "ImageId" not in asked:
            raise Refused("MissingParameter", "The request must contain the parameter ImageId")
        home = self.homes[region]
        card = (asked.get("NetworkInterface") or [{}])[0]
        zone = asked.get("Placement", {}).get("AvailabilityZone", "")
        if zone and zone not in home["subnets"]:
            raise Refused("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
        groups = asked.get("SecurityGroupId") or card.get("SecurityGroupId") or []
        subnet_id = asked.get("SubnetId") or card.get("SubnetId") or home["subnets"].get(zone, home["subnet"])
        subnet = self._look_up(region, asked, subnet_id, groups)
        _check_words(asked)
        return Launch(
            image=asked["ImageId"],
            type=asked.get("InstanceType", "m1.small"),
            least=int(asked.get("MinCount", 1)),
            most=int(asked.get("MaxCount", 1)),
            zone=subnet.availability_zone,
            subnet=subnet.id,
            vpc=subnet.vpc_id,
            groups=tuple(groups),
            key_name=asked.get("KeyName", ""),
            token=asked.get("ClientToken", ""),
            spot=asked.get("InstanceMarketOptions", {}).get("MarketType") == "spot",
            tags={
                tag["Key"]: tag.get("Value", "")
                for spec in asked.get("TagSpecification", [])
                if spec.get("ResourceType") == "instance"
                for tag in spec.get("Tag", [])
            },
            asked=dict(params),
        )

    def _look_up(self, region: str, asked: Mapping[str, Any], subnet_id: str, groups: Iterable[str]) -> Any:
        """The subnet; refuses if it or another named thing does not exist."""
        from moto.ec2.exceptions import EC2ClientError

        backend = self._backends[region]
        try:
            backend.describe_images(ami_ids=[asked["ImageId"]])
            subnet = backend.get_subnet(subnet_id)
            if "KeyName" in asked:
                backend.describe_key_pairs(key_names=[asked["KeyName"]])
        except EC2ClientError as error:
            raise Refused(str(error.code), str(error.message)) from error
        for group in groups:
            if backend.get_security_group_from_id(group) is None:
                raise Refused("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
        return subnet


def _check_words(asked: Mapping[str, Any]) -> None:
    """Refuse parameters that no region would take."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    kind = asked.get("InstanceType", "m1.small")
    if kind not in INSTANCE_TYPES:
        raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
    if "LaunchTemplate" in asked:
        raise Refused("UnsupportedOperation", "The lab has no launch templates.")
    if asked.get("InstanceMarketOptions", {}).get("SpotOptions", {}).get("SpotInstanceType", "one-time") != "one-time":
        raise Refused("UnsupportedOperation", "The lab has only one-time Spot Instance requests.")
    profile = asked.get("IamInstanceProfile", {})
    if profile and not _known_profile(profile):
        name = profile.get("Name") or profile.get("Arn")
        raise Refused(
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        )
    try:
        base64.b64decode(asked.get("UserData", ""), validate=True)
    except binascii.Error:
        raise Refused("InvalidParameterValue", "Invalid BASE64 encoding of user data.") from None


def _known_profile(profile: Mapping[str, str]) -> bool:
    from moto.iam.models import iam_backends

    known = iam_backends[ACCOUNT]["aws"].instance_profiles.values()
    return any(profile.get("Name") == each.name or profile.get("Arn") == each.arn for each in known)
