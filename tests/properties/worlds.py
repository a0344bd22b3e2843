"""Which worlds are there: pools, jobs, settings, and what goes wrong when? Each is a value that hypothesis shrinks.

Times are counted in ticks of the story; what a world leaves out is as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from hypothesis import strategies as some

from cmscale import hours
from cmscale.adapters.slurm import parse
from cmscale.model import (
    ANYWHERE,
    DOLLAR,
    EACH,
    Ask,
    AtLimit,
    Budget,
    Limits,
    NodeName,
    NodeOrder,
    Period,
    Pool,
    PoolName,
    Queue,
    Result,
    Shape,
    SiteName,
)

SITES = (SiteName("east"), SiteName("west"), SiteName("east"), SiteName("west"), SiteName("south"))
"""Most pools share two sites, so that gangs can be torn apart."""
SMALL, BIG = Shape(4, 15000), Shape(8, 30000)
HELPER = NodeName("helper-1")
STORY_TICKS = 40
USER = "ada"


class Trouble(Enum):
    """What can go wrong for a time, or at once."""

    REFUSAL = "a pool refuses launches"
    LOST_ANSWER = "a pool's machines are made, and no answer says so"
    SCARCITY = "a pool has room for a machine or two"
    UNLISTED = "one listing misses a machine"
    NEVER_BOOTS = "machines never boot"
    TOO_SMALL = "machines register with less than promised"
    DIES = "machines die after a while"
    HANGS = "machines do not shut down"
    RECLAIMED = "the cloud takes a machine back"
    LOST = "a machine is there no more"
    SITE_SILENT = "a site does not answer"
    SLURM_SILENT = "slurmctld does not answer"
    DRAINED = "a person drains a node"
    MAINTENANCE = "a node is under maintenance"
    RESERVED = "a node is reserved for a user"
    PAUSED = "an admin pauses cm-scale"
    KEPT = "an admin keeps a node"
    SITE_DRAINED = "an admin drains a site"
    CANCELLED = "a user cancels a job"


@dataclass(frozen=True)
class Fault:
    what: Trouble
    at: int = 0
    ticks: int = 1
    """How long it lasts, where it lasts."""
    which: int = 0
    """The pool, node, site or job that it hits: the one at this place, counted round and round."""
    result: Result = Result.CAPACITY
    in_s: float = 10.0
    """How much time is left, where there is a warning; how long a machine lives that dies."""


@dataclass(frozen=True)
class Submission:
    at: int = 0
    nodes: int = 1
    count: int = 1
    run_s: float = 20.0
    cpus: int = 4
    exclusive: bool = False
    limit_s: int | None = None
    deadline_s: int | None = None
    reservation: str = ""
    comment: str = ""
    constraint: str = ""
    partition: str = "batch"
    requeue: bool = True
    held: bool = False

    def ask(self, began: float) -> Ask:
        return Ask(
            partitions=(self.partition,),
            nodes=self.nodes,
            tasks=self.nodes,
            cpus_per_task=self.cpus,
            exclusive=self.exclusive,
            limit_s=self.limit_s,
            deadline=None if self.deadline_s is None else began + self.deadline_s,
            reservation=self.reservation,
            constraint=parse.constraint(self.constraint) if self.constraint else ANYWHERE,
        )


class Failing(Enum):
    """How a policy of the site's own can fail."""

    RAISES = "raises"
    OVERRUNS = "overruns"
    NONSENSE = "wishes for a node that does not exist"
    NO_GOAL = "proposes what is no goal"


@dataclass(frozen=True)
class Broken:
    """A policy that fails in some ticks."""

    how: Failing
    place: int
    """Where it stands in the order."""
    ticks: frozenset[int]


@dataclass(frozen=True)
class World:
    pools: tuple[Pool, ...]
    jobs: tuple[Submission, ...] = ()
    faults: tuple[Fault, ...] = ()
    home: int = 0
    """How many nodes the site runs without us."""
    lag_s: float = 0.0
    """How late listings show new machines."""
    policies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    queue: Queue = field(default_factory=lambda: Queue("batch"))
    budgets: tuple[Budget, ...] = ()
    broken: Broken | None = None
    deaths: tuple[int, ...] = ()
    """In so many calls from the last death the daemon dies again."""


@some.composite
def _pools(draw: some.DrawFn) -> tuple[Pool, ...]:
    drawn = [draw(_pool(place)) for place in range(draw(some.integers(1, 4)))]
    if not draw(_seldom):
        return tuple(drawn)
    helped = [replace(pool, helpers=(HELPER,)) for pool in drawn]
    return (*helped, Pool(PoolName("helper"), drawn[0].site, SMALL, (HELPER,), **_LIMITS))


_LIMITS: Mapping[str, Any] = {"boot_s": 30.0, "boot_limit_s": 100.0, "shutdown_limit_s": 50.0}


@some.composite
def _pool(draw: some.DrawFn, place: int) -> Pool:
    name = f"p{place}"
    nodes = tuple(NodeName(f"{name}-{number}") for number in range(1, draw(some.integers(2, 4)) + 1))
    static = draw(_seldom)
    return Pool(
        PoolName(name),
        draw(some.sampled_from(SITES)),
        draw(some.sampled_from((BIG, SMALL))),
        nodes,
        ("batch", "other") if draw(_seldom) else ("batch",),
        market="spot" if draw(_seldom) and not static else "on-demand",
        family=draw(some.sampled_from(("", "g"))),
        price_hour=draw(some.sampled_from((1.0, 0.5, 0.1))),
        priority=draw(some.sampled_from((0, 0, 1))),
        max=draw(some.sampled_from((0, 0, 2))),
        keep=draw(some.sampled_from((0, 0, 0, 1))),
        keep_running=frozenset(nodes[:1]) if draw(_seldom) else frozenset(),
        static=static,
        never_terminate=frozenset(nodes[:1]) if draw(_seldom) else frozenset(),
        order=draw(some.sampled_from(NodeOrder)),
        # The story begins on a Monday, at 13:46:40.
        hours=hours.windows(["mon 08:00-13:52"]) if draw(_seldom) else (),
        **_LIMITS,
    )


_seldom = some.sampled_from((False, False, False, True))

_submissions = some.builds(
    Submission,
    at=some.integers(0, STORY_TICKS - 10),
    nodes=some.sampled_from((1, 2, 1, 2, 3)),
    count=some.sampled_from((1, 1, 1, 3)),
    run_s=some.sampled_from((100.0, 20.0, 5.0, 300.0)),
    cpus=some.sampled_from((4, 4, 2, 8)),
    exclusive=_seldom,
    limit_s=some.sampled_from((None, None, 60, 600)),
    deadline_s=some.sampled_from((None, None, None, None, None, 300)),
    reservation=some.sampled_from((*[""] * 9, "for-ada")),
    comment=some.sampled_from(("", "", "spot", "on-demand")),
    constraint=some.sampled_from(("", "", "", "", "", "east", "east|west")),
    partition=some.sampled_from(("batch", "batch", "batch", "batch", "other")),
    requeue=some.sampled_from((True, True, True, False)),
    held=some.sampled_from((*[False] * 9, True)),
)

_long = some.builds(
    Submission,
    at=some.integers(0, STORY_TICKS - 10),
    count=some.sampled_from((1, 3, 6)),
    run_s=some.sampled_from((4000.0, 1500.0, 100.0)),
    exclusive=some.just(True),
)
"""Jobs that have machines run for long."""

_faults = some.builds(
    Fault,
    what=some.sampled_from(Trouble),
    at=some.integers(0, STORY_TICKS - 1),
    ticks=some.integers(1, 15),
    which=some.integers(0, 15),
    result=some.sampled_from(
        (
            Result.CAPACITY,
            Result.QUOTA,
            Result.THROTTLED,
            Result.AUTH,
            Result.IMAGE,
            Result.BAD_REQUEST,
            Result.TRANSIENT,
        )
    ),
    in_s=some.sampled_from((10.0, 60.0, 120.0)),
)

_policies = some.fixed_dictionaries(
    {
        "leave_reclaimed": some.fixed_dictionaries({"requeue_before": some.sampled_from(("30s", "0s", "90s"))}),
        "harvest": some.fixed_dictionaries(
            {
                "drain_before": some.sampled_from(("2m", "1m")),
                "requeue": some.booleans(),
                "stop_before": some.sampled_from(("30s", "0s")),
            }
        ),
        "quarantine": some.fixed_dictionaries({"failed": some.sampled_from(("delete", "stop"))}),
        "serve_queue": some.fixed_dictionaries(
            {
                "patience": some.just("3h"),  # longer than the story and its healing
                "gang_wait": some.sampled_from(("1m", "0s", "5m")),
                "spot": some.sampled_from(("always", "opt-in")),
                "spot_share": some.sampled_from((1.0, 0.5)),
                "wait_per_dollar": some.sampled_from(("0s", "10m")),
                "wait_at_most": some.just("5m"),
            }
        ),
        "start_helpers": some.fixed_dictionaries({"idle": some.sampled_from(("30s", "0s"))}),
        "consolidate": some.fixed_dictionaries(
            {"at_once": some.sampled_from((1, 0, 2)), "min_up": some.sampled_from(("0s", "1m"))}
        ),
        "release_idle": some.fixed_dictionaries({"idle": some.sampled_from(("30s", "0s", "1m"))}),
    }
)

_broken = some.builds(
    Broken,
    how=some.sampled_from(Failing),
    place=some.integers(0, 8),
    ticks=some.frozensets(some.integers(0, STORY_TICKS - 1), min_size=1),
)


_budgets = some.builds(
    Budget,
    name=some.uuids(version=4).map(str),
    per=some.sampled_from((Period.HOUR, Period.DAY)),
    limit=some.sampled_from((0.1, 0.5, 2.0, 10.0)).map(lambda limit: round(limit * DOLLAR)),
    pool=some.sampled_from((None, None, PoolName("p0"))),
    user=some.sampled_from(("", "", "", USER, EACH)),
    at_limit=some.sampled_from((AtLimit.STOP_STARTING, AtLimit.STOP_STARTING, AtLimit.DRAIN, AtLimit.SPOT_ONLY)),
)


def worlds(
    *, broken: bool = False, deadly: bool = False, faults: int = 10, jobs: int = 10, budgets: int = 0
) -> some.SearchStrategy[World]:
    return some.builds(
        World,
        pools=_pools(),
        jobs=some.lists(_long | _submissions if budgets else _submissions, min_size=2, max_size=jobs).map(tuple),
        faults=some.lists(_faults, min_size=2, max_size=faults).map(tuple),
        home=some.sampled_from((0, 0, 1, 2)),
        lag_s=some.sampled_from((0.0, 0.0, 30.0)),
        policies=_policies,
        limits=some.builds(
            Limits,
            min_up_s=some.sampled_from((0.0, 60.0)),
            quarantine_s=some.sampled_from((120.0, 30.0)),
            creations_per_job=some.sampled_from((3, 1)),
        ),
        queue=some.builds(
            Queue,
            some.just("batch"),
            mix_sites=_seldom,
            jobs_per_node=some.sampled_from((0, 0, 1)),
            age_s=some.sampled_from((0.0, 0.0, 20.0)),
        ),
        budgets=some.lists(_budgets, min_size=1, max_size=budgets).map(tuple) if budgets else some.just(()),
        broken=_broken if broken else some.none(),
        deaths=some.lists(some.integers(1, 60), min_size=1, max_size=12).map(tuple) if deadly else some.just(()),
    )
