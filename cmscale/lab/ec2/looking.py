"""What does EC2 show of the instances that are there?"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

from cmscale.lab import console, wire, words
from cmscale.lab.ec2.calls import Answer, Scene
from cmscale.lab.filters import INSTANCE, REQUEST, Filters, check, wanted
from cmscale.lab.instance import Instance, Refused, State

PAGE = 1000

Item = TypeVar("Item")


def describe_instances(scene: Scene) -> Answer:
    page, more = _page(scene, "InstanceIds")
    reservations: dict[str, list[Instance]] = {}
    for each in page:
        reservations.setdefault(each.reservation, []).append(each)
    told = [words.reservation(group, scene.region, scene.now) for group in reservations.values()]
    return scene.told({"Reservations": told, "NextToken": more})


def describe_instance_status(scene: Scene) -> Answer:
    page, more = _page(scene, "InstanceIds")
    all_states = scene.asked.get("IncludeAllInstances", False)
    shown = [each for each in page if all_states or each.state(scene.now, scene.region.times) is State.RUNNING]
    told = [words.status(each, scene.region, scene.now) for each in shown]
    content = {"InstanceStatuses": told, "NextToken": more}
    return scene.told(wire.trimmed("DescribeInstanceStatus", content))  # younger SDKs know more checks


def describe_spot_instance_requests(scene: Scene) -> Answer:
    page, more = _page(scene, "SpotInstanceRequestIds", spot=True)
    told = [words.spot_request(each, scene.region, scene.now) for each in page]
    return scene.told({"SpotInstanceRequests": told, "NextToken": more})


def get_console_output(scene: Scene) -> Answer:
    if "InstanceId" not in scene.asked:
        raise Refused("MissingParameter", "The request must contain the parameter InstanceId")
    scene.stop_here_if_dry()
    (instance,) = scene.region.described([scene.asked["InstanceId"]], scene.now)
    output = console.kept(scene.directory, instance.id)
    told = base64.b64encode(output).decode() if output else None
    return scene.told({"InstanceId": instance.id, "Timestamp": scene.now, "Output": told})


def describe_instance_attribute(scene: Scene) -> Answer:
    """The user data or the type of an instance; EC2 shows many more."""
    for name in ("InstanceId", "Attribute"):
        if name not in scene.asked:
            raise Refused("MissingParameter", f"The request must contain the parameter {name}")
    scene.stop_here_if_dry()
    (instance,) = scene.region.described([scene.asked["InstanceId"]], scene.now)
    shown = {
        "userData": {"UserData": {"Value": instance.launch.user_data} if instance.launch.user_data else {}},
        "instanceType": {"InstanceType": {"Value": instance.launch.type}},
    }
    attribute = scene.asked["Attribute"]
    if attribute not in shown:
        raise Refused("UnsupportedOperation", f"The lab shows no {attribute} of an instance, but {', '.join(shown)}.")
    return scene.told({"InstanceId": instance.id, **shown[attribute]})


# --- filters and pages -----------------------------------------------------------------------------------------------


def filters_of(scene: Scene) -> Filters:
    return {each["Name"]: each.get("Values", []) for each in scene.asked.get("Filters", ())}


def _page(scene: Scene, ids_name: str, *, spot: bool = False) -> tuple[list[Instance], str | None]:
    """The instances of this page, and the token of the next; their serial numbers are the places to go on from."""
    scene.stop_here_if_dry()
    ids, times = scene.asked.get(ids_name, []), scene.region.times
    if ids and "MaxResults" in scene.asked:
        raise Refused(
            "InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults"
        )
    filters, table = filters_of(scene), REQUEST if spot else INSTANCE
    check(filters, table)
    there = (scene.region.requested if spot else scene.region.described)(ids, scene.now, after=_after(scene))
    found = [each for each in there if not filters or wanted(each, filters, table, (scene.now, times))]
    size = _size(scene)
    return found[:size], str(found[size - 1].serial) if len(found) > size else None


def paged(scene: Scene, items: Iterable[Item]) -> tuple[list[Item], str | None]:
    """As much as one answer holds of a list that stays as it is, and the token of what follows."""
    after, size = _after(scene), _size(scene)
    found = list(islice(items, after, after + size + 1))
    return found[:size], str(after + size) if len(found) > size else None


def _size(scene: Scene) -> int:
    """How much one answer holds."""
    size: int = scene.asked.get("MaxResults", PAGE)
    if not 5 <= size <= PAGE:
        raise Refused("InvalidParameterValue", f"Value ( {size} ) for parameter maxResults is invalid.")
    return size


def _after(scene: Scene) -> int:
    token: Any = scene.asked.get("NextToken") or "0"
    if not token.isdigit():
        raise Refused("InvalidParameterValue", "Unable to parse pagination token")
    return int(token)
