"""How is a plan carried out, so that nothing is lost or made twice wherever we are killed?

Each call to a provider is an operation: recorded before it is made, finished with its outcomes. An operation that was
begun and not finished is taken up by the next tick (`resume_operations`): a start is made again under the same id, for
which providers give the same machines; a stop or deletion is decided anew, for the node may be busy by now. Calls to
Slurm may be repeated at will and are not recorded.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from cmscale.core import aftermath
from cmscale.core.explain import comment
from cmscale.model import (
    OFF_REASON,
    OUR_MARK,
    Action,
    Help,
    JobId,
    MachineId,
    NodeName,
    Operation,
    OpId,
    Outcome,
    Plan,
    PoolName,
    Power,
    Result,
    Snapshot,
    Verb,
)
from cmscale.ports import Provider, Unavailable
from cmscale.shell.observe import Memory, World

log = logging.getLogger(__name__)

REPEATED_FOR_S = 600.0
"""How long an unfinished operation is made again; later its machines are looked up by tag. Tokens outlive this."""

CALLS_AT_ONCE = 16

COMMENTS_A_TICK = 200
"""How many comments a tick may change: an update costs slurmctld 5 ms, and the rest can wait a second."""


def operations(plan: Plan, now: float) -> tuple[Operation, ...]:
    """The calls to providers that a plan asks for: its actions, gathered by operation and pool."""
    together: dict[tuple[OpId, PoolName], list[Action]] = defaultdict(list)
    for action in plan.actions:
        if action.pool is not None and action.verb in {Verb.START, Verb.STOP, Verb.DELETE}:
            together[action.op, action.pool].append(action)
    return tuple(_operation(op, pool, actions, now) for (op, pool), actions in together.items())


def _operation(op: OpId, pool: PoolName, actions: Sequence[Action], now: float) -> Operation:
    first = actions[0]
    starting = first.verb is Verb.START
    return Operation(
        id=op if starting else OpId(f"{op}-{pool}"),
        verb=first.verb,
        pool=pool,
        nodes=tuple(action.node for action in actions),
        began=now,
        reason=first.reason,
        jobs=tuple(action.job for action in actions),
        needs=tuple(action.need for action in actions),
        all_or_none=starting and first.arg == "all",
        machines=() if starting else tuple(MachineId(action.arg) for action in actions),
    )


def act(view: Snapshot, plan: Plan, world: World) -> None:
    """Carry out the plan; its operations are in the journal already when the first call is made."""
    calls = operations(plan, view.now)
    world.journal.begin(calls)
    _learn_from_boots(view, plan, world)
    _at_once([partial(_tell_slurm, view, plan, world), *(partial(_perform, operation, world) for operation in calls)])


def _learn_from_boots(view: Snapshot, plan: Plan, world: World) -> None:
    """A machine given up before it joined counts against its pool; one that joined speaks for it."""
    closed = dict(view.closed)
    for action in plan.actions:
        node = view.nodes[action.node]
        if node.pool and action.verb is Verb.DELETE and node.sick and node.power is Power.STARTING:
            before = closed.get(node.pool)
            if before and before.why == node.sick:
                continue  # the same machine, whose deletion has to be asked for again
            closed[node.pool] = aftermath.after_failed_boot(before, node.sick, view.now)
            world.journal.close(node.pool, closed[node.pool])
        elif (
            node.pool and action.verb is Verb.RESUME and node.pool in closed and closed[node.pool].result is Result.BOOT
        ):
            del closed[node.pool]
            world.journal.close(node.pool, None)


def resume_operations(world: World, memory: Memory, unseen: Iterable[PoolName] = ()) -> None:
    """Finish what an earlier tick, perhaps of an earlier process, began; a start is made again as the same operation.

    An operation that stays open is left alone for as long as it has been open: after 1, 2, 4 ... up to 60 s.
    """
    now = world.clock.now()
    again: list[Operation] = []
    for operation in world.journal.under_way():
        pool = world.pools.get(operation.pool)
        if pool is None:
            gone = Outcome(Result.GONE, f"pool {operation.pool} is no longer configured")
            world.journal.finish(operation.id, dict.fromkeys(operation.nodes, gone), now)
        elif operation.verb is not Verb.START:
            unknown = Outcome(Result.TRANSIENT, "not known whether it was done; decided anew")
            world.journal.finish(operation.id, dict.fromkeys(operation.nodes, unknown), now)
        elif operation.pool not in unseen and now >= memory.again.get(operation.id, 0):
            log.info("operation %s (%s) was not finished; taking it up", operation.id, operation.verb.value)
            memory.again[operation.id] = now + min(max(now - operation.began, 1.0), 60.0)
            again.append(operation)
    _at_once([partial(_perform, operation, world) for operation in again])
    open_still = {operation.id for operation in world.journal.under_way()}
    memory.again = {name: at for name, at in memory.again.items() if name in open_still}


def _at_once(calls: Sequence[Callable[[], None]]) -> None:
    """Make the calls side by side; returns when all have ended, and raises what the first that failed raised."""
    with ThreadPoolExecutor(max_workers=CALLS_AT_ONCE) as threads:
        done = [threads.submit(call) for call in calls]
    for each in done:
        each.result()


def _perform(operation: Operation, world: World) -> None:
    provider = world.providers[world.pools[operation.pool].site]
    now = world.clock.now()
    outcomes = _call(operation, provider, too_old=now - operation.began > REPEATED_FOR_S)
    for node, outcome in outcomes.items():
        level = logging.INFO if outcome.ok else logging.WARNING
        log.log(level, "%s %s: %s %s", operation.verb.value, node, outcome.result.value, outcome.detail)
    if operation.verb is Verb.START:
        before = world.journal.closed().get(operation.pool)
        after = aftermath.after_launch(before, outcomes, now)
        if after != before:
            world.journal.close(operation.pool, after)
    if operation.verb is not Verb.START or aftermath.settled(outcomes):
        world.journal.finish(operation.id, outcomes, world.clock.now())


def _call(operation: Operation, provider: Provider, *, too_old: bool) -> Mapping[NodeName, Outcome]:
    try:
        if operation.verb is Verb.START:
            return _made_by(operation, provider) if too_old else provider.start(operation)
        remove = provider.delete if operation.verb is Verb.DELETE else provider.stop
        by_machine = remove(operation.machines)
        return {node: by_machine[machine] for node, machine in zip(operation.nodes, operation.machines, strict=True)}
    except Unavailable as error:
        return dict.fromkeys(operation.nodes, Outcome(Result.TRANSIENT, str(error)))


def _made_by(operation: Operation, provider: Provider) -> Mapping[NodeName, Outcome]:
    """What an operation of long ago came to, found by its tag."""
    made = {machine.node: machine.id for machine in provider.list() if machine.op == operation.id}
    return {
        node: Outcome(Result.OK, "found by its tag", made[node]) if node in made else Outcome(Result.GONE, "not found")
        for node in operation.nodes
    }


# --- Slurm -----------------------------------------------------------------------------------------------------------


def _tell_slurm(view: Snapshot, plan: Plan, world: World) -> None:
    try:
        for (off, reason), nodes in _drains(plan).items():
            _warn("drain", world.scheduler.drain(nodes, reason, off=off))
        if addresses := {action.node: action.arg for action in plan.actions if action.verb is Verb.RESUME}:
            _warn("resume", world.scheduler.resume(addresses))
        if comments := comments_to_change(view, plan):
            _warn("comment", world.scheduler.say(comments))
    except Unavailable as error:
        log.warning("%s", error)


def _drains(plan: Plan) -> dict[tuple[bool, str], list[NodeName]]:
    together: dict[tuple[bool, str], list[NodeName]] = defaultdict(list)
    for action in plan.actions:
        if action.verb is Verb.DRAIN:
            off = action.arg == "off"
            together[off, OFF_REASON if off else f"{OUR_MARK} giving back"].append(action.node)
    return together


def comments_to_change(view: Snapshot, plan: Plan) -> dict[JobId, str]:
    """The comments that do not say yet what is so; never more in one tick than slurmctld bears lightly."""
    known = (job for job in view.jobs if not job.pending or job.help is not Help.ASK_AGAIN)
    wanted = ((job, comment(job.comment, plan.notes.get(job.id, ""))) for job in known)
    changes = [(job.id, text) for job, text in wanted if text != job.comment]
    return dict(changes[:COMMENTS_A_TICK])


def _warn(what: str, outcomes: Mapping[NodeName, Outcome] | Mapping[JobId, Outcome]) -> None:
    for name, outcome in outcomes.items():
        if not outcome.ok and outcome.result is not Result.GONE:
            log.warning("%s %s: %s %s", what, name, outcome.result.value, outcome.detail)
