"""Deciding: situations and goals in, actions out; and what must hold whatever is wished."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as some

from cmscale.core.decide import decide
from cmscale.model import (
    Action,
    Creations,
    FactKind,
    GangId,
    Goal,
    JobId,
    Limits,
    MachineState,
    Node,
    NodeName,
    OpId,
    Plan,
    Power,
    Site,
    SiteKind,
    Snapshot,
    Verb,
    Want,
)
from tests.builders import (
    BUSY,
    EAST,
    IDLE,
    JOINED,
    OFF,
    WEST,
    fact,
    facts,
    goal,
    home_node,
    job,
    machine,
    node,
    pool,
    view,
)

FREE = Limits(min_up_s=0)


@dataclass
class Wishes:
    """A policy that wishes just this."""

    goals: list[Goal]
    name: str = "wishes"
    claimed: frozenset[NodeName] = frozenset()

    def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal]:  # noqa: ARG002
        self.claimed = claimed
        yield from self.goals


@dataclass
class Broken:
    name: str = "broken"

    def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal]:  # noqa: ARG002
        yield goal("t4-2", Want.GONE)
        raise KeyError("nodes")


def verbs(plan: Plan) -> list[tuple[Verb, str]]:
    return [(action.verb, action.node) for action in plan.actions]


def by_node(plan: Plan) -> dict[str, Action]:
    return {action.node: action for action in plan.actions}


def test_without_a_sight_of_slurm_nothing_is_done_and_the_plan_says_so() -> None:
    plan = decide(view(unseen="slurmctld is silent"), [Wishes([goal()])], FREE)
    assert plan.actions == ()
    assert "slurmctld is silent" in plan.idle_because


def test_the_first_policy_to_claim_a_node_keeps_it() -> None:
    first, second = Wishes([goal("t4-1")], "first"), Wishes([goal("t4-1", Want.GONE), goal("t4-2")], "second")
    plan = decide(view(), [first, second], FREE)
    assert [(each.node, each.want, plan.policies[each.node]) for each in plan.goals] == [
        ("t4-1", Want.UP, "first"),
        ("t4-2", Want.UP, "second"),
    ]
    assert second.claimed == {"t4-1"}


def test_a_policy_that_raises_yields_nothing_is_named_and_stops_destruction_for_this_tick() -> None:
    seen = view(nodes=[node("t4-1", Power.ON)])
    plan = decide(seen, [Broken(), Wishes([goal("t4-1", Want.GONE), goal("t4-3")])], FREE)
    assert [failure.policy for failure in plan.failed] == ["broken"]
    assert "KeyError" in plan.failed[0].why
    assert verbs(plan) == [(Verb.START, "t4-3")]


def test_a_policy_that_names_an_unknown_node_fails() -> None:
    plan = decide(view(), [Wishes([goal("nowhere")])], FREE)
    assert "nowhere" in plan.failed[0].why


def test_nodes_of_the_site_itself_are_never_touched() -> None:
    plan = decide(view(nodes=[home_node("op1")]), [Wishes([goal("op1", Want.GONE)])], FREE)
    assert plan.goals == ()
    assert plan.actions == ()


def test_singles_share_one_operation_and_each_gang_has_its_own() -> None:
    wishes = [goal(f"t4-{at}", gang=GangId("g1") if at > 2 else None) for at in range(1, 5)]
    plan = decide(view(), [Wishes(wishes)], FREE)
    actions = by_node(plan)
    assert actions["t4-1"].op == actions["t4-2"].op
    assert actions["t4-3"].op == actions["t4-4"].op != actions["t4-1"].op
    assert (actions["t4-1"].together, actions["t4-3"].together) == (False, True)


def test_a_gangs_nodes_are_handed_over_together() -> None:
    joined = node("t4-1", Power.ON, states=JOINED, reason="cm-scale: off")
    booting = node("t4-2", Power.STARTING)
    wishes = [goal("t4-1", gang=GangId("g")), goal("t4-2", gang=GangId("g"))]
    assert verbs(decide(view(nodes=[joined, booting]), [Wishes(wishes)], FREE)) == []
    both = view(nodes=[joined, node("t4-2", Power.ON, states=JOINED, reason="cm-scale: off")])
    assert verbs(decide(both, [Wishes(wishes)], FREE)) == [(Verb.RESUME, "t4-1"), (Verb.RESUME, "t4-2")]


def test_a_gang_waits_for_a_node_that_it_shares_with_another_job() -> None:
    up = node("t4-1", Power.ON, states=JOINED, reason="cm-scale: off")
    shared = goal("t4-2", also=(JobId("2"),), gangs=(GangId("g"),))
    wishes = [goal("t4-1", gang=GangId("g")), shared]
    booting = view(nodes=[up, node("t4-2", Power.STARTING)])
    assert verbs(decide(booting, [Wishes(wishes)], FREE)) == []
    both = view(nodes=[up, node("t4-2", Power.ON, states=JOINED, reason="cm-scale: off")])
    assert verbs(decide(both, [Wishes(wishes)], FREE)) == [(Verb.RESUME, "t4-1"), (Verb.RESUME, "t4-2")]


def test_a_gang_is_started_when_all_its_nodes_are_parked() -> None:
    fresh = node("t4-1", states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}), reason="")
    wishes = [goal("t4-1", gang=GangId("g")), goal("t4-2", gang=GangId("g"))]
    assert verbs(decide(view(nodes=[fresh]), [Wishes(wishes)], FREE)) == [(Verb.DRAIN, "t4-1")]
    assert verbs(decide(view(), [Wishes(wishes)], FREE)) == [(Verb.START, "t4-1"), (Verb.START, "t4-2")]


def test_nodes_without_a_wish_are_parked_or_handed_over() -> None:
    fresh = node("t4-1", states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}), reason="")
    joined = node("t4-2", Power.ON, states=JOINED, reason="cm-scale: off")
    assert verbs(decide(view(nodes=[fresh, joined]), [], FREE)) == [(Verb.DRAIN, "t4-1"), (Verb.RESUME, "t4-2")]


def test_at_an_unseen_site_not_even_upkeep_is_done() -> None:
    joined = node("t4-2", Power.ON, states=JOINED, reason="cm-scale: off")
    dark = MappingProxyType({EAST: Site(EAST, SiteKind.AWS, unseen="no answer"), WEST: Site(WEST, SiteKind.AWS)})
    assert decide(view(nodes=[joined], sites=dark), [], FREE).actions == ()


def test_a_second_machine_of_a_name_is_deleted() -> None:
    up = node("t4-1", Power.ON)
    extra = replace(machine("t4-1-again"), node=NodeName("t4-1"), op=OpId("by-hand"))
    plan = decide(view(nodes=[up], surplus=(extra,)), [], FREE)
    assert [(action.verb, action.arg) for action in plan.actions] == [(Verb.DELETE, "i-t4-1-again")]


def test_while_a_node_is_kept_no_machine_of_its_name_is_touched() -> None:
    up = node("t4-1", Power.ON)
    extra = replace(machine("t4-1-again"), node=NodeName("t4-1"), op=OpId("by-hand"))
    late = node("t4-2", Power.STOPPING, sick="has not shut down")
    seen = view(nodes=[up, late], surplus=(extra,))
    assert {action.arg for action in decide(seen, [], FREE).actions} == {"i-t4-1-again", "i-t4-2"}
    kept = facts(fact(FactKind.KEEP, "t4-1"), fact(FactKind.KEEP, "t4-2"))
    assert decide(replace(seen, facts=kept), [], FREE).actions == ()


POOL = pool(count=6)
STATES = some.sampled_from([OFF, IDLE, BUSY, JOINED, BUSY | {"DRAIN"}, OFF - {"DRAIN"}, frozenset({"DOWN", "DRAIN"})])
MACHINES = some.sampled_from(list(MachineState))


@some.composite
def any_node(draw: some.DrawFn, name: str) -> Node:
    power = draw(some.sampled_from(list(Power)))
    reason = draw(some.sampled_from(["", "cm-scale: off", "broken fan"]))
    sick = draw(some.sampled_from(["", "stuck"]))
    return node(name, power, POOL, states=draw(STATES), reason=reason, sick=sick)


@some.composite
def any_case(draw: some.DrawFn) -> tuple[Snapshot, list[Goal]]:
    nodes = [draw(any_node(name)) for name in POOL.nodes]
    wishes = [
        goal(name, draw(some.sampled_from(list(Want))), gang=draw(some.sampled_from([None, GangId("g")])))
        for name in POOL.nodes
        if draw(some.booleans())
    ]
    return view([POOL], nodes, [job(1)]), wishes


@given(any_case())
def test_whatever_is_wished_a_busy_node_is_never_stopped_and_a_humans_drain_never_undone(
    case: tuple[Snapshot, list[Goal]],
) -> None:
    seen, wishes = case
    plan = decide(seen, [Wishes(wishes)], FREE)
    for action in plan.actions:
        of = seen.nodes[action.node]
        assert not of.held_by_human
        if action.verb in {Verb.STOP, Verb.DELETE}:
            assert not (of.power is Power.ON and of.busy)
            assert of.drained_by_us or of.power is not Power.ON
        if action.arg == "off":
            assert not (of.registered and of.busy)


@given(any_case())
def test_the_same_view_gives_the_same_plan_and_each_node_at_most_one_step(case: tuple[Snapshot, list[Goal]]) -> None:
    seen, wishes = case
    plan = decide(seen, [Wishes(wishes)], FREE)
    assert decide(seen, [Wishes(wishes)], FREE) == plan
    assert len({action.node for action in plan.actions}) == len(plan.actions)


def test_a_job_that_may_start_nothing_more_keeps_no_room_from_those_behind_it() -> None:
    class InOrder:
        name = "in order"

        def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal]:  # noqa: ARG002
            yield from (goal("t4-1", job=each.id) for each in view.jobs[:1])

    spent = MappingProxyType({JobId("1"): Creations(machines=3, need=1)})
    plan = decide(view(jobs=[job(1), job(2)], creations=spent), [InOrder()], FREE)
    assert [(action.verb, action.job) for action in plan.actions] == [(Verb.START, "2")]
    assert [(refusal.guard, refusal.goal.job) for refusal in plan.refused] == [("creations_per_job", "1")]
    assert "3 machines were created" in plan.notes[JobId("1")]
    assert plan.notes[JobId("2")] == "1 node starting at east, about 3 min"
