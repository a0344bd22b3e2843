"""What time is it at the lab's EC2?

As on the machine it runs on, until somebody stops its clock and moves it on by hand: then an hour there takes as long
as the calls made in it. What is waited for all the same, such as the delay of a fault, takes its real time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(slots=True)
class LabClock:
    """The clock by which instances age and calls are dated."""

    stopped_at: float | None = None
    """None: it goes as the machine's own."""

    def now(self) -> float:
        return time.time() if self.stopped_at is None else self.stopped_at
