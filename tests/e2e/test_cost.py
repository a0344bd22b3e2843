"""What jobs in a real Slurm have cost: the bill beside the cloud's own record of its machines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.slurm import Home
from tests.cli.program import documented_keys
from tests.e2e.daemon import ENDING_S, Daemon, beside, cm_scale, job, left, lives, soon, submit

pytestmark = pytest.mark.slow

DEAR = {"t4": 18.0, "cpu": 9.0}
"""Two seconds of a machine are a cent."""

BUDGETS = """
[budgets.all]
per = "month"
limit = 1_000_000
[budgets.nobodys]
per = "month"
limit = 0.001
pool = "none"
"""


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Daemon]]:
    by_the_second = {"billing_minimum": "0s"}
    pools = (
        LabPool("t4", "t4-[1-2]", 4, 15000, DEAR["t4"], "g4dn.xlarge", gpus=1, gpu_type="t4", more=by_the_second),
        LabPool("cpu", "cpu-[1-2]", 8, 15000, DEAR["cpu"], "c5.2xlarge", more=by_the_second),
        LabPool("none", "none-[1-2]", 8, 15000, 0.1, "c5.2xlarge", gpus=1, gpu_type="m60", more=by_the_second),
    )
    with (
        Lab(
            tmp_path_factory.mktemp("lab"),
            pools=pools,
            home=Home(0),
            boot_s=(0.2, 0.5),
            times=Times(pending_s=0.2, ending_s=ENDING_S),
            slurm={"SchedulerParameters": "sched_interval=1,bf_interval=1"},
            limits={"min_up": "1s", "tick": "300ms"},
            policies={"release_idle": {"idle": "1200ms"}},
        ) as lab,
        beside(lab) as daemon,
    ):
        config = Path(lab.config)
        config.write_text(config.read_text(encoding="utf-8") + BUDGETS, encoding="utf-8")
        daemon.start_and_look()
        yield lab, daemon


def told(lab: Lab, *words: str) -> dict[str, Any]:
    said = cm_scale("cost", "--since", "1h", "--json", *words, env=lab.env)
    assert (said.returncode, said.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(said.stdout)
    return answer


def charged(lab: Lab) -> float:
    """What the cloud charges: from the second of the launch, as it tells it, to the call that ended the machine."""
    return sum(
        (life.deleted - int(life.made)) * DEAR[life.node.partition("-")[0]] / 3600
        for life in lives(lab)
        if life.deleted
    )


def test_the_bill_is_the_cloud_s_own_record_of_lives_times_prices_to_the_cent(one_lab: tuple[Lab, Daemon]) -> None:
    lab, daemon = one_lab
    jobs = [submit(lab, "--gres=gpu:t4:1", script="sleep 600"), submit(lab, "--gres=gpu:t4:1", script="sleep 2")]
    jobs.append(submit(lab, "-w", "cpu-1", script="sleep 3"))
    soon(lambda: job(lab, jobs[0]) == "RUNNING")
    daemon.look_again(40)  # so that it was seen to run, however long a look takes
    lab.command("scancel", jobs[0])
    soon(lambda: {job(lab, each) for each in jobs[1:]} == {"COMPLETED"})
    soon(lambda: len(lives(lab)) == 3 and not left(lab), what="the end of all machines")
    daemon.look_again(40)
    bill = told(lab)
    total = bill["sum"]
    assert abs(total["total"] - charged(lab)) < 0.01
    assert round(total["boot"] + total["idle"] + total["jobs"], 6) == total["total"]
    assert min(total["boot"], total["idle"], total["jobs"]) > 0
    by = {word: told(lab, "--by", word) for word in ("pool", "job")}
    for lines in (bill, *by.values()):
        assert lines["sum"]["total"] == total["total"]
        assert round(sum(row["total"] for row in lines["rows"]), 6) == total["total"]
    assert {row["name"] for row in by["pool"]["rows"]} == {"t4", "cpu"}
    assert {row["name"] for row in by["job"]["rows"]} == set(jobs)
    assert {row["name"]: row["jobs"] > 0 for row in by["job"]["rows"]}[jobs[0]]
    (all_of_it, of_a_pool) = bill["budgets"]
    assert set(all_of_it) == documented_keys("cost", "budgets")
    assert (all_of_it["used_up"], of_a_pool["used_up"]) == (False, False)
    assert of_a_pool["spent"] == 0


def test_a_job_that_no_money_is_left_for_waits_and_is_told_so(one_lab: tuple[Lab, Daemon]) -> None:
    lab, daemon = one_lab
    first = submit(lab, "--gres=gpu:m60:1", "-w", "none-1", script="sleep 60")
    soon(lambda: job(lab, first) == "RUNNING")
    second = submit(lab, "--gres=gpu:m60:1", "-w", "none-2", script="sleep 60")
    soon(lambda: "budget" in lab.command("squeue", "-h", "-j", second, "-O", "comment:400"), what="the comment")
    comment = lab.command("squeue", "-h", "-j", second, "-O", "comment:400")
    assert "none: closed (budget: nobodys ($0.001 a month) is used up: " in comment
    daemon.look_again(40)
    assert job(lab, second) == "PENDING"
    assert "budget nobodys ($0.001 a month): $0.00 spent; used up: " in cm_scale("status", env=lab.env).stdout
    assert " budget-reached nobodys: " in cm_scale("events", env=lab.env).stdout
    lab.command("scancel", first, second)
