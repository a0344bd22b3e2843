"""What has been set aside: placement groups, capacity reservations and capacity blocks?"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group."""

    name: str
    strategy: str
    id: str = field(default_factory=lambda: f"pg-{secrets.token_hex(9)[:17]}")
    partitions: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Reservation:
    """Instances of one type in one zone that are kept for whoever names the reservation."""

    type: str
    zone: str
    count: int
    made: float
    kind: str = DEFAULT
    """"default", or "capacity-block"."""
    starts: float = 0.0
    ends: float | None = None
    """When what runs in a block is ended."""
    platform: str = "Linux/UNIX"
    match: str = "open"
    tags: Mapping[str, str] = field(default_factory=dict)
    used: int = 0
    released: bool = False
    """It keeps nothing any more."""
    cancelled: bool = False
    id: str = field(default_factory=lambda: f"cr-{secrets.token_hex(9)[:17]}")

    def state(self, now: float) -> str:
        if self.cancelled:
            return "cancelled"
        if self.ends is not None and now >= self.ends:
            return "expired"
        return "active" if now >= self.starts else "scheduled"


@dataclass(frozen=True, slots=True)
class Block:
    """A capacity block that somebody has bought; starts and ends are seconds from now."""

    type: str
    zone: str
    count: int
    starts_in_s: float = 0.0
    lasts_s: float = 86400.0
