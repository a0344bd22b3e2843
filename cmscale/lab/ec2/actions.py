"""Which actions of EC2 are ours, and who answers each? All others are moto's."""

from __future__ import annotations

from collections.abc import Mapping

from cmscale.lab import pricelist
from cmscale.lab.ec2 import changing, fleets, launching, looking
from cmscale.lab.ec2.calls import Action

ACTIONS: Mapping[str, Action] = {
    "RunInstances": launching.run_instances,
    "CreateFleet": fleets.create_fleet,
    "DescribeFleets": fleets.describe_fleets,
    "DescribeInstances": looking.describe_instances,
    "DescribeInstanceStatus": looking.describe_instance_status,
    "DescribeSpotInstanceRequests": looking.describe_spot_instance_requests,
    "DescribeSpotPriceHistory": pricelist.describe_spot_price_history,
    "GetConsoleOutput": looking.get_console_output,
    "TerminateInstances": changing.terminate_instances,
    "StopInstances": changing.stop_instances,
    "StartInstances": changing.start_instances,
    "CreateTags": changing.create_tags,
    "DeleteTags": changing.delete_tags,
}
