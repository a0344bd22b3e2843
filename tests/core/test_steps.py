"""The step table: one row a situation and wish."""

import pytest

from cmscale.core.steps import step
from cmscale.model import MachineState, Node, Power, Verb, Want
from tests.builders import BUSY, IDLE, JOINED, NOW, OFF, goal, machine, node

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
KEPT = node(power=Power.ON, states=JOINED, reason="cm-scale: giving back", kept=True)
KEPT_OFF = node(power=Power.OFF, machine=machine("t4-1", MachineState.STOPPED), kept=True)
HANGS = node(power=Power.STOPPING, machine=machine("t4-1", MachineState.STOPPING), sick="has not shut down")
HANGS_AT_THE_END = node(power=Power.STOPPING, machine=machine("t4-1", MachineState.ENDING), sick="has not shut down")
HELPER_GONE = node(states=frozenset(), reason="", outside=True)
HELPER = node(power=Power.ON, states=frozenset(), outside=True)


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
        (KEPT, Want.GONE, Verb.STOP),
        (KEPT_OFF, Want.GONE, None),
        (KEPT_OFF, Want.UP, Verb.START),
        (STUCK, Want.OFF, Verb.STOP),
        (HANGS, None, Verb.STOP),
        (HANGS_AT_THE_END, Want.UP, Verb.DELETE),
        (HELPER_GONE, None, None),
        (HELPER_GONE, Want.UP, Verb.START),
        (HELPER, None, None),
        (HELPER, Want.UP, None),
        (HELPER, Want.GONE, Verb.DELETE),
        (LOST_JOB, None, None),
        (LOST_JOB, Want.UP, None),
    ],
)
def test_each_situation_and_wish_has_one_next_step(situation: Node, want: Want | None, verb: Verb | None) -> None:
    assert step(situation, goal(want=want) if want else None, NOW).verb is verb


def test_what_still_runs_when_the_node_must_be_free_is_requeued() -> None:
    taken_back = goal(want=Want.GONE, by=NOW + 30)
    assert step(UP_BUSY, taken_back, NOW + 60).verb is Verb.DRAIN
    assert step(DRAINING, taken_back, NOW).verb is None
    assert step(DRAINING, taken_back, NOW + 30).verb is Verb.REQUEUE
    assert step(DRAINED, taken_back, NOW + 30).verb is Verb.DELETE


def test_a_machine_that_must_be_free_by_now_is_given_back_before_it_has_joined() -> None:
    assert step(BOOTING, goal(want=Want.GONE, by=NOW + 1), NOW).verb is None
    assert step(BOOTING, goal(want=Want.GONE, by=NOW), NOW).verb is Verb.DELETE


def test_powering_on_names_the_machine_that_was_kept() -> None:
    assert step(KEPT_OFF, goal(), NOW).arg == "i-t4-1"
    assert step(PARKED, goal(), NOW).arg == ""


def test_parking_marks_the_node_as_off() -> None:
    assert step(FRESH, None, NOW).arg == "off"


def test_handing_over_gives_slurm_the_address_of_the_machine() -> None:
    joined = node(power=Power.ON, states=JOINED, reason="cm-scale: off", address="10.1.2.3")
    assert step(joined, None, NOW).arg == "10.1.2.3"


def test_deleting_names_the_machine() -> None:
    assert step(DRAINED, goal(want=Want.GONE), NOW).arg == "i-t4-1"
