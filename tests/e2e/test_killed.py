"""A daemon killed at any moment and started again makes nothing twice and leaves nothing behind."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from cmscale.lab.faults import Fault
from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import DEFAULT_POOLS
from cmscale.lab.slurm import Home
from cmscale.lab.story import Story
from cmscale.model import JobId
from tests.e2e.daemon import (
    ENDING_S,
    Daemon,
    beside,
    doubles,
    job,
    journal,
    left,
    lives,
    parked,
    soon,
    submit,
    under_way,
)

pytestmark = pytest.mark.slow

CLOUD = ",".join(pool.nodes for pool in DEFAULT_POOLS)


@contextmanager
def up(directory: Path, home: int = 1) -> Iterator[tuple[Lab, Daemon]]:
    with (
        Lab(
            directory,
            home=Home(home),
            boot_s=(0.2, 2.0),
            times=Times(pending_s=0.3, ending_s=ENDING_S),
            slurm={"SchedulerParameters": "sched_interval=1,bf_interval=1"},
            limits={"min_up": "1s", "tick": "300ms"},
            policies={"release_idle": {"idle": "2s"}},
        ) as lab,
        beside(lab) as daemon,
    ):
        yield lab, daemon


def nothing_is_left_to_do(lab: Lab, daemon: Daemon) -> None:
    """No machine, no open operation, and every cloud node out of Slurm's sight."""
    soon(lambda: not left(lab), what="the end of all machines")
    daemon.look_again()
    assert daemon.process
    assert daemon.process.poll() is None
    assert under_way(lab) == ()
    assert left(lab) == []
    assert parked(lab, CLOUD)


# --- at any moment ---------------------------------------------------------------------------------------------------

KILLS = 15

SLOW: Sequence[Sequence[Fault]] = (
    (Fault("RunInstances", delay_s=1.5, after=True, times=0), Fault("TerminateInstances", delay_s=1.2, times=0)),
    (
        # Longer than a start takes: the effect of a call comes when the next daemon has looked already.
        Fault("RunInstances", delay_s=1.5, times=3),
        Fault("RunInstances", delay_s=0.7, after=True, times=0),
        Fault("TerminateInstances", delay_s=1.2, after=True, times=0),
    ),
)
"""Calls that take a while, so that many a kill hits one of them: after its effect, and before it."""


class Doomed:
    """A lab in which the demo's jobs wait, and a daemon that is killed again and again."""

    def __init__(self, lab: Lab, daemon: Daemon, seed: int) -> None:
        self.lab, self.daemon, self.seed = lab, daemon, seed
        self.chance = Random(seed)
        self.story = Story(lab, limit_s=100)
        self.kills = 0
        self.hits = 0
        """How many of the kills hit an operation."""
        self.live()

    def live(self) -> None:
        """Start it, and draw when it shall die: so long after its start, or so long after its first look has ended."""
        self.daemon.start()
        self.counts_from = "start" if self.chance.random() < 0.4 else "first look"
        self.lives_for_s = self.chance.uniform(0.2, 1.6)
        self.counted_from = time.monotonic() if self.counts_from == "start" else None

    @property
    def is_due(self) -> bool:
        if self.counted_from is None and self.daemon.ticks:
            self.counted_from = time.monotonic()
        return self.counted_from is not None and time.monotonic() >= self.counted_from + self.lives_for_s

    def die(self) -> None:
        self.daemon.kill()
        self.kills += 1
        self.hits += bool(under_way(self.lab))
        print(
            f"seed {self.seed}: killed {self.lives_for_s:.2f} s after its {self.counts_from}; {len(left(self.lab))} "
            f"machines, {len(under_way(self.lab))} operations under way"
        )


def test_killed_again_and_again_in_the_demos_mix_it_makes_nothing_twice_and_leaves_nothing(tmp_path: Path) -> None:
    with ExitStack() as labs:
        all_doomed = []
        for seed, faults in enumerate(SLOW, start=1):
            doomed = Doomed(*labs.enter_context(up(tmp_path / f"lab{seed}")), seed)
            for fault in faults:
                doomed.lab.set_fault(fault)
            all_doomed.append(doomed)
        for doomed in all_doomed:
            doomed.story.submit()
        until = time.monotonic() + 90
        while any(doomed.kills < KILLS for doomed in all_doomed):
            assert time.monotonic() < until
            for doomed in all_doomed:
                if doomed.kills < KILLS and doomed.is_due:
                    doomed.die()
                    doomed.live()
            time.sleep(0.01)
        for doomed in all_doomed:
            everything_ran_and_nothing_was_made_twice(doomed)
        assert sum(doomed.hits for doomed in all_doomed) >= 2, "the kills hit no calls; draw other moments"


def everything_ran_and_nothing_was_made_twice(doomed: Doomed) -> None:
    story, lab = doomed.story, doomed.lab
    for _scene in story.scenes():
        pass
    nothing_is_left_to_do(lab, doomed.daemon)
    result = story.result()
    assert result["ok"], result
    made = lives(lab)
    print(f"seed {doomed.seed}: {len(made)} machines, {len(lab.call_log('RunInstances'))} launch calls")
    assert doubles(made) == []
    assert all(life.deleted for life in made)
    # However often the daemon died: no job was given more machines than it has nodes and tasks.
    asked = {"one GPU": 1, "gang of 4": 4, "array of 20": 20}
    with journal(lab) as book:
        created = book.creations({JobId(number): 0.0 for number in story.kinds})
    for number, creations in created.items():
        assert creations.machines <= asked[story.kinds[number]]
    assert sum(creations.machines for creations in created.values()) == len(made)


# --- at the worst moment ---------------------------------------------------------------------------------------------

ARRAY = ("--array=1-3", "--gres=gpu:t4:1")
GANG = ("--nodes=3", "--ntasks-per-node=1", "--gres=gpu:t4:1")


def are_done(lab: Lab, *numbers: str) -> bool:
    return {state for number in numbers for state in job(lab, number).split()} == {"COMPLETED"}


def test_killed_between_a_launch_and_its_answer_it_finds_the_machines_it_has_made(tmp_path: Path) -> None:
    with up(tmp_path / "lab", home=0) as (lab, daemon):
        lab.set_fault(Fault("RunInstances", delay_s=30, after=True, times=2))
        jobs = submit(lab, *ARRAY), submit(lab, *GANG)
        soon(lambda: all(job(lab, number, "%r") != "None" for number in jobs), what="Slurm's view of the jobs")
        daemon.start()  # only now, so that one look mostly sees both; Slurm blanks a reason now and then
        soon(lambda: len(left(lab)) >= 3, what="a launch")
        operations = under_way(lab)
        daemon.kill()
        lab.control.clear_faults()
        daemon.start()
        soon(lambda: are_done(lab, *jobs), what="the jobs' end")
        nothing_is_left_to_do(lab, daemon)
        made = lives(lab)
        assert sorted(life.node for life in made) == [f"t4-{number}" for number in range(1, 7)]
        assert operations
        assert {life.operation for life in made} >= {operation.id for operation in operations}
