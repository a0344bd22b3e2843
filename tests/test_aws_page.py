"""Every command in docs/aws.md exists, with its options: cm-scale's by its own parser, AWS's by the SDK's models."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import botocore.session
import click
import pytest
from botocore import xform_name

from cmscale.cli.cm_scale import cm_scale
from cmscale.shell import config

PAGE = (Path(__file__).parents[1] / "docs" / "aws.md").read_text(encoding="utf-8")
OF_ALL = {"--query", "--output", "--region", "--profile", "--cli-input-json"}
"""Options of the AWS command line itself; each takes a value."""
BY_ITSELF = {"--min-count", "--max-count"}
"""What run-instances is not given by these names; it starts one machine unless told otherwise."""


def code(page: str) -> Iterator[str]:
    """Each line of code: of the blocks, where a \\ joins lines, and between backquotes."""
    blocks = "\n".join(line[4:] for line in page.splitlines() if line.startswith("    "))
    yield from re.sub(r"\\\n\s*", " ", blocks).splitlines()
    prose = "\n".join(line for line in page.splitlines() if not line.startswith("    "))
    yield from (" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose))


def commands(program: str) -> list[str]:
    """Those of the program, without what the shell does around them."""
    found = [re.sub(r"^(?:\$ |\w+=\$\()", "", line) for line in code(PAGE)]
    of_program = [line for line in found if line.startswith(f"{program} ")]
    return list(dict.fromkeys(re.sub(r"\)$| *(>|&$|# ).*", "", line) for line in of_program))


def words(line: str) -> list[str]:
    return shlex.split(line)[1:]


def test_the_page_has_commands_of_both() -> None:
    assert len(commands("cm-scale")) > 10
    assert len(commands("aws")) > 20


@pytest.mark.parametrize("line", commands("cm-scale"))
def test_a_command_of_ours_is_one_that_can_be_typed(line: str) -> None:
    command: click.Command = cm_scale
    name, rest, above = "cm-scale", words(line), None
    while isinstance(command, click.Group):
        place = next((at for at, word in enumerate(rest) if word in command.commands), None)
        if place is None:
            assert line.count(" ") == 1, f"{line}: {name} has no such command"
            return  # a whole group is meant, such as `cm-scale aws`
        above = command.make_context(name, rest[: place + 1], parent=above)
        name = rest[place]
        command, rest = command.commands[name], rest[place + 1 :]
    command.make_context(name, rest, parent=above)  # raises what the user would be told


# --- AWS's own ---


@cache
def model(service: str) -> Any:
    session = botocore.session.get_session()
    return session.get_service_model(service)


@cache
def waiters(service: str) -> set[str]:
    names = botocore.session.get_session().get_waiter_model(service).waiter_names
    return {xform_name(name, "-") for name in names}


def operation(service: str, name: str) -> Any:
    known = {xform_name(each, "-"): each for each in model(service).operation_names}
    assert name in known, f"{service} has no operation {name}"
    return model(service).operation_model(known[name])


def options(given: Sequence[str]) -> dict[str, list[str]]:
    """The options with their values."""
    found: dict[str, list[str]] = {}
    for word in given:
        if word.startswith("--"):
            found[word] = []
        else:
            found[list(found)[-1]].append(word)
    return found


@pytest.mark.parametrize("line", commands("aws"))
def test_a_command_of_aws_names_an_operation_with_what_it_takes_and_needs(line: str) -> None:
    service, name, *rest = words(line)
    if name == "wait":
        assert rest[0] in waiters(service)
        return
    chosen = operation(service, name)
    given = options(rest)
    shape = chosen.input_shape
    members = shape.members if shape else {}
    # A boolean is said by its name, or with "no" before it.
    takes = {f"--{xform_name(member, '-')}" for member in members}
    takes |= {f"--no-{xform_name(member, '-')}" for member, each in members.items() if each.type_name == "boolean"}
    assert set(given) <= (takes - BY_ITSELF) | OF_ALL
    needs = {f"--{xform_name(member, '-')}" for member in (shape.required_members if shape else ())}
    assert needs - BY_ITSELF <= set(given)
    for query in given.get("--query", ()):
        assert query[: re.match(r"\w*", query).end()] in chosen.output_shape.members  # type: ignore[union-attr]


# --- the configuration ---


def test_the_tables_on_the_page_are_a_configuration(tmp_path: Path) -> None:
    blocks = [textwrap.dedent(each).strip() for each in re.findall(r"(?:^(?:    .*)?\n)+", PAGE, re.MULTILINE)]
    tables = [block for block in blocks if block.startswith("[")]
    assert len(tables) > 2
    path = tmp_path / "cmscale.toml"
    path.write_text("\n".join(tables))
    loaded = config.load(path)
    assert loaded.slurm.conf_server == "192.0.2.10:6817"
    assert loaded.rules.budgets
