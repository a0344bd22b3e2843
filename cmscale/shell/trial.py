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
    HOME,
    OFF_REASON,
    Ask,
    Goal,
    Help,
    Job,
    JobId,
    Machine,
    MachineId,
    MachineState,
    Node,
    NodeName,
    Pool,
    PoolName,
    Power,
    Shape,
    Site,
    SiteKind,
    SiteName,
    Snapshot,
    Want,
)
from cmscale.shell.policies import Policy


def tried(policy: Policy) -> str:
    """What goes wrong when the policy is asked about made-up snapshots; empty if nothing does."""
    for what, view in (("an empty snapshot", Snapshot(now=_NOW, tick="check")), (_SOME, _some())):
        if wrong := _asked(policy, what, view):
            return wrong
    return ""


def _asked(policy: Policy, what: str, view: Snapshot) -> str:
    answer: Any = None

    def propose(view: Snapshot, claimed: frozenset[NodeName], given: Any) -> Iterator[Goal]:
        nonlocal answer
        answer = policy.function(view, claimed, given)
        return answer  # type: ignore[no-any-return]

    try:
        for goal in replace(policy, function=propose).propose(view, frozenset()):
            if wrong := _wrong_goal(goal):
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
_SOME = "a made-up snapshot of a few nodes and jobs"


def _some() -> Snapshot:
    """A pool with a node in each state that a policy is likely to tell apart, a node of the site itself, and two jobs,
    one of which waits."""
    east = SiteName("made-up-site")
    pool = Pool(
        PoolName("made-up"),
        east,
        Shape(cpus=4, mem_mb=15000, gpus=1, gpu_type="t4"),
        tuple(NodeName(f"made-up-{number}") for number in range(1, 7)),
        partitions=("cloud",),
        features=frozenset({"gpu", east}),
        price_hour=0.5,
        keep=1,
    )
    gone, starting, idle, busy, drained, sick = pool.nodes
    home = NodeName("home-1")
    nodes = (
        _node(pool, gone, Power.GONE, {"DOWN", "DRAIN"}, reason=OFF_REASON),
        _node(pool, starting, Power.STARTING, {"DOWN", "DRAIN"}, reason=OFF_REASON),
        _node(pool, idle, Power.ON, {"IDLE"}, idle_since=_NOW - 86400),
        _node(pool, busy, Power.ON, {"MIXED"}, free=Shape(cpus=2, mem_mb=5000, gpu_type="t4")),
        _node(pool, drained, Power.ON, {"IDLE", "DRAIN"}, reason="a person's", idle_since=_NOW - 3600),
        _node(pool, sick, Power.STARTING, {"DOWN"}, sick="it has not joined within 15 min"),
        Node(
            home,
            pool.shape,
            pool.shape,
            frozenset({"IDLE"}),
            Power.ON,
            HOME,
            partitions=("batch",),
            idle_since=_NOW - 60,
        ),
    )
    jobs = (
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
    )
    return Snapshot(
        now=_NOW,
        tick="check",
        jobs=jobs,
        nodes=MappingProxyType({node.name: node for node in nodes}),
        pools=MappingProxyType({pool.name: pool}),
        sites=MappingProxyType({east: Site(east, SiteKind.AWS, "made-up-1"), HOME: Site(HOME, SiteKind.ONPREM)}),
        starts=(_NOW - 1200,),
    )


def _node(pool: Pool, name: NodeName, power: Power, states: set[str], **more: Any) -> Node:
    state = MachineState.RUNNING if power is Power.ON else MachineState.STARTING
    facts: dict[str, Any] = {
        "shape": pool.shape,
        "free": pool.shape,
        "states": frozenset({*states, "CLOUD"}),
        "site": pool.site,
        "pool": pool.name,
        "features": pool.features,
        "partitions": pool.partitions,
        "machine": None if power is Power.GONE else Machine(MachineId(f"i-{name}"), name, state, launched=_NOW - 90000),
    }
    return Node(name, power=power, **(facts | more))
