"""What does the outcome of a call mean for the ticks to come?

Nothing is retried blindly. Each cause has a memory of its own: missing capacity closes one pool (one type in one zone
and market) for minutes; a quota, a wrong image or request until somebody is likely to have changed it; refused
credentials stop the launches of their site; a throttle closes nothing and makes the site's next launch wait. What
fails again rests twice as long; what was closed is tried with one machine before it is open again.
"""

from __future__ import annotations

from collections.abc import Mapping

from cmscale.model import Closure, NodeName, Outcome, Result
from cmscale.resting import RESTS, struck


def after_launch(before: Closure | None, outcomes: Mapping[NodeName, Outcome], now: float) -> Closure | None:
    """What is to be remembered of a pool after a launch; None if nothing stands against it."""
    refusals = [outcome for outcome in outcomes.values() if outcome.result in RESTS]
    made = any(outcome.ok for outcome in outcomes.values())
    if not refusals:
        # That machines are made says nothing about whether they will join.
        return None if made and before and before.result is not Result.BOOT else before
    worst = max(refusals, key=lambda outcome: RESTS[outcome.result].first_s)
    return struck(None if made else before, worst.result, worst.detail, now)


def after_failed_boot(before: Closure | None, why: str, now: float) -> Closure:
    """What is to be remembered of a pool whose machine never joined."""
    return struck(before, Result.BOOT, why, now)


def after_notice(before: Closure | None, why: str, now: float) -> Closure:
    """What is to be remembered of a pool of which the cloud takes a machine back: it needs the room itself."""
    return struck(before, Result.CAPACITY, why, now)


def settled(outcomes: Mapping[NodeName, Outcome], *, again: bool = False) -> bool:
    """False if a call may or may not have taken effect: it is then made again under the same operation. A call that is
    made again and not let through says nothing of the one before."""
    unknown = {Result.TRANSIENT, Result.THROTTLED, Result.AUTH} if again else {Result.TRANSIENT}
    return all(outcome.result not in unknown for outcome in outcomes.values())
