"""EC2's warnings reach the daemon through what `cm-scale aws setup` makes, by few calls and over a kill."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.slurm import Home
from tests.e2e.daemon import beside, cm_scale, job, soon, states, submit

pytestmark = pytest.mark.slow

SPOT = LabPool("spot", "spot-[1-2]", 4, 15000, 0.1, "g4dn.xlarge", gpus=1, gpu_type="t4", more={"market": "spot"})
OTHER = LabPool("t4", "t4-[1-2]", 4, 15000, 0.5, "g4dn.xlarge", gpus=1, gpu_type="t4")


def test_a_warning_comes_through_the_queue_and_is_not_lost_with_a_daemon_that_is_killed(tmp_path: Path) -> None:
    times = Times(pending_s=0.2, stopping_s=0.2, ending_s=0.2)
    limits, policies = {"min_up": "1s", "tick": "300ms"}, {"leave_reclaimed": {"requeue_before": "115s"}}
    given = {"boot_s": (0.2, 0.5), "times": times, "limits": limits, "policies": policies}
    with (
        Lab(tmp_path / "lab", pools=[SPOT, OTHER], home=Home(count=0), **given) as lab,  # type: ignore[arg-type]
        beside(lab) as daemon,
    ):
        done = cm_scale("aws", "setup", env=lab.env)
        assert (done.returncode, done.stderr) == (0, "")
        daemon.start()
        number = submit(lab, "--gres=gpu:t4:1", "--requeue", "-t", "10", script="sleep 300")
        soon(lambda: (job(lab, number), job(lab, number, "%N")) == ("RUNNING", "spot-1"))

        def asked(since: float) -> Counter[str]:
            return Counter(call["action"] for call in lab.control.calls(since=since))

        # Once the daemon has found the queue, a look is a listing and a look into the queue.
        soon(lambda: asked(0)["ReceiveMessage"] > 2)
        since = time.time()
        soon(lambda: asked(since)["ReceiveMessage"] > 4)
        steady = asked(since)
        assert abs(steady["DescribeInstances"] - steady["ReceiveMessage"]) <= 1
        assert steady["DescribeSpotInstanceRequests"] + steady["DescribeInstanceStatus"] <= 2

        (machine,) = [each["id"] for each in lab.instances() if each["state"] == "running"]
        lab.control.interrupt(machine, warning_s=120.0)
        soon(lambda: "DRAIN" in states(lab, "spot-1")[0], what="the drain")
        soon(lambda: asked(since)["DeleteMessageBatch"] == 1)
        daemon.kill()
        daemon.start()
        soon(lambda: job(lab, number, "%N") == "t4-1", what="the second run")
        assert machine not in [each["id"] for each in lab.instances() if each["state"] == "running"]
