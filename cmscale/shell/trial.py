"""Does a policy hold up when it is asked about made-up snapshots?

An attribute that does not exist shows only when it is asked for, and a daemon should not be the first to ask.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import isgenerator
from types import MappingProxyType
from typing import Any

from cmscale.model import (
    DOLLAR,
    HOME,
    NOBODY,
    OFF_REASON,
    Ask,
    AtLimit,
    Budget,
    Cost,
    Fact,
    FactKind,
    Goal,
    Help,
    Job,
    JobId,
    Launch,
    Machine,
    MachineId,
    MachineState,
    Node,
    NodeName,
    Notice,
    Period,
    Pool,
    PoolName,
    Power,
    Purse,
    Queue,
    Reservation,
    Shape,
    Site,
    SiteKind,
    SiteName,
    Snapshot,
    Spent,
    Wait,
    Want,
    Window,
)
from cmscale.shell.policies import Policy


def tried(policy: Policy) -> str:
    """What goes wrong when the policy is asked about made-up snapshots; empty if nothing does."""
    for what, view in (("an empty snapshot", Snapshot(now=_NOW, tick="check")), (_SOME, some_snapshot())):
        if wrong := _asked(policy, what, view):
            return wrong
    return ""


def _asked(policy: Policy, what: str, view: Snapshot) -> str:
    answer: Any = None

    def propose(view: Snapshot, claimed: frozenset[NodeName], given: Any) -> Iterator[Goal | Wait]:
        nonlocal answer
        answer = policy.function(view, claimed, given)
        return answer  # type: ignore[no-any-return]

    try:
        for each in replace(policy, function=propose).propose(view, frozenset()):
            if wrong := _wrong_wait(each) if isinstance(each, Wait) else _wrong_goal(each):
                return f"{policy.path}:{_at(policy, answer)}: asked about {what}, {wrong}"
    # A site's own policy may raise anything; SystemExit would even end the daemon.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        inside = [
            each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(policy.path)
        ]
        line = inside[-1] if inside and inside[-1] else _at(policy, answer)
        return f"{policy.path}:{line}: asked about {what}, {_told(error, answer, inside)}"
    return ""


def _told(error: BaseException, answer: Any, inside: Sequence[int | None]) -> str:
    sentence = " ".join(str(error).split())  # one line, whatever the policy raised
    if inside:
        return f"propose raised {type(error).__name__}: {sentence}".removesuffix(": ")
    if not isinstance(answer, Iterable):
        return f"propose returned {_cut(answer)} where goals were expected: yield each, or return a list of them"
    return sentence


def _wrong_goal(goal: Any) -> str:
    """Which part of a goal has a wrong type; Python itself checks none when one is made."""
    if not isinstance(goal.node, str):
        return f"the node of a goal is {_cut(goal.node)}; expected a node's name"
    if not isinstance(goal.want, Want):
        return f"the goal for {goal.node} wants {_cut(goal.want)}; expected {' or '.join(map(str, Want))}"
    if not isinstance(goal.reason, str):
        return f"the reason of the goal for {goal.node} is {_cut(goal.reason)}; expected a text"
    if not isinstance(goal.need, int):
        return f"the need of the goal for {goal.node} is {_cut(goal.need)}; expected a whole number"
    if not isinstance(goal.by, float | int | None):
        return (
            f"the time by which {goal.node} must be free is {_cut(goal.by)}; expected seconds since the epoch, or None"
        )
    return ""


def _wrong_wait(wait: Any) -> str:
    if not isinstance(wait.job, str):
        return f"the job that waits is {_cut(wait.job)}; expected a job's id"
    if not isinstance(wait.reason, str):
        return f"the reason why job {wait.job} waits is {_cut(wait.reason)}; expected a text"
    return ""


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _at(policy: Policy, answer: object) -> int:
    """The line at which the policy stands at its last goal; where that is not known, the line of propose."""
    line = policy.function.__code__.co_firstlineno
    inner: Any = answer
    while isgenerator(inner) and inner.gi_frame and inner.gi_code.co_filename == str(policy.path):
        line = inner.gi_frame.f_lineno
        inner = inner.gi_yieldfrom
    return line


# --- a made-up snapshot ----------------------------------------------------------------------------------------------

_NOW = 1_700_000_000.0
"""A Tuesday, 22:13 in UTC."""
_SOME = "a made-up snapshot of a few nodes and jobs"
_EAST = SiteName("made-up-site")
_LEFT = SiteName("made-up-site-to-be-left")
_SHAPE = Shape(cpus=4, mem_mb=15000, gpus=1, gpu_type="t4")
_HALF = Shape(cpus=2, mem_mb=8000, gpus=1, gpu_type="t4")


def some_snapshot() -> Snapshot:
    """Pools with a node in each state that a policy is likely to tell apart, a site that is drained, a node of the site
    itself, and three jobs, one of which waits."""
    day = _pool("made-up", 9, partitions=("cloud",), keep=1, helpers=(NodeName("made-up-helper-1"),))
    night = _pool("made-up-night", 2, partitions=("night",), hours=(Window(frozenset(range(7)), 20 * 3600, 23 * 3600),))
    helpers = _pool("made-up-helper", 1, partitions=())
    left = _pool("made-up-left", 1, _LEFT, partitions=("left",))
    home = NodeName("home-1")
    busy, half_empty, stopped = day.nodes[3], night.nodes, day.nodes[7]
    budget = Budget("made-up", Period.DAY, DOLLAR, night.name, at_limit=AtLimit.DRAIN)
    nodes = (
        *_day_nodes(day),
        *(_node(night, name, Power.ON, {"MIXED"}, free=_HALF, until=_NOW + 2800) for name in half_empty),
        _node(helpers, helpers.nodes[0], Power.ON, {"IDLE"}, outside=True),
        _node(left, left.nodes[0], Power.ON, {"MIXED"}),
        Node(home, _SHAPE, _SHAPE, frozenset({"IDLE"}), Power.ON, HOME, partitions=("batch",), idle_since=_NOW - 60),
    )
    return Snapshot(
        now=_NOW,
        tick="check",
        jobs=_jobs(busy, half_empty),
        nodes=MappingProxyType({node.name: node for node in nodes}),
        pools=MappingProxyType({pool.name: pool for pool in (day, night, helpers, left)}),
        sites=MappingProxyType(
            {
                HOME: Site(HOME, SiteKind.ONPREM),
                **{name: Site(name, SiteKind.AWS, "made-up-1") for name in (_EAST, _LEFT)},
            }
        ),
        launches=(Launch(_NOW - 1200, day.name, 1),),
        queues=MappingProxyType({"cloud": Queue("cloud")}),
        reservations=(Reservation("made-up", _NOW + 7200, _NOW + 10800, frozenset({home}), maintenance=True),),
        facts=MappingProxyType(
            {
                (kind, subject): Fact(kind, subject, _NOW - 500, _NOW + 100, why)
                for kind, subject, why in (
                    (FactKind.QUARANTINE, stopped, "it failed"),
                    (FactKind.DRAIN_SITE, _LEFT, "a person leaves it"),
                )
            }
        ),
        usual=MappingProxyType({day.name: 3.0}),
        budgets=(budget,),
        spent=MappingProxyType({Period.DAY: Spent(_NOW - 3600, _NOW + 3600, (Cost(night.name, NOBODY, DOLLAR),))}),
        purses=(Purse(budget, "", DOLLAR, 0, _NOW + 3600, "the made-up budget is used up"),),
    )


def _pool(name: str, count: int, site: SiteName = _EAST, **more: Any) -> Pool:
    names = tuple(NodeName(f"{name}-{number}") for number in range(1, count + 1))
    return Pool(PoolName(name), site, _SHAPE, names, features=frozenset({"gpu", site}), price_hour=0.5, **more)


def _day_nodes(pool: Pool) -> Iterator[Node]:
    gone, starting, idle, busy, drained, stuck, lost, stopped, reclaimed = pool.nodes
    off = {"DOWN", "DRAIN"}
    yield _node(pool, gone, Power.GONE, off, reason=OFF_REASON)
    yield _node(pool, starting, Power.STARTING, off, reason=OFF_REASON)
    yield _node(pool, idle, Power.ON, {"IDLE"}, idle_since=_NOW - 86400)
    yield _node(pool, busy, Power.ON, {"MIXED"}, free=Shape(cpus=2, mem_mb=5000, gpu_type="t4"))
    yield _node(pool, drained, Power.ON, {"IDLE", "DRAIN"}, reason="a person's", idle_since=_NOW - 3600)
    yield _node(pool, stuck, Power.STARTING, {"DOWN"}, sick="it has not joined within 15 min")
    yield _node(pool, lost, Power.ON, {"DOWN"}, sick="Slurm has lost it")
    yield _node(pool, stopped, Power.OFF, off, reason=OFF_REASON)
    yield _node(pool, reclaimed, Power.ON, {"MIXED"}, notice=Notice(_NOW + 120, "a made-up interruption"))


def _jobs(busy: NodeName, half_empty: Iterable[NodeName]) -> tuple[Job, ...]:
    return (
        Job(JobId("1"), Ask(("cloud",)), "RUNNING", submit=_NOW - 1000, priority=2, nodes=frozenset({busy})),
        Job(
            JobId("2"),
            Ask(("cloud",), nodes=2, tasks=2, gpus_per_node=1),
            "PENDING",
            submit=_NOW - 300,
            priority=1,
            reason="Resources",
            help=Help.NODES,
            why="no node is free",
        ),
        Job(JobId("3"), Ask(("night",), nodes=2, tasks=2), "RUNNING", started=_NOW - 900, nodes=frozenset(half_empty)),
    )


_MACHINES = {
    Power.OFF: MachineState.STOPPED,
    Power.STARTING: MachineState.STARTING,
    Power.ON: MachineState.RUNNING,
}
"""The state of the machine of a node that has one."""


def _node(pool: Pool, name: NodeName, power: Power, states: set[str], **more: Any) -> Node:
    state = _MACHINES.get(power)
    facts: dict[str, Any] = {
        "shape": pool.shape,
        "free": pool.shape,
        "states": frozenset({*states, "CLOUD"}),
        "site": pool.site,
        "pool": pool.name,
        "features": pool.features,
        "partitions": pool.partitions,
        "machine": Machine(MachineId(f"i-{name}"), name, state, launched=_NOW - 90000) if state else None,
    }
    return Node(name, power=power, **(facts | more))
