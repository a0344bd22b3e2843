"""Which policies decide, and are they fit to?

A policy is one file NAME.py with a function propose(view, claimed, settings) and perhaps a frozen dataclass Settings,
which the table [policy.NAME] fills. The site's folder is searched before the shipped one, so a policy is changed by
copying it. What is wrong is told as the configuration's problems are: all at once, each with its place.

    PolicyError   policies cannot be used until a person changes something
    Overran       a policy took too long over one snapshot
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from time import monotonic
from types import CodeType, ModuleType
from typing import Any, get_type_hints

from cmscale.model import Goal, NodeName, Snapshot, Wait
from cmscale.shell.config import ConfigError
from cmscale.shell.shipped import share_dir
from cmscale.shell.values import as_duration, duration, nearest, shown

LIMIT_S = 5.0

_END = object()

_WORD = (Goal, Wait)
"""What a policy may say."""

Propose = Callable[[Snapshot, frozenset[NodeName], Any], Iterator[Goal | Wait]]


class PolicyError(ConfigError):
    """Policies cannot be used; each problem is one line."""


class Overran(Exception):
    """A policy took too long over one snapshot."""


@dataclass(frozen=True, slots=True)
class NoSettings:
    """What a policy without settings of its own is given."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy ready to be asked."""

    name: str
    path: Path
    doc: str
    """The first line of its docstring."""
    settings: Any
    function: Propose
    limit_s: float = LIMIT_S

    def propose(self, view: Snapshot, claimed: frozenset[NodeName]) -> Iterator[Goal | Wait]:
        """The policy's goals; raises what the policy raises, and Overran between two goals once its time is spent."""
        spent = 0.0
        goals: Iterator[Goal | Wait] | None = None
        while True:
            began = monotonic()
            if goals is None:
                goals = iter(self.function(view, claimed, self.settings))
            goal = next(goals, _END)
            # Only the policy's own time counts, not that of whoever takes the goals.
            spent += monotonic() - began
            if spent > self.limit_s:
                raise Overran(f"policy {self.name} took {spent:.1f} s, more than the {self.limit_s:g} s it may")
            if goal is _END:
                return
            if not isinstance(goal, _WORD):
                raise TypeError(f"policy {self.name} proposed {goal!r}, which is neither a Goal nor a Wait")
            yield goal


def load(
    names: tuple[str, ...],
    folder: Path | None,
    tables: Mapping[str, Mapping[str, Any]],
    *,
    limit_s: float = LIMIT_S,
) -> tuple[Policy, ...]:
    """The named policies in their order; raises PolicyError with every problem in them and in their tables."""
    folders = (*([folder] if folder else []), share_dir("policies"))
    policies: list[Policy] = []
    problems = [f"cluster.policy_dir: there is no folder {folder}"] if folder and not folder.is_dir() else []
    for name in names:
        try:
            policies.append(_load(name, folders, tables.get(name, {}), limit_s))
        except PolicyError as error:
            problems += error.problems
    available = _available(folders)
    problems += [
        f"policy.{name}: there is no policy of this name; {nearest(name, available)}"
        for name in tables
        if name not in available and name not in names
    ]
    if problems:
        raise PolicyError(problems)
    return tuple(policies)


def found(folder: Path | None) -> Mapping[str, Path]:
    """Every policy there is, with the file that decides: the site's own by name, then the shipped ones."""
    files: dict[str, Path] = {}
    for each in (*([folder] if folder else []), share_dir("policies")):
        for name in sorted(_available((each,))):
            files.setdefault(name, each / f"{name}.py")
    return files


def _load(name: str, folders: tuple[Path, ...], table: Mapping[str, Any], limit_s: float) -> Policy:
    path = _find(name, folders)
    module = _run(path)
    function = _propose(module, path)
    doc = (module.__doc__ or "").strip().partition("\n")[0]
    return Policy(name, path, doc, _settings(name, module, path, table), function, limit_s)


def _find(name: str, folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        if (path := folder / f"{name}.py").is_file():
            return path
    looked = " and ".join(map(str, folders))
    raise PolicyError([f"cluster.policies: there is no {name}.py in {looked}; {nearest(name, _available(folders))}"])


def _available(folders: tuple[Path, ...]) -> frozenset[str]:
    stems = {path.stem for folder in folders for path in folder.glob("*.py")}
    return frozenset(stem for stem in stems if stem.isidentifier() and stem != "__init__")


# --- the file --------------------------------------------------------------------------------------------------------


class _Source(SourceFileLoader):
    """Always compiles: a stale .pyc can't decide, and none is left in the site's folder."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.get_filename(fullname)), self.path)


def _run(path: Path) -> ModuleType:
    # No import statement can name this module, so it can't be mistaken for another; dataclasses look it up here.
    name = f"cm-scale policy {path}"
    loader = _Source(name, str(path))
    spec = ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True
    module = sys.modules[name] = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        raise PolicyError([f"{path}:{error.lineno}: not valid Python: {error.msg}"]) from None
    except (Exception, SystemExit) as error:
        frames = reversed(traceback.extract_tb(error.__traceback__))
        line = next((frame.lineno for frame in frames if frame.filename == str(path)), 1)
        raise PolicyError([f"{path}:{line}: loading the policy raised {type(error).__name__}: {error}"]) from error
    return module


def _propose(module: ModuleType, path: Path) -> Propose:
    expected = "propose(view, claimed, settings)"
    function = getattr(module, "propose", None)
    if not inspect.isfunction(function):
        raise PolicyError([f"{path}:1: there is no function {expected}"])
    signature = inspect.signature(function)
    try:
        signature.bind(None, None, None)
    except TypeError:
        line = function.__code__.co_firstlineno
        raise PolicyError([f"{path}:{line}: expected {expected}, got propose{_parameters(signature)}"]) from None
    propose: Propose = function
    return propose


def _parameters(signature: inspect.Signature) -> str:
    return f"({', '.join(signature.parameters)})"


# --- its settings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as the configuration file would write it: durations as "5m", tuples as lists."""

    key: str
    value: Any
    default: Any
    """None if there is no default."""


def settings(policy: Policy) -> tuple[Setting, ...]:
    """The settings of a policy in effect, in the order of its file."""
    kind = type(policy.settings)
    hints = get_type_hints(kind)
    return tuple(
        Setting(key, _written(key, field, getattr(policy.settings, field.name)), _written(key, field, _default(field)))
        for field in dataclasses.fields(kind)
        for key in [_key(field.name, hints[field.name])]
    )


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _written(key: str, field: dataclasses.Field[Any], value: Any) -> Any:
    if key != field.name and value is not None:
        return as_duration(value)
    return list(value) if isinstance(value, tuple) else value


def _settings(name: str, module: ModuleType, path: Path, table: Mapping[str, Any]) -> Any:
    kind = getattr(module, "Settings", NoSettings)
    if not getattr(getattr(kind, "__dataclass_params__", None), "frozen", False):
        raise PolicyError([f"{path}:{_line_of('Settings', path)}: Settings is not a frozen dataclass"])
    hints = get_type_hints(kind)
    fields = {_key(field.name, hints[field.name]): field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in table.items():
        try:
            field = _known(key, fields)
            values[field.name] = _value(hints[field.name], value, is_time=field.name != key)
        except ValueError as error:
            problems.append(f"policy.{name}.{key}: {error}")
    problems += [
        f"policy.{name}.{key}: missing; this key is required"
        for key, field in fields.items()
        if key not in table and field.default is field.default_factory is dataclasses.MISSING
    ]
    if not problems:
        try:
            return kind(**values)
        except ValueError as error:
            problems.append(f"policy.{name}: {error}")
    where = f"(Settings of {path}:{_line_of('Settings', path)})"
    raise PolicyError(f"{problem} {where}" for problem in problems)


def _key(field: str, kind: Any) -> str:
    """How the file writes a setting: durations carry their unit in the value, not in the name."""
    return field.removesuffix("_s") if kind is float else field


def _known(key: str, fields: Mapping[str, dataclasses.Field[Any]]) -> dataclasses.Field[Any]:
    if key not in fields:
        raise ValueError(f"unknown key; {nearest(key, fields)}")
    return fields[key]


_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}


def _value(kind: Any, value: object, *, is_time: bool) -> object:
    """The value as the setting's type; raises ValueError saying what was expected."""
    if is_time:
        return duration(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind in _PLAIN:
        if type(value) is not kind:  # not isinstance: true is no number here
            raise ValueError(f"expected {_PLAIN[kind]}, got {shown(value)}")
        return value
    if kind == tuple[str, ...]:
        if not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
            raise ValueError(f'expected a list such as ["a", "b"], got {shown(value)}')
        return tuple(value)
    raise ValueError(f"its type {kind} cannot be set from the file; use int, float, str, bool or tuple[str, ...]")


def _line_of(name: str, path: Path) -> int:
    body = ast.parse(path.read_bytes()).body
    return next((node.lineno for node in body if getattr(node, "name", None) == name), 1)
