"""How long does one decision take, how much memory, and how does that grow with nodes, jobs and pools?

Everything in memory: the snapshot is made by hand, the shipped policies decide with their settings as shipped.
A decision is a whole one, with guards and the sentence for each job. No machine runs, one in ten of the nodes is up
and free, and the queue asks for far more than all pools have. Memory is the most that Python held at once beyond the
snapshot (tracemalloc), in a run of its own, since to trace takes time.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from types import MappingProxyType

from rows import Options, Row, count, options, seconds, tell

from cmscale.core.decide import decide
from cmscale.model import (
    HOME,
    OFF_REASON,
    Ask,
    Constraint,
    Help,
    Job,
    JobId,
    Limits,
    Machine,
    MachineId,
    MachineState,
    Node,
    NodeName,
    Part,
    Pool,
    PoolName,
    Power,
    Shape,
    Site,
    SiteKind,
    SiteName,
    Snapshot,
)
from cmscale.placing.ways import ways
from cmscale.shell import policies, wiring
from cmscale.shell.schema import ClusterTable

NOW = 1_000_000.0
RUNS = 5
SITES = (SiteName("east"), SiteName("west"), SiteName("north"))
SHAPES = (
    Shape(4, 15000, 1, "t4"),
    Shape(8, 15000),
    Shape(16, 60000),
    Shape(32, 240000, 4, "v100"),
    Shape(64, 500000),
    Shape(96, 1100000, 8, "a100"),
)
MANY = Limits(starts_per_minute=10**6, creations_per_hour=10**6)
POLICIES = policies.load(ClusterTable.model_fields["policies"].default, None, {})


def pool(number: int, nodes: int) -> Pool:
    name = f"p{number}"
    return Pool(
        PoolName(name),
        SITES[number % len(SITES)],
        SHAPES[number % len(SHAPES)],
        tuple(NodeName(f"{name}-{each}") for each in range(1, nodes + 1)),
        ("batch",),
        frozenset({f"f{number % 10}"}),
        price_hour=0.1 + number % 17 / 10,
    )


def node(of: Pool, name: NodeName, *, up: bool) -> Node:
    machine = Machine(MachineId(f"i-{name}"), name, MachineState.RUNNING, "10.0.0.1", NOW - 600)
    return Node(
        name,
        of.shape,
        of.shape,
        frozenset({"IDLE", "CLOUD"}) if up else frozenset({"DOWN", "CLOUD", "DRAIN"}),
        Power.ON if up else Power.GONE,
        of.site,
        of.name,
        of.features,
        of.partitions,
        "" if up else OFF_REASON,
        machine=machine if up else None,
        idle_since=NOW - 10 if up else None,
    )


def ask(chance: random.Random) -> Ask:
    feature = f"f{chance.randrange(10)}"
    gpus = chance.choice((0, 0, 0, 0, 1, 1, 2, 4))
    return Ask(
        ("batch",),
        nodes=chance.choice((1, 1, 1, 1, 1, 1, 2, 4, 8)),
        tasks=chance.choice((1, 1, 1, 2, 4, 8, 16)),
        cpus_per_task=chance.choice((1, 2, 4)),
        mem_mb_per_node=chance.randrange(500, 16000, 100),
        gpus_per_node=gpus,
        gpu_type=chance.choice(("", "t4", "v100")) if gpus == 1 else "",
        exclusive=chance.random() < 0.05,
        constraint=chance.choice((Constraint(),) * 3 + (Constraint(feature, ((Part(0, (frozenset({feature}),)),),)),)),
        limit_s=chance.choice((600, 3600, 14400, 86400)),
    )


def cluster(nodes: int, pools: int, jobs: int, asks: int) -> Snapshot:
    """So many nodes in so many pools, so many jobs that ask in so many ways."""
    chance = random.Random(1)
    every = {each.name: each for each in (pool(number, nodes // pools) for number in range(pools))}
    ways: dict[Ask, None] = {}
    while len(ways) < asks:
        ways[ask(chance)] = None
    each_way = list(ways)
    return Snapshot(
        NOW,
        "benchmark",
        tuple(
            Job(
                JobId(str(number)),
                each_way[number] if number < asks else chance.choice(each_way),
                "PENDING",
                submit=NOW - 100,
                priority=chance.randrange(10**6),
                reason="Resources",
                help=Help.NODES,
            )
            for number in range(jobs)
        ),
        MappingProxyType(
            {name: node(each, name, up=at % 10 == 0) for each in every.values() for at, name in enumerate(each.nodes)}
        ),
        MappingProxyType(every),
        MappingProxyType({name: Site(name, SiteKind.AWS) for name in SITES} | {HOME: Site(HOME, SiteKind.ONPREM)}),
    )


def decide_s(view: Snapshot, runs: int) -> float:
    plan = decide(view, POLICIES, MANY)
    if plan.failed or not plan.actions:
        raise RuntimeError(f"this decision measures nothing: {plan.failed or 'no action'}")
    return seconds(lambda: decide(view, POLICIES, MANY), runs)


def decide_mb(view: Snapshot) -> float:
    ways.cache_clear()  # what is remembered for later ticks counts, too
    tracemalloc.start()
    decide(view, POLICIES, MANY)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 2**20


def sized(size: tuple[int, int, int, int], limit_s: float, runs: int) -> Iterator[Row]:
    """What a decision of one size takes, against the limit we set ourselves."""
    nodes, pools, jobs, asks = size
    view = cluster(*size)
    most_mb = decide_mb(view)
    name, made_of = f"decide_{count(jobs)}_jobs_{count(nodes)}_nodes", f"{asks} different asks, {pools} pools"
    yield Row(f"{name}_s", decide_s(view, runs), "s", f"the limit of {limit_s:g} s; {made_of}")
    yield Row(f"{name}_memory_mb", most_mb, "MiB", f"{made_of}; beyond the snapshot, by tracemalloc")


def rows(told: Options) -> Iterator[Row]:
    runs = 1 if told.quick else RUNS
    yield from sized((100, 10, 200, 20) if told.quick else (5000, 100, 20000, 1000), 0.2, runs)
    yield from sized((200, 10, 400, 20) if told.quick else (10000, 100, 100000, 1000), 1.0, runs)
    yield from growth(told)


def growth(told: Options) -> Iterator[Row]:
    nodes, jobs, pools, runs = (200, 200, 10, 1) if told.quick else (1000, 10000, 10, RUNS)
    many, more, wide = (2 * nodes, 2 * jobs, 2 * pools) if told.quick else (5000, 20000, 100)
    asks = jobs // 20
    ordinary_s = decide_s(cluster(nodes, pools, jobs, asks), runs)
    yield Row(
        f"decide_{count(jobs)}_jobs_{count(nodes)}_nodes_in_memory_s",
        ordinary_s,
        "s",
        "Cluster Autoscaler's published goal: a loop in 60 s at 1,000 nodes",
    )
    yield Row("decided_jobs_per_s_in_memory", jobs / ordinary_s, "jobs/s", "Karpenter's benchmark demands 100 pods/s")
    alike_s = decide_s(cluster(nodes, pools, jobs, 1), runs)
    different_s = decide_s(cluster(nodes, pools, jobs, jobs), runs)
    yield Row("all_ask_alike_ratio", alike_s / ordinary_s, "ratio", f"1: {asks} different asks among the jobs")
    yield Row(
        "all_ask_differently_ratio", different_s / ordinary_s, "ratio", f"1: {asks} different asks among the jobs"
    )
    for name, size, times in (
        ("nodes", (many, pools, jobs, asks), many / nodes),
        ("jobs", (nodes, pools, more, asks), more / jobs),
        ("pools", (nodes, wide, jobs, asks), wide / pools),
    ):
        yield Row(
            f"{times:g}_times_the_{name}_ratio",
            decide_s(cluster(*size), runs) / ordinary_s,
            "ratio",
            f"{times:g}: linear growth",
        )


def main() -> None:
    told = options(__doc__)
    wiring.search_for_cycles_seldom()  # as the daemon does
    tell(rows(told), told)


if __name__ == "__main__":
    main()
