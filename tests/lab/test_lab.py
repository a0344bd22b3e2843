"""The lab is a real hybrid cluster: real Slurm, instances that become nodes, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cmscale.lab import console
from cmscale.lab.instances import Times
from cmscale.lab.lab import Lab
from cmscale.lab.pools import LabPool
from cmscale.lab.processes import LabError, Running, alive, environment, everything, runs, wait_until, works_in
from cmscale.lab.slurm import Home, find_missing
from cmscale.lab.supervisor import down, status, up

QUICK = Times(pending_s=0.1, stopping_s=0.1, ending_s=0.1)
ONE_POOL = (LabPool("t4", "t4-[1-4]", 4, 15000, 0.5, "g4dn.xlarge", gpus=1, gpu_type="t4"),)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab"), boot_s=(0.2, 0.5), times=QUICK) as one:
        yield one


def launch(lab: Lab, nodes: str, count: int) -> dict[str, dict[str, Any]]:
    """Instances for these nodes, by id."""
    home = lab.regions["us-east-1"]
    tags = [{"Key": "cm-scale:cluster", "Value": "lab"}, {"Key": "cm-scale:node", "Value": nodes}]
    client = lab.ec2()
    said = client.run_instances(
        ImageId=home["image"],
        SubnetId=home["subnet"],
        InstanceType="g4dn.xlarge",
        MinCount=count,
        MaxCount=count,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    client.close()
    return {each["InstanceId"]: each for each in said["Instances"]}


def terminate(lab: Lab, *instances: str) -> None:
    client = lab.ec2()
    client.terminate_instances(InstanceIds=list(instances))
    client.close()


def node_state(lab: Lab, node: str) -> str:
    return lab.command("sinfo", "-h", "-N", "-n", node, "-O", "StateComplete:100").split()[0].upper()


def job_state(lab: Lab, job: str) -> str:
    return lab.command("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()


def submit(lab: Lab, *options: str, command: str = "true") -> str:
    out = f"--output={lab.directory}/%j.out"
    return lab.command("sbatch", "--parsable", out, *options, "--wrap", command).strip()


def processes_on(lab: Lab, node: str) -> list[int]:
    """The slurmds, slurmstepds and job processes of one node."""
    home, mark, conf = lab.directory / "nodes" / node, f"SLURMD_NODENAME={node}", f"SLURM_CONF={lab.slurm_conf}"
    return [
        pid
        for pid in everything()
        if (works_in(pid) == str(home) and "slurm" in runs(pid)) or {mark, conf} <= environment(pid)
    ]


def soon(holds: Callable[[], bool], seconds: float = 10) -> None:
    assert wait_until(holds, seconds, every=0.05)


def test_a_job_runs_at_home_at_once(lab: Lab) -> None:
    began = time.monotonic()
    job = submit(lab, "-w", "op1", command="echo $SLURMD_NODENAME")
    soon(lambda: job_state(lab, job) == "COMPLETED")
    assert (lab.directory / f"{job}.out").read_text(encoding="utf-8") == "op1\n"
    assert time.monotonic() - began < 5


def test_cloud_nodes_take_no_jobs_before_their_time(lab: Lab) -> None:
    states = lab.command("sinfo", "-h", "-N", "-n", "t4-[1-8],t4w-[1-4],cpu-[1-4]", "-o", "%T %E").splitlines()
    assert len(states) == 16
    assert {line.partition(" ")[2] for line in states} == {"cm-scale: off"}
    assert all("drained" in line for line in states)


def test_instances_become_nodes_at_their_own_addresses_and_end_with_all_that_runs_there(lab: Lab) -> None:
    made = launch(lab, "t4-[1-2]", 2)
    soon(lambda: "POWERED_DOWN" not in node_state(lab, "t4-1") + node_state(lab, "t4-2"))
    for each in made.values():
        node = f"t4-{each['AmiLaunchIndex'] + 1}"
        lab.command("scontrol", "update", f"nodename={node}", f"nodeaddr={each['PrivateIpAddress']}")
        lab.command("scontrol", "update", f"nodename={node}", "state=resume")
    job = submit(lab, "-N2", "--gpus-per-node=t4:1", command="srun sh -c 'setsid sleep 600 & sleep 600'")
    soon(lambda: job_state(lab, job) == "RUNNING")
    soon(lambda: all(len(processes_on(lab, node)) >= 4 for node in ("t4-1", "t4-2")))
    assert all(address in lab.command("scontrol", "show", "node", "t4-[1-2]") for address in addresses(made))
    terminate(lab, *made)
    soon(lambda: not processes_on(lab, "t4-1") and not processes_on(lab, "t4-2"))
    assert len(processes_on(lab, "op1")) == 1
    lab.command("scancel", job)
    lab.command("scontrol", "update", "nodename=t4-[1-2]", "state=down", "reason=cm-scale: off")


def addresses(instances: dict[str, dict[str, Any]]) -> list[str]:
    return [str(each["PrivateIpAddress"]) for each in instances.values()]


def test_a_name_that_never_boots_is_paid_for_and_never_joins(lab: Lab) -> None:
    lab.never_boot("t4-[4-5]")
    made = launch(lab, "t4-[3-4]", 2)
    soon(lambda: bool(processes_on(lab, "t4-3")))
    time.sleep(0.8)
    assert not processes_on(lab, "t4-4")
    assert {each["state"] for each in lab.instances() if each["id"] in made} == {"running"}
    consoles = {console.kept(lab.directory, each).decode() for each in made}
    assert any("no bootable device for t4-4" in each for each in consoles)
    assert any("slurmd version" in each for each in consoles)
    lab.never_boot("")
    soon(lambda: bool(processes_on(lab, "t4-4")))
    terminate(lab, *made)
    soon(lambda: not processes_on(lab, "t4-3") and not processes_on(lab, "t4-4"))


def test_the_configuration_names_what_is_there(lab: Lab) -> None:
    config = tomllib.loads(lab.config.read_text(encoding="utf-8"))
    assert config["sites"].keys() == {"aws-us-east-1", "aws-us-west-2"}
    assert {site["endpoint_url"] for site in config["sites"].values()} == {lab.endpoint}
    assert config["pools"]["t4-west"]["aws"]["subnet"] == lab.regions["us-west-2"]["subnet"]
    assert config["slurm"] == {"conf": str(lab.slurm_conf), "include": str(lab.include)}


def test_labs_stand_side_by_side(lab: Lab, tmp_path: Path) -> None:
    began = time.monotonic()
    with Lab(tmp_path / "second", pools=ONE_POOL, home=Home(1)) as second:
        assert time.monotonic() - began < 5
        job = submit(second, "-w", "op1")
        soon(lambda: job_state(second, job) == "COMPLETED")
        assert second.endpoint != lab.endpoint
        assert second.instances() == []
        pids = second.pids()
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not any(map(alive, pids))
    assert len(processes_on(lab, "op1")) == 1


def test_a_directory_holds_one_lab_at_a_time(lab: Lab) -> None:
    with pytest.raises(LabError, match="Another lab is up"):
        Lab(lab.directory).up()
    with pytest.raises(LabError, match="Another lab is up"):
        down(lab.directory)
    assert lab.instances() is not None


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years of work", encoding="utf-8")
    with pytest.raises(LabError, match="choose another directory"):
        Lab(tmp_path).up()
    assert [each.name for each in tmp_path.iterdir()] == ["thesis"]


def test_a_daemon_that_does_not_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"slurmctld.*[Ss]elect"):
        Lab(tmp_path / "lab", pools=ONE_POOL, slurm={"SelectType": "select/nonsense"}).up()
    assert not [pid for pid in everything() if works_in(pid).startswith(str(tmp_path))]


def test_missing_programs_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert find_missing().get("squeue") == "slurm-client"


@pytest.mark.slow
def test_the_controller_goes_and_comes_back_and_jobs_survive(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", pools=ONE_POOL, home=Home(1)) as one:
        job = submit(one, "-w", "op1", command="sleep 600")
        soon(lambda: job_state(one, job) == "RUNNING")
        one.stop_slurmctld()
        with pytest.raises(LabError, match=r"[Uu]nable to contact slurm controller"):
            one.command("squeue")
        one.start_slurmctld()
        soon(lambda: job_state(one, job) == "RUNNING")
        assert "DRAIN" in node_state(one, "t4-1")
        one.stop_slurmctld()
        one.start_slurmctld(forgetful=True)
        assert "DRAIN" not in node_state(one, "t4-1")


HOLD = """
import sys, time, pathlib
from cmscale.lab.lab import Lab
with Lab(pathlib.Path(sys.argv[1]), boot_s=(0.1, 0.2)) as lab:
    lab.command("sbatch", "-w", "op1", "--output=/dev/null", "--wrap", "setsid sleep 600 & sleep 600")
    while lab.command("squeue", "-h", "-o", "%T").strip() != "RUNNING":
        time.sleep(0.05)
    time.sleep(0.3)
    print(*(each.pid for each in lab.pids()), flush=True)
    time.sleep(600)
"""


def hold(directory: Path) -> tuple[subprocess.Popen[str], list[Running]]:
    """Another process that holds a lab with a running job, and all processes of that lab."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert holder.stdout
    with holder.stdout as said:
        pids = said.readline().split()
        table = everything()
    if len(pids) <= 8:
        holder.kill()
        holder.wait()
    assert len(pids) > 8
    return holder, [table[int(pid)] for pid in pids]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_whatever_ends_the_holder_ends_the_lab(tmp_path: Path, number: signal.Signals) -> None:
    holder, processes = hold(tmp_path / "lab")
    holder.send_signal(number)
    holder.wait(10)
    soon(lambda: not any(map(alive, processes)), 5)


def test_a_lab_is_kept_for_a_shell_and_ended_from_there(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    assert status(folder).info is None
    first = up(folder)
    try:
        assert not first.already
        assert up(folder).already
        seen = status(folder)
        assert seen.info == first
        assert seen.processes >= 7
        said = subprocess.run(
            ["sh", "-c", f". {first.env_file}; sinfo -h -o %P"], capture_output=True, text=True, timeout=20
        )
        assert said.stdout == "batch*\n" * len(said.stdout.splitlines())
        assert said.stdout
    finally:
        ended = down(folder)
    assert ended.was_up
    assert ended.left == ()
    assert status(folder).info is None
    assert not down(folder).was_up


@pytest.mark.slow
def test_what_the_death_of_all_keepers_leaves_is_ended_by_the_next_down(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    holder, processes = hold(folder)
    booter = next(each for each in processes if b"cmscale.lab.booter" in command_line(each.pid))
    os.kill(booter.pid, signal.SIGKILL)
    holder.kill()
    holder.wait(10)
    soon(lambda: sum(map(alive, processes)) <= 4)
    ended = down(folder)
    assert not ended.was_up
    assert 0 < ended.processes <= 4
    assert not (folder / "sockets").is_symlink()
    assert not any(map(alive, processes))


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.slow
def test_a_keeper_that_was_killed_leaves_room_for_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    first = up(folder)
    os.kill(first.pid, signal.SIGKILL)
    soon(lambda: status(folder).info is None)
    second = up(folder)
    assert not second.already
    assert second.pid != first.pid
    assert down(folder).was_up


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become somebody else")
def test_an_ordinary_user_can_have_a_lab() -> None:
    folder = Path("/tmp") / f"cm-scale-lab-test-{os.getpid()}"
    folder.mkdir(mode=0o755)
    os.chown(folder, 65534, 65534)
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(folder)}
    script = HOLD.replace("time.sleep(600)\n", "pass\n")
    try:
        probe = "import subprocess, sys, cmscale.lab.lab; subprocess.run([sys.executable, '-c', ''], check=True)"
        if subprocess.run([*become, sys.executable, "-c", probe], env=env, cwd="/", capture_output=True).returncode:
            pytest.skip("this Python is not for everyone")
        command = [*become, sys.executable, "-c", script, str(folder)]
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(folder)
