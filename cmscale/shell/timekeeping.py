"""Can the clock be believed, and for how long has something really lasted?

What the clock says may jump: somebody sets it, a virtual machine was stopped, NTP finds an hour's error. So from tick
to tick it is compared with one that only counts seconds. In a tick before which it jumped nothing is started or given
back; what is known by its date (idle nodes, closed pools, facts with ends) is moved along, so that it lasts as long as
it was to last; and a machine is believed to be no older than the steady clock allows.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace

from cmscale.model import Event, EventKind, Machine
from cmscale.ports import Clock, Journal

JUMP_S = 5.0
"""A clock that is off by less since the last tick was not set, only disciplined."""

SETTLING_S = 120.0
"""How long a machine that a call has made may be missing from listings: EC2's describe lags behind its launches."""

TOLD_S = 900.0
"""How long a jump is told as a trouble of ours."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Jump:
    """The clock was set between two ticks."""

    at: float
    """By the steady clock."""
    by_s: float

    def __str__(self) -> str:
        way = "ahead" if self.by_s > 0 else "back"
        return f"the clock jumped {way} by {abs(self.by_s):.0f} s; nothing was started or given back in that tick"


@dataclass(slots=True)
class Timekeeping:
    """What one process knows of its clock."""

    off_s: float | None = None
    """What the clock was ahead of the steady one at the last tick."""
    last: Jump | None = None

    def look(self, clock: Clock, journal: Journal) -> Jump | None:
        """The jump since the last look, if there was one; it is found again until it is `settled`."""
        off_s = clock.now() - clock.steady()
        if self.off_s is None:
            # What an earlier process wrote down last can't be of the future; a clock that went ahead shows nowhere.
            latest = max(journal.idle().values(), default=clock.now())
            self.off_s = off_s + max(latest - clock.now(), 0.0)
        by_s = off_s - self.off_s
        if abs(by_s) >= JUMP_S:
            return Jump(clock.steady(), by_s)
        self.off_s = off_s
        return None

    def settled(self, jump: Jump) -> None:
        self.off_s = (self.off_s or 0.0) + jump.by_s
        self.last = jump

    def recent(self, clock: Clock, within_s: float = TOLD_S) -> Jump | None:
        """The last jump, if it was a short while ago."""
        return self.last if self.last and clock.steady() - self.last.at < within_s else None


def move_along(journal: Journal, jump: Jump, now: float) -> None:
    """Tell the journal of a jump: what lasts is moved along, and whoever asks later is told."""
    journal.shift(jump.by_s, now)
    log.warning("%s", jump)
    journal.tell([Event(now, EventKind.CLOCK_JUMPED, "", str(jump))])


@dataclass(slots=True)
class Ages:
    """How old are things, at the most, by the clock that only counts?

    What appears between two looks can't be much older than the time between them, whatever its date says: listings
    show what is there a little late, but not an hour.
    """

    began: dict[Hashable, tuple[float, float]] = field(default_factory=dict)
    """When each thing began: by its date, and by the steady clock."""

    def of(self, what: Hashable, date: float, now: float, steady: float, unknown_s: float | None) -> float:
        """The age of what has this date; `unknown_s` ago it was not there yet, None: nobody knows."""
        dated, born = self.began.get(what, (0.0, 0.0))
        if what not in self.began or date - dated > JUMP_S:
            age_s = max(now - date, 0.0)
            if unknown_s is not None and age_s > unknown_s + SETTLING_S:
                age_s = unknown_s
            self.began[what] = date, steady - age_s
            return age_s
        return steady - born

    def keep(self, those: Iterable[Hashable]) -> None:
        """Forget all others."""
        self.began = {each: self.began[each] for each in those if each in self.began}


def dated(machine: Machine, age_s: float, now: float) -> Machine:
    """The machine, with a launch that tells its age by the clock as it is now."""
    launched = now - age_s
    return machine if abs(launched - machine.launched) < JUMP_S else replace(machine, launched=launched)
