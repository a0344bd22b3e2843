"""What would time be, if it were ours?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class VirtualClock:
    """Time that passes only when somebody waits."""

    at: float = 1_000_000.0
    """A Monday, 13:46:40 UTC."""
    ended: bool = False
    """Are we asked to end?"""
    ahead_s: float = 0.0
    """What the site's clock is ahead of UTC."""
    set_by_s: float = 0.0
    """By how much it was set since it began."""

    def now(self) -> float:
        return self.at

    def steady(self) -> float:
        return self.at - self.set_by_s

    def set_by(self, seconds: float) -> None:
        """Somebody sets it ahead, or back."""
        self.at += seconds
        self.set_by_s += seconds

    def utc_offset_s(self) -> float:
        return self.ahead_s

    def wait(self, seconds: float) -> bool:
        self.at += seconds
        return self.ended
