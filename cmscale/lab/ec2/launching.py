"""What does a launch ask for, and may it? RunInstances, and what fleets and launch templates have in common with it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cmscale.lab import words
from cmscale.lab.ec2.calls import Answer, Scene
from cmscale.lab.instance import Launch, Refused
from cmscale.lab.market import BLOCK, ON_DEMAND, SPOT
from cmscale.lab.parts import Wanted

DEFAULT_TYPE = "m1.small"
LONGEST_USER_DATA = 16 * 1024
LISTS = frozenset({"TagSpecifications"})
"""What a template and a call both may give, and both are heard."""


def run_instances(scene: Scene) -> Answer:
    asked = with_template(scene, scene.asked)
    least, most = asked.get("MinCount", 1), asked.get("MaxCount", 1)
    _check_cards(asked)
    launch = checked(scene, asked, market_of(asked))
    scene.stop_here_if_dry()
    if not 1 <= least <= most:
        raise Refused("InvalidParameterValue", "MinCount must be at least 1 and not above MaxCount.")
    token = scene.asked.get("ClientToken", "")
    instances = scene.region.once(token, scene.call.params, lambda: scene.region.run(launch, least, most, scene.now))
    return scene.told(words.reservation(instances, scene.region, scene.now), instances)


def with_template(scene: Scene, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The request, completed by its launch template."""
    chosen = asked.get("LaunchTemplate")
    if not chosen:
        return dict(asked)
    template = scene.moto.template(scene.region.name, chosen)
    return merged(template.data, asked) | {"LaunchTemplate": template.chosen}


def merged(template: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """What a template says, unless the call says otherwise."""
    both = {key: [*template[key], *over[key]] for key in LISTS if key in template and key in over}
    return {**template, **over, **both}


def market_of(asked: Mapping[str, Any]) -> str:
    kind = asked.get("InstanceMarketOptions", {}).get("MarketType", ON_DEMAND)
    if kind not in {ON_DEMAND, SPOT, BLOCK}:
        raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceMarketOptions.MarketType.")
    return str(kind)


def checked(scene: Scene, asked: Mapping[str, Any], market: str) -> Launch:
    """A launch with all it names looked up; refuses what does not exist."""
    if "ImageId" not in asked:
        raise Refused("MissingParameter", "The request must contain the parameter ImageId")
    home = scene.moto.homes[scene.region.name]
    cards = asked.get("NetworkInterfaces") or []
    card = cards[0] if cards else {}
    zone = asked.get("Placement", {}).get("AvailabilityZone", "")
    if zone and zone not in home["subnets"]:
        raise Refused("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    groups = asked.get("SecurityGroupIds") or card.get("Groups") or []
    subnet_id = asked.get("SubnetId") or card.get("SubnetId") or home["subnets"].get(zone, home["subnet"])
    subnet, root = scene.moto.look_up(scene.region.name, asked["ImageId"], subnet_id, groups, asked.get("KeyName"))
    _check_words(scene, asked)
    return Launch(
        image=asked["ImageId"],
        type=asked.get("InstanceType", DEFAULT_TYPE),
        zone=subnet.availability_zone,
        subnet=subnet.id,
        vpc=subnet.vpc_id,
        groups=tuple(groups),
        key_name=asked.get("KeyName", ""),
        token=asked.get("ClientToken", ""),
        market=market,
        tags=tags_for("instance", asked.get("TagSpecifications", ())) | _template_tags(asked),
        group=_group_of(scene, asked),
        reservation=_reservation_of(asked, market),
        profile=_profile_of(asked),
        parts=Wanted(
            root=root,
            disks=asked.get("BlockDeviceMappings", ()),
            cards=cards,
            disk_tags=tags_for("volume", asked.get("TagSpecifications", ())),
            card_tags=tags_for("network-interface", asked.get("TagSpecifications", ())),
        ),
        user_data=asked.get("UserData", ""),
        metadata=asked.get("MetadataOptions", {}),
    )


def _group_of(scene: Scene, asked: Mapping[str, Any]) -> str:
    """The name of the placement group that a launch names, by its name or its id."""
    place, groups = asked.get("Placement", {}), scene.region.groups
    name, id_ = place.get("GroupName", ""), place.get("GroupId", "")
    found = [each.name for each in groups.values() if each.name == name or (id_ and each.id == id_)]
    if (name or id_) and not found:
        raise Refused("InvalidPlacementGroup.Unknown", f"The Placement Group '{name or id_}' is unknown.")
    return found[0] if found else ""


def _reservation_of(asked: Mapping[str, Any], market: str) -> str:
    target = asked.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
    id_ = str(target.get("CapacityReservationId", ""))
    if market == BLOCK and not id_:
        words = "The market type capacity-block needs a CapacityReservationTarget."
        raise Refused("InvalidParameterCombination", words)
    return id_


def _profile_of(asked: Mapping[str, Any]) -> str:
    profile = asked.get("IamInstanceProfile", {})
    return str(profile.get("Name") or profile.get("Arn", "").rpartition("/")[2])


def _check_cards(asked: Mapping[str, Any]) -> None:
    """Interfaces bring their own subnet and groups. Of several none gets a public address."""
    cards = asked.get("NetworkInterfaces") or []
    for name, called in (("SubnetId", "subnet ID"), ("SecurityGroupIds", "security groups")):
        if cards and asked.get(name):
            raise Refused(
                "InvalidParameterCombination",
                f"Network interfaces and an instance-level {called} may not be specified on the same request",
            )
    if len(cards) > 1 and any(each.get("AssociatePublicIpAddress") for each in cards):
        raise Refused(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
            "interfaces.",
        )


def tags_for(kind: str, specifications: Any) -> dict[str, str]:
    """The tags that a call asks for, of one kind of resource."""
    return {
        tag["Key"]: tag.get("Value", "")
        for each in specifications
        if each.get("ResourceType") == kind
        for tag in each.get("Tags", ())
    }


def _template_tags(asked: Mapping[str, Any]) -> dict[str, str]:
    """Those that EC2 itself writes on what is launched from a template."""
    chosen = asked.get("LaunchTemplate")
    if not chosen:
        return {}
    return {"aws:ec2launchtemplate:id": chosen["LaunchTemplateId"], "aws:ec2launchtemplate:version": chosen["Version"]}


def _check_words(scene: Scene, asked: Mapping[str, Any]) -> None:
    """Refuse parameters that no region would take."""
    kind = asked.get("InstanceType", DEFAULT_TYPE)
    if not scene.moto.knows_type(kind):
        raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
    fast = sum(each.get("InterfaceType", "").startswith("efa") for each in asked.get("NetworkInterfaces") or ())
    if fast > scene.moto.most_efa(kind):
        raise Refused("AttachmentLimitExceeded", f"EFA interface count {fast} exceeds allowed limit for {kind}.")
    spot = asked.get("InstanceMarketOptions", {}).get("SpotOptions", {})
    if spot.get("SpotInstanceType", "one-time") != "one-time":
        raise Refused("UnsupportedOperation", "The lab has only one-time Spot Instance requests.")
    profile = asked.get("IamInstanceProfile", {})
    if profile and not scene.moto.knows_profile(profile):
        name = profile.get("Name") or profile.get("Arn")
        raise Refused(
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        )
    try:
        script = base64.b64decode(asked.get("UserData", ""), validate=True)
    except binascii.Error:
        raise Refused("InvalidParameterValue", "Invalid BASE64 encoding of user data.") from None
    if len(script) > LONGEST_USER_DATA:
        raise Refused("InvalidParameterValue", f"User data is limited to {LONGEST_USER_DATA} bytes")
