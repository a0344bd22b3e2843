"""Who may import whom. The architecture stands in these tables; a module that breaks it fails here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MATCHING = {f"cmscale.{name}" for name in ("model", "fit", "placing", "hours")}
"""What policies and the core share: the nouns, and who could serve whom, where and when."""

ROOMS: dict[str, set[str]] = {
    "cmscale.model": set(),
    "cmscale.fit": {"cmscale.model"},
    "cmscale.ports": {"cmscale.model"},
    "cmscale.hours": {"cmscale.model"},
    "cmscale.resting": {"cmscale.model"},
    "cmscale.placing": {"cmscale.model", "cmscale.fit", "cmscale.placing"},
    "policies": MATCHING,
    "cmscale.core": MATCHING | {"cmscale.resting", "cmscale.core"},
    "cmscale.adapters.slurm": {"cmscale.model", "cmscale.ports", "cmscale.adapters.slurm"},
    "cmscale.adapters.aws": {"cmscale.model", "cmscale.ports", "cmscale.resting", "cmscale.adapters.aws"},
    "cmscale.sim": {"cmscale.model", "cmscale.fit", "cmscale.ports", "cmscale.shell.loop", "cmscale.sim"},
    "cmscale.journal": {"cmscale.model", "cmscale.ports", "cmscale.core", "cmscale.journal"},
    "cmscale.shell": {
        "cmscale.model",
        "cmscale.hours",
        "cmscale.ports",
        "cmscale.core",
        "cmscale.journal",
        "cmscale.shell",
    },
    "cmscale.lab": {"cmscale.model", "cmscale.adapters", "cmscale.journal", "cmscale.shell", "cmscale.lab"},
    # The shell is put together in wiring, and the command line shows everything.
    "cmscale.shell.wiring": {"cmscale"},
    "cmscale.cli": {"cmscale"},
}
"""For each room what it may import of cm-scale; the longest name that fits a module is its room."""

PURE = MATCHING | {"cmscale.resting", "cmscale.core", "policies"}
IMPURE_LIBRARIES = {
    "os",
    "sys",
    "time",
    "random",
    "logging",
    "subprocess",
    "socket",
    "threading",
    "secrets",
    "datetime",
}
SDKS = {"boto3": "cmscale.adapters.aws", "botocore": "cmscale.adapters.aws", "psycopg": "cmscale.journal.postgres"}


def modules() -> Iterator[tuple[str, Path]]:
    for folder in ("cmscale", "policies"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "share" not in path.parts:
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"), path


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(imported module, is it imported when the module is?) for every import statement."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_top = {id(each) for each in tree.body}
    for each in ast.walk(tree):
        if isinstance(each, ast.Import):
            yield from ((name.name, id(each) in at_top) for name in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module:
            yield each.module, id(each) in at_top
            yield from ((f"{each.module}.{name.name}", id(each) in at_top) for name in each.names)


def room_of(module: str, rooms: dict[str, set[str]] | set[str]) -> str | None:
    fitting = [room for room in rooms if module == room or module.startswith(f"{room}.")]
    return max(fitting, key=len, default=None)


MODULES = list(modules())


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_a_module_imports_only_what_its_room_may(module: str, path: Path) -> None:
    room = room_of(module, ROOMS)
    allowed = ROOMS[room] if room else set()
    for imported, _ in imports(path):
        if imported.split(".")[0] in {"cmscale", "policies"} and imported != "cmscale":
            near = any(imported == each or imported.startswith(f"{each}.") for each in allowed)
            parent = any(each.startswith(f"{imported}.") for each in allowed)  # "from cmscale import model"
            assert near or parent, f"{module} may not import {imported}"


@pytest.mark.parametrize(("module", "path"), [each for each in MODULES if room_of(each[0], PURE)], ids=str)
def test_what_decides_reads_no_clock_and_touches_nothing(module: str, path: Path) -> None:
    for imported, _ in imports(path):
        top = imported.split(".")[0]
        assert top not in IMPURE_LIBRARIES, f"{module} imports {imported}"
        assert top in sys.stdlib_module_names or top == "cmscale", f"{module} imports the third-party {imported}"


@pytest.mark.parametrize(("module", "path"), MODULES, ids=[name for name, _ in MODULES])
def test_cloud_sdks_stay_in_their_adapter_and_are_imported_only_when_used(module: str, path: Path) -> None:
    for imported, at_top in imports(path):
        home = SDKS.get(imported.split(".")[0])
        if home and not module.startswith("cmscale.lab"):
            assert room_of(module, {home}), f"{module} imports {imported}, which is for {home} alone"
            assert not at_top, f"{module} imports {imported} although the extra may be missing"


def test_pyslurm_is_imported_by_its_own_program_alone_which_knows_nothing_of_ours() -> None:
    program = "cmscale.adapters.slurm.pyslurm.worker"
    for module, path in MODULES:
        for imported, at_top in imports(path):
            if module == program:
                assert imported.split(".")[0] in {*sys.stdlib_module_names, "pyslurm"}
                assert imported != "pyslurm" or not at_top
            else:
                assert imported.split(".")[0] != "pyslurm"
                assert imported != program, f"{module} would bring PySlurm into our process"


def test_adapters_do_not_know_one_another() -> None:
    adapters = {room for room in ROOMS if room.startswith("cmscale.adapters.")}
    for room in adapters:
        assert not (ROOMS[room] & (adapters - {room}))
