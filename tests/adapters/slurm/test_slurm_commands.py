"""How Slurm's commands are run, with scripts that stand in for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cmscale.adapters.slurm.commands import SlurmCommands
from cmscale.model import JobId, NodeName, Result
from cmscale.ports import Misconfigured, Unavailable

Fake = Callable[[str, str], None]


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def fake(bin_dir: Path) -> Fake:
    """Put a shell script in the place of a command."""

    def write(command: str, script: str) -> None:
        path = bin_dir / command
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def _refuse(fake: Fake, message: str, status: int = 1) -> None:
    for command in ("squeue", "sinfo", "scontrol"):
        fake(command, f"cat >&2 <<'X'\n{message}\nX\nexit {status}")


def test_a_missing_command_names_the_setting(bin_dir: Path) -> None:
    with pytest.raises(Misconfigured, match=r"squeue could not be run .*bin_dir under \[slurm\]"):
        SlurmCommands(bin_dir=bin_dir).jobs()


def test_a_missing_slurm_conf_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"nope\.conf \(\[slurm\] conf\) does not exist"):
        SlurmCommands(tmp_path / "nope.conf").nodes()


@pytest.mark.parametrize(
    "message",
    [
        (
            "squeue: error: _parse_next_key: Parsing error at unrecognized key: Foo\n"
            "squeue: fatal: Unable to process configuration file"
        ),
        (
            "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
            "squeue: error: fetch_config: DNS SRV lookup failed\n"
            "squeue: fatal: Could not establish a configuration source"
        ),
    ],
)
def test_a_wrong_configuration_is_told_in_slurms_words(bin_dir: Path, fake: Fake, message: str) -> None:
    _refuse(fake, message)
    with pytest.raises(Misconfigured, match=message.splitlines()[0].split(": ", 3)[3]):
        SlurmCommands(bin_dir=bin_dir).jobs()


def test_the_line_that_slurm_cannot_parse_is_told(bin_dir: Path, fake: Fake) -> None:
    _refuse(
        fake,
        "squeue: error: Parsing error at unrecognized key: Defaul\n"
        'squeue: error: Parse error in file /etc/slurm/slurm.conf line 40: " Defaul=YES"\n'
        "squeue: fatal: Unable to process configuration file",
    )
    with pytest.raises(Misconfigured, match=r'Parse error in file /etc/slurm/slurm\.conf line 40: " Defaul=YES"$'):
        SlurmCommands(bin_dir=bin_dir).jobs()


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "squeue got no answer from slurmctld: Unable to contact slurm controller (connect failure)",
        ),
        (
            (
                "squeue: error: If munged is up, restart with --num-threads=10\n"
                'squeue: error: Munge encode failed: Failed to access "/run/munge": No such file or directory'
            ),
            (
                'squeue got no answer from slurmctld: Munge encode failed: Failed to access "/run/munge": '
                "No such file or directory"
            ),
        ),
        ("", "squeue got no answer from slurmctld: exit status 1"),
    ],
)
def test_an_absent_slurmctld_is_told_in_one_sentence(bin_dir: Path, fake: Fake, message: str, told: str) -> None:
    _refuse(fake, message)
    with pytest.raises(Unavailable) as caught:
        SlurmCommands(bin_dir=bin_dir).jobs()
    assert str(caught.value) == told
    assert not isinstance(caught.value, Misconfigured)


def test_a_field_that_slurm_does_not_know_is_named(bin_dir: Path, fake: Fake) -> None:
    fake("sinfo", "echo 'sinfo: error: Invalid node format specification: NodeAddr' >&2")
    with pytest.raises(Misconfigured, match="no field 'NodeAddr'"):
        SlurmCommands(bin_dir=bin_dir).nodes()


def test_a_command_that_hangs_is_killed_with_its_children(bin_dir: Path, fake: Fake, tmp_path: Path) -> None:
    fake("sinfo", f"sleep 60 & echo $! > {tmp_path}/child; wait")
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"sinfo gave no answer within 0\.5 s"):
        SlurmCommands(bin_dir=bin_dir, time_limit_s=0.5).nodes()
    assert time.monotonic() - began < 5
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    limit = time.monotonic() + 10
    while not _ended(child) and time.monotonic() < limit:  # it is killed, but may not have noticed yet
        time.sleep(0.01)
    assert _ended(child)


def _ended(stat: Path) -> bool:
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_the_environment_is_our_own(bin_dir: Path, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SQUEUE_FORMAT", "SINFO_PARTITION", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT"):
        monkeypatch.setenv(name, "theirs")
    conf = tmp_path / "slurm.conf"
    conf.touch()
    fake("sinfo", f"env > {tmp_path}/env")
    fake("scontrol", "")
    SlurmCommands(conf, bin_dir).nodes()
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)
    slurms = {name: value for name, value in seen.items() if name.startswith(("SLURM", "SQUEUE", "SINFO"))}
    assert slurms == {"SLURM_CONF": str(conf), "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    assert seen["LC_ALL"] == "C.UTF-8"
    assert seen["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(
    ("word", "release"), [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.5", (24, 11)), ("slurm 25.05.0-rc1", (25, 5))]
)
def test_the_release_is_read_from_the_command(bin_dir: Path, fake: Fake, word: str, release: tuple[int, int]) -> None:
    fake("squeue", f"echo {word}")
    assert SlurmCommands(bin_dir=bin_dir).version() == release


@pytest.mark.parametrize(
    ("message", "result"),
    [
        ("slurm_update error: Unable to contact slurm controller (connect failure)", Result.TRANSIENT),
        ("slurm_update error: Invalid user id", Result.AUTH),
        ("slurm_update error: Access/permission denied", Result.AUTH),
        ("slurm_update error: Invalid node name specified", Result.BAD_REQUEST),
    ],
)
def test_a_refusal_is_an_outcome_for_each_node(bin_dir: Path, fake: Fake, message: str, result: Result) -> None:
    _refuse(fake, message)
    nodes = [NodeName("n1"), NodeName("n2")]
    outcomes = SlurmCommands(bin_dir=bin_dir).drain(nodes, "cm-scale: off", off=True)
    assert {node: outcome.result for node, outcome in outcomes.items()} == dict.fromkeys(nodes, result)
    assert outcomes[nodes[0]].detail == message.removeprefix("slurm_update error: ")


def test_a_silent_slurmctld_is_asked_once_for_all_nodes(bin_dir: Path, fake: Fake, tmp_path: Path) -> None:
    fake("scontrol", f"echo call >> {tmp_path}/calls; sleep 60")
    nodes = [NodeName(f"n{number}") for number in range(8)]
    outcomes = SlurmCommands(bin_dir=bin_dir, time_limit_s=0.3).drain(nodes, "cm-scale: off")
    assert {outcome.result for outcome in outcomes.values()} == {Result.TRANSIENT}
    assert (tmp_path / "calls").read_text().count("call") == 1


def test_nodes_are_resumed_at_their_addresses_in_one_call(bin_dir: Path, fake: Fake, tmp_path: Path) -> None:
    fake("scontrol", f'echo "$@" >> {tmp_path}/calls')
    slurm = SlurmCommands(bin_dir=bin_dir)
    outcomes = slurm.resume(
        {NodeName("n2"): "10.0.0.2", NodeName("n1"): "10.0.0.1", NodeName("n3"): "", NodeName("n4"): ""}
    )
    assert all(outcome.ok for outcome in outcomes.values())
    assert len(outcomes) == 4
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update nodename=n2,n1 nodeaddr=10.0.0.2,10.0.0.1 state=resume",
        "update nodename=n[3-4] state=resume",
    ]


def test_jobs_are_told_together_what_is_the_same(bin_dir: Path, fake: Fake, tmp_path: Path) -> None:
    fake("scontrol", f'echo "$@" >> {tmp_path}/calls')
    told = {JobId("1"): "cm-scale: a\nb", JobId("2"): "cm-scale: c", JobId("3"): "cm-scale: a\nb"}
    assert all(outcome.ok for outcome in SlurmCommands(bin_dir=bin_dir).say(told).values())
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update jobid=1,3 comment=cm-scale: a b",
        "update jobid=2 comment=cm-scale: c",
    ]


def test_each_job_that_slurm_refuses_has_its_own_outcome(bin_dir: Path, fake: Fake) -> None:
    _refuse(
        fake,
        "Invalid job id specified for job 99\n55_3: Invalid job id specified\n"
        "3_1,3,5: Access/permission denied\nUnexpected message received for job 47+1",
    )
    jobs = [JobId(job) for job in ("1", "99", "55_3", "3", "47+1")]
    outcomes = SlurmCommands(bin_dir=bin_dir).say(dict.fromkeys(jobs, "cm-scale: x"))
    assert [outcomes[job].result for job in jobs] == [
        Result.OK,
        Result.GONE,
        Result.GONE,
        Result.AUTH,
        Result.TRANSIENT,
    ]


_QUEUE = """cat <<'X'
13\x1f13\x1fRUNNING\x1f4294901747\x1fNone
14\x1f14\x1fRUNNING\x1f4294901746\x1fNone
15_1\x1f15\x1fRUNNING\x1f4294901745\x1fNone
16\x1f16\x1fPENDING\x1f4294901744\x1fBeginTime
17\x1f17\x1fPENDING\x1f0\x1fJobHoldMaxRequeue
18\x1f18\x1fPENDING\x1f0\x1fJobHeldUser
19\x1f19\x1fCOMPLETING\x1f4294901743\x1fNone
20\x1f20\x1fSPECIAL_EXIT\x1f0\x1fjob requeued in held state
21_[1-5]\x1f21\x1fPENDING\x1f4294901742\x1fBeginTime
X"""


def test_jobs_are_requeued_in_one_call_and_each_has_its_outcome(bin_dir: Path, fake: Fake, tmp_path: Path) -> None:
    fake("squeue", _QUEUE)
    fake(
        "scontrol",
        f'echo "$@" >> {tmp_path}/calls; echo "Requested operation is presently disabled for job 14" >&2; exit 1',
    )
    jobs = [JobId(job) for job in ("13", "14", "15_1", "999")]
    outcomes = SlurmCommands(bin_dir=bin_dir).requeue(jobs)
    assert [outcomes[job].result for job in jobs] == [Result.OK, Result.BAD_REQUEST, Result.OK, Result.GONE]
    assert outcomes[JobId("14")].detail == "Requested operation is presently disabled"
    assert (tmp_path / "calls").read_text() == "requeue Incomplete 13,14,15_1\n"


def test_jobs_that_wait_are_released_and_only_those(bin_dir: Path, fake: Fake, tmp_path: Path) -> None:
    fake("squeue", _QUEUE)
    fake("scontrol", f'echo "$@" >> {tmp_path}/calls')
    jobs = [JobId(job) for job in ("13", "16", "17", "18", "19", "20", "21", "999")]
    outcomes = SlurmCommands(bin_dir=bin_dir).release(jobs)
    assert {job: outcome.result for job, outcome in outcomes.items()} == {
        "13": Result.OK,
        "16": Result.OK,
        "17": Result.OK,
        "18": Result.BAD_REQUEST,
        "19": Result.TRANSIENT,
        "20": Result.OK,
        "21": Result.OK,
        "999": Result.GONE,
    }
    assert outcomes[JobId("18")].detail == "held by its user"
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update jobid=16,17,20,21 starttime=now",
        "release 17,20",
    ]


def test_constraints_are_set_together_where_they_are_the_same(bin_dir: Path, fake: Fake, tmp_path: Path) -> None:
    fake("scontrol", f'echo "$@" >> {tmp_path}/calls')
    pins = {JobId("1"): "gpu&aws-us-east-1", JobId("2"): "", JobId("3"): "gpu&aws-us-east-1"}
    assert all(outcome.ok for outcome in SlurmCommands(bin_dir=bin_dir).pin(pins).values())
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update jobid=1,3 features=gpu&aws-us-east-1",
        "update jobid=2 features=",
    ]


@pytest.mark.parametrize(
    ("message", "result"),
    [
        ("slurm_load_jobs error: Invalid job id specified", Result.GONE),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", Result.TRANSIENT),
    ],
)
def test_jobs_that_the_queue_does_not_show_are_left_alone(
    bin_dir: Path, fake: Fake, message: str, result: Result
) -> None:
    _refuse(fake, message)
    slurm = SlurmCommands(bin_dir=bin_dir)
    for outcomes in (slurm.requeue([JobId("7")]), slurm.release([JobId("7")])):
        assert outcomes[JobId("7")].result is result


def test_reservations_are_read_in_one_call(bin_dir: Path, fake: Fake) -> None:
    fake("scontrol", 'test "$*" = "show reservation --oneliner" && echo No reservations in the system')
    assert SlurmCommands(bin_dir=bin_dir).reservations().items == ()


def test_a_call_for_nothing_runs_nothing(bin_dir: Path) -> None:
    slurm = SlurmCommands(bin_dir=bin_dir)
    assert slurm.drain([], "x", off=True) == {}
    assert slurm.resume({}) == {}
    assert slurm.say({}) == {}
    assert slurm.pin({}) == {}
    assert slurm.requeue([]) == {}
    assert slurm.release([]) == {}
