"""Who may overrule the daemon, and how do they reach it?

Root and the daemon's own user write the journal themselves. Members of the group `cluster.admins` can't, and need not:
they ask the running daemon, by a socket beside the journal. The kernel says who asks; the daemon looks into the group,
checks what is asked for as the command itself does, and writes it down.
"""

from __future__ import annotations

import grp
import logging
import os
import pwd
import re
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from cmscale.ports import Clock, Journal, Misconfigured, Unavailable
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.overrides import Author, Done, Word, carry_out

SOCKET = "admins.sock"

PATIENCE_S = 5.0
"""How long the daemon listens to one who asks; the next one waits meanwhile."""

ANSWER_S = 20.0
"""How long one who asks waits: for those before, and for a journal that another one writes."""

MOST_BYTES = 4 * 1024 * 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the daemon says to a word: what came of it, or what is wrong."""

    done: Done | None = None
    problems: tuple[str, ...] = ()


_WORD = TypeAdapter(Word)
_ANSWER = TypeAdapter(Answer)


# --- who -------------------------------------------------------------------------------------------------------------


def by_own_hand(config: Config) -> bool:
    """True if this process may write the journal itself: root's, or one of the daemon's own user."""
    return os.geteuid() in {0, _daemons_user(config)}


def _daemons_user(config: Config) -> int:
    """Who owns the state directory; who asks, where there is none yet."""
    try:
        return config.state_dir.stat().st_uid
    except OSError:
        return os.geteuid()


def author(env: Mapping[str, str]) -> Author:
    """Who types. Behind sudo the person, and as whom: the first is sudo's word, the second the kernel's."""
    user, person = _name(os.getuid()), env.get("SUDO_USER", "")
    differ = person != user and re.fullmatch(r"[\w.@+-]{1,64}", person)
    return Author(f"{person} as {user}" if differ else user, socket.gethostname())


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a user without a name, as in containers
        return f"uid {uid}"


def _is_member(uid: int, group: str) -> bool:
    try:
        user, gid = pwd.getpwuid(uid), grp.getgrnam(group).gr_gid
    except KeyError:
        return False
    return gid in os.getgrouplist(user.pw_name, user.pw_gid)


def problems(config: Config) -> Iterator[str]:
    """What an admin must mend before members of the group can do anything."""
    try:
        if config.admins:
            grp.getgrnam(config.admins)
    except KeyError:
        yield f'cluster.admins: there is no group "{config.admins}" on this machine'


# --- those who ask ---------------------------------------------------------------------------------------------------


def ask(config: Config, word: Word) -> Done:
    """Let the daemon do it. Raises Misconfigured if this user may not, Unavailable if no daemon answers."""
    me, user = _name(os.geteuid()), _name(_daemons_user(config))
    allowed = f"root and {user}, the daemon's user," if user != "root" else "root"
    if not config.admins:
        raise Misconfigured(
            f"only {allowed} may do this, and you are {me}; "
            f"to allow a group, set admins under [cluster] in {config.path}"
        )
    try:
        answer = _ANSWER.validate_json(_answer(config, _WORD.dump_json(word)))
    except (ConnectionRefusedError, FileNotFoundError):
        raise Unavailable(
            f"no daemon is running that could do this for members of {config.admins}; only {allowed} may without it"
        ) from None
    except (OSError, ValidationError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "its answer was cut short"
        raise Unavailable(
            f"{config.state_dir / SOCKET}: the daemon could not be asked ({why}); what is so: cm-scale clear --list"
        ) from None
    if answer.done is None:
        raise ConfigError(answer.problems)
    return answer.done


def _answer(config: Config, asked: bytes) -> bytes:
    with _folder(config) as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        connection.connect(f"{folder}/{SOCKET}")
        with suppress(BrokenPipeError):  # it refuses without listening, and says why
            connection.sendall(asked)
            connection.shutdown(socket.SHUT_WR)
        return _all_of(connection, ANSWER_S)


@contextmanager
def _folder(config: Config) -> Iterator[str]:
    """A short path of the state directory: the kernel cuts those of sockets at a hundred signs."""
    folder = os.open(config.state_dir, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}"
    finally:
        os.close(folder)


def _all_of(connection: socket.socket, limit_s: float) -> bytes:
    """What the other side says until it has ended; raises TimeoutError, or OSError if that is far too much."""
    ends, said = time.monotonic() + limit_s, bytearray()
    while len(said) <= MOST_BYTES:
        connection.settimeout(max(ends - time.monotonic(), 0.001))
        try:
            some = connection.recv(65536)
        except ConnectionResetError:  # the other side has ended without listening to all
            some = b""
        if not some:
            return bytes(said)
        said += some
    raise OSError("far too much was said")


# --- the daemon ------------------------------------------------------------------------------------------------------


@contextmanager
def listening(current: Callable[[], Config], journal: Journal, clock: Clock) -> Iterator[None]:
    """Do what members of the group ask for, meanwhile. Where that can't be, it is told, and everything else goes on.

    `current` tells the configuration in effect: who may is looked up when somebody asks, for it may have been reloaded.
    """
    config = current()
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(_folder(config))
            stack.enter_context(_door(Path(folder) / SOCKET, current, journal, clock))
        except OSError as error:
            whose = f"members of {config.admins}" if config.admins else "members of any group"
            log.warning("%s: %s can't be heard: %s", config.state_dir / SOCKET, whose, error)
        yield


@contextmanager
def _door(path: Path, current: Callable[[], Config], journal: Journal, clock: Clock) -> Iterator[None]:
    path.unlink(missing_ok=True)  # of a daemon that was killed: the lock beside it is ours
    door = _Door(path, current, journal, clock)
    path.chmod(0o666)  # whoever knocks is told why not
    thread = threading.Thread(target=door.serve_forever, kwargs={"poll_interval": 0.2}, name="admins", daemon=True)
    thread.start()
    try:
        yield
    finally:
        door.shutdown()
        thread.join(PATIENCE_S)
        door.server_close()
        path.unlink(missing_ok=True)


class _Door(socketserver.UnixStreamServer):
    def __init__(self, path: Path, current: Callable[[], Config], journal: Journal, clock: Clock) -> None:
        self.current, self.journal, self.clock = current, journal, clock
        super().__init__(str(path), _Knock)

    def handle_error(self, *_: object) -> None:
        log.warning("one who asked something of the daemon got no answer: %s", sys.exception())


class _Knock(socketserver.BaseRequestHandler):
    request: socket.socket
    server: _Door

    def handle(self) -> None:
        door = self.server
        config = door.current()
        # struct ucred of the kernel: process, user, group
        _, uid, _ = struct.unpack("3i", self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if refused := _refused(uid, config):
            answer = Answer(problems=(refused,))
        else:
            answer = answer_to(_all_of(self.request, PATIENCE_S), uid, config, door.journal, door.clock.now())
        self.request.settimeout(PATIENCE_S)
        self.request.sendall(_ANSWER.dump_json(answer))


def _refused(uid: int, config: Config) -> str:
    if uid in {0, os.geteuid()} or (config.admins and _is_member(uid, config.admins)):
        return ""
    members = (f"members of group {config.admins}",) if config.admins else ()
    allowed = " and ".join(dict.fromkeys(("root", _name(os.geteuid()), *members)))
    return f"only {allowed} may do this, and you are {_name(uid)}"


def answer_to(asked: bytes, uid: int, config: Config, journal: Journal, now: float) -> Answer:
    """What comes of what this user asks for."""
    try:
        word = _WORD.validate_json(asked, strict=True)
    except ValidationError:
        return Answer(problems=("the daemon does not understand this; is it of another version?",))
    try:
        return Answer(carry_out(word, config, journal, now, Author(_name(uid), socket.gethostname())))
    except ConfigError as error:
        return Answer(problems=error.problems)
