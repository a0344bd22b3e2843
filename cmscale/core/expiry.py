"""When do the credentials of sites end, and when is that told?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from cmscale.model import Event, EventKind, Site, SiteName, Snapshot

AHEAD_S = 3600.0
"""How long before nothing is started any more it is told that they end."""


class Stage(Enum):
    GOOD = "good"
    ENDING = "ending"
    TOO_LATE = "too late to start anything"


def stages(before: Mapping[SiteName, Stage], view: Snapshot) -> dict[SiteName, Stage]:
    """How it stands with the credentials of each site; as before where a site tells nothing."""
    return {
        name: before.get(name, Stage.GOOD) if site.unseen else _stage(site, view.now)
        for name, site in view.sites.items()
    }


def events(before: Mapping[SiteName, Stage], view: Snapshot) -> Iterator[Event]:
    """What has changed with credentials."""
    for name, stage in stages(before, view).items():
        if stage is not before.get(name, Stage.GOOD):
            yield Event(view.now, EventKind.CREDENTIALS_END, name, _told(view, view.sites[name], stage))


def soon(view: Snapshot) -> Iterator[Site]:
    """The sites whose credentials are told to end."""
    return (site for site in view.sites.values() if _stage(site, view.now) is not Stage.GOOD)


def sentence(view: Snapshot, site: Site) -> str:
    """When the credentials of a site end, and in how long."""
    left_s = (site.expires or view.now) - view.now
    if left_s <= 0:
        return f"the credentials of site {site.name} ended at {_clock(view, site.expires or view.now)}"
    return f"the credentials of site {site.name} end at {_clock(view, view.now + left_s)}, in {left_s / 60:.0f} min"


def _stage(site: Site, now: float) -> Stage:
    if site.expiring(now):
        return Stage.TOO_LATE
    soon = site.expires is not None and site.expires - now < site.expiry_margin_s + AHEAD_S
    return Stage.ENDING if soon else Stage.GOOD


def _told(view: Snapshot, site: Site, stage: Stage) -> str:
    if stage is Stage.GOOD or site.expires is None:
        return f"the credentials of site {site.name} are good again"
    ends = f"the credentials of site {site.name} end at {_clock(view, site.expires)}"
    if stage is Stage.ENDING:
        return f"{ends}; from {_clock(view, site.expires - site.expiry_margin_s)} on nothing is started there"
    return f"{ends}; nothing is started there until they are renewed, and what is there can be given back until then"


def _clock(view: Snapshot, at: float) -> str:
    """The time of day, by the site's clock."""
    minutes = int(at + view.utc_offset_s) % 86400 // 60
    return f"{minutes // 60:02d}:{minutes % 60:02d}"
