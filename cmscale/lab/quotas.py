"""How many vCPUs of each family may an account of the lab's cloud have, as Service Quotas tells it?

An increase that is asked for is granted at once, and so is a decrease: which is how tests set a quota.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from cmscale.lab.ec2.calls import Answer, Call, json_answer
from cmscale.lab.instance import Refused
from cmscale.lab.surroundings import ACCOUNT

NAMES: Mapping[str, str] = {
    "L-1216C47A": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    "L-DB2E81BA": "Running On-Demand G and VT instances",
    "L-417A185B": "Running On-Demand P instances",
    "L-34B43A08": "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    "L-3819A6DF": "All G and VT Spot Instance Requests",
    "L-7212CCBC": "All P4, P3 and P2 Spot Instance Requests",
    "L-C4BD4855": "All P5 Spot Instance Requests",
    "L-0263D0A3": "EC2-VPC Elastic IPs",
}
"""By Amazon's codes; the last is one of many that count no vCPUs."""

PLENTY = 100_000.0
PAGE = 5
"""Small, so that whoever reads but the first page is found out."""


class Quotas:
    """What Service Quotas says, in each region for itself."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(NAMES, PLENTY))

    def answer(self, call: Call) -> Answer:
        return json_answer(self._said(call.region, call.action, json.loads(call.body)))

    def _said(self, region: str, action: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        if asked.get("ServiceCode") != "ec2":
            raise Refused("NoSuchResourceException", "The lab has the quotas of ec2 alone.")
        if action == "ListServiceQuotas":
            first = int(asked.get("NextToken", 0))
            page = min(int(asked.get("MaxResults", PAGE)), PAGE)
            more = {"NextToken": str(first + page)} if len(NAMES) > first + page else {}
            return {"Quotas": [self._quota(region, code) for code in [*NAMES][first : first + page]], **more}
        code = str(asked.get("QuotaCode"))
        if code not in NAMES:
            raise Refused("NoSuchResourceException", f"The lab has no quota {code}.")
        if action == "GetServiceQuota":
            return {"Quota": self._quota(region, code)}
        if action == "RequestServiceQuotaIncrease":
            self._values[region][code] = float(asked["DesiredValue"])
            return {"RequestedQuota": {"QuotaCode": code, "DesiredValue": asked["DesiredValue"], "Status": "APPROVED"}}
        raise Refused("InvalidAction", f"The lab's Service Quotas has no {action}.")

    def _quota(self, region: str, code: str) -> dict[str, Any]:
        return {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": f"arn:aws:servicequotas:{region}:{ACCOUNT}:ec2/{code}",
            "QuotaCode": code,
            "QuotaName": NAMES[code],
            "Value": self._values[region][code],
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
