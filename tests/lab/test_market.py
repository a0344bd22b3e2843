"""What the lab's cloud tells of prices and quotas, as the real boto3 understands it."""

from __future__ import annotations

import json
from typing import Any

import botocore.exceptions
import pytest

from cmscale.lab.faults import Fault
from tests.lab.double import Double, refused


def products(double: Double, **wanted: str) -> list[dict[str, Any]]:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    pages = double.client(service="pricing").get_paginator("get_products")
    told = pages.paginate(ServiceCode="AmazonEC2", Filters=filters, PaginationConfig={"PageSize": 3})
    return [json.loads(text) for page in told for text in page["PriceList"]]


def test_the_price_list_has_every_region_and_system_of_a_type_in_pages(double: Double) -> None:
    every = products(double, instanceType="g4dn.xlarge")
    told = {
        (each["product"]["attributes"]["regionCode"], each["product"]["attributes"]["operatingSystem"])
        for each in every
    }
    assert told == {(region, system) for region in double.regions for system in ("Linux", "Windows")}
    assert products(double, instanceType="nothing.large") == []


def test_a_price_that_a_test_sets_is_the_one_that_is_listed(double: Double) -> None:
    double.control.set_prices({"g4dn.xlarge/us-east-1": 7.5})
    (one,) = products(double, instanceType="g4dn.xlarge", regionCode="us-east-1", operatingSystem="Linux")
    (term,) = one["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert (dimension["unit"], float(dimension["pricePerUnit"]["USD"])) == ("Hrs", 7.5)


def test_quotas_come_in_pages_and_an_increase_is_granted_at_once(double: Double) -> None:
    client = double.client(service="service-quotas")
    pages = list(client.get_paginator("list_service_quotas").paginate(ServiceCode="ec2"))
    assert len(pages) > 1
    codes = {each["QuotaName"]: each["QuotaCode"] for page in pages for each in page["Quotas"]}
    code = codes["Running On-Demand G and VT instances"]
    before = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"]
    try:
        client.request_service_quota_increase(ServiceCode="ec2", QuotaCode=code, DesiredValue=8.0)
        assert client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"] == 8.0
        west = double.client("us-west-2", "service-quotas")
        assert west.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"] == before
    finally:
        client.request_service_quota_increase(ServiceCode="ec2", QuotaCode=code, DesiredValue=before)


def test_what_is_refused_is_refused_in_the_words_of_a_service_that_speaks_json(double: Double) -> None:
    double.control.set_fault(Fault("GetProducts", code="AccessDeniedException", status=400, message="no"))
    with pytest.raises(botocore.exceptions.ClientError) as denied:
        double.client(service="pricing").get_products(ServiceCode="AmazonEC2")
    assert refused(denied) == ("AccessDeniedException", 400)
    with pytest.raises(botocore.exceptions.ClientError) as unknown:
        double.client(service="service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode="L-NONE")
    assert refused(unknown)[0] == "NoSuchResourceException"
