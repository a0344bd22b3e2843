"""What does Amazon ask for a machine: by its price list on demand, and at spot by the history of its prices?

The price list answers each product as a text of JSON, deep, and with more in it than was asked for: what is not
understood is left out, so that a price is either right or missing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cmscale.adapters.aws.connection import Connection

LINUX = "Linux/UNIX"

PRICE_LIST_REGION = "us-east-1"
"""The price list of all regions is served in a few of them."""

_PLAIN: Mapping[str, str] = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}
"""Which of a type's many products is a machine as we launch it."""


def on_demand(price_list: Any, region: str, instance_type: str, currency: str) -> float | None:
    """What a machine of the type costs an hour; None if the list doesn't say."""
    wanted = {"regionCode": region, "instanceType": instance_type, **_PLAIN}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    pages = price_list.get_paginator("get_products").paginate(ServiceCode="AmazonEC2", Filters=filters)
    found = [price for page in pages for price in listed(page.get("PriceList", ()), currency)]
    return max(found, default=None)  # a budget had better count too much than too little


def listed(products: Iterable[str], currency: str) -> Iterator[float]:
    """The hourly prices on demand in the products of a price list; free ones are others than ours."""
    for text in products:
        for term in _values(_parsed(text), "terms", "OnDemand"):
            for dimension in _values(term, "priceDimensions"):
                price = _number(dimension.get("pricePerUnit"), currency) if dimension.get("unit") == "Hrs" else 0.0
                if price > 0:
                    yield price


def spot(ec2: Connection, instance_types: Collection[str]) -> Mapping[tuple[str, str], float]:
    """What each type costs an hour at spot in each zone, by the latest that is known."""
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    client: Any = ec2.client
    pages = client.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=sorted(instance_types), ProductDescriptions=[LINUX], StartTime=datetime.now(UTC)
    )
    for page in pages if instance_types else ():
        for each in page["SpotPriceHistory"]:
            offer = (each["InstanceType"], each["AvailabilityZone"])
            told = (each["Timestamp"], _number(each, "SpotPrice"))
            if told[1] > 0:
                latest[offer] = max(latest.get(offer, told), told)
    return {offer: price for offer, (_, price) in latest.items()}


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None


def _values(told: Any, *path: str) -> Iterator[Mapping[str, Any]]:
    """The objects in the object at a path; none if it isn't there."""
    for word in path:
        told = told.get(word) if isinstance(told, dict) else None
    yield from (each for each in told.values() if isinstance(each, dict)) if isinstance(told, dict) else ()


def _number(told: Any, key: str) -> float:
    try:
        return float(told[key])
    except (KeyError, TypeError, ValueError):
        return 0.0
