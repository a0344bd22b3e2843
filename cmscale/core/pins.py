"""Which --constraint keeps a job to one feature more, and still means all that its user asked?"""

from __future__ import annotations

import re

from cmscale.model import Fact, FactKind, Job, Snapshot

_ALL_OF = re.compile(r"[A-Za-z0-9_.=+\-/@#$:]+([&,][A-Za-z0-9_.=+\-/@#$:]+)*")


def pinned(constraint: str, feature: str) -> str | None:
    """The constraint with the feature added; None if its form leaves no room for that.

    Slurm reads from left to right and lets `&` and `|` bind alike, so what is added to `a|b` would not hold for `a`;
    what is added to counts and brackets is asked of some of the nodes, or is no constraint at all.
    """
    if not constraint:
        return feature
    if not _ALL_OF.fullmatch(constraint):
        return None
    return constraint if feature in re.split("[&,]", constraint) else f"{constraint}&{feature}"


def pin_of(view: Snapshot, job: Job) -> Fact | None:
    """The pin that the job bears now: its own or the one its array had when it began; None if it bears none.

    What its user has changed since is the user's: only a constraint that we could have written is a pin.
    """
    for subject in (job.id, job.array):
        fact = view.fact(FactKind.PIN, subject) if subject else None
        text = job.ask.constraint.text
        if fact and text != fact.why and text in {pinned(fact.why, site) for site in view.sites}:
            return fact
    return None
