"""When are the parts of machines that are gone looked for, and where is it kept since when nothing explains something?

Machines are in every look. Volumes and interfaces that belong to none take calls of their own, so they are looked for
seldom: as part of a look at their site, and thus beside the tick if the site is slow. Since when something is an orphan
is a fact in the journal: it outlives us, and the commands see it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from cmscale.core import orphans
from cmscale.model import Event, FactKind, Leftover, MachineId, SiteName, Snapshot
from cmscale.ports import Clock, Journal, Provider, Unavailable

SELDOM_S = 600.0
OFTEN_S = 5.0
"""While something that was just found, or asked for by a person, waits for its second look."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Search:
    """What one process knows of the parts of machines that are gone."""

    left: dict[SiteName, tuple[Leftover, ...]] = field(default_factory=dict)
    """What the last look for them has shown..."""
    at: dict[SiteName, float] = field(default_factory=dict)
    """...and when that was, by the steady clock."""
    waiting: bool = False
    at_once: bool = False
    """Every look is one for them: somebody asks who does not stay."""

    def is_due(self, site: SiteName, steady: float) -> bool:
        every_s = OFTEN_S if self.waiting else SELDOM_S
        return self.at_once or steady - self.at.setdefault(site, steady) >= every_s

    def shown(self, site: SiteName, left: tuple[Leftover, ...], steady: float) -> None:
        self.left[site], self.at[site] = left, steady

    @property
    def leftovers(self) -> Iterator[Leftover]:
        """Each once, though two sites may be one region of one account."""
        return iter({each.id: each for left in self.left.values() for each in left}.values())

    def forget(self, deleted: Iterable[MachineId]) -> None:
        """Whether a deletion had its effect is for the next look to say."""
        gone = set(deleted)
        self.left = {site: tuple(each for each in left if each.id not in gone) for site, left in self.left.items()}


def look_for(provider: Provider, clock: Clock) -> tuple[Leftover, ...]:
    """What machines have left behind at a site; nothing if it does not say, which costs us nothing but time."""
    at = clock.now()
    try:
        return tuple(replace(each, seen=at) for each in provider.leftovers())
    except Unavailable as error:
        log.warning("%s", error)
        return ()


def note(view: Snapshot, journal: Journal, search: Search) -> list[Event]:
    """Remember what is found, forget what is explained by now; gives what is to be told."""
    for fact in orphans.found(view):
        journal.put_fact(fact)
    for fact in orphans.explained(view):
        journal.drop_fact(fact.kind, fact.subject)
    search.waiting = any(
        kind in {FactKind.ORPHAN, FactKind.REAP} and view.now - fact.at < SELDOM_S
        for (kind, _), fact in view.facts.items()
    )
    return list(orphans.events(view))
