"""Is a daemon at work here, and when did it last look?

One daemon at a time holds the state directory; the kernel lets go of its lock when it dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cmscale.ports import Misconfigured
from cmscale.shell import config as configuration
from cmscale.shell.config import Config
from cmscale.shell.loop import Look
from cmscale.shell.mistakes import at_line
from cmscale.shell.schema import Mode

FILE_BYTES = 4096
MOST_CHARS = 1000
"""Of what keeps the journal from being used."""

log = logging.getLogger(__name__)
IN_EFFECT = "in-effect.toml"


@contextmanager
def only_daemon(config: Config) -> Iterator[None]:
    """Hold the state directory: two daemons must not act on one journal. The kernel lets go when we die."""
    path = config.state_dir / "daemon.lock"
    try:
        config.state_dir.mkdir(parents=True, exist_ok=True)
        lock = _opened(path, "a+")
    except OSError as error:
        raise Misconfigured(_unwritable(config, error.strerror)) from None
    with lock:
        if not _locked(lock):
            lock.seek(0)
            other = lock.read().strip() or "another"
            raise Misconfigured(f"a daemon (process {other}) runs already with the journal in {config.state_dir}")
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _opened(path: Path, how: str) -> IO[str]:
    """A file of ours, which is never a link: in a folder that others may write, one could lead anywhere."""
    if path.is_symlink():
        raise OSError(errno.ELOOP, f"{path.name} is a symbolic link")
    return open(path, how, encoding="utf-8", opener=_following_no_link)


def _following_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _locked(lock: IO[str]) -> bool:
    """True if the lock is ours. A `status` from beside holds it for an instant, so one refusal is not the answer."""
    for pause_s in (0.05, 0.1, 0.2, 0.0):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(pause_s)
        else:
            return True
    return False


def state_dir_problems(config: Config) -> list[str]:
    """Why a daemon of this user could not hold the state directory; found out without making it."""
    folder = next(each for each in (config.state_dir, *config.state_dir.parents) if each.exists())
    if not folder.is_dir():
        return [_unwritable(config, f"{folder} is not a folder")]
    return [] if os.access(folder, os.W_OK | os.X_OK) else [_unwritable(config, f"{folder} is not for this user")]


def _unwritable(config: Config, why: str | None) -> str:
    return at_line(config.path, f"cluster.state_dir: {config.state_dir} can't be written ({why})")


def running_daemon(config: Config) -> int | None:
    """The process id of the daemon that holds the state directory, if one does."""
    return _holder(config.state_dir)


def _holder(state_dir: Path) -> int | None:
    try:
        with _opened(state_dir / "daemon.lock", "r") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return int(lock.read().strip() or 0) or None
    except (OSError, ValueError):
        return None
    return None


def note_tick(config: Config, look: Look, *, may_act: bool) -> None:
    """Leave beside the journal when the last tick was and what it cost, for `status`."""
    told = {
        "pid": os.getpid(),
        "at": look.view.now,
        "observe_s": look.observe_s,
        "mode": (config.mode if may_act else Mode.OBSERVE).value,
        "tick": look.view.tick,
        "journal": look.view.unrecorded[:MOST_CHARS],
    }
    with _if_possible(config, "last-tick.json") as path:
        _overwrite(path, json.dumps(told).encode())


def _overwrite(path: Path, text: bytes) -> None:
    """Write a small file where it lies, at its full length in one call: that takes no room on a disk that is full, and
    who reads beside sees the old text or the new one."""
    if path.is_symlink():
        path.unlink()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        os.pwrite(file, text.ljust(FILE_BYTES), 0)
    finally:
        os.close(file)


def last_tick(config: Config) -> dict[str, Any]:
    return left(config, "last-tick.json")


def note_troubles(config: Config, troubles: Sequence[str]) -> None:
    """Leave beside the journal what is wrong with the daemon itself, for `status`."""
    leave(config, "troubles.json", json.dumps({"pid": os.getpid(), "troubles": troubles}))


def troubles(config: Config) -> dict[str, Any]:
    return left(config, "troubles.json")


def note_configuration(config: Config) -> None:
    """Leave beside the journal the configuration that the daemon works with, whatever becomes of the file."""
    leave(config, IN_EFFECT, config.text)


def in_effect(path: Path) -> Config | None:
    """What the running daemon read in the file when it could still be used; None if no daemon runs."""
    state_dir = configuration.state_dir_despite(path)
    if _holder(state_dir) is None:
        return None
    try:
        with _opened(state_dir / IN_EFFECT, "r") as file:
            return configuration.load(path, file.read())
    except (OSError, Misconfigured):
        return None


def leave(config: Config, name: str, text: str) -> None:
    """Write a file beside the journal, whole or not at all, if it can be written."""
    with _if_possible(config, name) as path:
        draft = path.with_name(f"{name}.new")
        draft.unlink(missing_ok=True)
        with _opened(draft, "x") as file:
            file.write(text)
        draft.replace(path)


@contextmanager
def _if_possible(config: Config, name: str) -> Iterator[Path]:
    """What is told of here may be a full disk; that this can't be told is no reason to end."""
    try:
        yield config.state_dir / name
    except OSError as error:
        log.warning("%s/%s can't be written (%s)", config.state_dir, name, error.strerror)


def left(config: Config, name: str) -> dict[str, Any]:
    """The JSON object in a file beside the journal; empty if there is none that can be read."""
    try:
        with _opened(config.state_dir / name, "r") as file:
            told: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return {}
    return told


def journal_trouble(config: Config) -> str:
    """Why the daemon that runs could not use its journal when it last tried; empty if it could, or if none runs."""
    last = last_tick(config)
    return str(last.get("journal", "")) if last and last.get("pid") == running_daemon(config) else ""
