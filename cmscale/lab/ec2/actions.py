"""Which actions of EC2 are ours, and who answers each? All others are moto's."""

from __future__ import annotations

from collections.abc import Mapping

from cmscale.lab.ec2 import attached, changing, fleets, launching, looking, pricing, reserving
from cmscale.lab.ec2.calls import Action

ACTIONS: Mapping[str, Action] = {
    "RunInstances": launching.run_instances,
    "CreateFleet": fleets.create_fleet,
    "DescribeFleets": fleets.describe_fleets,
    "DescribeInstances": looking.describe_instances,
    "DescribeInstanceAttribute": looking.describe_instance_attribute,
    "DescribeInstanceStatus": looking.describe_instance_status,
    "DescribeSpotInstanceRequests": looking.describe_spot_instance_requests,
    "GetConsoleOutput": looking.get_console_output,
    "TerminateInstances": changing.terminate_instances,
    "StopInstances": changing.stop_instances,
    "StartInstances": changing.start_instances,
    "CreatePlacementGroup": reserving.create_placement_group,
    "DescribePlacementGroups": reserving.describe_placement_groups,
    "DeletePlacementGroup": reserving.delete_placement_group,
    "CreateCapacityReservation": reserving.create_capacity_reservation,
    "DescribeCapacityReservations": reserving.describe_capacity_reservations,
    "CancelCapacityReservation": reserving.cancel_capacity_reservation,
    "DescribeVolumes": attached.describe_volumes,
    "DeleteVolume": attached.delete_volume,
    "DescribeNetworkInterfaces": attached.describe_network_interfaces,
    "DeleteNetworkInterface": attached.delete_network_interface,
    "DescribeSpotPriceHistory": pricing.describe_spot_price_history,
    "DescribeInstanceTypeOfferings": pricing.describe_instance_type_offerings,
    "CreateTags": changing.create_tags,
    "DeleteTags": changing.delete_tags,
}
