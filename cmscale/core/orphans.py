"""Which machines of ours does nothing explain, and which of them go now?

A machine is explained if it serves the node that its tag names, in a pool at its own site, or if the call that made it
is still under way, or if it is so young that listings and tags may lag behind it. The journal is not asked: losing it
makes no orphans. What nothing explains is told first, and deleted by its id when a look finds it so a second time, a
while later.

Whatever is in doubt stays, and a person is told why: what Slurm may be using, under whatever name; what a person keeps
or has drained; and what does not carry the tag of an operation, which we may never have made. A second machine of a
name does not wait: its slurmd would take the node from the one that serves, and its jobs with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cmscale.model import (
    Action,
    Event,
    EventKind,
    Fact,
    FactKind,
    Limits,
    Machine,
    MachineId,
    MachineState,
    Node,
    NodeName,
    OpId,
    Reap,
    SiteName,
    Snapshot,
    Verb,
)

SETTLING_S = 120.0
"""How long a machine may be there before all that explains it can be seen: EC2 shows tags and machines late."""

REMEMBERED_S = 7 * 86400.0
"""After this time what is still there is told anew."""

_US = "cm-scale"


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something of ours that costs money, and that nothing explains."""

    id: MachineId
    what: str
    """machine, volume, interface"""
    site: SiteName
    node: NodeName
    """What its tag says."""
    why: str
    """Why nothing explains it."""
    spared: str
    """Why it is left alone, whatever the settings say; empty if it may be deleted."""
    since: float
    """The first look that found it so."""
    seen: float
    """The last one."""
    at_once: bool = False
    """It is a second machine of a name."""

    @property
    def text(self) -> str:
        """Nothing that changes from look to look, so that a look can tell whether the one before found it so, too."""
        left = f"; it is left alone: {self.spared}" if self.spared else ""
        return f"{self.what} {self.id} at {self.site}: {self.why}{left}"


def orphans(view: Snapshot) -> tuple[Orphan, ...]:
    """All that nothing explains, as far as anything can be concluded from what was seen."""
    if not (view.surplus or view.leftovers) or view.unseen or view.unrecorded or view.doubt:
        return ()
    return tuple(_dated(view, each) for each in _Look(view).all())


def judged(view: Snapshot, limits: Limits) -> tuple[tuple[Orphan, str], ...]:
    """Each with why it is not deleted now; empty if it is."""
    found = orphans(view)
    unasked = sum(
        each.what == "machine" and not (each.spared or each.at_once or view.fact(FactKind.REAP, each.id))
        for each in found
    )
    return tuple((each, _against(view, each, limits, unasked)) for each in found)


def _against(view: Snapshot, orphan: Orphan, limits: Limits, unasked: int) -> str:
    if orphan.spared:
        return orphan.spared
    if pause := view.fact(FactKind.PAUSE):
        return f"paused: {pause.why}"
    asked = view.fact(FactKind.REAP, orphan.id)
    if limits.reap is not Reap.DELETE and not asked:
        return f'limits.reap is "{limits.reap.value}"; to delete it: cm-scale reap'
    left_s = limits.reap_after_s - (orphan.seen - orphan.since)
    if left_s > 0 and not orphan.at_once:
        return f"a look in {left_s:.0f} s or later must find it so again"
    if unasked > limits.reap_most and not (asked or orphan.at_once):
        return (
            f"{unasked} machines would go, and limits.reap_most is {limits.reap_most}; if that is right: cm-scale reap"
        )
    return ""


def deletions(view: Snapshot, limits: Limits) -> Iterator[Action]:
    """What goes now, in one call for each site."""
    op = OpId(f"{view.tick}-reap")
    for orphan, against in judged(view, limits):
        if not against:
            yield Action(Verb.DELETE, NodeName(orphan.id), orphan.text, op, arg=orphan.id, site=orphan.site)


# --- what is remembered and told -------------------------------------------------------------------------------------


def found(view: Snapshot) -> tuple[Fact, ...]:
    """What must be remembered: since when each is found, and counted anew where there is another reason now."""
    until = view.now + REMEMBERED_S
    return tuple(
        Fact(FactKind.ORPHAN, each.id, view.now, until, each.text, _US)
        for each in orphans(view)
        if _remembered(view, each) is None
    )


def explained(view: Snapshot) -> tuple[Fact, ...]:
    """What need not be remembered any more: it is gone, or something explains it now."""
    if view.unseen or view.unrecorded or view.doubt or any(site.unseen for site in view.sites.values()):
        return ()
    known = [fact for (kind, _), fact in view.facts.items() if kind in _KEPT_S and view.now - fact.at > _KEPT_S[kind]]
    there = {each.id for each in orphans(view)} if known else ()
    return tuple(fact for fact in known if fact.subject not in there)


_KEPT_S = {FactKind.ORPHAN: 0.0, FactKind.REAP: 3600.0}
"""A person may speak of what no look of ours has shown yet: those for volumes are seldom."""


def events(view: Snapshot) -> Iterator[Event]:
    """What is found for the first time."""
    return (Event(view.now, EventKind.ORPHANED, fact.subject, fact.why) for fact in found(view))


def _dated(view: Snapshot, orphan: Orphan) -> Orphan:
    """It has been found for as long as it is remembered."""
    fact = _remembered(view, orphan)
    return replace(orphan, since=fact.at) if fact else orphan


def _remembered(view: Snapshot, orphan: Orphan) -> Fact | None:
    fact = view.fact(FactKind.ORPHAN, orphan.id)
    return fact if fact and fact.why == orphan.text else None


# --- what explains a machine -----------------------------------------------------------------------------------------


class _Look:
    """One look at all that serves nothing."""

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        self.under_way = {node.op for node in view.nodes.values()} - {None}
        self.pools = {name: pool for pool in view.pools.values() for name in pool.nodes}
        self.heard = {
            node.address: node.name
            for node in view.nodes.values()
            if node.address and node.machine is None and (node.busy or node.registered)
        }
        """Where Slurm hears nodes whose machines we do not know."""

    def all(self) -> Iterator[Orphan]:
        now = self.view.now
        for machine in self.view.surplus:
            site = self._site(machine)
            second = site is not None and self._is_second(machine, site)
            if (
                site
                and self._is_seen(site)
                and not self._is_explained(machine)
                and (second or not self._is_young(machine))
            ):
                why, spared = self._why(machine, site), self._spared(machine)
                yield Orphan(machine.id, "machine", site, machine.node, why, spared, now, now, at_once=second)
        for part in self.view.leftovers:
            if self._is_seen(part.site):
                why, spared = "it belongs to no machine any more", "" if part.op else _NOT_OURS
                yield Orphan(part.id, part.kind.value, part.site, part.node, why, spared, part.seen, part.seen)

    def _site(self, machine: Machine) -> SiteName | None:
        node = self.view.nodes.get(machine.node)
        return machine.site or (node.site if node else None)

    def _is_seen(self, site: SiteName) -> bool:
        return site in self.view.sites and not self.view.sites[site].unseen

    def _is_explained(self, machine: Machine) -> bool:
        pool = self.pools.get(machine.node)
        # Two sites may be one region of one account: only the site of its pool can tell that it serves.
        unknown = pool is not None and not self._is_seen(pool.site)
        return unknown or machine.state is MachineState.ENDING or machine.op in self.under_way

    def _is_young(self, machine: Machine) -> bool:
        return self.view.now - machine.launched < SETTLING_S

    def _is_second(self, machine: Machine, site: SiteName) -> bool:
        node, pool = self.view.nodes.get(machine.node), self.pools.get(machine.node)
        return bool(node and node.machine and pool and pool.site == site)

    def _why(self, machine: Machine, site: SiteName) -> str:
        name, node, pool = machine.node, self.view.nodes.get(machine.node), self.pools.get(machine.node)
        if not name:
            return "no tag says which node it is"
        if pool and pool.site != site:
            return f"it is named {name}, a node of pool {pool.name} at {pool.site}"
        if pool and node:
            return f"it is a second machine of {name}; {_serving(node, machine)} serves it"
        if pool:
            return f"it is named {name}, which Slurm does not know"
        return f"it is named {name}, which belongs to no pool" + ("" if node else " and is unknown to Slurm")

    def _spared(self, machine: Machine) -> str:
        node = self.view.nodes.get(machine.node)
        if machine.op is None:
            return _NOT_OURS
        if machine.node in self.pools and not node:
            return "its pool declares that node: cm-scale slurm-conf"
        if heard := self.heard.get(machine.address):
            return f"Slurm hears node {heard} at its address"
        return self._spared_with(node) if node else ""

    def _spared_with(self, node: Node) -> str:
        """Why all machines of a name are left alone."""
        if node.pool is None and (node.busy or (node.registered and not node.drained_by_us)):
            return f"Slurm may run jobs on {node.name}; take it out of Slurm, or put it back into a pool"
        if node.held_by_human:
            return f"{node.name} is drained by a person ({node.reason})"
        if node.in_maintenance:
            return f"{node.name} is in maintenance"
        if keep := self.view.keep(node.name):
            return f"{node.name} is kept: {keep.why}"
        return f"machines of {node.name} are never deleted" if node.kept else ""


_NOT_OURS = "it has no tag cm-scale:operation, so it may not be of our making; delete it by hand"


def _serving(node: Node, other: Machine) -> str:
    return node.machine.id if node.machine and node.machine.id != other.id else "another"
