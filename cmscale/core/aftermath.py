"""What does the outcome of a call mean for the ticks to come?

Nothing is retried blindly: a refusal closes the pool for a time that fits its cause. A throttle is not a lack of
capacity and passes in seconds; a quota or a wrong image stays until somebody changes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from cmscale.model import Closure, NodeName, Outcome, Result

CLOSED_FOR_S: Mapping[Result, float] = {
    Result.CAPACITY: 180,  # Karpenter's grain for one offering; short enough to notice capacity that returns
    Result.QUOTA: 600,
    Result.THROTTLED: 15,  # RunInstances refills 2 a second: 30 machines' worth
    Result.AUTH: 60,
    Result.IMAGE: 600,
    Result.BAD_REQUEST: 600,
}


def closure(outcomes: Mapping[NodeName, Outcome], now: float) -> Closure | None:
    """For how long nothing more is started from a pool that answered this; None if it did not refuse."""
    refusals = [outcome for outcome in outcomes.values() if outcome.result in CLOSED_FOR_S]
    if not refusals:
        return None
    worst = max(refusals, key=lambda outcome: CLOSED_FOR_S[outcome.result])
    return Closure(now + CLOSED_FOR_S[worst.result], worst.result, worst.detail)


def settled(outcomes: Mapping[NodeName, Outcome]) -> bool:
    """False if a call may or may not have taken effect: it is then made again under the same operation."""
    return all(outcome.result is not Result.TRANSIENT for outcome in outcomes.values())
