"""How long is what was refused left alone?

Nothing is retried blindly. What fails again in the same way rests twice as long, up to a bound; what is closed is tried
again after its time. The same goes for a pool, of which the journal knows, and for one of the offers inside a pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cmscale.model import Closure, Result


@dataclass(frozen=True, slots=True)
class Rest:
    """How long something is left alone: at first, at most, and from which refusal in a row on."""

    first_s: float
    most_s: float
    from_strike: int = 1


RESTS: Mapping[Result, Rest] = {
    Result.CAPACITY: Rest(180, 1800),  # Karpenter's grain for one offering; short enough to notice its return
    Result.QUOTA: Rest(600, 3600),
    Result.THROTTLED: Rest(2, 60),  # RunInstances refills 2 a second
    Result.AUTH: Rest(30, 600),
    Result.IMAGE: Rest(600, 3600),
    Result.BAD_REQUEST: Rest(600, 3600),
    Result.BOOT: Rest(300, 3600, from_strike=2),  # one machine may fail by chance
    Result.PROLOG: Rest(10, 600),
}


def struck(before: Closure | None, result: Result, why: str, now: float) -> Closure:
    """What stands against something after one more refusal."""
    strikes = before.strikes + 1 if before and before.result is result else 1
    rest = RESTS[result]
    if strikes < rest.from_strike:
        return Closure(0.0, result, why, strikes)
    doubled = min(rest.first_s * 2 ** (strikes - rest.from_strike), rest.most_s)
    return Closure(now + doubled, result, why, strikes)
