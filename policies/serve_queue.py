"""Give every waiting job that more nodes would help the cheapest pool that fits.

Jobs are placed in Slurm's order of priority: first on nodes that are up or coming, then on new ones. All nodes of a
job come from one site, or none is started. What is coming already is counted first, so no tick starts the same node's
worth twice. A job that will soon find room at home, or cheaply enough, waits for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cmscale.fit import groups
from cmscale.model import OFF_REASON, Goal, Help, Node, NodeName, Power, Snapshot, Wait, Want
from cmscale.placing import market
from cmscale.placing.gangs import Gangs
from cmscale.placing.home import Home
from cmscale.placing.market import Market
from cmscale.placing.room import Room
from cmscale.placing.tasks import Served, Tasks


@dataclass(frozen=True, slots=True)
class Settings:
    patience_s: float = 120.0
    """How long Slurm has to use a node that seems free. After that its room no longer counts: Slurm sees
    something that we don't, and the waiting job must not wait for ever."""
    gang_wait_s: float = 600.0
    """How long machines of a job of several nodes wait for the rest of them before all are given back."""
    spot: str = "always"
    """Which jobs may start spot machines: "always" all that can run again; "opt-in" those whose user writes `spot` into
    the job's comment, or whose time limit is at most spot_limit; "never" none. `on-demand` in the comment opts out."""
    spot_limit_s: float = 7200.0
    spot_share: float = 1.0
    """The most of all machines that may be spot machines; what is above it is started on demand."""
    wait_per_dollar_s: float = 0.0
    """How long a job may be expected to wait for home for each dollar that starting machines for it would cost. Where
    home is free sooner than a machine has booted, it waits in any case."""
    wait_at_most_s: float = 3600.0
    """No job waits for home for longer than this."""

    def __post_init__(self) -> None:
        if self.spot not in market.WORDS:
            raise ValueError(f'spot is "{self.spot}"; expected one of {", ".join(market.WORDS)}')
        if not 0 <= self.spot_share <= 1:
            raise ValueError(f"spot_share is {self.spot_share:g}; expected a share from 0 to 1")


def propose(view: Snapshot, claimed: frozenset[NodeName], settings: Settings) -> Iterator[Goal | Wait]:
    yield from _bound(view, claimed)
    room = Room.of(view, claimed, _tired(view, settings.patience_s))
    spot = Market(view, settings.spot, settings.spot_limit_s, settings.spot_share)
    home = Home(view, settings.wait_per_dollar_s, settings.wait_at_most_s)
    gangs = Gangs(view, settings.gang_wait_s)
    served = Served(view)
    talks = bool(home.hopeful or gangs.mine or spot.spot)  # of a job that finds nothing there may be more to say
    for group in groups(view.jobs, key=spot.wish if spot.spot else None):
        if room.is_over(group.ask) and not talks:
            continue
        waits_at_home = home.may_serve(group.ask)
        tasks = Tasks(group.jobs)
        if waits_at_home:
            for there in room.place(group.ask, group.tasks, home.nothing_new):
                served.by(there, tasks)
                home.uses(there, group.ask)
            yield from home.patient(tasks, group.ask)
        while (left := group.tasks - tasks.taken) and (placement := spot.place_next(room, group, left)):
            served.by(placement, tasks)
        if left and (gangs.mine or spot.spot):
            yield from gangs.held(room, tasks.jobs)
            yield from spot.barred_waits(tasks)
    yield from served.goals()
    yield from gangs.given_back(room)


def _bound(view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal]:
    """Slurm can bind a job to a node before we have parked it; the job then needs just that node."""
    for job in view.jobs:
        for name in sorted(job.nodes - claimed) if job.nodes else ():
            node = view.nodes.get(name)
            if node and not job.pending and node.power in {Power.GONE, Power.OFF}:
                yield Goal(name, Want.UP, f"Slurm has bound job {job.id} to it", job.id, need=len(job.nodes))


def _tired(view: Snapshot, patience_s: float) -> frozenset[NodeName]:
    """Nodes that have been idle, with jobs waiting, for so long that Slurm would have used them, were they what the
    jobs need. Not where a gang waits for the last of its machines: until it has come, Slurm could not. That a node is
    being given back says nothing else; only one that was never handed over has yet to be tried."""
    idle = [
        node
        for node in view.nodes.values()
        if node.idle_since is not None and view.now - node.idle_since > patience_s and not _is_joining(node)
    ]
    waiting = [job for job in view.jobs if job.help is Help.NODES and job.pending] if idle else []
    if not waiting:
        return frozenset()
    since = min(max(job.submit, job.begin or 0.0) for job in waiting)
    gangs = {job.id for job in waiting if job.ask.nodes > 1}
    gathering = {node.site for node in view.nodes.values() if node.for_job in gangs and _is_joining(node)}
    waited = view.now - since > patience_s
    return frozenset(node.name for node in idle if waited and node.site not in gathering)


def _is_joining(node: Node) -> bool:
    return node.power is Power.STARTING or (node.drained_by_us and node.reason == OFF_REASON and node.registered)
