"""Which quota of the account does an instance type count against?

EC2 counts the vCPUs of running instances in each region, by family and market, and names each quota in the Service
Quotas console. The names here are those (AWS documentation: "Amazon EC2 instance type quotas" for on-demand, "Spot
Instance quotas" for spot).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"
_CLASSES: Mapping[str, str] = {
    **dict.fromkeys(("a", "c", "d", "h", "i", "im", "is", "m", "r", "t", "z"), _STANDARD),
    **dict.fromkeys(("g", "gr", "vt"), "G and VT"),
    "inf": "Inf",
    "trn": "Trn",
    "u": "High Memory",
}
"""By the letters with which a type begins; the others' quotas bear these letters themselves (F, P, X, DL, HPC)."""


def quota_family(instance_type: str, market: str) -> str:
    """The name of the quota; types of one name share it. A family that is not known shares with its like alone."""
    letters, generation = _parts(instance_type)
    family = _CLASSES.get(letters, letters.upper())
    if market != "spot":
        return f"Running On-Demand {family} instances"
    if family == "P":
        family = "P4, P3 and P2" if generation < 5 else f"P{generation}"
    return f"All {family} Spot Instance Requests"


def _parts(instance_type: str) -> tuple[str, int]:
    """Family letters and generation: g4dn.xlarge is (g, 4), u-6tb1.metal is (u, 0)."""
    found = re.match(r"([a-z]+)(\d*)", instance_type)
    return (found[1], int(found[2] or 0)) if found else (instance_type, 0)
