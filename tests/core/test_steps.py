"""The step table: one row a situation and wish."""

import pytest

from cmscale.core.steps import step
from cmscale.model import MachineState, Node, Power, Verb, Want
from tests.builders import BUSY, IDLE, JOINED, OFF, goal, machine, node

PARKED = node()
OFF_WITH_DISK = node(power=Power.OFF, machine=machine("t4-1", MachineState.STOPPED))
FRESH = node(states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}), reason="")
NOT_YET_DOWN = node(states=JOINED | {"POWERED_DOWN"})
LATE_ANSWER = node(states=JOINED)
BOOTING = node(power=Power.STARTING)
STUCK = node(power=Power.STARTING, sick="has not joined")
ENDING = node(power=Power.STOPPING, machine=machine("t4-1", MachineState.ENDING))
JUST_JOINED = node(power=Power.ON, states=JOINED, reason="cm-scale: off")
UP = node(power=Power.ON)
UP_BUSY = node(power=Power.ON, states=BUSY)
DRAINED = node(power=Power.ON, states=JOINED, reason="cm-scale: giving back")
DRAINING = node(power=Power.ON, states=BUSY | {"DRAIN"}, reason="cm-scale: giving back")
RESUMED_WITH_OLD_REASON = node(power=Power.ON, states=IDLE, reason="cm-scale: off")
HUMANS = node(power=Power.ON, states=JOINED, reason="disk broken")
REFUSED = node(power=Power.ON, states=JOINED | {"INVALID_REG"}, reason="Low RealMemory", sick="Slurm refuses it")
HUMANS_OFF = node(states=OFF, reason="not this month")
LOST_JOB = node(states=BUSY, reason="")


@pytest.mark.parametrize(
    ("situation", "want", "verb"),
    [
        (PARKED, Want.UP, Verb.START),
        (PARKED, Want.GONE, None),
        (PARKED, None, None),
        (FRESH, None, Verb.DRAIN),
        (FRESH, Want.UP, Verb.DRAIN),
        (NOT_YET_DOWN, Want.UP, Verb.DRAIN),
        (LATE_ANSWER, Want.UP, Verb.DRAIN),
        (OFF_WITH_DISK, Want.UP, Verb.START),
        (OFF_WITH_DISK, Want.GONE, Verb.DELETE),
        (OFF_WITH_DISK, Want.OFF, None),
        (BOOTING, Want.UP, None),
        (BOOTING, Want.GONE, None),
        (STUCK, Want.GONE, Verb.DELETE),
        (STUCK, Want.UP, None),
        (ENDING, Want.UP, None),
        (JUST_JOINED, None, Verb.RESUME),
        (JUST_JOINED, Want.UP, Verb.RESUME),
        (UP, None, None),
        (UP, Want.UP, None),
        (UP, Want.DRAINED, Verb.DRAIN),
        (UP, Want.GONE, Verb.DRAIN),
        (UP_BUSY, Want.UP, None),
        (UP_BUSY, Want.GONE, Verb.DRAIN),
        (DRAINED, Want.GONE, Verb.DELETE),
        (DRAINED, Want.OFF, Verb.STOP),
        (DRAINED, Want.DRAINED, None),
        (DRAINED, None, Verb.RESUME),
        (DRAINING, Want.GONE, None),
        (DRAINING, Want.OFF, None),
        (RESUMED_WITH_OLD_REASON, None, None),
        (HUMANS, Want.GONE, None),
        (HUMANS, Want.UP, None),
        (HUMANS_OFF, Want.UP, None),
        (REFUSED, Want.GONE, Verb.DELETE),
        (LOST_JOB, None, None),
        (LOST_JOB, Want.UP, None),
    ],
)
def test_each_situation_and_wish_has_one_next_step(situation: Node, want: Want | None, verb: Verb | None) -> None:
    assert step(situation, goal(want=want) if want else None).verb is verb


def test_parking_marks_the_node_as_off() -> None:
    assert step(FRESH, None).arg == "off"


def test_handing_over_gives_slurm_the_address_of_the_machine() -> None:
    assert step(node(power=Power.ON, states=JOINED, reason="cm-scale: off", address="10.1.2.3"), None).arg == "10.1.2.3"


def test_deleting_names_the_machine() -> None:
    assert step(DRAINED, goal(want=Want.GONE)).arg == "i-t4-1"
