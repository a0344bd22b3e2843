"""What every provider promises, in memory and over HTTP."""

from cmscale.model import LeftoverKind, Machine, MachineId, MachineState, NodeName, Outcome, Result
from tests.contract.conftest import SPOT, Site, launch, power_on

NEVER = MachineId("i-00000000000000000")
ONE, TWO = NodeName("t4-1"), NodeName("t4-2")


def test_each_node_of_a_launch_gets_an_outcome_and_a_machine_that_knows_its_name(site: Site) -> None:
    outcomes = site.provider.start(launch("op-1", "t4-2", "t4-1"))
    assert {node: outcome.result for node, outcome in outcomes.items()} == {"t4-1": Result.OK, "t4-2": Result.OK}
    machines = {machine.id: machine for machine in site.provider.list()}
    assert {outcome.machine for outcome in outcomes.values()} == set(machines)
    for node, outcome in outcomes.items():
        assert outcome.machine is not None
        assert machines[outcome.machine].node == node
        assert machines[outcome.machine].op == "op-1"
        assert machines[outcome.machine].address


def test_the_same_operation_again_gives_the_same_machines(site: Site) -> None:
    first = site.provider.start(launch("op-2", "t4-1", "t4-2"))
    again = site.provider.start(launch("op-2", "t4-1", "t4-2"))
    assert {node: outcome.machine for node, outcome in again.items()} == {
        node: outcome.machine for node, outcome in first.items()
    }
    assert len(site.provider.list()) == 2


def test_another_operation_makes_other_machines(site: Site) -> None:
    site.provider.start(launch("op-3", "t4-1"))
    site.provider.start(launch("op-4", "t4-2"))
    assert sorted(machine.node for machine in site.provider.list()) == ["t4-1", "t4-2"]


def test_machines_of_another_cluster_do_not_exist_for_us(site: Site) -> None:
    site.other_cluster.start(launch("op-5", "t4-1"))
    assert site.provider.list() == ()
    site.other_cluster.delete([machine.id for machine in site.other_cluster.list()])


def test_too_little_room_gives_some_machines_and_says_capacity_for_the_rest(site: Site) -> None:
    site.leave_room_for(2)
    outcomes = site.provider.start(launch("op-6", "t4-1", "t4-2", "t4-3"))
    assert sorted(outcome.result.value for outcome in outcomes.values()) == ["capacity", "ok", "ok"]
    assert len(site.provider.list()) == 2


def test_all_or_none_is_none_where_there_is_too_little_room(site: Site) -> None:
    site.leave_room_for(2)
    outcomes = site.provider.start(launch("op-7", "t4-1", "t4-2", "t4-3", all_or_none=True))
    assert {outcome.result for outcome in outcomes.values()} == {Result.CAPACITY}
    assert site.provider.list() == ()


def test_a_machine_starts_then_runs(site: Site) -> None:
    site.provider.start(launch("op-8", "t4-1"))
    assert site.settle(lambda: [machine.state for machine in site.provider.list()] == [MachineState.RUNNING])


def test_a_deleted_machine_ends_and_goes_and_may_be_deleted_again(site: Site) -> None:
    made = site.provider.start(launch("op-9", "t4-1"))["t4-1"].machine  # type: ignore[index]
    assert made is not None
    assert site.provider.delete([made])[made].ok
    assert {machine.state for machine in site.provider.list()} <= {MachineState.ENDING}
    assert site.settle(lambda: site.provider.list() == ())
    assert site.provider.delete([made])[made].ok


def test_deleting_what_never_was_spoils_nothing(site: Site) -> None:
    made = site.provider.start(launch("op-10", "t4-1"))["t4-1"].machine  # type: ignore[index]
    assert made is not None
    outcomes = site.provider.delete([NEVER, made])
    assert outcomes[made].ok
    assert set(outcomes) == {NEVER, made}


# --- power -----------------------------------------------------------------------------------------------------------


def running(site: Site, op: str, *nodes: str) -> tuple[MachineId, ...]:
    """Machines of these nodes that have come up, in the order of their nodes."""
    site.provider.start(launch(op, *nodes))
    assert site.settle(lambda: states(site) == dict.fromkeys(nodes, MachineState.RUNNING))
    return tuple(machine.id for machine in sorted(site.provider.list(), key=lambda machine: machine.node))


def states(site: Site) -> dict[str, MachineState]:
    return {machine.node: machine.state for machine in site.provider.list()}


def the_one(site: Site) -> Machine:
    (machine,) = site.provider.list()
    return machine


def test_a_stopped_machine_stays_and_starts_again_as_itself(site: Site) -> None:
    (made,) = running(site, "op-11", "t4-1")
    before = the_one(site)
    assert site.provider.stop([made])[made].ok
    assert site.settle(lambda: the_one(site).state is MachineState.STOPPED)
    assert site.settle(lambda: site.now() > before.launched + 1)
    assert site.provider.start(power_on("op-12", t4_1=made)) == {ONE: Outcome(Result.OK, machine=made)}
    assert site.settle(lambda: the_one(site).state is MachineState.RUNNING)
    after = the_one(site)
    assert (after.id, after.node) == (made, ONE)
    assert after.launched > before.launched


def test_powering_on_again_does_nothing(site: Site) -> None:
    (made,) = running(site, "op-13", "t4-1")
    before = the_one(site)
    for op in ("op-14", "op-14", "op-15"):
        assert site.provider.start(power_on(op, t4_1=made)) == {ONE: Outcome(Result.OK, machine=made)}
    assert the_one(site) == before


def test_a_machine_that_is_gone_cannot_be_powered_on_and_spares_the_others(site: Site) -> None:
    one, two = running(site, "op-16", "t4-1", "t4-2")
    site.provider.stop([two])
    site.provider.delete([one])
    assert site.settle(lambda: states(site) == {TWO: MachineState.STOPPED})
    outcomes = site.provider.start(power_on("op-17", t4_1=one, t4_2=two))
    assert {node: outcome.result for node, outcome in outcomes.items()} == {ONE: Result.GONE, TWO: Result.OK}
    assert site.settle(lambda: states(site) == {TWO: MachineState.RUNNING})


def test_a_machine_that_is_ending_can_be_neither_stopped_nor_powered_on(site: Site) -> None:
    (made,) = running(site, "op-22", "t4-1")
    site.provider.delete([made])
    assert site.provider.stop([made])[made].result is Result.GONE
    assert site.provider.start(power_on("op-23", t4_1=made))[ONE].result is Result.GONE
    assert site.settle(lambda: site.provider.list() == ())


def test_what_never_was_cannot_be_stopped_and_spares_the_others(site: Site) -> None:
    (made,) = running(site, "op-18", "t4-1")
    outcomes = site.provider.stop([NEVER, made])
    assert {each: outcome.result for each, outcome in outcomes.items()} == {NEVER: Result.GONE, made: Result.OK}
    assert site.settle(lambda: the_one(site).state is MachineState.STOPPED)


def test_hard_comes_to_the_same_end_and_may_follow_a_soft_try(site: Site) -> None:
    (made,) = running(site, "op-19", "t4-1")
    assert site.provider.stop([made])[made].ok
    assert site.provider.stop([made], hard=True)[made].ok
    assert site.settle(lambda: the_one(site).state is MachineState.STOPPED)
    assert site.provider.delete([made])[made].ok
    assert site.provider.delete([made], hard=True)[made].ok
    assert site.settle(lambda: site.provider.list() == ())


# --- what the cloud does, and what a machine leaves behind -----------------------------------------------------------


def test_a_machine_that_is_taken_back_is_announced_and_then_ends(site: Site) -> None:
    site.provider.start(launch("op-20", "t4-1", "t4-2", pool=SPOT))
    one, _ = sorted(site.provider.list(), key=lambda machine: machine.node)
    assert site.provider.notices() == {}
    site.reclaim(one, 3.0)
    ((told, (notice,)),) = site.provider.notices().items()
    assert told == one.id
    assert abs(notice.deadline - site.now() - 3.0) < 2.0
    assert "spot" in notice.why
    assert site.settle(lambda: states(site) == {TWO: MachineState.RUNNING})
    assert site.provider.notices() == {}


def test_a_machine_that_has_come_up_leaves_evidence_and_one_that_never_was_leaves_none(site: Site) -> None:
    (made,) = running(site, "op-21", "t4-1")
    assert site.settle(lambda: ONE in site.provider.evidence(made))
    assert site.provider.evidence(NEVER) == ""


def test_what_machines_leave_behind_is_found_by_its_tags_and_can_be_deleted(site: Site) -> None:
    assert site.provider.leftovers() == ()
    there = site.leave_behind()
    found = site.provider.leftovers()
    assert {each.id for each in found} == there
    assert {(each.kind, each.node, each.op is not None) for each in found} == {
        (kind, "t4-1", True) for kind in LeftoverKind
    }
    assert site.other_cluster.leftovers() == ()
    assert all(outcome.ok for outcome in site.provider.delete(sorted(there)).values())
    assert site.provider.leftovers() == ()
    assert all(outcome.ok for outcome in site.provider.delete(sorted(there)).values())


def test_a_machine_that_runs_leaves_nothing_behind(site: Site) -> None:
    site.provider.start(launch("op", "t4-1"))
    assert site.provider.leftovers() == ()
