"""check and slurm-conf: an admin is told all that is missing, and nothing that is not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cmscale.lab.lab import Lab
from tests.cli.program import Program, documented_keys


def config(cm_scale: Program, folder: Path, **lines: str) -> Path:
    """The lab's configuration with other paths for conf and include of [slurm]."""
    text = cm_scale.lab.config.read_text(encoding="utf-8")
    for key, value in lines.items():
        before, _, after = text.partition(f"\n{key} = ")
        text = f'{before}\n{key} = "{value}"\n{after.partition(chr(10))[2]}'
    path = folder / "cmscale.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_healthy_lab_is_in_order(cm_scale: Program) -> None:
    said = cm_scale("check")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "Everything is in order. Next: cm-scale plan"
    (policies,) = [line for line in said.out.splitlines() if line.startswith("policies ")]
    assert policies.startswith("policies leave_reclaimed, ")
    assert policies.endswith(", release_idle")


def test_by_what_slurm_is_read_is_told_with_the_reason(cm_scale: Program, tmp_path: Path) -> None:
    backend = json.loads(cm_scale("check", "--json").out)["backend"]
    way = {"commands": "Slurm's commands", "pyslurm": "PySlurm"}[backend["name"]]
    assert f"read by  {way}: {backend['why']}" in cm_scale("check").out.splitlines()
    assert json.loads(cm_scale("status", "--json").out)["backend"] == backend


def test_a_pyslurm_that_is_not_there_is_a_problem_for_who_insists(cm_scale: Program, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nread request\necho \'{"error": "missing", "why": "No module named pyslurm"}\'\n')
    python.chmod(0o755)
    text = cm_scale.lab.config.read_text(encoding="utf-8")
    path = tmp_path / "cmscale.toml"
    path.write_text(text.replace("[slurm]", f'[slurm]\nbackend = "pyslurm"\npyslurm_python = "{python}"'))
    said = cm_scale("-c", str(path), "check")
    assert said.status == 2
    assert f'slurm.backend is "pyslurm", but PySlurm cannot be imported by {python}' in said.err
    assert "(No module named pyslurm)" in said.err


def test_checking_makes_no_machine(cm_scale: Program) -> None:
    assert cm_scale("check").status == 0
    assert cm_scale.lab.instances() == []


def test_the_file_is_written_once(cm_scale: Program, tmp_path: Path) -> None:
    target = tmp_path / "nodes.conf"
    first = cm_scale("slurm-conf", "--output", target)
    text, at = target.read_text(), target.stat().st_mtime_ns
    second = cm_scale("slurm-conf", "-o", target)
    assert first.status == second.status == 0
    assert first.out.startswith(f"{target} is written.\n")
    assert second.out.startswith(f"{target} says so already")
    assert (target.read_text(), target.stat().st_mtime_ns) == (text, at)


def test_a_missing_include_line_is_told(cm_scale: Program, tmp_path: Path) -> None:
    target = tmp_path / "nodes.conf"
    said = cm_scale("slurm-conf", "-o", target)
    assert f"Add this line to {cm_scale.lab.slurm_conf}: Include {target}" in said.out
    assert "Include" not in cm_scale("slurm-conf").out


def test_printing_writes_nothing(cm_scale: Program, tmp_path: Path) -> None:
    target = tmp_path / "nodes.conf"
    said = cm_scale("slurm-conf", "--print", "-o", target)
    assert said.out == cm_scale.lab.include.read_text()
    assert not target.exists()


def test_slurm_conf_itself_is_only_read(cm_scale: Program) -> None:
    before = cm_scale.lab.slurm_conf.stat().st_mtime_ns
    assert cm_scale("slurm-conf").out.endswith("says so already; it is left as it is.\n")
    assert cm_scale.lab.slurm_conf.stat().st_mtime_ns == before


@pytest.mark.parametrize("only_print", [False, True])
def test_the_json_has_the_keys_of_the_reference(cm_scale: Program, tmp_path: Path, only_print: bool) -> None:
    said = cm_scale("slurm-conf", "--json", "-o", tmp_path / "nodes.conf", *(["--print"] if only_print else []))
    told = json.loads(said.out)
    assert set(told) == documented_keys("slurm-conf")
    assert told["changed"] != only_print
    assert not told["included"]


def test_a_place_that_cannot_be_written_is_told(cm_scale: Program, tmp_path: Path) -> None:
    said = cm_scale("slurm-conf", "-o", tmp_path / "none" / "nodes.conf")
    assert said.status == 2
    assert said.problems == [f"{tmp_path}/none/nodes.conf: it can't be written (No such file or directory)"]


def test_a_slurm_conf_that_cannot_be_read_is_told(cm_scale: Program, tmp_path: Path) -> None:
    path = config(cm_scale, tmp_path, conf=f"{tmp_path}/none.conf")
    said = cm_scale("slurm-conf", "-c", path)
    assert said.status == 2
    (told,) = said.problems
    assert told.startswith(f"{tmp_path}/none.conf: slurm.conf can't be read (No such file or directory); name the file")


def test_an_include_that_is_missing_is_the_only_problem_told(cm_scale: Program, tmp_path: Path) -> None:
    other = tmp_path / "nodes.conf"
    slurm_conf = tmp_path / "slurm.conf"
    text = cm_scale.lab.slurm_conf.read_text()
    slurm_conf.write_text(text)
    path = config(cm_scale, tmp_path, conf=str(slurm_conf), include=str(other))
    assert cm_scale("check", "-c", path).problems == [f"{slurm_conf}: this line is missing: Include {other}"]
    slurm_conf.write_text(text.replace(str(cm_scale.lab.include), str(other)))
    (told,) = cm_scale("check", "-c", path).problems
    assert told == f"{other}: the file is missing, which {slurm_conf} includes; write it with: cm-scale slurm-conf"
    assert cm_scale("slurm-conf", "-c", path).status == 0
    assert cm_scale("check", "-c", path).status == 0


def test_a_changed_pool_is_in_order_after_the_file_was_written_and_slurmctld_restarted(
    cm_scale: Program, tmp_path: Path
) -> None:
    lab = cm_scale.lab
    path = tmp_path / "cmscale.toml"
    text = lab.config.read_text(encoding="utf-8")
    before, pool, rest = text.partition("[pools.cpu]")
    path.write_text(before + pool + rest.replace('["batch"]', '["batch", "cloud"]'), encoding="utf-8")
    (outdated, lacking) = cm_scale("check", "-c", path).problems
    assert outdated.startswith(f"{lab.include}: it does not say what {path} says; write it anew with: cm-scale")
    assert lacking == "pool cpu: partition cloud lacks cpu-[1-4]; add the nodes there in slurm.conf"
    said = cm_scale("slurm-conf", "-c", path)
    assert said.out.splitlines() == [
        f"{lab.include} is written.",
        "Restart slurmctld to let it take effect (jobs survive). Next: cm-scale check",
    ]
    lab.stop_slurmctld()
    lab.start_slurmctld()
    assert cm_scale("check", "-c", path).problems == []


def test_the_nodes_are_still_in_order_after_the_daemon_parked_them(cm_scale: Program) -> None:
    assert cm_scale("slurm-conf").status == 0
    assert cm_scale.apart("run", "--once").status == 0
    assert "DOWN" in cm_scale("explain", "node", "t4-1").out
    assert cm_scale("check").problems == []


def test_whoever_sources_the_labs_file_finds_cm_scale_and_its_configuration(lab: Lab) -> None:
    script = f". {lab.directory}/env.sh; command -v cm-scale; echo $CMSCALE_CONFIG"
    done = subprocess.run(["env", "-i", "/bin/sh", "-c", script], capture_output=True, text=True, timeout=10)
    program, configuration = done.stdout.split()
    assert program.endswith("/cm-scale")
    assert configuration == str(lab.config)
