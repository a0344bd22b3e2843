"""How is a plan carried out, so that nothing is lost or made twice wherever we are killed?

Each call to a provider is an operation: recorded before it is made, finished with its outcomes. An operation that was
begun and not finished is taken up by the next tick (`resume_operations`): a start is made again under the same id, for
which providers give the same machines; a stop or deletion is decided anew, for the node may be busy by now. A call that
takes long goes on beside the ticks and is left alone until it has ended. Calls to Slurm may be repeated at will and are
not recorded.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from cmscale.core import aftermath, consequences
from cmscale.core.explain import comment
from cmscale.core.tagging import cost_tags
from cmscale.model import (
    OFF_REASON,
    OUR_MARK,
    Action,
    Event,
    EventKind,
    FactKind,
    Help,
    JobId,
    Limits,
    MachineId,
    MachineState,
    Node,
    NodeName,
    Operation,
    OpId,
    Outcome,
    Plan,
    PoolName,
    Power,
    Result,
    SiteName,
    Snapshot,
    Verb,
)
from cmscale.ports import Provider, Unavailable
from cmscale.shell import logs
from cmscale.shell.beside import CALLS_AT_ONCE, Beside
from cmscale.shell.beside import Call as Deed
from cmscale.shell.observe import Memory, World
from cmscale.shell.scripts import Call, Kind, run_script
from cmscale.shell.timekeeping import SETTLING_S

log = logging.getLogger(__name__)

REPEATED_FOR_S = 600.0
"""How long an unfinished operation is made again; later its machines are looked up by tag. Tokens outlive this."""

FOUND_BY_S = REPEATED_FOR_S + SETTLING_S
"""By when the machines of the last call that may have taken effect are found by their tag, if it has made any."""

TELLING_S = 30.0
"""How long Slurm is told what is decided in one tick; a call that is under way then has a limit of its own."""

_NOT_TOLD = Outcome(Result.TRANSIENT, "the cloud did not say what became of it")

_POWERED = {MachineState.STARTING, MachineState.RUNNING}

NO_POOL = PoolName("")
"""Of what serves no node."""

COMMENTS_A_TICK = 200
"""How many comments a tick may change: an update costs slurmctld 5 ms, and the rest can wait a second."""


def operations(view: Snapshot, plan: Plan) -> tuple[Operation, ...]:
    """The calls to providers that a plan asks for: its actions, gathered by operation and pool."""
    together: dict[tuple[OpId, PoolName, SiteName | None, bool], list[Action]] = defaultdict(list)
    for action in plan.actions:
        if action.verb in {Verb.START, Verb.STOP, Verb.DELETE} and (action.pool or action.site):
            node = view.nodes.get(action.node)
            # What is on its way out already, and does not get there, is switched off without asking again.
            hard = action.verb is not Verb.START and node is not None and node.power is Power.STOPPING
            together[action.op, action.pool or NO_POOL, action.site, hard].append(action)
    return tuple(_operation(op, actions, view, hard) for (op, _, _, hard), actions in together.items())


def _operation(op: OpId, actions: Sequence[Action], view: Snapshot, hard: bool) -> Operation:
    first = actions[0]
    starting, pool = first.verb is Verb.START, first.pool or NO_POOL
    return Operation(
        id=op if starting else OpId(f"{op}-{first.site or pool}" + ("-hard" if hard else "")),
        verb=first.verb,
        pool=pool,
        nodes=tuple(action.node for action in actions),
        began=view.now,
        reason=first.reason,
        jobs=tuple(action.job for action in actions),
        needs=tuple(action.need for action in actions),
        all_or_none=first.together,
        machines=tuple(MachineId(action.arg) for action in actions if action.arg),
        hard=hard,
        tags=cost_tags(view, view.sites[view.pools[pool].site], [each.job for each in actions]) if starting else {},
        site=first.site,
    )


def _site(operation: Operation, world: World) -> SiteName:
    return operation.site or world.pools[operation.pool].site


def act(view: Snapshot, plan: Plan, world: World, memory: Memory, limits: Limits) -> None:
    """Carry out the plan; its operations are in the journal already when the first call is made."""
    calls = operations(view, plan)
    world.journal.begin(calls)
    for fact in consequences.facts(view, plan, limits):
        world.journal.put_fact(fact)
    _learn_from_boots(view, plan, world, memory)
    _learn_from_notices(view, world, memory)
    for operation in calls:
        _age_s(operation, world, memory)
        if operation.hard:
            memory.stopping |= dict.fromkeys(operation.machines, view.now)
    deeds = _begun(calls, view, world)
    try:
        _tell_slurm(view, plan, world)
    finally:
        _hear(deeds, world.beside)


def delete(view: Snapshot, deletions: Sequence[Action], world: World) -> None:
    """Carry out deletions alone, as a tick would among other things."""
    calls = operations(view, Plan(view.tick, view.now, tuple(deletions)))
    world.journal.begin(calls)
    _hear(_begun(calls, view, world), world.beside)


def _begun(calls: Iterable[Operation], view: Snapshot, world: World) -> list[Deed[None]]:
    return [_begin(operation, world, partial(_carry_out, operation, view, world)) for operation in calls]


def _begin(operation: Operation, world: World, deed: Callable[[], None]) -> Deed[None]:
    return world.beside.do(_site(operation, world), operation.id, partial(_logged, operation, deed))


def _logged(operation: Operation, deed: Callable[[], None]) -> None:
    with logs.about(operation=operation.id):
        deed()


def _hear(deeds: Sequence[Deed[None]], beside: Beside) -> None:
    """Wait for the deeds as long as a tick may; raises what the first that failed raised. The others go on."""
    beside.wait(deeds)
    ended = [deed for deed in deeds if deed.ended]
    for deed in ended:
        beside.taken(deed)
    for deed in ended:
        deed.answer(beside.answer_s)


def _age_s(operation: Operation, world: World, memory: Memory) -> float:
    """How long ago an operation was begun, by the clock that only counts."""
    return memory.ages.of(operation.id, operation.began, world.clock.now(), world.clock.steady(), None)


def _learn_from_boots(view: Snapshot, plan: Plan, world: World, memory: Memory) -> None:
    """A machine given up before it served counts against its pool; one that joined speaks for it. Of many that are
    given up at once no more count than close the pool: they have failed together, not one after the other."""
    closed = dict(view.closed)
    closed_now: set[PoolName] = set()
    given_up: set[MachineId] = set()
    for action in plan.actions:
        node = view.nodes.get(action.node)
        if node is None or node.pool is None:
            continue
        if action.verb in {Verb.DELETE, Verb.STOP} and node.unfit and node.power is not Power.STOPPING:
            given_up.add(MachineId(action.arg))
            before = closed.get(node.pool)
            again = action.arg in memory.given_up or (before and before.why == node.sick)
            if again or node.pool in closed_now:
                continue  # again: the same machine, whose deletion has to be asked for once more
            closed[node.pool] = aftermath.after_failed_boot(before, node.sick, view.now)
            world.journal.close(node.pool, closed[node.pool])
            if closed[node.pool].until:
                closed_now.add(node.pool)
        elif action.verb is Verb.RESUME and node.pool in closed and closed[node.pool].result is Result.BOOT:
            del closed[node.pool]
            world.journal.close(node.pool, None)
    memory.given_up = given_up


def _learn_from_notices(view: Snapshot, world: World, memory: Memory) -> None:
    """A cloud that takes a spot machine back needs the room itself: the next one had better come from elsewhere. A
    retirement or an upkeep that it announces for others says nothing of the kind."""
    noticed = {node.machine.id: node for node in view.nodes.values() if node.machine and node.notice}
    wanted_back: dict[PoolName, str] = {}
    events: list[Event] = []
    for name, node in noticed.items():
        if name in memory.noticed or node.notice is None or node.pool is None:
            continue
        text = f"{node.name} is taken back by {node.site} in {node.notice.deadline - view.now:.0f} s: {node.notice.why}"
        events.append(Event(view.now, EventKind.RECLAIMED, node.name, text))
        if view.pools[node.pool].market == "spot":
            wanted_back[node.pool] = node.notice.why
    # However many machines it takes at once, it says so once.
    for pool, why in wanted_back.items():
        before = world.journal.closed().get(pool)
        world.journal.close(pool, aftermath.after_notice(before, why, view.now))
    memory.noticed = set(noticed)
    at_risk = {node.machine.id: node for node in view.nodes.values() if node.machine and node.at_risk}
    for name, node in at_risk.items():
        if name not in memory.at_risk | memory.noticed:
            events.append(
                Event(view.now, EventKind.AT_RISK, node.name, f"{node.name} may be taken back: {node.at_risk}")
            )
    memory.at_risk = set(at_risk)
    if events:
        world.journal.tell(events)


def _carry_out(operation: Operation, view: Snapshot, world: World) -> None:
    """Make a call for the first time; what failed machines wrote to their consoles is kept before it is gone."""
    if operation.verb is not Verb.START and not operation.hard:
        provider = world.providers[_site(operation, world)]
        machines = zip(operation.nodes, operation.machines, strict=True)
        failed = [(node, machine) for name, machine in machines if (node := view.nodes.get(name)) and node.sick]
        _at_once([partial(_keep, view.now, provider, node, machine, world) for node, machine in failed])
    _perform(operation, world, 0.0, again=False)


def _keep(now: float, provider: Provider, node: Node, machine: MachineId, world: World) -> None:
    try:
        text = provider.evidence(machine)
    except Exception as error:  # noqa: BLE001 - what a machine said is worth less than what it costs
        text = f"its console could not be read: {error}"
    world.journal.keep_evidence(node.name, machine, now, node.sick, text)


def resume_operations(world: World, memory: Memory, unseen: Iterable[PoolName] = ()) -> None:
    """Finish what an earlier tick, perhaps of an earlier process, began; a start is made again as the same operation.

    An operation that stays open is left alone for as long as it has been open: after 1, 2, 4 ... up to 60 s; and for as
    long as its call is under way.
    """
    _hear(world.beside.deeds_ended(), world.beside)
    # Before the journal is read: what ends from here on may be finished there although it seems to be open.
    running = world.beside.doing()
    now, steady = world.clock.now(), world.clock.steady()
    again: list[tuple[Operation, float]] = []
    for operation in world.journal.under_way():
        if operation.id in running:
            continue
        pool = world.pools.get(operation.pool)
        if operation.verb is not Verb.START:
            unknown = Outcome(Result.TRANSIENT, "not known whether it was done; decided anew")
            world.journal.finish(operation.id, dict.fromkeys(operation.nodes, unknown), now)
        elif pool is None:
            gone = Outcome(Result.GONE, f"pool {operation.pool} is no longer configured")
            world.journal.finish(operation.id, dict.fromkeys(operation.nodes, gone), now)
        elif operation.pool not in unseen and steady >= memory.again.get(operation.id, steady):
            log.info("operation %s (%s) was not finished; taking it up", operation.id, operation.verb.value)
            age_s = _age_s(operation, world, memory)
            memory.again[operation.id] = steady + min(max(age_s, 1.0), 60.0)
            again.append((operation, age_s))
    deeds = [
        _begin(operation, world, partial(_perform, operation, world, age_s, again=True)) for operation, age_s in again
    ]
    _hear(deeds, world.beside)
    open_still = {operation.id for operation in world.journal.under_way()}
    memory.again = {name: at for name, at in memory.again.items() if name in open_still}


def _at_once(calls: Sequence[Callable[[], None]]) -> None:
    """Make the calls side by side; returns when all have ended, and raises what the first that failed raised."""
    with ThreadPoolExecutor(max_workers=CALLS_AT_ONCE) as threads:
        done = [threads.submit(call) for call in calls]
    for each in done:
        each.result()


def _perform(operation: Operation, world: World, age_s: float, *, again: bool) -> None:
    """Make the call of an operation that is so old, perhaps again, and write down what came of it."""
    provider = world.providers[_site(operation, world)]
    now = world.clock.now()
    complaints = _run_scripts(operation, world)
    if complaints and operation.verb is Verb.START:
        outcomes = _not_started(operation, complaints)
    else:
        outcomes = _surely(operation, provider, world, age_s)
    for node, outcome in outcomes.items():
        level = logging.INFO if outcome.ok else logging.WARNING
        log.log(level, "%s %s: %s %s", operation.verb.value, node, outcome.result.value, outcome.detail)
    if operation.verb is Verb.START:
        before = world.journal.closed().get(operation.pool)
        after = aftermath.after_launch(before, outcomes, now)
        if after != before:
            world.journal.close(operation.pool, after)
    if operation.verb is not Verb.START or aftermath.settled(outcomes, again=again):
        world.journal.finish(operation.id, outcomes, world.clock.now())


def _call(
    operation: Operation, provider: Provider, check_lease: Callable[[], None], age_s: float
) -> Mapping[NodeName, Outcome]:
    try:
        check_lease()
        if operation.verb is Verb.START:
            return _made_by(operation, provider, age_s) if age_s > REPEATED_FOR_S else provider.start(operation)
        remove = provider.delete if operation.verb is Verb.DELETE else provider.stop
        by_machine = remove(operation.machines, hard=operation.hard)
        pairs = zip(operation.nodes, operation.machines, strict=True)
        return {node: by_machine.get(machine, _NOT_TOLD) for node, machine in pairs}
    except Unavailable as error:
        return dict.fromkeys(operation.nodes, Outcome(Result.TRANSIENT, str(error)))


def _surely(operation: Operation, provider: Provider, world: World, age_s: float) -> Mapping[NodeName, Outcome]:
    """What came of the call, whatever it raised: it may have taken effect, so that is an answer that was lost."""
    what = f"{operation.verb.value} {','.join(operation.nodes)}"
    try:
        outcomes = _call(operation, provider, world.check_lease, age_s)
    except Exception as error:  # noqa: BLE001 - others' calls go on
        world.beside.surprised(what, error)
        return dict.fromkeys(operation.nodes, Outcome(Result.TRANSIENT, f"it raised {type(error).__name__}: {error}"))
    world.beside.surprised(what, None)
    return outcomes


def _run_scripts(operation: Operation, world: World) -> Mapping[NodeName, str]:
    """Run the site's own script for each node; for those where it failed: why."""
    scripts = world.scripts.get(operation.pool)
    kind = Kind.PROLOG if operation.verb is Verb.START else Kind.EPILOG
    if scripts is None or operation.hard or (path := scripts.of(kind)) is None:
        return {}
    site = world.pools[operation.pool].site
    jobs = operation.jobs or (None,) * len(operation.nodes)
    calls = [
        Call(kind, node, operation.pool, site, job, world.cluster)
        for node, job in zip(operation.nodes, jobs, strict=True)
    ]
    with ThreadPoolExecutor(max_workers=CALLS_AT_ONCE) as threads:
        said = list(threads.map(partial(run_script, path, limit_s=scripts.limit_s), calls))
    complaints = {call.node: why for call, why in zip(calls, said, strict=True) if why}
    for why in complaints.values():
        log.warning("%s", why)
    return complaints


def _not_started(operation: Operation, complaints: Mapping[NodeName, str]) -> Mapping[NodeName, Outcome]:
    """A prolog that fails stops the whole call: with fewer nodes it would be another one under the same id."""
    first = next(iter(complaints.values()))
    return {node: Outcome(Result.PROLOG, complaints.get(node, first)) for node in operation.nodes}


def _made_by(operation: Operation, provider: Provider, age_s: float) -> Mapping[NodeName, Outcome]:
    """What an operation of long ago came to, found by its tag or, where machines were to be powered on, by their id."""
    made = {
        machine.node: machine.id
        for machine in provider.list()
        if machine.op == operation.id or (machine.id in operation.machines and machine.state in _POWERED)
    }
    missing = Outcome(Result.GONE if age_s > FOUND_BY_S else Result.TRANSIENT, "not found")
    return {
        node: Outcome(Result.OK, "found by its tag", made[node]) if node in made else missing
        for node in operation.nodes
    }


# --- Slurm -----------------------------------------------------------------------------------------------------------


def _tell_slurm(view: Snapshot, plan: Plan, world: World) -> None:
    """Tell Slurm, one thing after the other, as long as a tick may take for it."""
    until = world.clock.steady() + TELLING_S
    try:
        for what, tell in _to_tell(view, plan, world):
            if world.clock.steady() > until:
                log.warning(
                    "Slurm takes more than %g s to be told what is decided; the rest is decided anew", TELLING_S
                )
                return
            world.check_lease()
            _warn(what, tell())
    except Unavailable as error:
        log.warning("%s", error)
    except Exception:  # one surprise must not keep the machines of others waiting
        log.exception("telling Slurm broke off; what is still to be told is decided anew")


def _to_tell(view: Snapshot, plan: Plan, world: World) -> Iterator[tuple[str, Callable[[], Mapping[Any, Outcome]]]]:
    slurm = world.scheduler
    for (off, reason), nodes in _drains(plan).items():
        yield "drain", partial(slurm.drain, nodes, reason, off=off)
    # Before its nodes are handed over, so that Slurm can't give a gang others beside them.
    if pins := {action.job: action.arg for action in plan.actions if action.verb is Verb.PIN and action.job}:
        yield "pin", partial(_pin, pins, view, plan, world)
    if addresses := {action.node: action.arg for action in plan.actions if action.verb is Verb.RESUME}:
        yield "resume", partial(slurm.resume, addresses)
    if requeued := _jobs(plan, Verb.REQUEUE):
        yield "requeue", partial(slurm.requeue, requeued)
    if released := _jobs(plan, Verb.RELEASE):
        yield "release", partial(slurm.release, released)
    alike: dict[str, dict[JobId, str]] = defaultdict(dict)
    for job, text in comments_to_change(view, plan).items():
        alike[text][job] = text
    for comments in alike.values():
        yield "comment", partial(slurm.say, comments)


def _pin(pins: Mapping[JobId, str], view: Snapshot, plan: Plan, world: World) -> Mapping[JobId, Outcome]:
    pinned = world.scheduler.pin(pins)
    for job in consequences.unpinned(view, plan):
        if pinned[job].result in {Result.OK, Result.GONE}:
            world.journal.drop_fact(FactKind.PIN, job)
    return pinned


def _drains(plan: Plan) -> dict[tuple[bool, str], list[NodeName]]:
    together: dict[tuple[bool, str], list[NodeName]] = defaultdict(list)
    for action in plan.actions:
        if action.verb is Verb.DRAIN:
            off = action.arg == "off"
            together[off, OFF_REASON if off else f"{OUR_MARK} giving back"].append(action.node)
    return together


def _jobs(plan: Plan, verb: Verb) -> list[JobId]:
    return [action.job for action in plan.actions if action.verb is verb and action.job]


def comments_to_change(view: Snapshot, plan: Plan) -> dict[JobId, str]:
    """The comments that do not say yet what is so; never more in one tick than slurmctld bears lightly."""
    known = (job for job in view.jobs if not job.pending or job.help is not Help.ASK_AGAIN)
    wanted = ((job, comment(job.comment, plan.notes.get(job.id, ""))) for job in known)
    changes = [(job.id, text) for job, text in wanted if text != job.comment]
    return dict(changes[:COMMENTS_A_TICK])


def _warn(what: str, outcomes: Mapping[Any, Outcome]) -> None:
    for name, outcome in outcomes.items():
        if not outcome.ok and outcome.result is not Result.GONE:
            log.warning("%s %s: %s %s", what, name, outcome.result.value, outcome.detail)
