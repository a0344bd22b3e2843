"""Take machines that do not work out of service, so that nobody pays for what serves nobody.

What a machine wrote to its console is kept before it goes, and its node's name then rests for `limits.quarantine`:
the next try goes to another name or another offer. A sick node that runs jobs finishes them and gets no new ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.model import FactKind, Goal, Node, NodeName, Power, Snapshot, Want

AWAY = {"delete": Want.GONE, "stop": Want.OFF}


@dataclass(frozen=True, slots=True)
class Settings:
    stuck_boot: str = "delete"
    """What is done with a machine that never joined: "delete", "stop" (its disk is kept) or "leave"."""
    failed: str = "delete"
    """The same for a machine that Slurm has lost or refuses; "leave" keeps it drained."""
    keep_disk_s: float = 300.0
    """How long a machine that was stopped keeps its disk before it is deleted. If its name rests for less, the next job
    that needs the node powers it on again."""

    def __post_init__(self) -> None:
        for key in ("stuck_boot", "failed"):
            if (word := getattr(self, key)) not in {*AWAY, "leave"}:
                raise ValueError(f'{key} is "{word}"; expected "delete", "stop" or "leave"')


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal]:
    for node in view.nodes.values():
        if node.pool is None or node.name in claimed:
            continue
        if node.power is Power.OFF:
            if not node.kept and _stopped_for_s(view, node) >= settings.keep_disk_s:
                yield Goal(node.name, Want.GONE, "it was stopped because it failed, and its disk was kept long enough")
        elif node.sick and (want := _want(node, settings)):
            # A spot machine can't be powered off.
            spot = view.pools[node.pool].market == "spot"
            yield Goal(node.name, Want.GONE if spot and want is Want.OFF else want, node.sick)


def _want(node: Node, settings: Settings) -> Want | None:
    match node.power:
        case Power.STARTING:
            return AWAY.get(settings.stuck_boot)
        case Power.ON:
            return Want.DRAINED if node.busy else AWAY.get(settings.failed, Want.DRAINED)
    return None


def _stopped_for_s(view: Snapshot, node: Node) -> float:
    """How long ago the node was taken out of service; below 0 where it was not, but stopped by somebody else."""
    fact = view.fact(FactKind.STOPPED, node.name)
    return view.now - fact.at if fact else -1.0
