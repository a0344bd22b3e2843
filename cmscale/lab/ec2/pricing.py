"""Which types are offered where, and what have spot instances of them cost?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cmscale.lab.ec2.calls import Answer, Scene
from cmscale.lab.ec2.looking import filters_of, paged
from cmscale.lab.filters import suits
from cmscale.lab.instance import Refused
from cmscale.lab.market import SPOT, history

LINUX = "Linux/UNIX"

LOOK_BACK_S = 86400.0
"""How far back a history goes that says nothing of it."""

KEPT_S = 90 * 86400.0
"""How far back any goes."""


def describe_instance_type_offerings(scene: Scene) -> Answer:
    kind, filters = scene.asked.get("LocationType", "region"), filters_of(scene)
    if kind not in {"region", "availability-zone", "availability-zone-id"}:
        raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for LocationType.")
    scene.stop_here_if_dry()
    found = [
        {"InstanceType": each["InstanceType"], "LocationType": kind, "Location": each["Location"]}
        for each in scene.moto.offerings(scene.region.name, kind)
        if suits({"instance-type": [each["InstanceType"]], "location": [each["Location"]]}, filters)
    ]
    page, more = paged(scene, found)
    return scene.told({"InstanceTypeOfferings": page, "NextToken": more})


def describe_spot_price_history(scene: Scene) -> Answer:
    scene.stop_here_if_dry()
    page, more = paged(scene, _prices(scene))
    return scene.told({"SpotPriceHistory": page, "NextToken": more})


def _prices(scene: Scene) -> Iterator[dict[str, Any]]:
    """Each change of a price in the time that is asked for, and what held when it began; the latest first."""
    asked, filters = scene.asked, filters_of(scene)
    kinds, zone = asked.get("InstanceTypes", ()), asked.get("AvailabilityZone", "")
    if LINUX not in asked.get("ProductDescriptions", (LINUX,)):
        return
    until = asked.get("EndTime", scene.now)
    since = max(asked.get("StartTime", until - LOOK_BACK_S), scene.now - KEPT_S)
    zones = scene.moto.homes[scene.region.name]["subnets"]
    for each in scene.moto.offerings(scene.region.name, "availability-zone"):
        kind, where = each["InstanceType"], each["Location"]
        if (kinds and kind not in kinds) or zone not in {"", where} or where not in zones:
            continue
        for at, dollars in history(scene.region.price(kind, where, SPOT), scene.now, since):
            words = {"instance-type": [kind], "availability-zone": [where], "product-description": [LINUX]}
            if at <= until and suits(words | {"spot-price": [str(dollars)]}, filters):
                yield {
                    "InstanceType": kind,
                    "AvailabilityZone": where,
                    "ProductDescription": LINUX,
                    "SpotPrice": f"{dollars:.6f}",
                    "Timestamp": at,
                }
