"""How ticks follow one another: how long they rest, and how long Slurm may keep one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cmscale.model import JobId, Outcome, Result, Verb
from cmscale.ports import Unavailable
from cmscale.shell.act import TELLING_S
from cmscale.shell.loop import BETWEEN_S, Look, run
from tests.builders import ask
from tests.shell.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "journal.db")


@dataclass
class Slow:
    """A Slurm that takes its time to show nodes, may be silent then, and takes its time to be told comments."""

    inner: Any
    clock: Any
    answers: list[tuple[float, bool]]
    """For each look what it takes, and whether it is answered."""
    say_s: float = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def nodes(self) -> Any:
        takes_s, answered = self.answers.pop(0) if self.answers else (0.0, True)
        self.clock.wait(takes_s)
        if not answered:
            raise Unavailable("slurmctld is silent")
        return self.inner.nodes()

    def say(self, comments: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        self.clock.wait(self.say_s)
        return dict.fromkeys(comments, Outcome(Result.TRANSIENT, "squeue gave no answer within 20 s"))


def rests(cluster: Cluster, answers: list[tuple[float, bool]]) -> list[float]:
    """How long the daemon rested after each look."""
    slow = Slow(cluster.slurm, cluster.clock, list(answers))
    cluster.daemon.world = replace(cluster.daemon.world, scheduler=slow)
    looked: list[float] = []
    began: list[float] = []

    def told(look: Look) -> None:
        began.append(look.view.now)
        looked.append(cluster.clock.now())
        cluster.clock.ended = len(looked) == len(answers) + 1

    run(cluster.daemon, told)
    return [round(begin - end, 1) for end, begin in zip(looked, began[1:], strict=False)]


def test_a_look_costs_a_tenth_of_the_time_at_most(cluster: Cluster) -> None:
    assert rests(cluster, [(0.0, True), (2.0, True), (0.01, True)]) == [1.0, 20.0, 1.0]


def test_who_did_not_answer_is_looked_at_soon_and_so_is_who_has_just_come_back(cluster: Cluster) -> None:
    assert rests(cluster, [(4.0, False), (3.0, True), (3.0, True)]) == [4.0, 3.0, 30.0]


def test_what_was_drained_so_that_it_can_go_is_given_back_without_a_rest(cluster: Cluster) -> None:
    cluster.slurm.submit(1, ask())
    cluster.run_until(lambda: bool(cluster.slurm.done))
    slow = Slow(cluster.slurm, cluster.clock, [(2.0, True)] * 50)
    cluster.daemon.world = replace(cluster.daemon.world, scheduler=slow)
    did: dict[Verb, float] = {}

    def told(look: Look) -> None:
        did.update({action.verb: cluster.clock.now() for action in look.plan.actions})
        cluster.clock.ended = Verb.DELETE in did

    run(cluster.daemon, told)
    assert did[Verb.DELETE] - did[Verb.DRAIN] == cluster.daemon.tick_s + 2.0


def test_a_long_rest_is_interrupted_to_say_that_we_live(cluster: Cluster) -> None:
    slow = Slow(cluster.slurm, cluster.clock, [(10.0, True)])
    cluster.daemon.world = replace(cluster.daemon.world, scheduler=slow)
    beats: list[float] = []
    looks = 0

    def told(_: Look) -> None:
        nonlocal looks
        looks += 1
        cluster.clock.ended = looks == 2

    run(cluster.daemon, told, lambda: beats.append(cluster.clock.now()))
    assert len(beats) >= 100 / BETWEEN_S
    assert all(later - earlier <= BETWEEN_S for earlier, later in pairwise(beats))


def test_a_slurm_that_no_longer_takes_what_it_is_told_does_not_keep_the_tick(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.cloud.refuse(Result.CAPACITY)
    slow = Slow(cluster.slurm, cluster.clock, [], say_s=20.0)
    for number in range(10):
        cluster.slurm.submit(number, ask(gpus_per_node=1 + number))
    cluster.tick(3)
    for job in list(cluster.slurm.queue):
        cluster.slurm.queue[job] = replace(cluster.slurm.queue[job], comment=f"job {job}")
    cluster.daemon.world = replace(cluster.daemon.world, scheduler=slow)
    began = cluster.clock.now()
    cluster.decide()
    assert cluster.clock.now() - began <= TELLING_S + 20.0
    assert "Slurm takes more than 30 s to be told what is decided" in caplog.text


def test_a_tick_that_breaks_is_told_and_the_next_one_comes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def idle() -> Mapping[str, float]:
        raise OSError("disk full")

    troubles: list[tuple[str, ...]] = []

    def between() -> None:
        troubles.append(cluster.daemon.troubles)
        monkeypatch.undo()

    def told(_: Look) -> None:
        cluster.clock.ended = True

    monkeypatch.setattr(cluster.journal, "idle", idle)
    run(cluster.daemon, told, between)
    assert troubles[0] == ("the last tick broke off: OSError: disk full",)
    assert not cluster.daemon.troubles
