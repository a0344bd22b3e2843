"""How is a world played, and what must never be seen in it?

First a story: jobs come, and things go wrong. Then everything is well again, and what waits is served. At last whatever
still waits is cancelled, and ten long ticks pass in which nothing is asked any more.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC
from math import inf
from pathlib import Path

from cmscale import fit
from cmscale.core.budgets import whose
from cmscale.core.decide import Policy
from cmscale.model import (
    DESTRUCTIVE,
    DOLLAR,
    HOME,
    AtLimit,
    Budget,
    Fact,
    FactKind,
    Goal,
    Job,
    JobId,
    MachineId,
    MachineState,
    Node,
    NodeName,
    Operation,
    OpId,
    Payer,
    Pool,
    PoolName,
    Power,
    Reservation,
    Result,
    Snapshot,
    Verb,
    Wait,
    Want,
    price,
)
from cmscale.shell import policies
from cmscale.shell.loop import Look
from cmscale.shell.periods import Periods
from cmscale.shell.policies import NoSettings
from cmscale.shell.spending import Rules
from cmscale.sim.clock import VirtualClock
from cmscale.sim.cloud import Cloud, Flaw, Instance, Stretch
from tests.properties.worlds import SMALL, STORY_TICKS, USER, Broken, Failing, Fault, Trouble, World
from tests.shell.cluster import Cluster, Killed, shipped, stretch_ms

TICK_S = 10.0
HEALED_TICK_S = 180.0
HEALED_TICKS = 40
"""Two hours: longer than the longest closure of a pool and the rest of a search."""

LONG_TICK_S = 1000.0
"""Longer than all that waits: idle times, the minimum up time, quarantine, the limits of boots and shutdowns, closures
that were struck a few times, and operations that are repeated."""

BEGAN = VirtualClock().now()
BY_A_PERSON = "a person looks at it"
FLAWS = {
    Trouble.NEVER_BOOTS: Flaw.NEVER_BOOTS,
    Trouble.TOO_SMALL: Flaw.TOO_SMALL,
    Trouble.DIES: Flaw.DIES,
    Trouble.HANGS: Flaw.HANGS,
}


OF_A_POOL = {
    *(Trouble.REFUSAL, Trouble.LOST_ANSWER, Trouble.SCARCITY),
    *(Trouble.SITE_SILENT, Trouble.SITE_DRAINED),
}
OF_A_NODE = {
    *(Trouble.UNLISTED, Trouble.RECLAIMED, Trouble.LOST),
    *(Trouble.DRAINED, Trouble.MAINTENANCE, Trouble.RESERVED, Trouble.KEPT),
}


def _s(fault: Fault) -> float:
    return fault.ticks * TICK_S


@dataclass(frozen=True)
class FailsAtTimes:
    """A policy of the site's own that fails in some ticks, and else wishes nothing."""

    broken: Broken
    name: str = "of_the_site"

    def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal | Wait]:
        if (view.now - BEGAN) // TICK_S in self.broken.ticks:
            limit_s = -1.0 if self.broken.how is Failing.OVERRUNS else 5.0
            inner = policies.Policy(self.name, Path("of_the_site.py"), "", NoSettings(), self._wish, limit_s)
            yield from inner.propose(view, claimed)

    def _wish(self, view: Snapshot, claimed: frozenset[NodeName], _: NoSettings) -> Iterator[Goal | Wait]:
        for name in sorted(view.nodes.keys() - claimed):
            yield Goal(name, Want.UP, "before it fails")
        match self.broken.how:
            case Failing.RAISES:
                raise LookupError("the site's own table has no such row")
            case Failing.NONSENSE:
                yield Goal(NodeName("nobody-knows-it"), Want.UP, "a slip of the pen")
            case Failing.NO_GOAL:
                yield "up"  # type: ignore[misc]


@contextmanager
def stage(world: World) -> Iterator[Play]:
    """The world at its beginning."""
    order: list[Policy] = [*shipped(**world.policies)]
    if world.broken:
        order.insert(world.broken.place, FailsAtTimes(world.broken))
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(
            Path(folder) / "journal.db",
            pools=world.pools,
            policies=order,
            limits=world.limits,
            queues={world.queue.partition: world.queue},
            rules=Rules(world.budgets, Periods(UTC)),
        )
        for cloud in cluster.clouds.values():
            cloud.boot_s = 30.0
            cloud.lag_s = world.lag_s
        for pool in world.pools:
            if pool.static:
                _switched_off(cluster.clouds[pool.site], pool)
        cluster.slurm.add_home([NodeName(f"home-{number + 1}") for number in range(world.home)], SMALL, ("batch",))
        play = Play(world, cluster)
        try:
            yield play
        finally:
            cluster.journal.dispose()


def _switched_off(cloud: Cloud, pool: Pool) -> None:
    """The machines of a static pool have been there for ever."""
    made = cloud.start(Operation(OpId(f"bought-{pool.name}"), Verb.START, pool.name, pool.nodes, 0.0))
    cloud.stop([each.machine for each in made.values() if each.machine], hard=True)


@dataclass
class Play:
    world: World
    cluster: Cluster
    ticks: int = 0
    wrong: list[str] = field(default_factory=list)
    """What was seen that must never be, a sentence each."""
    look: Look | None = None
    """What the last tick saw and decided; None if the daemon died in it."""
    deaths: list[int] = field(default_factory=list)
    ends: list[tuple[int, Callable[[], None]]] = field(default_factory=list)
    """When faults are over, and what is done then."""
    jobs: list[JobId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deaths = list(self.world.deaths)
        self._next_death()

    def _next_death(self) -> None:
        self.cluster.kill_in(self.deaths.pop(0) if self.deaths else 0)

    # --- the course of things

    def story(self) -> None:
        for _ in range(STORY_TICKS):
            self._happen()
            self.tick(TICK_S)

    def heal(self) -> None:
        """Every fault is over, and what waits is served as far as it can be."""
        self.deaths.clear()
        self.cluster.kill_in(0)
        for _, end in self.ends:
            end()
        self.ends.clear()
        for cloud in self.cluster.clouds.values():
            cloud.relent()
            cloud.room.clear()
        self.cluster.slurm.reserved.clear()
        self.cluster.slurm.held.clear()
        for _ in range(HEALED_TICKS):
            self.tick(HEALED_TICK_S)
            if not self.cluster.slurm.queue and not self.cluster.slurm.running:
                break

    def rest(self) -> None:
        """Nobody asks for anything, ten ticks long."""
        for job in [*self.cluster.slurm.queue, *self.cluster.slurm.running]:
            self.cluster.slurm.cancel(job)
        for _ in range(10):
            self.tick(LONG_TICK_S)

    def tick(self, seconds: float) -> None:
        running = frozenset(self.cluster.slurm.running)
        self.cluster.slurm.step()
        before = Before.of(self.cluster, running, self.look)
        try:
            self.look = self.cluster.decide()
        except Killed:
            self.look = None
            self.cluster.daemon = self.cluster.start()
            self._next_death()
        self.wrong += [f"tick {self.ticks}: {sentence}" for sentence in seen_wrong(self, before)]
        self.ticks += 1
        self.cluster.clock.wait(seconds)

    # --- what happens

    def _happen(self) -> None:
        for over in [each for each in self.ends if each[0] <= self.ticks]:
            over[1]()
            self.ends.remove(over)
        for number, job in enumerate(self.world.jobs, 1):
            if job.at == self.ticks:
                name = self.cluster.slurm.submit(
                    number,
                    job.ask(BEGAN),
                    job.run_s,
                    job.count,
                    job.comment,
                    user=USER,
                    requeue=job.requeue,
                    held=job.held,
                )
                self.jobs.append(name)
        for fault in self.world.faults:
            if fault.at == self.ticks and (end := self._strike(fault)):
                self.ends.append((self.ticks + fault.ticks, end))

    def _strike(self, fault: Fault) -> Callable[[], None] | None:
        """Let it happen; what is done when it is over, if it lasts."""
        pool = self.world.pools[fault.which % len(self.world.pools)]
        if fault.what in FLAWS:
            living_s = 30.0 + fault.in_s
            self.cluster.clouds[pool.site].spoil(FLAWS[fault.what], pool.name, for_s=_s(fault), after_s=living_s)
            return None
        if fault.what in OF_A_NODE:
            return self._strike_node(fault)
        if fault.what in OF_A_POOL:
            return self._strike_pool(fault, pool, self.cluster.clouds[pool.site])
        return self._strike_us(fault)

    def _strike_pool(self, fault: Fault, pool: Pool, cloud: Cloud) -> Callable[[], None] | None:
        match fault.what:
            case Trouble.REFUSAL:
                cloud.refuse(fault.result, pool.name, for_s=_s(fault))
            case Trouble.LOST_ANSWER:
                cloud.refuse(Result.TRANSIENT, pool.name, for_s=_s(fault), done=True)
            case Trouble.SCARCITY:
                cloud.room[pool.name] = fault.which % 3
                return cloud.room.clear
            case Trouble.SITE_DRAINED:
                self._say(FactKind.DRAIN_SITE, pool.site, fault)
            case Trouble.SITE_SILENT:
                cloud.unseen = "no route to it"
                return lambda: setattr(cloud, "unseen", "")
        return None

    def _strike_node(self, fault: Fault) -> Callable[[], None] | None:
        """Where there are machines one of them is hit: misfortune that strikes the void teaches nothing."""
        slurm, now = self.cluster.slurm, self.cluster.clock.now()
        site_of = {name: pool.site for pool in self.world.pools for name in pool.nodes}
        nodes = sorted({each.node for each in machines(self.cluster) if each.going is None}) or list(site_of)
        node = nodes[fault.which % len(nodes)]
        cloud = self.cluster.clouds[site_of[node]]
        match fault.what:
            case Trouble.UNLISTED:
                cloud.hide(node, TICK_S - 1)
            case Trouble.RECLAIMED if not self._static(node):
                cloud.reclaim(node, fault.in_s)
            case Trouble.LOST if not self._static(node):
                cloud.lose(node)
            case Trouble.DRAINED if node in slurm.records and not slurm.unseen:
                slurm.drain([node], BY_A_PERSON)
                return lambda: self._resume_by_person(node)
            case Trouble.KEPT:
                self._say(FactKind.KEEP, node, fault)
            case Trouble.MAINTENANCE:
                between = (now + fault.in_s, now + fault.in_s + _s(fault))
                slurm.reserve(Reservation(f"maintenance-{node}", *between, frozenset({node}), maintenance=True))
            case Trouble.RESERVED:
                between = (now + fault.in_s, now + fault.in_s + _s(fault))
                slurm.reserve(Reservation(f"for-{USER}", *between, frozenset({node}), users=frozenset({USER})))
        return None

    def _static(self, node: NodeName) -> bool:
        """True if nobody ever makes the node another machine, so that it must not go."""
        return any(pool.static and node in pool.nodes for pool in self.world.pools)

    def _strike_us(self, fault: Fault) -> Callable[[], None] | None:
        slurm = self.cluster.slurm
        match fault.what:
            case Trouble.SLURM_SILENT:
                slurm.unseen = "slurmctld does not answer"
                return lambda: setattr(slurm, "unseen", "")
            case Trouble.PAUSED:
                self._say(FactKind.PAUSE, "", fault)
            case Trouble.CANCELLED if self.jobs:
                slurm.cancel(self.jobs[fault.which % len(self.jobs)])
        return None

    def _say(self, kind: FactKind, subject: str, fault: Fault) -> None:
        now = self.cluster.clock.now()
        self.cluster.journal.put_fact(Fact(kind, subject, now, now + _s(fault), "an admin looks", "ada"))

    def _resume_by_person(self, node: NodeName) -> None:
        slurm = self.cluster.slurm
        if slurm.records[node].reason == BY_A_PERSON:
            was, slurm.unseen = slurm.unseen, ""
            slurm.resume({node: ""})
            slurm.unseen = was


# --- what must never be ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """What was so when a tick began."""

    up: frozenset[MachineId]
    """Machines that were not on their way out."""
    begun: frozenset[JobId]
    """Jobs that Slurm has just started."""
    look: Look | None
    """What the tick before saw and decided."""

    @classmethod
    def of(cls, cluster: Cluster, running: frozenset[JobId], look: Look | None) -> Before:
        up = frozenset(each.id for each in machines(cluster) if each.going is None)
        return cls(up, frozenset(cluster.slurm.running) - running, look)


def machines(cluster: Cluster) -> list[Instance]:
    return [each for cloud in cluster.clouds.values() for each in cloud.machines.values()]


def seen_wrong(play: Play, before: Before) -> Iterator[str]:
    yield from _busy_stopped(play, before)
    yield from _twins(play)
    yield from _split_gangs(play, before)
    if play.look:
        yield from _too_many(play, play.look)
        yield from _split_wishes(play, play.look)
        yield from _taken_after_a_failure(play.look)
        yield from started_beyond(play, play.look)
        yield from _overruled(play.look)


def _overruled(look: Look) -> Iterator[str]:
    for action in look.plan.actions:
        node = look.view.nodes.get(action.node)
        taken = action.verb in DESTRUCTIVE and action.arg != "off"
        if node and taken and look.view.keep(node.name) and not node.notice:
            yield f"{action.verb.value} of {node.name} although a person keeps it"
        if node and action.verb is Verb.START and look.view.drained(node.site):
            yield f"{node.name} is started although a person drains {node.site}"


def _busy_stopped(play: Play, before: Before) -> Iterator[str]:
    slurm = play.cluster.slurm
    serving = set(slurm.registered.values())
    busy = {name for running in slurm.running.values() for name in running.shares}
    for machine in machines(play.cluster):
        if machine.going and machine.id in before.up & serving and machine.node in busy:
            yield f"{machine.node} is stopped although a job runs on it"


def _twins(play: Play) -> Iterator[str]:
    names = Counter(each.node for each in machines(play.cluster) if each.going is not MachineState.ENDING)
    for name, count in names.items():
        if count > 1:
            yield f"{name} has {count} machines"


def _split_gangs(play: Play, before: Before) -> Iterator[str]:
    """A job whose nodes were all up at one site when the last tick handed them over begins there and nowhere else.

    A constraint such as a|b leaves no room to say so; what Slurm finds living at two sites by itself is its own to mix.
    """
    look = before.look
    if look is None or play.world.queue.mix_sites:
        return
    sites = {name: pool.site for pool in play.world.pools for name in pool.nodes}
    for name in before.begun & play.cluster.slurm.running.keys():
        job = play.cluster.slurm.running[name].job
        gang = [each for each in look.plan.goals if each.gang and each.job in {job.id, job.array}]
        ready = {look.view.nodes[each.node].site for each in gang if each.whole and each.want is Want.UP}
        whole = all(each.whole and look.view.nodes[each.node].power is Power.ON for each in gang)
        handed = any(action.verb is Verb.RESUME and action.job in {job.id, job.array} for action in look.plan.actions)
        ran = {sites.get(node, HOME) for node in job.nodes}
        if handed and whole and ready and len(ran) > 1 and "|" not in job.ask.constraint.text:
            yield f"job {job.id} has begun at {sorted(ran)}, and all it needed was handed over at {sorted(ready)}"


def _split_wishes(play: Play, look: Look) -> Iterator[str]:
    if play.world.queue.mix_sites:
        return
    sites: dict[str, set[str]] = {}
    for goal in look.plan.goals:
        if goal.gang and goal.want is Want.UP:
            sites.setdefault(goal.gang, set()).add(look.view.nodes[goal.node].site)
    for gang, where in sites.items():
        if len(where) > 1:
            yield f"gang {gang} is wished up at {sorted(where)}"


def _too_many(play: Play, look: Look) -> Iterator[str]:
    """When a machine is started for a job of one node, every machine that is coming and that it could use is meant
    for another waiting job or for a floor: there are never more of them than these need."""
    view = look.view
    started = {action.job for action in look.plan.actions if action.verb is Verb.START and action.job}
    if not started:
        return
    waiting = sum(job.count * job.ask.nodes for job in view.jobs if job.pending)
    bound = sum(1 for job in view.jobs for name in job.nodes if view.nodes[name].power in {Power.GONE, Power.OFF})
    most = waiting + bound + sum(pool.keep for pool in play.world.pools)
    coming = [view.nodes[each.node] for each in machines(play.cluster) if _coming(play, view, each)]
    for job in view.jobs:
        if job.id in started and job.ask.nodes == 1 and job.pending:
            usable = [node.name for node in coming if _could_use(view, job, node)]
            if len(usable) > most:
                yield f"{len(usable)} machines are coming where {most} are needed: {sorted(usable)}"


def _coming(play: Play, view: Snapshot, machine: Instance) -> bool:
    node = view.nodes.get(machine.node)
    return (
        node is not None
        and not (node.sick or node.resting or node.outside or node.held_by_human)
        and machine.going is None
        and not machine.notices
        and play.cluster.slurm.registered.get(machine.node) != machine.id
    )


def _could_use(view: Snapshot, job: Job, node: Node) -> bool:
    of = fit.kind(node)
    return not fit.refuses(job.ask, of, view.queues) and not fit.not_now(job.ask, of, view.now)


def _taken_after_a_failure(look: Look) -> Iterator[str]:
    """After a failed policy only nodes without a machine are parked, and what serves nobody is switched off."""
    for action in look.plan.actions if look.plan.failed else ():
        parks = action.verb is Verb.DRAIN and action.arg == "off"
        node = look.view.nodes.get(action.node)
        serves = action.site is None and not (node and node.power is Power.STOPPING)
        if action.verb in DESTRUCTIVE and not parks and serves:
            yield f"{action.verb.value} {action.node} although {look.plan.failed[0].policy} failed ({action.reason})"


# --- what must be so at last -----------------------------------------------------------------------------------------


def still_waiting(play: Play) -> Iterator[str]:
    """Jobs that wait although all is well and nothing is told that stands against them."""
    look = play.look
    assert look is not None
    refused = {refusal.goal.job for refusal in look.plan.refused if refusal.guard == "creations_per_job"}
    if refused or any(pool.hours for pool in play.world.pools):
        # Jobs that may have no more machines, and all behind them: the room that those would take is taken in thought.
        return
    excused = look.plan.never.keys() | look.plan.waits.keys()
    for job in play.cluster.slurm.queue.values():
        if job.id not in excused and not job.ask.reservation:
            yield f"job {job.id} still waits: {job.reason}; {job.comment}"


def still_changed(play: Play) -> Iterator[str]:
    """Jobs whose constraint is not their user's, without nodes that are up for them."""
    look = play.look
    assert look is not None
    served = {goal.job for goal in look.plan.goals if goal.job and goal.want is Want.UP}
    for job in play.cluster.slurm.queue.values():
        own = play.world.jobs[int(job.id.partition("_")[0]) - 1].constraint
        if job.ask.constraint.text != own and job.id not in served:
            yield f"job {job.id} still has the constraint {job.ask.constraint.text}"
        if job.begin is not None and job.begin > play.cluster.clock.now():
            yield f"job {job.id} is still put off"


def left_over(play: Play) -> Iterator[str]:
    """Whatever is there that nobody keeps, or under way, when nobody has asked for anything for ten ticks."""
    look = play.look
    assert look is not None
    for operation in play.cluster.journal.under_way():
        yield f"operation {operation.id} is under way"
    for action in look.plan.actions:
        yield f"still: {action.verb.value} {action.node}: {action.reason}"
    by_pool = {
        pool.name: [each for each in machines(play.cluster) if each.node in pool.nodes] for pool in play.world.pools
    }
    up = {name: [each for each in there if each.going is None] for name, there in by_pool.items()}
    for pool in play.world.pools:
        off = [each.node for each in by_pool[pool.name] if each.going is MachineState.STOPPED]
        may_be_off = set(pool.nodes) if pool.static or _stops_failed(play.world) else pool.never_terminate
        for name in set(off) - may_be_off:
            yield f"{name} is off, and its machine is still kept"
        for name in [each.node for each in by_pool[pool.name] if each.going and each.gone_at == inf]:
            yield f"{name} has never shut down"
        names = {each.node for each in up[pool.name]}
        names -= {name for name in names if look.view.nodes[name].sick}
        helps = any(up[other.name] for other in play.world.pools if set(pool.nodes) & set(other.helpers))
        if not pool.partitions:
            if names and not helps:
                yield f"{sorted(names)} are still up and help nobody"
            continue
        keep = 0 if pool.hours else min(pool.keep, pool.most)
        if len(names - pool.keep_running) > keep or len(names) < keep:
            yield f"{sorted(names)} of {pool.name} are up, which keeps {keep}"


def _stops_failed(world: World) -> bool:
    return world.policies.get("quarantine", {}).get("failed") == "stop"


def made_for_jobs(play: Play) -> Iterator[str]:
    """Jobs for which more machines were made than limits.creations_per_job allows."""
    ops = {op: made for cloud in play.cluster.clouds.values() for op, made in cloud.made.items()}
    jobs = play.cluster.journal.jobs_of(set(ops))
    made = Counter(jobs[op, node] for op, nodes in ops.items() for node in nodes if (op, node) in jobs)
    for name, count in made.items():
        number, _, task = name.partition("_")
        job = play.world.jobs[int(number) - 1]
        most = play.world.limits.creations_per_job * job.nodes * (1 if task else job.count)
        if count > most:
            yield f"{count} machines were made for job {name}, which may have {most}"


# --- what it cost ----------------------------------------------------------------------------------------------------


def overspent(play: Play) -> Iterator[str]:
    """Periods whose bill, by the clouds' own record, is above the limit and one start; or, where machines that were up
    when it began cost more than the limit by themselves, above that."""
    now, periods = play.cluster.clock.now(), Periods(UTC)
    for budget in play.world.budgets:
        if budget.personal:
            continue  # Slurm may start their jobs on machines that are up for others
        pools = [pool for pool in play.world.pools if budget.pool in {None, pool.name} and _capped(budget, pool)]
        at = BEGAN
        while at < now and pools:
            begin, end = periods.around(budget.per, at)
            carried = sum(_cost(play, pool, begin, end, carried=True) for pool in pools)
            charged = sum(_cost(play, pool, begin, min(end, now)) for pool in pools)
            one_start = max(_cost_to(play, pool, begin, end) for pool in pools)
            if charged > max(carried, budget.limit + one_start):
                yield f"{charged / DOLLAR} was spent in {budget.per.value} {begin:.0f} of {budget}, carried {carried}"
            at = end


def _capped(budget: Budget, pool: Pool) -> bool:
    return budget.at_limit is not AtLimit.SPOT_ONLY or pool.market != "spot"


def _cost_to(play: Play, pool: Pool, begin: float, end: float) -> int:
    """The most that a machine of the pool, of those started in a period, may have cost to its end."""
    began = [each.began for each in _running(play, pool) if begin <= each.began < end]
    return max((round((end - at) * 1000) * price(pool.price_hour) for at in began), default=0)


def _running(play: Play, pool: Pool) -> list[Stretch]:
    billed = play.cluster.clouds[pool.site].billed
    return [each for each in billed if each.pool == pool.name and each.running]


def _cost(play: Play, pool: Pool, begin: float, end: float, *, carried: bool = False) -> int:
    """What a pool's machines cost between; `carried`: those that run when it begins, if they run to its end."""
    stretches = _running(play, pool)
    if carried:
        running = [each for each in stretches if each.began < begin and (each.ended is None or each.ended > begin)]
        return len(running) * round((end - begin) * 1000) * price(pool.price_hour)
    return sum(stretch_ms(each, begin, end) for each in stretches) * price(pool.price_hour)


def started_beyond(play: Play, look: Look) -> Iterator[str]:
    """Starts of one tick for a user or an account whose budget was used up already."""
    view = look.view
    jobs = {job.id: job for job in view.jobs}
    for action in look.plan.actions:
        if action.verb is not Verb.START or action.job not in jobs:
            continue
        job, pool = jobs[action.job], view.pools[view.nodes[action.node].pool or PoolName("")]
        for purse in view.purses:
            theirs = whose(purse.budget, pool.name, Payer(job.user, job.account)) == purse.who
            if theirs and purse.used_up and purse.concerns(pool):
                yield f"{action.node} is started for job {job.id}, and {purse.why}"
