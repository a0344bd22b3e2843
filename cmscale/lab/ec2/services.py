"""Which services beside EC2 are ours, and not moto's? By their names in a signature."""

from __future__ import annotations

from collections.abc import Mapping

from cmscale.lab import pricelist
from cmscale.lab.ec2.calls import Service
from cmscale.lab.instances import Region
from cmscale.lab.quotas import Quotas


def services(regions: Mapping[str, Region]) -> Mapping[str, Service]:
    """A service gets a Call and gives an Answer (`calls.json_answer` says one in JSON), or raises Refused."""
    return {"pricing": pricelist.pricing(regions), "servicequotas": Quotas().answer}
