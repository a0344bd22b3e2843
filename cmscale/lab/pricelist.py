"""How does Amazon's Price List API tell what `market` says that machines cost on demand?

It answers each product as a text of JSON in JSON. It has the types whose prices are known; of all
others it knows nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from cmscale.lab.ec2.calls import Answer, Call, Service, json_answer
from cmscale.lab.instance import Refused
from cmscale.lab.instances import Region
from cmscale.lab.market import DOLLARS, ON_DEMAND

PAGE = 100


def pricing(regions: Mapping[str, Region]) -> Service:
    """The Price List API: one for all regions."""
    return partial(_answer, regions)


def _answer(regions: Mapping[str, Region], call: Call) -> Answer:
    asked = json.loads(call.body)
    if call.action != "GetProducts":
        raise Refused("UnknownOperationException", f"The lab's price list has no {call.action}.")
    if asked.get("ServiceCode") != "AmazonEC2":
        raise Refused("InvalidParameterException", "The lab lists the prices of AmazonEC2 alone.")
    wanted = {each["Field"]: each["Value"] for each in asked.get("Filters", [])}
    found = [
        json.dumps(each)
        for region in regions.values()
        for each in _products(region)
        if all(each["product"]["attributes"].get(field) == value for field, value in wanted.items())
    ]
    first, page = int(asked.get("NextToken", 0)), min(int(asked.get("MaxResults", PAGE)), PAGE)
    more = {"NextToken": str(first + page)} if len(found) > first + page else {}
    return json_answer({"FormatVersion": "aws_v1", "PriceList": found[first : first + page], **more})


def _products(region: Region) -> Iterator[dict[str, Any]]:
    for name in DOLLARS:
        dollars = region.price(name, "", ON_DEMAND)
        for number, (system, factor) in enumerate({"Linux": 1.0, "Windows": 1.8}.items()):
            yield _product(
                f"SKU{sum(map(ord, name + region.name)):05}{number}", name, region.name, system, dollars * factor
            )


def _product(sku: str, name: str, region: str, system: str, dollars: float) -> dict[str, Any]:
    dimension = {
        "unit": "Hrs",
        "description": f"${dollars} per On Demand {system} {name} Instance Hour",
        "beginRange": "0",
        "endRange": "Inf",
        "pricePerUnit": {"USD": f"{dollars:.10f}"},
    }
    term = {"priceDimensions": {f"{sku}.JRTCKXETXF.6YS6EN2CT7": dimension}, "sku": sku, "offerTermCode": "JRTCKXETXF"}
    attributes = {
        "servicecode": "AmazonEC2",
        "regionCode": region,
        "instanceType": name,
        "operatingSystem": system,
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "licenseModel": "No License required",
        "marketoption": "OnDemand",
        "operation": "RunInstances",
    }
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {f"{sku}.JRTCKXETXF": term},
            "Reserved": {f"{sku}.4NA7Y494T4": {"priceDimensions": {}, "sku": sku}},
        },
        "version": "20261101000000",
    }
