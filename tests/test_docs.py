"""Everything that can be typed, set or read is documented, and every link leads somewhere."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import get_args

import click
import pytest
from pydantic import BaseModel

from cmscale.cli.cm_scale import cm_scale
from cmscale.core.guards import GUARDS
from cmscale.model import EventKind, Help, NodeName, PoolName, Power, Result, SiteName
from cmscale.shell import policies, schema
from cmscale.shell.scripts import Call, Kind
from cmscale.shell.shipped import share_dir

ROOT = Path(__file__).parents[1]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
COMMON = {"--config", "--json", "--help"}
"""Options that are told once, for all commands."""


def commands(group: click.Group, above: str = "cm-scale") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{above} {name}")
        else:
            yield f"{above} {name}", command


COMMANDS = dict(commands(cm_scale))


def section(heading: str) -> str:
    found = re.search(rf"^###? (?:`{heading}[^\n]*`|{heading})\n(.*?)(?=^##|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/reference.md has no section {heading}"
    return found[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_its_options_and_its_keys(name: str) -> None:
    text = section(name)
    options = {option: each for each in COMMANDS[name].params for option in (*each.opts, *each.secondary_opts)}
    flags = {option for option, each in options.items() if isinstance(each, click.Option)}
    told = set(re.findall(r"`(--?[\w-]+)", "\n".join(line for line in text.splitlines() if line.startswith("- `-"))))
    assert flags - COMMON - {"-c", "-h"} == told - COMMON
    assert "JSON: " in text or "`--json`: " in text


def test_every_documented_command_exists() -> None:
    told = re.findall(r"^### `(cm-scale [a-z0-9 -]+?)(?: [A-Z]+)?`$", REFERENCE, re.MULTILINE)
    assert sorted(told) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_options_of_all(name: str) -> None:
    options = {option for each in COMMANDS[name].params for option in each.opts}
    assert "--json" in options
    assert "--config" in options or name.startswith(("cm-scale lab", "cm-scale demo"))
    assert COMMANDS[name].help
    assert all(each.help for each in COMMANDS[name].params if isinstance(each, click.Option))


def keys(table: type[BaseModel], above: str = "") -> Iterator[str]:
    """Every key of the file, with NAME where a table has names of its own."""
    for name, field in table.model_fields.items():
        key = f"{above}{field.validation_alias or name}"
        inner = [each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)]
        tables = [each for each in inner if issubclass(each, BaseModel)]
        if not tables:
            yield f"{key}.NAME" if key == "policy" else key
        for each in tables:
            yield from keys(each, f"{key}." if each is field.annotation else f"{key}.NAME.")


def test_every_key_of_the_configuration_is_documented_and_no_other() -> None:
    told = re.findall(r"^\| `([\w.]+)` \|", section("Configuration"), re.MULTILINE)
    assert sorted(told) == sorted(keys(schema.FileTable))


def test_every_guard_is_documented_in_its_order() -> None:
    told = re.findall(r"^\| `(\w+)` \|", section("Guards"), re.MULTILINE)
    assert told == [guard.__name__ for guard in GUARDS]


def test_every_shipped_policy_is_documented_with_its_settings() -> None:
    names = sorted(path.stem for path in share_dir("policies").glob("*.py"))
    shipped = policies.load(tuple(names), None, MappingProxyType({}))
    expected = {
        policy.name: {field.name.removesuffix("_s") for field in dataclasses.fields(policy.settings)}
        for policy in shipped
    }
    told: dict[str, set[str]] = {}
    for policy, setting in re.findall(r"^\| (?:`(\w+)`)? ?\| (?:`(\w+)`)? ?\|", section("Policies"), re.MULTILINE):
        if policy:
            told[policy] = set()
        elif setting:
            told[list(told)[-1]].add(setting)
    assert told == expected


@pytest.mark.parametrize("name", sorted(path.stem for path in share_dir("policies").glob("*.py")))
def test_every_setting_of_a_policy_is_in_the_example_with_its_default(name: str) -> None:
    tables = tomllib.loads((share_dir("etc") / "cmscale.toml").read_text(encoding="utf-8"))["policy"]
    (by_itself,) = policies.load((name,), None, MappingProxyType({}))
    (as_written,) = policies.load((name,), None, {name: tables[name]})
    assert dataclasses.asdict(as_written.settings) == dataclasses.asdict(by_itself.settings)
    assert set(tables[name]) == {each.name.removesuffix("_s") for each in dataclasses.fields(by_itself.settings)}


@pytest.mark.parametrize(("heading", "words"), [("power", Power), ("result", Result), ("event", EventKind)])
def test_the_words_of_states_are_documented(heading: str, words: type[Power | Result | EventKind]) -> None:
    told = section("Words").partition(f"| {heading} | meaning |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", told, re.MULTILINE) == [word.value for word in words]


def test_what_scripts_are_told_is_documented() -> None:
    call = Call(Kind.PROLOG, NodeName("n1"), PoolName("p"), SiteName("s"))
    assert set(re.findall(r"`((?:CMSCALE|AS)_\w+)`", section("Prolog and epilog"))) == set(call.environment)


def test_what_more_nodes_would_do_is_documented() -> None:
    assert all(f"`{word.value}`" in REFERENCE for word in Help)


# --- links -----------------------------------------------------------------------------------------------------------

LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, capture_output=True, text=True
).stdout.split() or ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
PAGES = sorted({name for name in LISTED if (ROOT / name).exists()})


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(<?([^)\s>]+)", text):
        if re.match(r"(https?|mailto):", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{name}: {target} leads nowhere"
        assert not anchor or anchor in anchors(there), f"{name}: {target}: there is no such heading"
