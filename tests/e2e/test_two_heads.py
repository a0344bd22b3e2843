"""Two daemons on one journal: whatever happens to the leader, the other one goes on, and nothing is made twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import cycle, islice

import pytest

from cmscale.lab.faults import Fault
from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.processes import wait_until
from cmscale.lab.slurm import Home
from tests.e2e.daemon import ENDING_S, cm_scale, doubles, job, left, lives, soon, submit
from tests.e2e.heads import Head, heads
from tests.postgres.server import Server

pytestmark = pytest.mark.slow

T4 = LabPool("t4", "t4-[1-8]", 4, 15000, 0.5, "g4dn.xlarge", gpus=1, gpu_type="t4", more={"max": 8})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(
        tmp_path_factory.mktemp("heads"),
        pools=[T4],
        home=Home(0),
        boot_s=(0.1, 0.3),
        times=Times(pending_s=0.1, ending_s=ENDING_S),
        slurm={"SchedulerParameters": "sched_interval=1,bf_interval=1"},
        limits={"min_up": "0s", "tick": "200ms"},
        policies={"release_idle": {"idle": "0s"}},
    ) as up:
        # Calls that take a while, so that many a leader is struck in the midst of one.
        up.set_fault(Fault("RunInstances", delay_s=0.7, after=True, times=0))
        up.set_fault(Fault("TerminateInstances", delay_s=0.3, after=True, times=0))
        yield up


FAIL_OVERS = 50
STRIKES = (Head.freeze, Head.kill, Head.freeze, Head.freeze, Head.stop, Head.freeze)


def queued(lab: Lab) -> list[str]:
    return lab.command("squeue", "-h", "-r", "-o", "%i").split()


@pytest.mark.timeout(600)
def test_fifty_times_under_load_the_other_one_takes_over_and_nothing_is_made_twice(lab: Lab, postgres: Server) -> None:
    jobs: list[str] = []
    took_s: list[float] = []
    hits = 0
    with heads(lab, postgres.database(), lease="600ms") as both:
        for strike in islice(cycle(STRIKES), FAIL_OVERS):
            if not queued(lab):  # so that machines come and go all the time
                jobs.append(submit(lab, "--array=1-2", "--gres=gpu:t4:1", script="sleep 0.5"))
            hits += wait_until(lambda: bool(both.under_way()), 0.3)
            struck, seconds = both.fail_over(strike)
            struck.recover()
            took_s.append(seconds)
        soon(lambda: not queued(lab), 60, what="the end of all jobs")
        soon(lambda: not left(lab), what="the end of all machines")
        soon(lambda: not both.under_way(), what="the end of all operations")
    made = lives(lab)
    print(f"{len(made)} machines, {len(jobs)} jobs; {hits} hits; took over in {max(took_s):.1f} s at most")
    assert max(took_s) < 15
    assert doubles(made) == []
    assert len({(life.operation, life.node) for life in made}) == len(made)
    assert {state for number in jobs for state in job(lab, number).split()} == {"COMPLETED"}
    assert len(made) > FAIL_OVERS / 10  # a busy machine takes over so late that most strikes find nothing to do
    assert hits > 2, "the strikes hit no calls; draw other moments"


def test_with_the_lease_that_is_the_default_the_other_one_leads_within_fifteen_seconds(
    lab: Lab, postgres: Server
) -> None:
    with heads(lab, postgres.database(), lease="10s") as both:
        leader, standby = both.in_order()
        told = cm_scale("status", "--config", str(standby.config), env=lab.env).stdout
        assert f"daemon   running as process {standby.pid}, standby; " in told
        assert f"(process {leader.pid}) leads since " in told
        third = Head(lab, "head3", both.where, "10s")
        once = cm_scale("run", "--once", "--config", str(third.config), env=lab.env)
        assert once.returncode == 2
        assert f"(process {leader.pid}) leads since " in once.stderr
        assert "nothing was done" in once.stderr
        _, seconds = both.fail_over(Head.kill)
        assert seconds < 15
        told = json.loads(cm_scale("status", "--json", "--config", str(standby.config), env=lab.env).stdout)["daemon"]
        assert (told["standby"], told["term"]) == (False, 2)
        assert told["leader"].endswith(f"(process {standby.pid})")
