"""What the policies do in a real Slurm: spot machines taken back, gangs at one site, failed boots, pauses, replays."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.slurm import Home
from cmscale.shell.shipped import share_dir
from tests.e2e.daemon import ENDING_S, Daemon, Life, beside, cm_scale, job, lives, soon, states, submit

pytestmark = pytest.mark.slow

POOLS = (
    LabPool("spot", "spot-[1-2]", 4, 15000, 0.1, "g4dn.xlarge", gpus=1, gpu_type="t4", more={"market": "spot"}),
    LabPool("t4", "t4-[1-2]", 4, 15000, 0.5, "g4dn.xlarge", gpus=1, gpu_type="t4"),
    LabPool("lame", "lame-[1-2]", 4, 15000, 0.6, "g4dn.xlarge", gpus=1, gpu_type="m60", more={"boot_limit": "3s"}),
    LabPool("cpu", "cpu-[1-2]", 8, 15000, 0.34, "c5.2xlarge"),
    LabPool("kept", "kept-[1-2]", 8, 15000, 0.4, "c5.2xlarge", more={"never_terminate": "kept-1"}),
)
REQUEUE_BEFORE_S = 4.0


class Place(NamedTuple):
    """A lab at rest, with its daemon."""

    lab: Lab
    daemon: Daemon
    began: float

    @property
    def made(self) -> list[Life]:
        """The machines made in this test, oldest first."""
        return [life for life in lives(self.lab) if life.made >= self.began]

    def say(self, *words: str) -> str:
        """What a command of cm-scale says that ends well."""
        done = cm_scale(*words, env=self.lab.env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Daemon]]:
    with (
        Lab(
            tmp_path_factory.mktemp("lab"),
            pools=POOLS,
            home=Home(1, cpus=8),
            boot_s=(0.2, 0.5),
            times=Times(pending_s=0.2, stopping_s=0.2, ending_s=ENDING_S),
            slurm={"SchedulerParameters": "sched_interval=1,bf_interval=1"},
            limits={"min_up": "1s", "tick": "300ms"},
            policies={
                "release_idle": {"idle": "1200ms"},
                "leave_reclaimed": {"requeue_before": f"{REQUEUE_BEFORE_S:g}s"},
            },
        ) as lab,
        beside(lab) as daemon,
    ):
        daemon.start_and_look()
        yield lab, daemon


@pytest.fixture
def place(one_lab: tuple[Lab, Daemon]) -> Place:
    """The lab that these tests share: no job, no fault, and no machine that runs."""
    lab, daemon = one_lab
    lab.never_boot("")
    lab.command("scancel", "--partition=batch")
    soon(lambda: not running(lab), what="rest after the test before")
    return Place(lab, daemon, time.time())


def running(lab: Lab) -> list[dict[str, Any]]:
    return [each for each in lab.instances() if each["state"] not in {"terminated", "stopped"}]


def runs(lab: Lab, number: str) -> bool:
    return job(lab, number) == "RUNNING"


# --- machines that go ------------------------------------------------------------------------------------------------


def test_a_job_on_a_spot_machine_that_is_taken_back_runs_elsewhere_before_the_deadline(place: Place) -> None:
    lab, _, _ = place
    number = submit(lab, "--gres=gpu:t4:1", "--requeue", "-t", "10", script="sleep 60")
    soon(lambda: runs(lab, number))
    assert job(lab, number, "%N") == "spot-1"
    warned, deadline_s = time.time(), 9.0
    lab.control.interrupt(place.made[0].id, warning_s=deadline_s)
    soon(lambda: "DRAIN" in states(lab, "spot-1")[0], 3, what="the drain")
    assert runs(lab, number)
    soon(lambda: not runs(lab, number), what="the requeue")
    assert warned + deadline_s - REQUEUE_BEFORE_S - 1 < time.time() < warned + deadline_s
    soon(lambda: runs(lab, number) and job(lab, number, "%N") == "t4-1", 10, what="the second run")
    assert "Restarts=1 " in lab.command("scontrol", "show", "job", number)
    soon(lambda: [life.node for life in place.made if life.deleted] == ["spot-1"])
    told = place.say("events", "--since", "5m")
    assert " reclaimed spot-1: " in told
    assert f" requeued {number}: " in told


def test_a_node_that_is_never_terminated_is_stopped_and_powered_on_again_for_the_next_job(place: Place) -> None:
    lab, _, began = place

    def kept_is(state: str) -> bool:
        return [each["state"] for each in lab.instances() if each["id"] == machine.id] == [state]

    first = submit(lab, "-w", "kept-1", script="true")
    soon(lambda: job(lab, first) == "COMPLETED")
    (machine,) = place.made
    soon(lambda: kept_is("stopped"))
    second = submit(lab, "-w", "kept-1", script="sleep 1")
    soon(lambda: job(lab, second) == "COMPLETED")
    soon(lambda: kept_is("stopped"))
    assert place.made == [machine]
    assert [call["action"] for call in lab.call_log("StartInstances", since=began)] == ["StartInstances"]
    assert lab.call_log("TerminateInstances", since=began) == []


def test_a_machine_that_never_boots_leaves_its_console_behind_and_another_name_serves_the_job(place: Place) -> None:
    lab, _, _ = place
    lab.never_boot("lame-1")
    number = submit(lab, "--gres=gpu:m60:1", script="sleep 2")
    soon(lambda: runs(lab, number))
    assert job(lab, number, "%N") == "lame-2"
    explained = place.say("explain", "node", "lame-1")
    assert "Its name rests for another " in explained
    assert "firmware: no bootable device for lame-1; halted" in explained
    assert place.made[0].id in explained
    (evidence,) = json.loads(place.say("explain", "node", "lame-1", "--json"))["evidence"]
    assert (evidence["node"], evidence["machine"]) == ("lame-1", place.made[0].id)
    assert " failed-boot lame-1: lame-1 is given up" in place.say("events")


# --- gangs -----------------------------------------------------------------------------------------------------------


def test_a_gang_runs_at_one_site_and_gets_its_own_constraint_back_when_its_machines_are_gone(place: Place) -> None:
    lab, _, _ = place
    number = submit(lab, "-N2", "-n2", "-c6", "-t", "10", script="sleep 30")
    soon(lambda: runs(lab, number))
    assert job(lab, number, "%N") == "cpu-[1-2]"
    assert job(lab, number, "%f") == "aws-us-east-1"
    lab.command("scontrol", "requeuehold", number)
    soon(lambda: job(lab, number, "%f") == "(null)", what="its own constraint")
    # While they are up Slurm would give them to the job at once, as it may: there are no others.
    soon(lambda: all(life.deleted for life in place.made), what="an end of its machines")
    lab.command("scontrol", "release", number)
    lab.command("scontrol", "update", f"jobid={number}", "starttime=now")  # Slurm puts requeued jobs off by two minutes
    soon(lambda: runs(lab, number))
    assert job(lab, number, "%f") == "aws-us-east-1"


# --- people ----------------------------------------------------------------------------------------------------------


def test_a_pause_stops_starts_and_the_end_of_it_lets_the_waiting_job_have_its_machine(place: Place) -> None:
    lab, daemon, _ = place
    place.say("pause", "--for", "10m", "the", "switch", "is", "moved")
    number = submit(lab, "--gres=gpu:t4:1", "--comment=on-demand", script="sleep 2")
    soon(lambda: "paused: the switch is moved" in job(lab, number, "%k"))
    daemon.look_again()
    assert place.made == []
    assert "What would change it: cm-scale resume, or the pause ends in " in place.say("explain", "why-not", number)
    place.say("resume")
    soon(lambda: runs(lab, number))
    told = place.say("events", "--since", "5m")
    assert ": pause for 10m: the switch is moved" in told
    assert ": clear pause (by " in told


def test_what_a_person_keeps_stays_and_a_drained_site_is_left_when_its_jobs_have_ended(place: Place) -> None:
    lab, _, _ = place
    place.say("keep", "cpu-1", "--for", "10m", "--why", "the driver is debugged")
    idle = submit(lab, "-w", "cpu-1", script="true")
    soon(lambda: "not_kept_by_hand: cpu-1: cpu-1 is kept" in place.say("plan"), what="a wish to give cpu-1 back")
    assert job(lab, idle) == "COMPLETED"
    busy = submit(lab, "-w", "cpu-2", script="sleep 4")
    soon(lambda: runs(lab, busy))
    place.say("drain-site", "aws-us-east-1", "--for", "10m", "--why", "the link is repaired")
    late = submit(lab, "-w", "kept-2", script="sleep 60")
    soon(lambda: "aws-us-east-1 is drained (the link is repaired)" in job(lab, late, "%k"))
    soon(lambda: [life.node for life in place.made if life.deleted] == ["cpu-2"])
    assert job(lab, busy) == "COMPLETED"
    assert {"IDLE", "CLOUD"} == states(lab, "cpu-1")[0]
    place.say("clear", "cpu-1", "aws-us-east-1")
    soon(lambda: runs(lab, late))
    soon(lambda: "cpu-1" in [life.node for life in place.made if life.deleted])
    assert len(place.say("events", "--kind", "override", "--since", "5m").splitlines()) >= 3


def test_what_was_decided_can_be_replayed_with_another_policy_and_told_by_tick(place: Place, tmp_path: Path) -> None:
    lab, _, _ = place
    number = submit(lab, "-w", "kept-2", script="true")
    soon(lambda: job(lab, number) == "COMPLETED")
    soon(lambda: place.made[0].deleted)
    text = (share_dir("policies") / "release_idle.py").read_text(encoding="utf-8")
    patient = text.replace("idle_s < settings.idle_s", "idle_s < 1000 * settings.idle_s")
    assert patient != text
    (tmp_path / "release_idle.py").write_text(patient, encoding="utf-8")
    told = place.say("replay", "--since", "10m", "--policy-dir", str(tmp_path))
    assert "  only then: drain kept-2: idle for " in told
    assert "with the policies of now." in told.splitlines()[-1]
    tick = place.say("explain", "tick", "last")
    assert tick.startswith("Tick ")
    assert "pending job" in tick
