"""How many vCPUs of each family may the account have running in a region?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FAMILIES = ("Running On-Demand ", "All ")
"""How the names of the quotas begin that count vCPUs, see `families`."""


def applied(service_quotas: Any) -> Mapping[str, int]:
    """By the name of the quota. Only what is in effect for this account is listed: of the others EC2's own defaults
    are known, which it may have raised, and a guess must not keep machines from being started."""
    pages = service_quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
    return {
        each["QuotaName"]: int(each["Value"])
        for page in pages
        for each in page["Quotas"]
        if each["QuotaName"].startswith(FAMILIES) and "Value" in each
    }
