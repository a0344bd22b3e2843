"""Which pools does an instant fleet take its machines from? CreateFleet, as EC2 answers it.

A pool is one override of one launch template: a type in a subnet. They are walked in the order of the strategy, each
gives what it has, and one that had less than was asked of it is an entry of `Errors`. A minimum is met within one type,
or one zone, or the fleet launches nothing.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cmscale.lab import wire
from cmscale.lab.ec2.calls import Answer, Scene
from cmscale.lab.ec2.launching import checked, merged, tags_for
from cmscale.lab.instance import Instance, Launch, Refused
from cmscale.lab.market import ON_DEMAND, SPOT, keys

TAGGABLE = frozenset({"instance", "fleet", "volume", "network-interface", "spot-instances-request"})
UNLISTED = math.inf
"""The priority of an override that has none: after all others."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One override, with what its strategy goes by."""

    launch: Launch
    told: Mapping[str, Any]
    """The template and the override, as answers repeat them."""
    weight: float
    priority: float
    price: float
    room: int
    """How many it had when the call came."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """One fleet, as it was answered."""

    id: str
    made: float
    content: Mapping[str, Any]
    """The answer to its call."""
    asked: Mapping[str, Any]
    instances: Sequence[Instance]
    tags: Mapping[str, str] = field(default_factory=dict)


def create_fleet(scene: Scene) -> Answer:
    _check(scene.asked)
    scene.stop_here_if_dry()
    fleet = scene.region.once(scene.asked.get("ClientToken", ""), scene.call.params, lambda: _made(scene))
    scene.region.fleets[fleet.id] = fleet
    return scene.told(wire.trimmed("CreateFleet", fleet.content), fleet.instances)


def describe_fleets(scene: Scene) -> Answer:
    """The instant fleets with these ids. EC2 shows none of them unasked."""
    found = []
    for each in scene.asked.get("FleetIds", ()):
        if each not in scene.region.fleets:
            raise Refused("InvalidFleetId.NotFound", f"The fleet ID '{each}' does not exist")
        found.append(_described(scene.region.fleets[each]))
    return scene.told(wire.trimmed("DescribeFleets", {"Fleets": found}))


def _described(fleet: Fleet) -> dict[str, Any]:
    return {
        "FleetId": fleet.id,
        "Type": "instant",
        "FleetState": "active",
        "ActivityStatus": "fulfilled",
        "CreateTime": fleet.made,
        "ClientToken": fleet.asked.get("ClientToken"),
        "TargetCapacitySpecification": fleet.asked["TargetCapacitySpecification"],
        "Errors": fleet.content["Errors"],
        "Instances": fleet.content["Instances"],
        "Tags": [{"Key": key, "Value": value} for key, value in fleet.tags.items()] or None,
    }


# --- what may be asked -----------------------------------------------------------------------------------------------


def _check(asked: Mapping[str, Any]) -> None:
    for name in ("LaunchTemplateConfigs", "TargetCapacitySpecification"):
        if not asked.get(name):
            raise Refused("MissingParameter", f"The request must contain the parameter {name}")
    if asked.get("Type", "maintain") != "instant":
        raise Refused("UnsupportedOperation", "The lab has only fleets of type instant.")
    if asked["TargetCapacitySpecification"].get("TotalTargetCapacity", 0) < 1:
        raise Refused("InvalidParameterValue", "TotalTargetCapacity must be at least 1.")
    for each in asked.get("TagSpecifications", ()):
        if each.get("ResourceType") not in TAGGABLE:
            raise Refused(
                "InvalidParameterValue", f"'{each.get('ResourceType')}' is not a valid taggable resource type."
            )
    for name in ("SpotOptions", "OnDemandOptions"):
        given = asked.get(name, {})
        if "MinTargetCapacity" in given and not (
            given.get("SingleInstanceType") or given.get("SingleAvailabilityZone")
        ):
            raise Refused(
                "InvalidParameterCombination",
                f"{name}.MinTargetCapacity needs SingleInstanceType or SingleAvailabilityZone.",
            )
        if given.get("AllocationStrategy", "lowest-price") not in _ORDERS[name]:
            raise Refused(
                "InvalidParameterValue", f"Invalid value '{given['AllocationStrategy']}' for {name}.AllocationStrategy."
            )


def _targets(asked: Mapping[str, Any]) -> dict[str, int]:
    """How much is wanted, by market."""
    wanted = asked["TargetCapacitySpecification"]
    total = wanted["TotalTargetCapacity"]
    spot, on_demand = wanted.get("SpotTargetCapacity", 0), wanted.get("OnDemandTargetCapacity", 0)
    rest = SPOT if wanted.get("DefaultTargetCapacityType", ON_DEMAND) == SPOT else ON_DEMAND
    targets = {ON_DEMAND: on_demand, SPOT: spot}
    if spot + on_demand > total:
        raise Refused("InvalidTargetCapacitySpecification", "The targets are above TotalTargetCapacity.")
    targets[rest] += total - spot - on_demand
    return targets


# --- making it -------------------------------------------------------------------------------------------------------


def _made(scene: Scene) -> Fleet:
    id_ = f"fleet-{secrets.token_hex(4)}-{'-'.join(secrets.token_hex(2) for _ in range(3))}-{secrets.token_hex(6)}"
    groups: list[tuple[Pool, list[Instance]]] = []
    errors: list[dict[str, Any]] = []
    for market, target in _targets(scene.asked).items():
        if target:
            options = scene.asked.get("SpotOptions" if market == SPOT else "OnDemandOptions", {})
            pools = _pools(scene, id_, market, errors)
            strategy = options.get("AllocationStrategy", "lowest-price")
            order = _ORDERS["SpotOptions" if market == SPOT else "OnDemandOptions"][strategy](target)
            ordered = sorted(pools, key=order)
            for pool, count in _chosen(scene, ordered, target, options, errors):
                made = scene.region.run(replace(pool.launch, token=f"{id_}-{len(groups)}"), count, count, scene.now)
                groups.append((pool, made))
    content = {
        "FleetId": id_,
        "Errors": errors,
        "Instances": [
            {
                "LaunchTemplateAndOverrides": pool.told,
                "Lifecycle": pool.launch.market,
                "InstanceIds": [each.id for each in made],
                "InstanceType": pool.launch.type,
                "AvailabilityZone": pool.launch.zone,
                "SubnetId": pool.launch.subnet,
            }
            for pool, made in groups
        ],
    }
    instances = [each for _, made in groups for each in made]
    return Fleet(
        id_, scene.now, content, scene.asked, instances, tags_for("fleet", scene.asked.get("TagSpecifications", ()))
    )


def _pools(scene: Scene, fleet: str, market: str, errors: list[dict[str, Any]]) -> Iterable[Pool]:
    """All overrides that name what exists; the others become errors."""
    for config in scene.asked["LaunchTemplateConfigs"]:
        if "LaunchTemplateSpecification" not in config:
            raise Refused("MissingParameter", "The request must contain the parameter LaunchTemplateSpecification")
        template = scene.moto.template(scene.region.name, config["LaunchTemplateSpecification"])
        for override in config.get("Overrides") or [{}]:
            if "InstanceRequirements" in override:
                raise Refused("UnsupportedOperation", "The lab chooses no types by their attributes.")
            told = {"LaunchTemplateSpecification": template.chosen, "Overrides": override}
            asked = merged(template.data, _as_request(override, scene.asked)) | {"LaunchTemplate": template.chosen}
            try:
                launch = checked(scene, asked, market)
            except Refused as refused:
                errors.append(_error(told, market, refused))
                continue
            launch = replace(launch, tags={**launch.tags, "aws:ec2:fleet-id": fleet})
            room, _ = scene.region.room(launch, scene.now)
            yield Pool(
                launch=launch,
                told=told,
                weight=override.get("WeightedCapacity", 1.0),
                priority=override.get("Priority", UNLISTED),
                price=scene.region.price(launch.type, launch.zone, market),
                room=room,
            )


def _as_request(override: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """An override in the words of RunInstances."""
    own = {"MaxPrice", "WeightedCapacity", "Priority", "AvailabilityZone", "AvailabilityZoneId"}
    request = {key: value for key, value in override.items() if key not in own}
    if "AvailabilityZone" in override:
        request["Placement"] = {**override.get("Placement", {}), "AvailabilityZone": override["AvailabilityZone"]}
    if "TagSpecifications" in asked:
        request["TagSpecifications"] = asked["TagSpecifications"]
    return request


def _error(told: Mapping[str, Any], market: str, refused: Refused) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": told,
        "Lifecycle": market,
        "ErrorCode": refused.code,
        "ErrorMessage": str(refused),
    }


# --- choosing --------------------------------------------------------------------------------------------------------

Order = Callable[[Pool], Any]

_BY_PRICE: Order = lambda pool: pool.price / pool.weight  # noqa: E731 - one line in a table of such lines
_BY_PRIORITY: Order = lambda pool: pool.priority  # noqa: E731

_ORDERS: Mapping[str, Mapping[str, Callable[[int], Order]]] = {
    "OnDemandOptions": {"lowest-price": lambda _: _BY_PRICE, "prioritized": lambda _: _BY_PRIORITY},
    "SpotOptions": {
        "lowest-price": lambda _: _BY_PRICE,
        "diversified": lambda _: _BY_PRICE,
        "capacity-optimized": lambda _: lambda pool: -pool.room,
        "capacity-optimized-prioritized": lambda _: lambda pool: (pool.room == 0, pool.priority),
        # The cheapest of those that have room for all; then whichever has most.
        "price-capacity-optimized": lambda target: (
            lambda pool: (0, pool.price / pool.weight) if pool.room * pool.weight >= target else (1, -pool.room)
        ),
    },
}
"""What the strategies sort pools by, for a target. Pools that are alike keep the order of the call."""


def _chosen(
    scene: Scene, pools: Sequence[Pool], target: float, options: Mapping[str, Any], errors: list[dict[str, Any]]
) -> Sequence[tuple[Pool, int]]:
    """How many of which pool; what had no room, or too little, becomes an error."""
    least = options.get("MinTargetCapacity", 0)
    tried: list[tuple[Pool, int]] = []
    for group in _groups(pools, options):
        tried, short = _filled(scene, group, target, diversified=options.get("AllocationStrategy") == "diversified")
        errors.extend(_error(pool.told, pool.launch.market, refusal) for pool, refusal in short)
        if sum(count * pool.weight for pool, count in tried) >= max(least, 1):
            return tried
    if tried and pools:
        words = f"The fleet could not have its MinTargetCapacity of {least}."
        errors.append(_error(pools[0].told, pools[0].launch.market, Refused("UnfulfillableCapacity", words)))
    return []


def _groups(pools: Sequence[Pool], options: Mapping[str, Any]) -> Iterable[Sequence[Pool]]:
    """The pools that may be mixed: all, or those of one type, or zone."""
    groups: dict[tuple[str, str], list[Pool]] = {}
    for pool in pools:
        kind = pool.launch.type if options.get("SingleInstanceType") else ""
        zone = pool.launch.zone if options.get("SingleAvailabilityZone") else ""
        groups.setdefault((kind, zone), []).append(pool)
    return groups.values()


def _filled(
    scene: Scene, pools: Sequence[Pool], target: float, *, diversified: bool
) -> tuple[list[tuple[Pool, int]], list[tuple[Pool, Refused]]]:
    """What each pool gives, in this order, and what those say that had too little."""
    left, planned = target, Counter[str]()
    taken: list[tuple[Pool, int]] = []
    short: list[tuple[Pool, Refused]] = []
    for position, pool in enumerate(pools):
        if left <= 0:
            break
        share = left / (len(pools) - position) if diversified else left
        wanted = math.ceil(share / pool.weight)
        room, refusal = scene.region.room(pool.launch, scene.now, planned)
        count = min(wanted, room)
        if count < wanted and refusal:
            short.append((pool, refusal))
        if count > 0:
            launch = pool.launch
            planned.update(dict.fromkeys(keys(launch.type, launch.zone, scene.region.name, launch.market), count))
            taken.append((pool, count))
            left -= count * pool.weight
    return taken, short
