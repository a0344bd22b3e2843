"""What has a machine cost, and who has it cost that for?

A machine's time is cut into stretches (`Life`), each metered from its beginning to its end without a gap, so the sum of
the bill is always life times price, exactly. The time goes to the jobs that ran there, by the CPUs they took; what no
job used is boot or idle and is put down to the job for which the machine was started. A job pays from its own start to
the last look that saw it: what is not known to have been used is idle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from cmscale import fit
from cmscale.model import (
    OFF_REASON,
    Job,
    Life,
    Machine,
    MachineState,
    Node,
    Payer,
    Pool,
    Power,
    Spending,
    Use,
    price,
)

HOUR_MS = 3_600_000
RUNNING = frozenset({MachineState.STARTING, MachineState.RUNNING})
KEPT = frozenset({MachineState.STOPPING, MachineState.STOPPED})

RESTARTED_S = 120.0
"""A machine launched so much later than its stretch began was powered off and on while nobody looked; less may be the
difference between our word, of the call, and the cloud's."""

Bill = Counter[Use]
"""Milliseconds by line."""


def is_running(machine: Machine) -> bool | None:
    """True if it is paid for in full, False if as one that is kept, None if not at all."""
    if machine.state in RUNNING:
        return True
    return False if machine.state in KEPT else None


def begun(machine: Machine, pool: Pool, owner: Payer, at: float) -> Life:
    """The stretch that begins with what is seen of the machine now. A machine that runs has done so since its launch;
    since when one is off nobody says, so it is from now on."""
    running = bool(is_running(machine))
    since = machine.launched if running else at
    return Life(machine.id, machine.node, pool.name, running, since, since, 0, _price(pool, running=running), owner)


def goes_on(life: Life, machine: Machine) -> bool:
    """True if the machine is still in the stretch."""
    running = is_running(machine)
    # What is in the bill was not before the launch: a later date by itself may be that of a clock that was set.
    restarted = machine.launched > life.launched + RESTARTED_S and machine.launched >= life.until
    return running is life.running and not (running and restarted)


class Scene(NamedTuple):
    """What is known of a machine's circumstances."""

    pool: Pool | None
    """None if the configuration knows it no more."""
    node: Node | None
    """What it serves; None if it serves nothing."""
    jobs: Sequence[Job]
    """Those of its node."""
    utc_offset_s: float

    @property
    def offset_ms(self) -> int:
        return round(self.utc_offset_s * 1000)


def metered(life: Life, scene: Scene, until: float) -> tuple[Life, Bill]:
    """The stretch with its time up to `until` in the bill; nothing if it is there already."""
    begin, end = _ms(life.until), _ms(until)
    if end <= begin:
        return life, Counter()
    per_hour = _price(scene.pool, running=life.running) if scene.pool else life.price
    bill: Bill = Counter()
    for one, other in _by_hours(begin, end, scene.offset_ms):
        hour = _hour(one, scene.offset_ms)
        for spending, payer, ms in _parts(life, scene, one, other):
            bill[Use(hour, life.pool, spending, payer, per_hour)] += ms
    return replace(life, until=until, paid_ms=life.paid_ms + end - begin, price=per_hour), bill


def ended(life: Life, scene: Scene) -> Bill:
    """What a stretch that is over costs beyond the time it took: the rest of the quantum, or of the least time."""
    rest = billed_ms(life.paid_ms, scene.pool) - life.paid_ms if life.running and scene.pool else 0
    if not rest:
        return Counter()
    # In the hour of its last moment, so that it is the same period that pays for both.
    hour = _hour(_ms(life.until) - 1, scene.offset_ms)
    return Counter({Use(hour, life.pool, Spending.IDLE, life.owner, life.price): rest})


def billed_ms(ms: int, pool: Pool) -> int:
    """What is paid for if a machine runs so long: at least the minimum, and whole quanta."""
    least = max(ms, round(pool.billing_minimum_s * 1000))
    quantum = round(pool.billing_quantum_s * 1000)
    return -(-least // quantum) * quantum if quantum else least


class Share(NamedTuple):
    """What one job takes of a node."""

    payer: Payer
    since_ms: int
    cpus: int


def shares(node: Node, jobs: Iterable[Job]) -> list[Share]:
    """What each job that runs on the node takes of it."""
    return [
        Share(Payer(job.user, job.account, job.id), _ms(job.started), _cpus(job, node))
        for job in jobs
        if not job.pending and job.started is not None and node.name in job.nodes
    ]


def _cpus(job: Job, node: Node) -> int:
    taken = fit.share(job.ask, max(len(job.nodes), 1), node.shape)
    return max(taken.cpus if taken else 0, 1)


def _parts(life: Life, scene: Scene, begin: int, end: int) -> Iterator[tuple[Spending, Payer, int]]:
    """Who had the machine between two moments."""
    node = scene.node
    if not life.running or node is None:
        yield Spending.IDLE, life.owner, end - begin
        return
    if node.power is Power.STARTING:
        yield Spending.BOOT, life.owner, end - begin
        return
    if (joined := _joined(node, begin, end)) > begin:
        yield Spending.BOOT, life.owner, joined - begin
        begin = joined
    there = shares(node, scene.jobs)
    moments = sorted({begin, end, *(each.since_ms for each in there if begin < each.since_ms < end)})
    for one, other in pairwise(moments):
        at_work = [each for each in there if each.since_ms <= one]
        if not at_work:
            yield Spending.IDLE, life.owner, other - one
        for share, ms in zip(at_work, divided(other - one, [each.cpus for each in at_work]), strict=True):
            yield Spending.JOB, share.payer, ms


def _joined(node: Node, begin: int, end: int) -> int:
    """Until when the machine booted, of one that is not handed to Slurm yet: until it was seen to have joined."""
    held = node.drained_by_us and node.reason == OFF_REASON and node.idle_since is not None
    return max(begin, min(_ms(node.idle_since), end)) if held else begin


def divided(whole: int, weights: Sequence[int]) -> Iterator[int]:
    """Whole numbers in proportion to the weights, which add up to the whole."""
    before = so_far = 0
    for weight in weights:
        so_far += weight
        now = whole * so_far // sum(weights)
        yield now - before
        before = now


def _by_hours(begin: int, end: int, offset_ms: int) -> Iterator[tuple[int, int]]:
    while begin < end:
        following = _hour(begin, offset_ms) * 1000 + HOUR_MS
        yield begin, min(following, end)
        begin = following


def _hour(ms: int, offset_ms: int) -> int:
    """When the hour of the site's clock began, in seconds."""
    return (ms - (ms + offset_ms) % HOUR_MS) // 1000


def _ms(seconds: float | None) -> int:
    return round((seconds or 0.0) * 1000)


def _price(pool: Pool, *, running: bool) -> int:
    return price(pool.price_hour if running else pool.stopped_price_hour)
