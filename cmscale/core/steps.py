"""What is the next single step for one node, given what is wished of it?

The table. Multi-step work (drain, then delete) emerges from repeated ticks: each step is decided on a fresh
observation, so there is no script to resume after a crash, and a node that became busy is seen busy.

    node is             | wish UP             | DRAINED | OFF, GONE                       | no wish
    --------------------|---------------------|---------|---------------------------------|----------------------
    gone or off         | start               | -       | delete if it is off             | -
      not yet parked    | park (drain) first, whatever is wished
    starting            | wait                | wait    | wait; sick, due: stop, delete   | wait
    stopping            | wait; past its limit it is switched off hard, whatever is wished
    on, free            | resume if ours      | drain   | drain, then stop, delete        | resume if ours
    on, busy            | resume if ours      | drain   | drain, wait; when due: requeue  | resume if ours
    drained by a human  | left alone, always

"Ours" is the DRAIN flag together with our mark. A node without a machine is parked when Slurm neither schedules it
(our drain) nor takes it for alive (DOWN): a late answer of a dying slurmd can undo the latter, so it is done again.
Where a machine is kept, or OFF is wished, it is stopped; else it is deleted. A helper is not Slurm's: it is neither
parked nor drained nor resumed.
"""

from __future__ import annotations

from typing import NamedTuple

from cmscale.model import Goal, MachineState, Node, Power, Verb, Want

_AWAY = frozenset({Want.OFF, Want.GONE})


class Step(NamedTuple):
    """What to do now (None: wait), why, and the verb's argument."""

    verb: Verb | None
    why: str
    arg: str = ""


def step(node: Node, goal: Goal | None, now: float) -> Step:
    """The next step for a node that is ours."""
    if node.held_by_human:
        return Step(None, f"drained by a person ({node.reason}); left alone")
    match node.power:
        case Power.GONE | Power.OFF:
            return _without_power(node, goal)
        case Power.STARTING:
            return _starting(node, goal, now)
        case Power.STOPPING:
            return _stopping(node)
        case Power.ON if goal is None or goal.want is Want.UP:
            return _up(node, goal)
        case Power.ON:
            return _away(node, goal, now)


def _without_power(node: Node, goal: Goal | None) -> Step:
    if not node.outside:
        if node.registered and node.busy:
            # Slurm still hears a job there: one listing without the machine is not yet the truth.
            return Step(None, "Slurm runs a job there although no running machine is seen")
        if not node.parked:
            return Step(Verb.DRAIN, "it has no machine, so Slurm must not use it", "off")
    if goal and goal.want is Want.UP:
        return Step(Verb.START, goal.reason, _machine(node))
    if goal and goal.want is Want.GONE and node.power is Power.OFF and not node.kept:
        return _give_back(node, goal)
    return Step(None, "it is off, as it should be")


def _starting(node: Node, goal: Goal | None, now: float) -> Step:
    if goal and goal.want in _AWAY and (node.sick or (goal.by is not None and now >= goal.by)):
        return _give_back(node, goal)
    return Step(None, "its machine is starting")


def _up(node: Node, goal: Goal | None) -> Step:
    if node.drained_by_us and node.registered:
        return Step(Verb.RESUME, goal.reason if goal else "its machine has joined", node.address)
    return Step(None, "it is up")


def _away(node: Node, goal: Goal, now: float) -> Step:
    if not node.drained and not node.outside:
        return Step(Verb.DRAIN, goal.reason)
    if node.busy:
        due = goal.by is not None and now >= goal.by
        return Step(Verb.REQUEUE, goal.reason) if due else Step(None, "drained; its jobs are still running")
    if goal.want is Want.DRAINED:
        return Step(None, "it is drained")
    return _give_back(node, goal)


def _give_back(node: Node, goal: Goal) -> Step:
    verb = Verb.STOP if goal.want is Want.OFF or node.kept else Verb.DELETE
    return Step(verb, goal.reason, _machine(node))


def _stopping(node: Node) -> Step:
    if not node.sick:
        return Step(None, "its machine is stopping")
    kept = node.machine and node.machine.state is MachineState.STOPPING
    return Step(Verb.STOP if kept else Verb.DELETE, node.sick, _machine(node))


def _machine(node: Node) -> str:
    return node.machine.id if node.machine else ""
