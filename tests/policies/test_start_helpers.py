"""start_helpers: helpers come before the first machine that needs them and go some time after the last."""

from cmscale.model import Goal, Node, NodeName, Power, Snapshot, Want
from policies.start_helpers import Settings, propose
from tests.builders import NOW, node, pool, view

T4 = pool(helpers=(NodeName("dir-1"),))
DIRECTORS = pool("dir", count=1, partitions=(), helpers=(NodeName("lic-1"),))
LICENCES = pool("lic", count=1, partitions=())


def helper(of_name: str, power: Power, **changes: object) -> Node:
    of = DIRECTORS if of_name.startswith("dir") else LICENCES
    return node(of_name, power, of=of, states=frozenset(), reason="", outside=True, **changes)


def seen(*nodes: Node) -> Snapshot:
    gone = [helper("dir-1", Power.GONE), helper("lic-1", Power.GONE)]
    return view([T4, DIRECTORS, LICENCES], [*gone, *nodes])


def wishes(of: Snapshot, claimed: frozenset[str] = frozenset(), idle_s: float = 600) -> list[tuple[str, Want]]:
    goals: list[Goal] = list(propose(of, frozenset(map(NodeName, claimed)), Settings(idle_s)))
    return sorted((goal.node, goal.want) for goal in goals)


def test_nobody_needs_a_helper_while_no_machine_is_wanted() -> None:
    assert wishes(seen()) == []


def test_a_claimed_node_needs_its_helpers_and_theirs() -> None:
    assert wishes(seen(), frozenset({"t4-1"})) == [("dir-1", Want.UP), ("lic-1", Want.UP)]


def test_a_machine_needs_its_helpers_for_as_long_as_it_is_there() -> None:
    assert wishes(seen(node(power=Power.STOPPING))) == [("dir-1", Want.UP), ("lic-1", Want.UP)]


def test_a_helper_stays_for_a_while_after_the_last_machine_and_goes_then() -> None:
    def after(idle_s: float) -> list[tuple[str, Want]]:
        return wishes(seen(helper("lic-1", Power.ON, idle_since=NOW - idle_s)))

    assert after(599) == []
    assert after(600) == [("lic-1", Want.GONE)]


def test_a_helper_of_a_helper_stays_while_that_is_up() -> None:
    up = seen(helper("dir-1", Power.ON, idle_since=NOW), helper("lic-1", Power.ON))
    assert wishes(up) == [("lic-1", Want.UP)]
