"""What every provider promises, in memory and over HTTP."""

from cmscale.model import MachineId, MachineState, Result
from tests.contract.conftest import Site, launch


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
    never = MachineId("i-00000000000000000")
    outcomes = site.provider.delete([never, made])
    assert outcomes[made].ok
    assert set(outcomes) == {never, made}
