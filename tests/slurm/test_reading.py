"""What is read from a real Slurm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.adapters.slurm.pyslurm.scheduler import SlurmByPyslurm
from cmscale.model import Help, JobId, NodeName, Pool, PoolName, Result, Shape
from cmscale.ports import Misconfigured, Unavailable
from tests import ways
from tests.slurm.conftest import POOL, Cluster


def test_every_kind_of_job_is_read(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, "cm-scale: off", off=True)
    ids = {
        "gpus": cluster.submit("-p", "cloud", "--gpus=3"),
        "typed": cluster.submit("-p", "cloud", "-N2", "--gpus-per-node=t4:1"),
        "gres": cluster.submit("-p", "cloud,batch", "--gres=gpu:1"),
        "array": cluster.submit("-p", "cloud", "-a", "1-100%7"),
        "multi": cluster.submit("-p", "cloud", "-N3", "-n6", "-c2", "--ntasks-per-node=2"),
        "memory": cluster.submit("-p", "cloud", "--mem=2G", "-N2", "-n4"),
        "per_cpu": cluster.submit("-p", "cloud", "--mem-per-cpu=2G", "-n4"),
        "whole": cluster.submit("-p", "cloud", "--mem=0", "--exclusive", "-t", "90"),
        "features": cluster.submit("-p", "cloud", "-C", "aws-us-east-1&gpu"),
        "hold": cluster.submit("-p", "cloud", "-H"),
        "begin": cluster.submit("-p", "cloud", "--begin=now+3600"),
        "licence": cluster.submit("-p", "cloud", "-L", "matlab:2", "-x", "t4-1"),
        "named": cluster.submit("-p", "cloud", "-w", "t4-2"),
    }
    cluster.wait(lambda: cluster.job(ids["gpus"]).help is Help.NODES)
    cluster.wait(lambda: cluster.job(ids["features"]).help is Help.NODES)
    reading = cluster.slurm.jobs()
    assert not reading.unreadable
    jobs = {job.id: job for job in reading.items}
    asks = {name: jobs[JobId(number)].ask for name, number in ids.items()}
    assert asks["gpus"].gpus == 3
    assert (asks["typed"].nodes, asks["typed"].gpus_per_node, asks["typed"].gpu_type) == (2, 1, "t4")
    assert (asks["gres"].partitions, asks["gres"].gpus_per_node) == (("cloud", "batch"), 1)
    multi = asks["multi"]
    assert (multi.nodes, multi.tasks, multi.cpus_per_task, multi.tasks_per_node) == (3, 6, 2, 2)
    assert (asks["memory"].mem_mb_per_node, asks["memory"].mem_mb_per_cpu) == (2048, 0)
    assert (asks["per_cpu"].mem_mb_per_node, asks["per_cpu"].mem_mb_per_cpu) == (0, 2048)
    assert (asks["whole"].whole_memory, asks["whole"].exclusive, asks["whole"].limit_s) == (True, True, 5400)
    assert asks["features"].constraint.choices[0][0].any_of == (frozenset({"aws-us-east-1", "gpu"}),)
    assert asks["licence"].licences == "matlab:2"
    assert asks["licence"].exclude == frozenset({"t4-1"})
    assert asks["named"].nodelist == frozenset({"t4-2"})
    array = jobs[JobId(ids["array"])]
    assert (array.count, array.array) == (7, ids["array"])
    assert [jobs[JobId(ids[name])].why for name in ("hold", "begin")] == [
        "held by its user",
        "its begin time has not come",
    ]


@pytest.mark.parametrize("cluster", [ways.PYSLURM], indirect=True)
def test_by_either_way_the_same_jobs_and_nodes_are_read(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, "cm-scale: off", off=True)
    for options in (
        "-p cloud --gpus=3",
        "-p cloud -N2 --gpus-per-node=t4:1",
        "-p cloud,batch --gres=gpu:1",
        "-p cloud -a 0-100%7",
        "-a 0-3",
        "-p cloud -H -a 0-10:2",
        "-H -a 1,3,7,12,20,31,45,62,80,99,120,142,165,189,214,240,267,295,324,354",
        "-p cloud -N3 -n6 -c2 --ntasks-per-node=2",
        "-p cloud --mem=2G -N2 -n4",
        "-p cloud --mem-per-cpu=2G -n4",
        "-p cloud --mem=0 --exclusive -t 90",
        "-p cloud -C aws-us-east-1&gpu --deadline=now+7200 -t 1-2:03:04",
        "-p cloud --begin=now+3600",
        "-p cloud -L matlab:2 -x t4-1",
        "-p cloud -w t4-2 --comment None",
        "-p cloud --gpus=2 --cpus-per-gpu=2 --mem-per-gpu=3G",
        "-p cloud --gpus-per-task=1 -n2 --no-requeue",
        "-p cloud --gpus-per-socket=1 --sockets-per-node=1",
        "-p cloud -s --exclusive=user",
        "-n2 : -n1",
    ):
        cluster.submit(*options.split())
    commands = ways.scheduler(ways.COMMANDS, cluster.conf)

    def same() -> bool:
        # A job that starts between the two looks differs.
        return {job.id: job for job in cluster.slurm.jobs().items} == {job.id: job for job in commands.jobs().items}

    cluster.wait(same)
    assert len(commands.jobs().items) > 20
    assert {node.name: node for node in cluster.slurm.nodes().items} == {
        node.name: node for node in commands.nodes().items
    }


def test_hostile_text_breaks_and_forges_nothing(cluster: Cluster) -> None:
    evil = "x\x1fy\x1e\n99\x1f(null)\x1f\x1e\n\x1b[2J %k \\ 'ü"
    number = cluster.submit("-H", "-J", f"name {evil}", "--comment", evil)
    harmless = cluster.submit("-H")
    reading = cluster.slurm.jobs()
    assert not reading.unreadable
    assert {job.id for job in reading.items} == {number, harmless}
    assert cluster.job(number).comment == evil
    assert cluster.slurm.drain([NodeName("op1")], f"cm-scale: {evil}")[NodeName("op1")].ok
    nodes = cluster.slurm.nodes()
    assert not nodes.unreadable
    assert len(nodes.items) == 5
    assert cluster.node("op1").reason.startswith("cm-scale: x")


def test_jobs_are_told_and_gone_ones_are_named(cluster: Cluster) -> None:
    one = cluster.submit("-H")
    array = cluster.submit("-H", "-a", "1-50")
    outcomes = cluster.slurm.say(
        {JobId(one): "cm-scale: soon", JobId("4711"): "cm-scale: soon", JobId(array): "cm-scale: soon"}
    )
    assert {job: outcome.result for job, outcome in outcomes.items()} == {
        one: Result.OK,
        "4711": Result.GONE,
        array: Result.OK,
    }
    assert cluster.job(one).comment == "cm-scale: soon"
    assert (cluster.job(array).comment, cluster.job(array).count) == ("cm-scale: soon", 50)


def test_a_job_that_we_have_told_something_is_not_lost_from_sight(cluster: Cluster) -> None:
    cluster.slurm.drain(POOL.nodes, "cm-scale: off", off=True)
    number = cluster.submit("--gres=gpu:t4:1")
    cluster.wait(lambda: cluster.job(number).help is Help.NODES)
    for minutes in range(5):
        assert cluster.slurm.say({JobId(number): f"cm-scale: 1 node starting, about {minutes} min"})[JobId(number)].ok
        assert cluster.job(number).help is Help.NODES


def test_problems_are_found_in_a_real_configuration(cluster: Cluster) -> None:
    (problem,) = cluster.slurm.problems([POOL])
    assert problem.endswith('nodename=t4-[1-4] state=drain reason="cm-scale: off"')
    cluster.slurm.drain(POOL.nodes, "cm-scale: off", off=True)
    assert cluster.slurm.problems([POOL]) == []
    other = Pool(PoolName("big"), POOL.site, Shape(64, 1), (NodeName("t4-1"), NodeName("big-1")))
    assert len(cluster.slurm.problems([other])) == 2
    assert cluster.slurm.version() >= (22, 5)


@pytest.mark.slow
def test_a_slurmctld_that_is_gone_is_unavailable_within_the_time_limit(cluster: Cluster) -> None:
    slurm = ways.scheduler(cluster.way, cluster.conf, time_limit_s=3)
    cluster.lab.stop_slurmctld()
    began = time.monotonic()
    with pytest.raises(Unavailable) as caught:
        slurm.jobs()
    assert not isinstance(caught.value, Misconfigured)
    assert time.monotonic() - began < 4
    outcomes = slurm.drain(POOL.nodes, "cm-scale: off")
    assert {outcome.result for outcome in outcomes.values()} == {Result.TRANSIENT}


def test_a_wrong_slurm_conf_is_named(cluster: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "slurm.conf"
    wrong.write_text(cluster.conf.read_text() + "Bogus=1\n")
    with pytest.raises(Misconfigured, match="Parsing error at unrecognized key: Bogus"):
        (SlurmCommands(wrong) if cluster.way == ways.COMMANDS else SlurmByPyslurm(wrong)).nodes()
