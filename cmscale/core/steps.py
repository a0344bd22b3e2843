"""What is the next single step for one node, given what is wished of it?

The table. Multi-step work (drain, then delete) emerges from repeated ticks: each step is decided on a fresh
observation, so there is no script to resume after a crash, and a node that became busy is seen busy.

    node is             | wish UP             | DRAINED | OFF, GONE             | no wish
    --------------------|---------------------|---------|-----------------------|----------------------
    gone or off         | start               | -       | delete if it is off   | -
      not yet parked    | park (drain) first, whatever is wished
    starting            | wait                | wait    | wait; sick: delete    | wait
    stopping            | wait                | wait    | wait                  | wait
    on, free            | resume if ours      | drain   | drain, then delete    | resume if ours
    on, busy            | resume if ours      | drain   | drain, wait           | resume if ours
    drained by a human  | left alone, always

"Ours" is the DRAIN flag together with our mark. A node without a machine is parked when Slurm neither schedules it
(our drain) nor takes it for alive (DOWN): a late answer of a dying slurmd can undo the latter, so it is done again.
"""

from __future__ import annotations

from dataclasses import dataclass

from cmscale.model import Goal, Node, Power, Verb, Want


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now (None: wait), why, and the verb's argument."""

    verb: Verb | None
    why: str
    arg: str = ""


def step(node: Node, goal: Goal | None) -> Step:
    """The next step for a node that is ours."""
    if node.held_by_human:
        return Step(None, f"drained by a person ({node.reason}); left alone")
    match node.power:
        case Power.GONE | Power.OFF:
            return _without_power(node, goal)
        case Power.STARTING if node.sick and goal and goal.want in {Want.OFF, Want.GONE}:
            return _delete(node, goal)
        case Power.STARTING:
            return Step(None, "its machine is starting")
        case Power.STOPPING:
            return Step(None, "its machine is stopping")
        case Power.ON:
            return _with_power(node, goal)


def _without_power(node: Node, goal: Goal | None) -> Step:
    if node.registered and node.busy:
        # Slurm still hears a job there: one listing without the machine is not yet the truth.
        return Step(None, "Slurm runs a job there although no running machine is seen")
    if not node.parked:
        return Step(Verb.DRAIN, "it has no machine, so Slurm must not use it", "off")
    if goal and goal.want is Want.UP:
        return Step(Verb.START, goal.reason)
    if goal and goal.want is Want.GONE and node.power is Power.OFF:
        return _delete(node, goal)
    return Step(None, "it is off, as it should be")


def _with_power(node: Node, goal: Goal | None) -> Step:
    if goal is None or goal.want is Want.UP:
        if node.drained_by_us and node.registered:
            return Step(Verb.RESUME, goal.reason if goal else "its machine has joined", node.address)
        return Step(None, "it is up")
    if not node.drained:
        return Step(Verb.DRAIN, goal.reason)
    if node.busy or goal.want is Want.DRAINED:
        return Step(None, "drained; its jobs are still running" if node.busy else "it is drained")
    if goal.want is Want.OFF:
        return Step(Verb.STOP, goal.reason, _machine(node))
    return _delete(node, goal)


def _delete(node: Node, goal: Goal) -> Step:
    return Step(Verb.DELETE, goal.reason, _machine(node))


def _machine(node: Node) -> str:
    return node.machine.id if node.machine else ""
