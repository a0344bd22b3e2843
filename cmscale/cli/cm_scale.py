"""cm-scale: what an admin types. The commands stand in modules of their own; here they become one program.

Whatever a person can mend ends it with sentences on standard error and exit status 2, never with a traceback.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from cmscale.cli import (
    aws,
    cost,
    daemon,
    events,
    explaining,
    looks,
    overriding,
    pausing,
    policies,
    pools,
    reap,
    replaying,
    setting_up,
    trying,
)
from cmscale.cli.shared import config_option, fail
from cmscale.ports import Unavailable
from cmscale.shell import wiring
from cmscale.shell.config import ConfigError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@config_option
@click.version_option(package_name="cm-scale", prog_name="cm-scale")
def cm_scale(path: Path | None) -> None:
    """Burst Slurm into the cloud: watch what Slurm cannot start, decide which machines should exist, make it so.

    Start with: cm-scale demo. Then copy etc/cmscale.toml, make it yours, and type: cm-scale check
    """


for command in (
    daemon.run_,
    looks.plan,
    looks.status,
    looks.nodes,
    explaining.explain_,
    events.events,
    cost.cost,
    replaying.replay,
    pausing.pause,
    pausing.resume,
    overriding.keep,
    overriding.drain_site,
    overriding.clear,
    reap.reap,
    setting_up.check,
    setting_up.slurm_conf,
    aws.aws,
    policies.policies_,
    pools.pools_,
    trying.lab,
    trying.demo,
):
    cm_scale.add_command(command)


def main() -> None:
    """The program, as the shell calls it."""
    wiring.search_for_cycles_seldom()
    try:
        cm_scale(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ConfigError as error:
        fail(error.problems)
    except Unavailable as error:
        fail([str(error)])
    except BrokenPipeError:
        os._exit(0)  # the reader has enough; flushing at exit would only complain


if __name__ == "__main__":
    main()
