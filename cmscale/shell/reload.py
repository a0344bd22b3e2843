"""How does a running daemon take up a changed configuration, and what if it can't be used?

File and policies are read anew, whole, and put to work only if nothing is wrong with any of it; else the last good
ones stay. Operations under way, what is remembered of the last look, and the journal go on as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from cmscale.ports import Misconfigured
from cmscale.shell import config as configuration
from cmscale.shell import presence, wiring
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.loop import Daemon
from cmscale.shell.mistakes import at_line

log = logging.getLogger(__name__)


class Configured:
    """A daemon and the configuration that it works with."""

    def __init__(self, config: Config, daemon: Daemon, *, only_observe: bool) -> None:
        self.config, self.daemon = config, daemon
        self._only_observe = only_observe
        self.problems: tuple[str, ...] = ()
        """Why the configuration as it is now could not be taken up."""
        self.markets = wiring.markets(config)
        presence.note_configuration(config)

    def reload(self) -> None:
        """Take up the file as it is now; if it can't be used, keep the last good one and say why."""
        try:
            self.config = _taken_up(self.config, self.daemon, only_observe=self._only_observe)
        except ConfigError as error:
            self.problems = error.problems
        except Misconfigured as error:
            self.problems = (str(error),)
        except Exception as error:
            log.exception("reading the configuration anew broke off")
            self.problems = (f"{self.config.path}: reading it anew raised {type(error).__name__}: {error}",)
        else:
            self.problems = ()
            self.markets = wiring.markets(self.config)
            presence.note_configuration(self.config)
            log.info("%s was read anew and is in effect", self.config.path)
        for problem in self.problems:
            log.error("%s", problem)
        if self.problems:
            log.error("%s is not taken up; the configuration read before stays in effect", self.config.path)

    def ask_markets(self) -> None:
        """Take up what the clouds have said of prices and quotas, and ask again for what is old; waits for nothing.

        Of a site that has never answered it is known why.
        """
        self.daemon.world = wiring.with_market(self.daemon.world, self.config, self.markets)
        self.markets.ask(self.daemon.world.clock.now(), self.daemon.memory.looked)

    @property
    def troubles(self) -> list[str]:
        """What is wrong with the daemon itself, a sentence each."""
        return [*map(stays, self.problems), *self.daemon.troubles, *self.markets.troubles]


def stays(problem: str) -> str:
    """The sentence about a configuration that is not taken up."""
    return f"the last good configuration stays in effect: {problem}"


def _taken_up(old: Config, daemon: Daemon, *, only_observe: bool) -> Config:
    new = configuration.load(old.path)
    if fixed := [*_changed_although_fixed(old, new)]:
        raise ConfigError(at_line(new.path, problem) for problem in fixed)
    world = daemon.world
    built = wiring.daemon(new, world.journal, world.clock, may_act=not only_observe)
    world.beside.answer_s = new.answer_s
    daemon.world = replace(built.world, beside=world.beside, check_lease=world.check_lease)
    daemon.policies, daemon.limits, daemon.tick_s = built.policies, built.limits, built.tick_s
    daemon.may_act = built.may_act
    return new


def _changed_although_fixed(old: Config, new: Config) -> Iterator[str]:
    moved = old.state_dir != new.state_dir  # and mostly the journal with it
    for key, before, now in (
        ("cluster.name", old.cluster, new.cluster),
        ("cluster.state_dir", old.state_dir, new.state_dir),
        ("cluster.journal", old.journal, old.journal if moved else new.journal),
        ("cluster.lease", old.lease_s, new.lease_s),
    ):
        if before != now:
            yield f"{key}: it can't change while the daemon runs, from {before} to {now}; restart the daemon"
