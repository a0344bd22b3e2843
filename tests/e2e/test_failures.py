"""What goes wrong around the daemon: Slurm, the cloud, machines, people, and being told to end."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cmscale.lab.faults import Fault
from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.slurm import Home
from tests.e2e.daemon import (
    ENDING_S,
    PACKAGE,
    PROGRAM,
    Daemon,
    Life,
    beside,
    cm_scale,
    doubles,
    job,
    left,
    lives,
    parked,
    soon,
    states,
    submit,
    under_way,
)

pytestmark = pytest.mark.slow

T4 = LabPool("t4", "t4-[1-4]", 4, 15000, 0.5, "g4dn.xlarge", gpus=1, gpu_type="t4")
CPU = LabPool("cpu", "cpu-[1-4]", 8, 15000, 0.34, "c5.2xlarge")
LAME = LabPool("lame", "lame-[1-6]", 4, 15000, 0.6, "g4dn.xlarge", gpus=1, gpu_type="m60", more={"boot_limit": "3s"})
IDLE_S = 1.2


@contextmanager
def up(directory: Path, pools: Sequence[LabPool] = (T4, CPU)) -> Iterator[tuple[Lab, Daemon]]:
    """A small, quick lab with a daemon that has looked once."""
    with (
        Lab(
            directory,
            pools=pools,
            home=Home(0),
            boot_s=(0.2, 0.5),
            times=Times(pending_s=0.2, ending_s=ENDING_S),
            slurm={"SchedulerParameters": "sched_interval=1,bf_interval=1"},
            limits={"min_up": "1s", "tick": "300ms", "creations_per_job": 2},
            policies={"release_idle": {"idle": f"{IDLE_S}s"}},
        ) as lab,
        beside(lab) as daemon,
    ):
        daemon.start_and_look()
        yield lab, daemon


class Place(NamedTuple):
    """A lab at rest, with its daemon."""

    lab: Lab
    daemon: Daemon
    began: float

    @property
    def made(self) -> list[Life]:
        """The machines made in this test, by node."""
        return sorted((life for life in lives(self.lab) if life.made >= self.began), key=lambda life: life.node)

    @property
    def nodes(self) -> list[str]:
        return [life.node for life in self.made]


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Daemon]]:
    with up(tmp_path_factory.mktemp("lab"), (T4, CPU, LAME)) as both:
        yield both


@pytest.fixture
def place(one_lab: tuple[Lab, Daemon]) -> Place:
    """The lab that these tests share, as if new: no job, no fault, no machine, and a daemon that runs."""
    lab, daemon = one_lab
    lab.control.clear_faults()
    lab.never_boot("")
    lab.command("scancel", "--partition=batch")
    if daemon.process is None:
        daemon.start_and_look()
    soon(lambda: not left(lab), what="rest after the test before")
    return Place(lab, daemon, time.time())


def is_done(lab: Lab, number: str, state: str = "COMPLETED") -> bool:
    return set(job(lab, number).split()) == {state}


def runs(lab: Lab, number: str) -> bool:
    return is_done(lab, number, "RUNNING")


def changes(lab: Lab, since: float) -> list[dict[str, Any]]:
    """The calls since then that make, start, stop or end machines."""
    return [call for call in lab.call_log(since=since) if not call["action"].startswith("Describe")]


# --- people and jobs -------------------------------------------------------------------------------------------------


def test_a_second_daemon_says_who_is_there_already_and_ends(place: Place) -> None:
    lab, daemon, _ = place
    second = cm_scale("run", "--config", str(lab.config), env=lab.env)
    assert daemon.process
    assert second.returncode == 2
    assert second.stderr == (
        f"cm-scale: a daemon (process {daemon.process.pid}) runs already with the journal in "
        f"{lab.directory / 'cm-scale'}\n"
    )
    daemon.look_again()


def test_a_busy_node_is_never_stopped_however_long_its_job_runs(place: Place) -> None:
    lab, _, _ = place
    number = submit(lab, "--gres=gpu:t4:1", script=f"sleep {2 * IDLE_S}")
    soon(lambda: runs(lab, number))
    node = job(lab, number, "%N")
    while runs(lab, number):
        assert "DRAIN" not in states(lab, node)[0] or not runs(lab, number)
        time.sleep(0.1)
    soon(lambda: is_done(lab, number))
    assert job(lab, number, "%r") == "None"
    soon(lambda: node not in left(lab))
    (life,) = place.made
    ended = float(lab.command("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-t", "all", "-j", number, "-o", "%e"))
    assert life.deleted
    assert life.deleted >= ended


def test_a_job_cancelled_while_its_machine_boots_leaves_nothing_behind(place: Place) -> None:
    lab, daemon, _ = place
    number = submit(lab, "--nodes=2", "--exclusive", "--constraint=aws-us-east-1", "-w", "cpu-[3-4]")
    soon(lambda: {"cpu-3", "cpu-4"} <= set(left(lab)))
    lab.command("scancel", number)
    soon(lambda: not {"cpu-3", "cpu-4"} & set(left(lab)))
    soon(lambda: parked(lab, "cpu-[3-4]"))
    daemon.look_again()
    assert under_way(lab) == ()
    assert place.nodes == ["cpu-3", "cpu-4"]


def test_a_persons_drain_is_never_undone_and_the_machine_is_kept_while_it_holds(place: Place) -> None:
    lab, daemon, _ = place
    number = submit(lab, "-w", "cpu-2")
    soon(lambda: runs(lab, number))
    lab.command("scontrol", "update", "nodename=cpu-2", "state=drain", "reason=disk")
    soon(lambda: is_done(lab, number))
    other = submit(lab, "-w", "cpu-2")
    until = time.monotonic() + 2 * IDLE_S
    while time.monotonic() < until:
        daemon.look_again()
        assert "DRAIN" in states(lab, "cpu-2")[0]
        assert lab.command("sinfo", "-h", "-N", "-n", "cpu-2", "-o", "%E").strip() == "disk"
        assert "cpu-2" in left(lab)
    assert is_done(lab, other, "PENDING")
    lab.command("scontrol", "update", "nodename=cpu-2", "state=resume")
    soon(lambda: is_done(lab, other))
    soon(lambda: "cpu-2" not in left(lab))
    assert place.nodes == ["cpu-2"]


def test_machines_that_never_boot_are_deleted_another_is_tried_and_then_the_pool_is_closed(place: Place) -> None:
    lab, daemon, _ = place
    lab.never_boot("lame-[1-6]")
    number = submit(lab, "--gres=gpu:m60:1")
    soon(lambda: "lame: closed (boot: machine i-" in job(lab, number, "%k"))
    daemon.look_again()
    assert len(place.made) == 2
    assert all(life.deleted and life.deleted - life.made >= 2 for life in place.made)  # EC2 tells whole seconds
    assert job(lab, number, "%k").startswith("cm-scale: waits for room: lame: closed")


# --- being told to end -----------------------------------------------------------------------------------------------


def test_told_to_end_in_a_launch_it_waits_for_the_answer_but_not_for_ever(place: Place) -> None:
    lab, daemon, began = place
    lab.set_fault(Fault("RunInstances", delay_s=2))
    answered = submit(lab, "--gres=gpu:t4:1")
    soon(lambda: under_way(lab))
    status, took_s = daemon.stop()
    assert status == 0
    assert took_s < 4
    assert under_way(lab) == ()

    daemon.start_and_look()
    lab.set_fault(Fault("RunInstances", delay_s=7))  # it takes effect after the next daemon has asked again
    unanswered = submit(lab, "-w", "cpu-1")
    soon(lambda: under_way(lab))
    (operation,) = under_way(lab)
    status, took_s = daemon.stop()
    assert status == 0
    assert 4 < took_s < 6
    assert under_way(lab) == (operation,)

    daemon.start()
    soon(lambda: is_done(lab, answered) and is_done(lab, unanswered))
    soon(lambda: len(lab.call_log("RunInstances", since=began)) == 3)
    assert place.nodes == ["cpu-1", "t4-1"]
    assert under_way(lab) == ()


# --- Slurm -----------------------------------------------------------------------------------------------------------


def both_exit_2_saying(lab: Lab, sentence: str) -> None:
    """`plan` and `status`, side by side, for either may take Slurm's own patience."""
    asked = [
        subprocess.Popen(
            [*PROGRAM, word, "--config", str(lab.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**lab.env, **PACKAGE},
        )
        for word in ("plan", "status")
    ]
    (plan, plan_said), (status, status_said) = [each.communicate(timeout=30) for each in asked]
    assert [each.returncode for each in asked] == [2, 2]
    assert plan == ""
    assert status.startswith("daemon   running as process ")
    for said in (plan_said, status_said):
        assert said.count("\n") == 1
        assert sentence in said


def test_without_slurmctld_nothing_is_done_and_everything_goes_on_when_it_is_back(place: Place) -> None:
    lab, daemon, _ = place
    long = submit(lab, "--gres=gpu:t4:1", script="sleep 10")
    short = submit(lab, "-w", "cpu-1", script="sleep 2")
    soon(lambda: runs(lab, long) and is_done(lab, short))
    lab.stop_slurmctld()
    stopped = time.time()
    both_exit_2_saying(lab, "got no answer from slurmctld")
    soon(lambda: "got no answer from slurmctld" in daemon.said)
    assert changes(lab, stopped) == []
    assert sorted(left(lab)) == ["cpu-1", "t4-1"]
    lab.start_slurmctld()
    soon(lambda: "cpu-1" not in left(lab), 25, what="the release of the idle machine")
    new = submit(lab, "-w", "cpu-2", script="true")
    soon(lambda: is_done(lab, new) and is_done(lab, long))
    soon(lambda: not left(lab))
    assert doubles(lives(lab)) == []


def test_a_slurmctld_that_has_forgotten_everything_is_told_at_once_which_nodes_are_off(tmp_path: Path) -> None:
    with up(tmp_path / "lab") as (lab, _):
        lab.stop_slurmctld()
        lab.start_slurmctld(forgetful=True)
        assert not any("DRAIN" in words for words in states(lab, "t4-[1-4],cpu-[1-4]"))
        jobs = [submit(lab, "--gres=gpu:t4:1") for _ in range(2)]
        soon(lambda: parked(lab, "t4-4,cpu-[1-4]"), 15)
        soon(lambda: all(is_done(lab, number) for number in jobs))
        soon(lambda: not left(lab))
        soon(lambda: parked(lab, "t4-[1-4],cpu-[1-4]"))
        assert doubles(lives(lab)) == []


# --- the cloud -------------------------------------------------------------------------------------------------------


def test_without_the_clouds_api_nothing_is_done_and_everything_goes_on_when_it_is_back(place: Place) -> None:
    lab, daemon, _ = place
    short = submit(lab, "-w", "cpu-1", script="true")
    soon(lambda: is_done(lab, short))
    lab.set_fault(Fault("DescribeInstances", cut=True, times=0))
    cut = time.time()
    soon(lambda: "does not answer" in daemon.said)
    number = submit(lab, "--gres=gpu:t4:1")
    said = cm_scale("plan", "--config", str(lab.config), env=lab.env)
    assert said.returncode == 2
    assert said.stderr.startswith("cm-scale: site aws-us-east-1: EC2 in us-east-1 at http://127.0.0.1:")
    assert "does not answer" in said.stderr
    assert said.stderr.count("\n") == 1
    time.sleep(IDLE_S)
    assert changes(lab, cut) == []
    lab.control.clear_faults()
    soon(lambda: is_done(lab, number))
    soon(lambda: not left(lab))
    assert place.nodes == ["cpu-1", "t4-1"]


def test_a_deletion_that_was_never_made_is_not_made_up_for_once_the_node_is_busy(place: Place) -> None:
    lab, daemon, _ = place
    first = submit(lab, "-w", "cpu-1", script="true")
    soon(lambda: is_done(lab, first))
    lab.set_fault(Fault("TerminateInstances", delay_s=2, cut=True))  # it never takes effect
    soon(lambda: [each for each in under_way(lab) if each.verb.value == "delete"])
    daemon.kill()
    lab.command("scontrol", "update", "nodename=cpu-1", "state=resume")
    second = submit(lab, "-w", "cpu-1", script="sleep 3")
    soon(lambda: runs(lab, second))
    daemon.start()
    soon(lambda: not runs(lab, second))
    assert is_done(lab, second)
    soon(lambda: not left(lab))
    assert place.nodes == ["cpu-1"]


def test_an_answer_that_is_lost_after_the_launch_costs_no_second_machine(place: Place) -> None:
    lab, daemon, began = place
    # One tick asks three times by itself: the operation must outlive its tick, and its process.
    lab.set_fault(Fault("RunInstances", after=True, cut=True, times=7))
    number = submit(lab, "--array=1-3", "--gres=gpu:t4:1")
    soon(lambda: left(lab))
    daemon.kill()
    daemon.start()
    soon(lambda: is_done(lab, number), 30, what="the job's end")
    soon(lambda: not left(lab))
    daemon.look_again()
    assert under_way(lab) == ()
    assert place.nodes == ["t4-1", "t4-2", "t4-3"]
    assert len(lab.call_log("RunInstances", since=began)) >= 7
