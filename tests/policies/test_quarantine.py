"""quarantine: what becomes of machines that do not work out."""

import pytest

from cmscale.model import FactKind, Goal, MachineState, Node, NodeName, Power, Want
from policies.quarantine import Settings, propose
from tests.builders import BUSY, IDLE, NOW, fact, facts, home_node, machine, node, view

NOBODY: frozenset[NodeName] = frozenset()
STUCK = node("t4-1", Power.STARTING, sick="it has not joined within 15 min")
FAILED = node("t4-1", Power.ON, states=IDLE | {"DOWN"}, sick="Slurm has lost it")


def wished(one: Node, settings: Settings | None = None) -> list[Goal]:
    return list(propose(view(nodes=[one]), NOBODY, settings or Settings()))


@pytest.mark.parametrize("sick", [STUCK, FAILED], ids=["stuck boot", "failed"])
def test_a_machine_that_does_not_work_out_is_deleted_and_the_reason_says_what_is_wrong(sick: Node) -> None:
    (goal,) = wished(sick)
    assert (goal.node, goal.want, goal.reason) == ("t4-1", Want.GONE, sick.sick)


@pytest.mark.parametrize(
    ("sick", "settings", "want"),
    [
        (STUCK, Settings(stuck_boot="stop"), Want.OFF),
        (STUCK, Settings(failed="stop"), Want.GONE),
        (FAILED, Settings(failed="stop"), Want.OFF),
        (FAILED, Settings(failed="leave"), Want.DRAINED),
    ],
)
def test_a_site_may_want_the_disk_or_the_machine_kept(sick: Node, settings: Settings, want: Want) -> None:
    assert [goal.want for goal in wished(sick, settings)] == [want]


def test_a_stuck_boot_that_shall_be_left_is_not_touched() -> None:
    assert wished(STUCK, Settings(stuck_boot="leave")) == []


def test_a_sick_node_that_runs_jobs_is_left_to_finish_and_gets_no_new_ones() -> None:
    (goal,) = wished(node("t4-1", Power.ON, states=BUSY, sick="Slurm refuses it"))
    assert (goal.want, goal.by) == (Want.DRAINED, None)


def test_what_is_well_or_going_or_not_ours_or_claimed_is_left_alone() -> None:
    going = node("t4-2", Power.STOPPING, sick="it has not shut down within 3 min")
    home = home_node("op1", sick="odd")
    assert list(propose(view(nodes=[node("t4-1", Power.ON), going, home]), NOBODY, Settings())) == []
    assert list(propose(view(nodes=[STUCK]), frozenset({NodeName("t4-1")}), Settings())) == []


# --- the disk of a machine that was stopped --------------------------------------------------------------------------


def stopped(rests_since: float | None, *, kept: bool = False) -> list[Want]:
    """What is wished of a machine that is stopped, whose node's name has rested since then, if it does."""
    off = node("t4-1", Power.OFF, machine=machine("t4-1", MachineState.STOPPED), kept=kept)
    resting = () if rests_since is None else (fact(FactKind.STOPPED, "t4-1", at=rests_since),)
    seen = view(nodes=[off], facts=facts(*resting))
    return [goal.want for goal in propose(seen, NOBODY, Settings(failed="stop", keep_disk_s=300))]


def test_a_stopped_machine_is_deleted_when_its_disk_was_kept_long_enough() -> None:
    assert stopped(NOW - 299) == []
    assert stopped(NOW - 300) == [Want.GONE]


def test_a_machine_that_was_not_stopped_for_quarantine_or_shall_be_kept_is_never_deleted() -> None:
    assert stopped(None) == []
    assert stopped(NOW - 9000, kept=True) == []


def test_an_unknown_word_is_told() -> None:
    with pytest.raises(ValueError, match='stuck_boot is "stp"; expected "delete", "stop" or "leave"'):
        Settings(stuck_boot="stp")
    with pytest.raises(ValueError, match='failed is "poweroff"; expected "delete", "stop" or "leave"'):
        Settings(failed="poweroff")
