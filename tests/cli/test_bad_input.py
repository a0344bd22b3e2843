"""Whatever a person can mend is one sentence per problem on standard error, and exit status 2.

Factors: what is wrong (a row of CASES) and the command that meets it (COMMANDS).
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cmscale.lab.lab import Lab
from tests.cli.program import Program, Said

COMMANDS = ("plan", "check", "run --once", "run")

PYTHONIC = re.compile(r"Traceback|PosixPath|\bNone\b|<[\w.]+ |\['|Error\('|Exception\b|object at 0x")


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is wrong, and a pattern for each sentence that tells it."""

    told: tuple[str, ...]
    change: Mapping[str, str] = field(default_factory=dict)
    """Patterns in the lab's cmscale.toml, and what stands there instead; @ is the test's folder."""
    files: Mapping[str, str] = field(default_factory=dict)
    slurm_conf: Mapping[str, str] | None = None
    """The same for a copy of its slurm.conf."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    seen_by: tuple[str, ...] = COMMANDS


def policy(name: str, text: str, told: str) -> Case:
    change = {r"(?m)^\[slurm\]": f'policy_dir = "@"\npolicies = ["serve_queue", "{name}"]\n\n[slurm]'}
    return Case((told,), change, {f"{name}.py": text})


def slurm_conf(told: str, change: Mapping[str, str] | None) -> Case:
    return Case((told,), {r'(?m)^conf = ".*"': 'conf = "@/slurm.conf"'}, slurm_conf=change)


SITES = ("aws-us-east-1", "aws-us-west-2")

CASES = {
    "no Slurm in bin_dir": Case(
        (r"@/s(info|queue) could not be run \(No such file or directory\): install .* or set bin_dir under \[slurm\]",),
        {r"(?m)^\[slurm\]": '[slurm]\nbin_dir = "@"'},
    ),
    "no Slurm in PATH": Case(
        (r"s(info|queue) could not be run .*: install Slurm's client commands, or set bin_dir under \[slurm\]",),
        env={"PATH": "/nowhere"},
    ),
    "no slurm.conf": slurm_conf(r"@/slurm\.conf \(\[slurm\] conf\) does not exist", None),
    "an unknown key in slurm.conf": slurm_conf(
        r"s\w+ cannot use @/slurm\.conf \(\[slurm\] conf\): Parsing error at unrecognized key: Bogus",
        {r"(?m)^SlurmctldPort=": "Bogus=1\nSlurmctldPort="},
    ),
    "a broken line in slurm.conf": slurm_conf(
        r'cannot use @/slurm\.conf \(\[slurm\] conf\): Parse error in file @/slurm\.conf line \d+: " Defaul=YES',
        {r" Default=YES": " Defaul=YES"},
    ),
    "an unreachable API": Case(
        tuple(f"site {site}: EC2 in .* at http://127.0.0.1:9 does not answer: Could not connect" for site in SITES),
        {r'(?m)^endpoint_url = ".*"': 'endpoint_url = "http://127.0.0.1:9"'},
        seen_by=("plan", "check", "run --once"),
    ),
    "other credentials": Case(
        tuple(f"site {site}: EC2 in .* refuses the credentials in the environment .*: AuthFailure" for site in SITES),
        env={"AWS_ACCESS_KEY_ID": "AKIASOMEBODYELSE"},
    ),
    "no credentials": Case(
        tuple(f"site {site}: there are no credentials for EC2 in .*: none in the environment" for site in SITES),
        env={"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None},
    ),
    "no TOML": Case(
        (r"@/cmscale\.toml:\d+: not valid TOML: Invalid value, at column 8",), {r"(?m)^cpus = 8": "cpus = = 8"}
    ),
    "an unknown key": Case(
        (r'@/cmscale\.toml:\d+: pools\.cpu\.cpu: unknown key; did you mean "cpus"\?',), {r"(?m)^cpus = 8": "cpu = 8"}
    ),
    "a wrong type": Case(
        (r'@/cmscale\.toml:\d+: pools\.cpu\.cpus: expected a whole number, got "8"',),
        {r"(?m)^cpus = 8": 'cpus = "8"'},
    ),
    "a wrong unit": Case(
        (r'@/cmscale\.toml:\d+: limits\.min_up: expected a duration such as "30s", "10m" or "2h", got "9 moons"',),
        {r"(?m)^min_up = .*": 'min_up = "9 moons"'},
    ),
    "a wrong unit of a policy": Case(
        (r'@/cmscale\.toml:\d+: policy\.release_idle\.idle: expected a duration such as .*, got "4x"',),
        {r"(?m)^idle = .*": 'idle = "4x"'},
    ),
    "an unknown policy": Case(
        (r'@/cmscale\.toml:\d+: cluster\.policies: there is no serve_que\.py in .*; did you mean "serve_queue"\?',),
        {r"(?m)^\[slurm\]": 'policies = ["serve_que"]\n\n[slurm]'},
    ),
    "an unknown site": Case(
        (r'@/cmscale\.toml:\d+: pools\.t4-west\.site: there is no site "aws-us-w"; did you mean "aws-us-west-2"\?',),
        {r'(?m)^site = "aws-us-west-2"': 'site = "aws-us-w"'},
    ),
    "an unknown partition": Case(
        (r'@/cmscale\.toml:\d+: partitions\.clod: no pool is in a partition "clod"; (did you mean|valid)',),
        {r"(?m)^\[slurm\]": "[partitions.clod]\n\n[slurm]"},
    ),
    "a helper that is no node": Case(
        (r'@/cmscale\.toml:\d+: pools\.cpu\.helpers: no other pool has a node "t4-99"; did you mean "t4-9"\?',),
        {r"(?m)^cpus = 8": 'cpus = 8\nhelpers = "t4-99"'},
    ),
    "pools that wait for one another": Case(
        (r"@/cmscale\.toml:\d+: pools\.\w+\.helpers: the pools wait for one another's helpers for ever: (cpu|t4) -> ",),
        {
            r"(?m)^cpus = 8": 'cpus = 8\nhelpers = "t4-1"',
            r"(?m)^\[pools\.t4\]": '[pools.t4]\nhelpers = "cpu-1"',
        },
    ),
    "a prolog that is not there": Case(
        (r"@/cmscale\.toml:\d+: pools\.cpu\.prolog: @/none\.sh can't be run \(No such file or directory\)",),
        {r"(?m)^cpus = 8": 'cpus = 8\nprolog = "none.sh"'},
    ),
    "hours on no day": Case(
        (r'@/cmscale\.toml:\d+: pools\.cpu\.hours: there is no day "fry" in "mon-fry [^"]+"; did you mean "fri"\?',),
        {r"(?m)^cpus = 8": 'cpus = 8\nhours = ["mon-fry 20:00-06:00"]'},
    ),
    "a policy with a syntax error": policy("mine", "def propose(view", r"@/mine\.py:1: not valid Python: "),
    "a policy that raises": policy(
        "mine", "\nraise OSError('no licence')", r"@/mine\.py:2: loading the policy raised OSError: no licence"
    ),
    "a policy folder that is not there": Case(
        (r"@/cmscale\.toml:\d+: cluster\.policy_dir: there is no folder @/none",),
        {r"(?m)^\[slurm\]": 'policy_dir = "@/none"\n\n[slurm]'},
    ),
    "a state_dir below a file": Case(
        (r"@/cmscale\.toml:\d+: cluster\.state_dir: @/cmscale.toml/state can't be (read|written)",),
        {r"(?m)^state_dir = .*": 'state_dir = "@/cmscale.toml/state"'},
    ),
}


def written(lab: Lab, case: Case, folder: Path) -> Path:
    """The lab's configuration with what is wrong; nothing of the lab's own is touched."""
    text = changed(lab.config.read_text(encoding="utf-8"), case.change, folder)
    own_state = {r'(?m)^state_dir = ".*/cm-scale"': 'state_dir = "@/state"'}
    text = text if "state_dir" in str(case.change) else changed(text, own_state, folder)
    path = folder / "cmscale.toml"
    path.write_text(text, encoding="utf-8")
    for name, content in case.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    if case.slurm_conf:
        conf = changed(lab.slurm_conf.read_text(encoding="utf-8"), case.slurm_conf, folder)
        (folder / "slurm.conf").write_text(conf, encoding="utf-8")
    return path


def changed(text: str, changes: Mapping[str, str], folder: Path) -> str:
    for pattern, new in changes.items():
        text, count = re.subn(pattern, new.replace("@", str(folder)), text)
        assert count, f"{pattern} is not in {text}"
    return text


def assert_told(said: Said, case: Case, folder: Path) -> None:
    patterns = [pattern.replace("@", re.escape(str(folder))) for pattern in case.told]
    assert said.status == 2
    assert len(said.problems) == len(patterns), said.err
    for problem, pattern in zip(said.problems, patterns, strict=True):
        assert re.search(pattern, problem), problem
    assert all(line.startswith("cm-scale: ") for line in said.err.splitlines())
    assert not PYTHONIC.search(said.err), said.err


MATRIX = [(name, command) for name, case in CASES.items() for command in case.seen_by]


@pytest.mark.parametrize(("name", "command"), MATRIX, ids=[f"{name}, {command}" for name, command in MATRIX])
def test_what_is_wrong_is_told_once_and_ends_the_command(
    cm_scale: Program, tmp_path: Path, name: str, command: str
) -> None:
    case = CASES[name]
    path = written(cm_scale.lab, case, tmp_path)
    cm_scale.environment({**cm_scale.lab.env, **case.env})
    assert_told(cm_scale(*command.split(), "--config", path), case, tmp_path)


@pytest.mark.parametrize("name", ["no TOML", "an unknown policy", "no slurm.conf", "no credentials"])
def test_check_tells_the_same_in_json(cm_scale: Program, tmp_path: Path, name: str) -> None:
    path = written(cm_scale.lab, CASES[name], tmp_path)
    cm_scale.environment({**cm_scale.lab.env, **CASES[name].env})
    said = cm_scale("check", "--json", "-c", path)
    told = json.loads(said.out)
    assert said.err == ""
    assert not told["ok"]
    in_lines = "".join(f"cm-scale: {problem}\n" for problem in told["problems"])
    assert_told(Said(said.status, "", in_lines), CASES[name], tmp_path)


def test_check_names_all_problems_at_once(cm_scale: Program, tmp_path: Path) -> None:
    names = ("no slurm.conf", "an unreachable API", "an unknown policy", "a state_dir below a file")
    change = {pattern: new for name in names for pattern, new in CASES[name].change.items()}
    path = written(cm_scale.lab, Case((), change), tmp_path)
    said = cm_scale("check", "-c", path)
    assert said.status == 2
    subjects = ("cluster.policies", "cluster.state_dir", "slurm.conf", "site aws-us-east-1", "site aws-us-west-2")
    assert len(said.problems) == len(subjects)
    for problem, subject in zip(said.problems, subjects, strict=True):
        assert subject in problem
    assert "5 problems:" in said.out


def test_every_mistake_in_the_file_is_told_in_the_order_of_the_file(cm_scale: Program, tmp_path: Path) -> None:
    names = ("a wrong unit", "an unknown site", "a wrong type")
    change = {pattern: new for name in names for pattern, new in CASES[name].change.items()}
    told = tuple(CASES[name].told[0] for name in names)
    case = Case(told, change)
    assert_told(cm_scale("plan", "-c", written(cm_scale.lab, case, tmp_path)), case, tmp_path)


def test_a_daemon_waits_for_a_cloud_that_may_answer_again(cm_scale: Program, tmp_path: Path) -> None:
    path = written(cm_scale.lab, CASES["an unreachable API"], tmp_path)
    daemon = subprocess.Popen(
        cm_scale.argv("run", "--observe", "-c", path),
        env=cm_scale.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with daemon:
        assert daemon.stderr
        lines = [daemon.stderr.readline() for _ in range(3)]
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.wait(2.5)
        daemon.send_signal(signal.SIGTERM)
        _, rest = daemon.communicate(timeout=10)
    assert daemon.returncode == 0
    assert "observing cluster lab" in lines[0]
    assert ["does not answer" in line for line in lines[1:]] == [True, True]
    assert rest == ""


def test_a_file_that_is_not_there_is_told_with_a_way_to_start(cm_scale: Program, tmp_path: Path) -> None:
    case = Case((r"@/none\.toml: there is no such file; copy etc/cmscale\.toml there to start",))
    for command in COMMANDS:
        assert_told(cm_scale(*command.split(), "-c", tmp_path / "none.toml"), case, tmp_path)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ("explain job 4711", "there is no job 4711 in the queue; to see the queue: squeue"),
        ("explain node t4-99", 'Slurm knows no node t4-99; did you mean "t4-9"?'),
        ("explain node xyz", "Slurm knows no node xyz; to see every node: cm-scale nodes --all"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest(cm_scale: Program, argv: str, told: str) -> None:
    for in_json in ([], ["--json"]):
        said = cm_scale(*argv.split(), *in_json)
        assert (said.status, said.out, said.problems) == (2, "", [told])


@pytest.mark.parametrize("command", ["explain job 1", "status", "nodes"])
def test_without_slurm_other_looks_end_alike(cm_scale: Program, tmp_path: Path, command: str) -> None:
    case = CASES["no Slurm in bin_dir"]
    assert_told(cm_scale(*command.split(), "-c", written(cm_scale.lab, case, tmp_path)), case, tmp_path)


def test_what_is_seen_is_shown_although_a_cloud_is_not(cm_scale: Program, tmp_path: Path) -> None:
    path = written(cm_scale.lab, CASES["an unreachable API"], tmp_path)
    for command in ("status", "plan", "nodes"):
        said = cm_scale(command, "--json", "-c", path)
        assert said.status == 2
        assert json.loads(said.out)["unseen"].keys() == set(SITES)
        assert len(said.problems) == 2
    assert "op1" in cm_scale("nodes", "--all", "-c", path).out


def test_an_unknown_command_or_option_is_told_by_its_usage(cm_scale: Program) -> None:
    said = cm_scale("plan", "--jsn")
    assert said.status == 2
    assert "No such option" in said.err
    assert "--json" in said.err
    assert cm_scale("plant").status == 2
