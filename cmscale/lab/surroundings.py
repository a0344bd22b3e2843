"""What surrounds the instances of the lab's EC2: networks, addresses, images, groups, keys, and every other service?

All of it is moto, which is kept behind this one module. It is not safe for threads: callers take turns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cmscale.lab import delivery
from cmscale.lab.instance import Refused

ACCOUNT = "123456789012"


@dataclass(frozen=True, slots=True)
class Template:
    """One version of a launch template."""

    id: str
    version: str
    data: Mapping[str, Any]
    """What it says, in the words of RunInstances."""

    @property
    def chosen(self) -> dict[str, str]:
        return {"LaunchTemplateId": self.id, "Version": self.version}


class Surroundings:
    """moto, with an image and three subnets of the lab in each region."""

    def __init__(self, regions: Iterable[str]) -> None:
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # loading them takes longer than all the rest
        from moto.ec2.models import ec2_backends
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        delivery.install()
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
            for place, letter in enumerate("abc")
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

    # --- events and queues -------------------------------------------------------------------------------------------

    def listens(self, region: str) -> bool:
        """Does a rule look at what comes over the default bus?"""
        from moto.events.models import events_backends

        return bool(events_backends[ACCOUNT][region].event_buses["default"].rules)

    def put_event(self, region: str, event: Mapping[str, Any]) -> None:
        """What EC2 tells EventBridge; rules bring it to their queues."""
        from moto.events.models import events_backends

        events_backends[ACCOUNT][region].put_events([dict(event)])

    def patience_s(self, region: str, queue_url: str) -> float:
        """How long a queue lets its readers wait that don't say so themselves."""
        from moto.sqs.models import sqs_backends

        queue = sqs_backends[ACCOUNT][region].queues.get(queue_url.rpartition("/")[2])
        return float(getattr(queue, "receive_message_wait_time_seconds", None) or 0)

    # --- all that moto answers ---------------------------------------------------------------------------------------

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

    # --- what a launch may name --------------------------------------------------------------------------------------

    def look_up(
        self, region: str, image: str, subnet: str, groups: Iterable[str], key_name: str | None
    ) -> tuple[Any, str]:
        """moto's subnet, and the image's root device; refuses if a named thing does not exist."""
        from moto.ec2.exceptions import EC2ClientError

        backend = self._backends[region]
        try:
            (booted,) = backend.describe_images(ami_ids=[image])
            found = backend.get_subnet(subnet)
            if key_name:
                backend.describe_key_pairs(key_names=[key_name])
        except EC2ClientError as error:
            raise Refused(str(error.code), str(error.message)) from error
        for group in groups:
            if backend.get_security_group_from_id(group) is None:
                raise Refused("InvalidGroup.NotFound", f"The security group '{group}' does not exist")
        return found, str(booted.root_device_name or "/dev/sda1")

    def template(self, region: str, chosen: Mapping[str, Any]) -> Template:
        """The version of a launch template that a call has chosen, by its number, $Default or $Latest."""
        from moto.ec2.exceptions import EC2ClientError

        backend = self._backends[region]
        number = chosen.get("Version", "$Default")
        try:
            if "LaunchTemplateId" in chosen:
                found = backend.get_launch_template(chosen["LaunchTemplateId"])
            else:
                found = backend.get_launch_template_by_name(chosen.get("LaunchTemplateName", ""))
            version = found.get_version(number)
        except EC2ClientError as error:
            raise Refused(str(error.code), str(error.message)) from error
        except ValueError:
            raise Refused("InvalidLaunchTemplateId.VersionNotFound", f"There is no version {number}.") from None
        data = {key: value for key, value in version.data.items() if value is not None}
        if "UserData" in data:
            data["UserData"] = str(data["UserData"])
        return Template(found.id, str(version.number), data)

    def knows_type(self, kind: str) -> bool:
        from moto.ec2.models.instance_types import INSTANCE_TYPES

        return kind in INSTANCE_TYPES

    def offerings(self, region: str, kind: str) -> Sequence[Mapping[str, str]]:
        """Which types there are where: by region, availability-zone or availability-zone-id."""
        from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

        found: Sequence[Mapping[str, str]] = INSTANCE_TYPE_OFFERINGS[kind].get(region, [])
        return found

    def most_efa(self, kind: str) -> int:
        """How many interfaces of a type may be Elastic Fabric Adapters."""
        from moto.ec2.models.instance_types import INSTANCE_TYPES

        known: Any = INSTANCE_TYPES[kind].get("NetworkInfo", {}).get("EfaInfo") or {}
        return int(known.get("MaximumEfaInterfaces", 0))

    def knows_profile(self, profile: Mapping[str, str]) -> bool:
        from moto.iam.models import iam_backends

        known = iam_backends[ACCOUNT]["aws"].instance_profiles.values()
        return any(profile.get("Name") == each.name or profile.get("Arn") == each.arn for each in known)
