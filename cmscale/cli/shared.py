"""What do all commands have in common? Their options, the configuration they are given, and how they fail.

What a person can mend is told in sentences on standard error, each problem once, and the exit status is 2.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from cmscale.shell import config as configuration
from cmscale.shell import values

F = TypeVar("F", bound=Callable[..., Any])

EXIT_BAD_INPUT = 2

config_option = click.option(
    "--config",
    "-c",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration file.  [default: $CMSCALE_CONFIG or /etc/cm-scale/cmscale.toml]",
)
json_option = click.option("--json", "in_json", is_flag=True, help="Print one JSON object instead of lines.")


def duration_option(name: str, into: str, *, default: str | None, help: str) -> Callable[[F], F]:  # noqa: A002 - click's
    """An option that takes a time such as "30m", as the configuration writes it; the command is given seconds."""
    return _duration(name, into, help, default=default, show_default=default is not None)


def required_duration(name: str, into: str, *, help: str) -> Callable[[F], F]:  # noqa: A002 - click's
    """The same without a default: it has to be given."""
    return _duration(name, into, help, required=True)


def _duration(name: str, into: str, told: str, **more: Any) -> Callable[[F], F]:
    return click.option(name, into, metavar="DURATION", callback=_seconds, help=told, **more)


def _seconds(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = values.duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None
    if not seconds:
        raise click.BadParameter("expected more than 0", context, option)
    return seconds


def fail(problems: Iterable[str]) -> NoReturn:
    """End with exit status 2 after telling each problem once, in order."""
    tell(problems)
    sys.exit(EXIT_BAD_INPUT)


def tell(problems: Iterable[str]) -> None:
    for problem in dict.fromkeys(problems):
        click.echo(f"cm-scale: {problem}", err=True)


def given_a_path(command: F) -> F:
    """Give a command the path of the configuration as its first argument; the option may stand anywhere."""

    @config_option
    @wraps(command)
    def with_path(path: Path | None, *args: Any, **kwargs: Any) -> Any:
        return command(path or _named_before() or configuration.default_path(), *args, **kwargs)

    return with_path  # type: ignore[return-value]


def _named_before() -> Path | None:
    """The file that was named at a group above the command, the nearest one."""
    above = click.get_current_context().parent
    while above:
        path: Path | None = above.params.get("path")
        if path:
            return path
        above = above.parent
    return None


def configured(command: F) -> F:
    """Give a command the validated configuration as its first argument."""

    @given_a_path
    @wraps(command)
    def with_config(path: Path, *args: Any, **kwargs: Any) -> Any:
        return command(configuration.load(path), *args, **kwargs)

    return with_config  # type: ignore[return-value]


def date(at: float) -> str:
    """The day and the time, for lines that may be read days later."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def clock(at: float) -> str:
    """The time of day, for lines."""
    return time.strftime("%H:%M:%S", time.localtime(at))
