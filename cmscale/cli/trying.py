"""`lab`, `demo`: how does one try cm-scale on one machine, without a cluster and without a cloud account?"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

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


@lab.command("ec2")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The port on 127.0.0.1.  [default: any free one]"
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Keep ec2.json and calls.jsonl here.  [default: a new folder in /tmp, removed at the end]",
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    help="A region to serve; may be given several times.  [default: us-east-1 and us-west-2]",
)
@json_option
def lab_ec2(port: int, directory: Path | None, regions: tuple[str, ...], *, in_json: bool) -> None:
    """Serve the EC2 API by itself, for any program that uses AWS, until Ctrl-C: instances that nobody pays for.

    Fleets, tokens, capacity, spot interruptions and throttling are as EC2 has them; STS, IAM, SQS and EventBridge are
    there too. What shall go wrong is set over HTTP at /_lab/: faults, rates, capacity, prices, times, interruptions.
    """
    with _lab_errors(), ExitStack() as cleanup:
        from cmscale.lab.ec2 import DEFAULT_REGIONS
        from cmscale.lab.ec2.server import Double, check_regions, serve
        from cmscale.lab.instances import Times

        def ready(double: Double) -> None:
            double.write()
            told = {**asdict(double), "env": double.env}
            click.echo(render.as_json(told) if in_json else double.text)

        check_regions(regions)
        before = signal.signal(signal.SIGTERM, _interrupted)
        cleanup.callback(signal.signal, signal.SIGTERM, before)
        folder = directory or Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="cm-scale-ec2-")))
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(KeyboardInterrupt):
            serve(folder, port=port, regions=regions or DEFAULT_REGIONS, times=Times(), ready=ready)


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


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
