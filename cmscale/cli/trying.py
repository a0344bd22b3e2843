"""`lab`, `demo`: how does one try cm-scale on one machine, without a cluster and without a cloud account?"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cmscale.cli import render
from cmscale.cli.shared import fail, json_option

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The lab's folder.  [default: ~/.cache/cm-scale/lab]",
)


@contextmanager
def _lab_errors() -> Iterator[None]:
    from cmscale.lab.processes import LabError

    try:
        yield
    except LabError as error:
        fail([str(error)])
    except ImportError as error:
        fail([f"the lab needs {error.name}: pip install 'cm-scale[lab]'"])
    except OSError as error:
        fail([f"{error.filename or 'the lab'}: {error.strerror or error}"])


@click.group(short_help="A hybrid cluster on this machine, to try things on.")
def lab() -> None:
    """A hybrid cluster on this machine: real Slurm, an EC2 API on loopback, machines that boot."""


@lab.command("up")
@directory_option
@json_option
def lab_up(directory: Path | None, *, in_json: bool) -> None:
    """Bring the lab up and leave it running."""
    with _lab_errors():
        from cmscale.lab import supervisor

        info = supervisor.up(directory)
    click.echo(render.as_json(info) if in_json else info.text)


@lab.command("down")
@directory_option
@json_option
def lab_down(directory: Path | None, *, in_json: bool) -> None:
    """End the lab and everything in it; its files stay."""
    with _lab_errors():
        from cmscale.lab import supervisor

        end = supervisor.down(directory)
    click.echo(render.as_json(end) if in_json else end.text)
    if end.left:
        sys.exit(1)


@lab.command("status")
@directory_option
@json_option
def lab_status(directory: Path | None, *, in_json: bool) -> None:
    """Tell whether the lab is up, and how to use it."""
    with _lab_errors():
        from cmscale.lab import supervisor

        found = supervisor.status(directory)
    click.echo(render.as_json(found) if in_json else found.text)


@click.command(short_help="From sbatch to a GPU node and back, on this machine.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep the lab's files here.  [default: a new folder in /tmp, removed at the end]",
)
@click.option("--limit", "limit_s", default=180.0, show_default=True, help="Give up after so many seconds.")
@json_option
def demo(directory: Path | None, limit_s: float, *, in_json: bool) -> None:
    """From sbatch to a GPU node and back, on this machine: a lab, five kinds of jobs, the daemon, a timeline."""
    with _lab_errors():
        from cmscale.cli import demo as show

        ok = show.demo(directory, limit_s, in_json=in_json)
    if not ok:
        sys.exit(1)
