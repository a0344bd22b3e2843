"""Values with full defaults: a test names only what matters to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from cmscale.model import (
    DOLLAR,
    HOME,
    OFF_REASON,
    Ask,
    Budget,
    Cost,
    Fact,
    FactKind,
    Goal,
    Help,
    Job,
    JobId,
    Machine,
    MachineId,
    MachineState,
    Node,
    NodeName,
    Notice,
    Payer,
    Period,
    Pool,
    PoolName,
    Power,
    Shape,
    Site,
    SiteKind,
    SiteName,
    Snapshot,
    Spent,
    Want,
)

NOW = 1_000_000.0
EAST = SiteName("east")
WEST = SiteName("west")
T4 = Shape(cpus=4, mem_mb=15000, gpus=1, gpu_type="t4")
CPU = Shape(cpus=8, mem_mb=30000)

OFF = frozenset({"DOWN", "CLOUD", "DRAIN"})
JOINED = frozenset({"IDLE", "CLOUD", "DRAIN"})
IDLE = frozenset({"IDLE", "CLOUD"})
BUSY = frozenset({"MIXED", "CLOUD"})


def pool(name: str = "t4", count: int = 4, **changes: Any) -> Pool:
    defaults: dict[str, Any] = {
        "site": EAST,
        "shape": T4,
        "nodes": tuple(NodeName(f"{name}-{number}") for number in range(1, count + 1)),
        "partitions": ("batch",),
        "price_hour": 0.5,
    }
    return Pool(PoolName(name), **(defaults | changes))


def machine(node: str, state: MachineState = MachineState.RUNNING, **changes: Any) -> Machine:
    defaults: dict[str, Any] = {"address": "10.0.0.1", "launched": NOW - 600}
    return Machine(MachineId(f"i-{node}"), NodeName(node), state, **(defaults | changes))


def node(name: str = "t4-1", power: Power = Power.GONE, of: Pool | None = None, **changes: Any) -> Node:
    """A node of a pool, in the state that goes with its power: off and parked, booting, or up and idle."""
    of = of or pool()
    defaults: dict[str, Any] = {
        "shape": of.shape,
        "free": of.shape,
        "states": IDLE if power is Power.ON else OFF,
        "site": of.site,
        "pool": of.name,
        "features": frozenset({of.site}),
        "partitions": of.partitions,
        "reason": "" if power is Power.ON else OFF_REASON,
        "machine": None if power is Power.GONE else machine(name),
    }
    return Node(NodeName(name), power=power, **(defaults | changes))


def home_node(name: str = "op1", shape: Shape = CPU, **changes: Any) -> Node:
    defaults: dict[str, Any] = {
        "shape": shape,
        "free": shape,
        "states": frozenset({"IDLE"}),
        "power": Power.ON,
        "site": HOME,
        "partitions": ("batch",),
    }
    return Node(NodeName(name), **(defaults | changes))


def ask(**changes: Any) -> Ask:
    """One node with one GPU, if nothing else is said."""
    defaults: dict[str, Any] = {"partitions": ("batch",), "gpus_per_node": 1}
    return Ask(**(defaults | changes))


def job(number: int = 1, asks: Ask | None = None, **changes: Any) -> Job:
    defaults: dict[str, Any] = {
        "state": "PENDING",
        "submit": NOW - 10 + number / 1000,
        "priority": 1000 - number,
        "reason": "Resources",
        "help": Help.NODES,
        "why": "more nodes would help",
    }
    return Job(JobId(str(number)), asks or ask(), **(defaults | changes))


def view(
    pools: Iterable[Pool] | None = None, nodes: Iterable[Node] = (), jobs: Iterable[Job] = (), **changes: Any
) -> Snapshot:
    """A snapshot; nodes of the pools that are not named are off and parked."""
    pools = [pool()] if pools is None else list(pools)
    every = {name: node(name, of=each) for each in pools for name in each.nodes} | {each.name: each for each in nodes}
    sites = {name: Site(name, SiteKind.AWS) for name in (EAST, WEST)} | {HOME: Site(HOME, SiteKind.ONPREM)}
    defaults: dict[str, Any] = {
        "now": NOW,
        "tick": "t",
        "jobs": tuple(jobs),
        "nodes": MappingProxyType(every),
        "pools": MappingProxyType({each.name: each for each in pools}),
        "sites": MappingProxyType(sites),
    }
    return Snapshot(**(defaults | changes))


def fact(kind: FactKind, subject: str = "", **changes: Any) -> Fact:
    defaults: dict[str, Any] = {"at": NOW - 60, "until": NOW + 600, "why": "because", "by": "cm-scale"}
    return Fact(kind, subject, **(defaults | changes))


def facts(*each: Fact) -> Mapping[tuple[FactKind, str], Fact]:
    """Facts as a snapshot holds them."""
    return MappingProxyType({(fact.kind, fact.subject): fact for fact in each})


def budget(limit: float = 1.0, per: Period = Period.DAY, **changes: Any) -> Budget:
    return Budget("money", per, round(limit * DOLLAR), **changes)


def spent(*costs: Cost, begin: float = NOW - 3600, end: float = NOW + 3600) -> Spent:
    return Spent(begin, end, costs)


def cost(dollars: float, of: str = "t4", user: str = "", account: str = "") -> Cost:
    return Cost(PoolName(of), Payer(user, account), round(dollars * DOLLAR))


def notice(deadline: float = NOW + 120, why: str = "spot interruption") -> Notice:
    return Notice(deadline, why)


def goal(name: str = "t4-1", want: Want = Want.UP, **changes: Any) -> Goal:
    return Goal(NodeName(name), want, **({"reason": "because"} | changes))
