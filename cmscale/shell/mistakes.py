"""How is told what is wrong with the configuration file? One sentence, with its line and the nearest valid name."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from cmscale.shell.relations import MISSING, Place
from cmscale.shell.schema import BudgetTable, FileTable, PartitionTable, PoolTable, SiteTable
from cmscale.shell.values import nearest, shown


def problem(error: ErrorDetails) -> tuple[Place, str]:
    """What the schema finds wrong: where, and in a sentence."""
    # A key that is wrong itself, and an item of a list, are told at the table or the list that holds them.
    place = tuple(part for part in error["loc"] if isinstance(part, str) and part != "[key]")
    return place, _sentence(error, place)


def without_echoes(problems: set[tuple[Place, str]]) -> Iterator[tuple[Place, str]]:
    """The problems, without those of keys that are missing only because they are misspelt."""
    meant = {
        (*place[:-1], match[1]) for place, sentence in problems if (match := re.fullmatch(_DID_YOU_MEAN, sentence))
    }
    return (each for each in problems if not (each[1] == MISSING and each[0] in meant))


_DID_YOU_MEAN = r'unknown key; did you mean "(.+?)"\?'
_EXPECTED = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "string_type": "expected a text in quotes",
    "path_type": "expected a path in quotes",
    "bool_type": "expected true or false",
    "tuple_type": 'expected a list such as ["a", "b"]',
    "too_short": "expected a list with at least one entry",
    "string_too_short": "expected a text that is not empty",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "greater_than": "expected more than {gt:g}",
    "less_than_equal": "expected {le:g} or less",
    "greater_than_equal": "expected {ge:g} or more",
    "string_pattern_mismatch": "expected a name of letters, digits, dots, dashes and underscores",
}


def _sentence(error: ErrorDetails, place: Place) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return MISSING
        case "extra_forbidden":
            return _unknown(place)
        case "value_error":
            return str(context["error"])
        case "enum":
            valid = re.findall(r"'([^']*)'", context["expected"])
            return f"unknown {place[-1]} {shown(error['input'])}; {nearest(str(error['input']), valid)}"
        case kind:
            expected = _EXPECTED.get(kind, error["msg"]).format_map(context)
            return f"{expected}, got {shown(error['input'])}"


def _unknown(place: Place) -> str:
    *above, key = place
    if re.search(r"secret|password|passwd|access_key|token|credential", key, re.IGNORECASE):
        return (
            "credentials do not belong in this file; boto3 finds them in the environment, "
            "the files of ~/.aws or the role of the machine, and profile names one of the files' profiles"
        )
    table = _table_at(above)
    if close := difflib.get_close_matches(key, _names(table), n=1):
        return f'unknown key; did you mean "{close[0]}"?'
    for name, inner in _tables_in(table).items():
        if close := difflib.get_close_matches(key, _names(inner), n=1):
            return f'unknown key; did you mean "{close[0]}" in [{".".join([*above, name])}]?'
    return f"unknown key; valid: {', '.join(_names(table))}"


def _names(table: type[BaseModel]) -> list[str]:
    return [str(field.validation_alias or name) for name, field in table.model_fields.items()]


def _tables_in(table: type[BaseModel]) -> dict[str, type[BaseModel]]:
    found = {name: field.annotation for name, field in table.model_fields.items()}
    return {name: kind for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, BaseModel)}


def _table_at(above: list[str]) -> type[BaseModel]:
    match above:
        case ["sites", _]:
            return SiteTable
        case ["pools", _]:
            return PoolTable
        case ["partitions", _]:
            return PartitionTable
        case ["budgets", _]:
            return BudgetTable
        case _:
            table: type[BaseModel] = FileTable if above[:1] != ["pools"] else PoolTable
            for name in above[2:] if table is PoolTable else above:
                table = _tables_in(table)[name]
            return table


# --- where a problem stands ------------------------------------------------------------------------------------------


def syntax(path: Path, message: str) -> str:
    """What is no TOML at all, with its line and column."""
    # tomllib tells the place inside its message only: "... (at line 3, column 5)".
    sentence, _, rest = message.partition(" (at ")
    line = re.match(r"line (\d+), column (\d+)", rest)
    if line:
        return f"{path}:{line[1]}: not valid TOML: {sentence}, at column {line[2]}"
    return f"{path}: not valid TOML: {sentence}, at the end of the file"


def lines(text: str) -> dict[Place, int]:
    """The line of each table and key. tomllib keeps none, so each line is read once more, by itself."""
    found: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("["):
            place = table = _place(line) or table
        else:
            place = table + _place(f"{line.partition('=')[0]}= 0")
        for size in range(1, len(place) + 1):
            found.setdefault(place[:size], number)
    return found


def _place(line: str) -> Place:
    """The names that a header or a key stands for; nothing if the line is neither."""
    try:
        value: Any = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    place: list[str] = []
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        place.append(name)
    return tuple(place)


def at_line(path: Path, problem: str) -> str:
    """A problem found later, such as "cluster.state_dir: it can't be written", with its file and line."""
    try:
        known = lines(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return f"{path}: {problem}"
    return f"{path}:{line_of(tuple(problem.partition(': ')[0].split('.')), known)}: {problem}"


def line_of(place: Place, known: Mapping[Place, int]) -> int:
    """The line of the key, or of the nearest table above it."""
    return next((known[place[:size]] for size in range(len(place), 0, -1) if place[:size] in known), 1)
