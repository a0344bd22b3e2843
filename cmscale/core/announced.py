"""What is announced for one node: by its cloud, or by the node itself?

The metadata of a spot machine tells it that it is taken back, and what watches them there says so in the one way that
needs no further port: it drains its node in Slurm, with a reason of this form.

    cm-scale: notice by 14:03:20 UTC: EC2 takes the spot instance back

Such a drain has our mark, so it would be undone as soon as nothing is wrong with the node; what it announces is a
notice as the cloud's own is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cmscale.model import OUR_MARK, Means, Notice

_OWN = re.compile(rf"{OUR_MARK} notice by ([01]\d|2[0-3]):([0-5]\d):([0-5]\d) UTC: (.+)", re.DOTALL)
_DAY_S = 86400


@dataclass(frozen=True, slots=True)
class Announced:
    """What the words about one machine come to."""

    taken: Notice | None = None
    sick: str = ""
    at_risk: str = ""


NOTHING = Announced()


def announced(notices: Sequence[Notice], drain_reason: str, now: float) -> Announced:
    """What its cloud and the node itself say; of several words that mean the same, the earliest."""
    own = of_reason(drain_reason, now)
    if not notices and own is None:
        return NOTHING
    said = sorted((*notices, *([own] if own else ())), key=lambda notice: notice.deadline)
    first = {notice.means: notice for notice in reversed(said)}
    sick, at_risk = first.get(Means.SICK), first.get(Means.AT_RISK)
    return Announced(first.get(Means.TAKEN), sick.why if sick else "", at_risk.why if at_risk else "")


def of_reason(drain_reason: str, now: float) -> Notice | None:
    """The notice that a node has put into its own drain; the reason has no date, so the nearest such time is meant."""
    found = _OWN.fullmatch(drain_reason)
    if found is None:
        return None
    hours, minutes, seconds = map(int, found.groups()[:3])
    ahead_s = (hours * 3600 + minutes * 60 + seconds - now) % _DAY_S
    return Notice(now + (ahead_s if ahead_s < _DAY_S / 2 else ahead_s - _DAY_S), found[4])
