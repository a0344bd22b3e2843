"""How do two plans for one snapshot differ, and what money lies between two ways of deciding?

Each snapshot shows the world as it was run, so what one side would have done differently never shows in the snapshots
that follow. A node that only one side starts is therefore taken to cost its price on that side alone from then on,
until that side gives it back, the other side starts it as well, or the period ends; a node that only one side gives
back likewise saves its price there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from cmscale.model import Action, JobId, Machine, MachineState, Node, NodeName, Plan, Pool, Snapshot, Verb, Want

Step = tuple[Verb, NodeName, JobId | None]


def step(action: Action) -> Step:
    """What an action does, whatever its reason says and whichever call it travels in."""
    return action.verb, action.node, action.job


def said(plan: Plan) -> frozenset[object]:
    """What a plan says, without the figures in its sentences that change from second to second."""
    return frozenset(
        {
            *map(step, plan.actions),
            *((refusal.guard, refusal.goal.node, refusal.goal.want) for refusal in plan.refused),
            *plan.failed,
            *plan.never.items(),
            plan.idle_because,
        }
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """What only one of two plans for a snapshot does."""

    tick: str
    at: float
    then: tuple[Action, ...]
    now: tuple[Action, ...]
    price_hour: float
    """What the world would cost more by the hour after the plan of now than after that of then."""

    @property
    def steps(self) -> tuple[frozenset[Step], frozenset[Step]]:
        return frozenset(map(step, self.then)), frozenset(map(step, self.now))


def difference(view: Snapshot, then: Plan, now: Plan) -> Difference | None:
    """What only one of the plans does; None if both do the same."""
    before, after = {step(action) for action in then.actions}, {step(action) for action in now.actions}
    if before == after:
        return None
    price_hour = sum(changes(view, now).values()) - sum(changes(view, then).values())
    return Difference(
        view.tick,
        view.now,
        tuple(action for action in then.actions if step(action) not in after),
        tuple(action for action in now.actions if step(action) not in before),
        price_hour,
    )


def changes(view: Snapshot, plan: Plan) -> dict[NodeName, float]:
    """By how much a plan changes what each node costs an hour, for the nodes that it starts or gives back.

    Draining an idle node that shall be off is the first step of giving it back, and the only one that a snapshot of
    another's world lets one see.
    """
    ends = {goal.node: goal.want for goal in plan.goals if goal.want in {Want.OFF, Want.GONE}}
    changed: dict[NodeName, float] = defaultdict(float)
    for action in plan.actions:
        second = next((machine for machine in view.surplus if machine.id == action.arg), None)
        node = view.nodes.get(second.node if second else action.node)
        pool = view.pools.get(node.pool) if node and node.pool else None
        if node is None or pool is None:
            continue
        after = _price_after(action, node, pool, ends.get(node.name))
        if after is not None:
            changed[node.name] += after - _price(second or node.machine, pool)
    return {name: change for name, change in changed.items() if change}


def _price_after(action: Action, node: Node, pool: Pool, end: Want | None) -> float | None:
    """What a node costs an hour once a step has had its effect; None for a step that no money hangs on."""
    match action.verb:
        case Verb.START:
            return pool.price_hour
        case Verb.STOP:
            return pool.stopped_price_hour
        case Verb.DELETE:
            return 0.0
        case Verb.DRAIN if end and not node.busy:
            kept = end is Want.OFF or pool.static or node.name in pool.never_terminate
            return pool.stopped_price_hour if kept else 0.0
    return None


def _price(machine: Machine | None, pool: Pool) -> float:
    if machine is None or machine.state is MachineState.ENDING:
        return 0.0
    return pool.stopped_price_hour if machine.state is MachineState.STOPPED else pool.price_hour


@dataclass(slots=True)
class Account:
    """The money between two ways of deciding, over the snapshots of a period in their order."""

    dollars: float = 0.0
    """What the way of now would have cost more so far."""
    at: float | None = None
    alone: dict[NodeName, float] = field(default_factory=dict)
    """For each node on which the sides differ: what now pays more for it by the hour."""

    @property
    def price_hour(self) -> float:
        return sum(self.alone.values())

    def add(self, view: Snapshot, then: Plan, now: Plan) -> None:
        """Charge the time since the last snapshot, and take in what each side starts and gives back in this one."""
        if self.at is not None:
            self.dollars += self.price_hour * (view.now - self.at) / 3600
        self.at = view.now
        before, after = changes(view, then), changes(view, now)
        for name in before.keys() | after.keys():
            self._settle(name, before.get(name, 0.0), after.get(name, 0.0))

    def _settle(self, name: NodeName, then: float, now: float) -> None:
        if then and now:
            self.alone.pop(name, None)
        elif name not in self.alone:
            self.alone[name] = now - then
        elif self.alone[name] * (now - then) < 0:
            # One side has come round to what the other did before.
            del self.alone[name]
