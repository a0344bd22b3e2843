"""Who may overrule: real users at a real socket. The daemon's side listens here, as root; those who ask are processes
of other users, and the kernel says who they are."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from cmscale.journal.sql import SqlJournal
from cmscale.model import Fact, FactKind
from cmscale.ports import Unavailable
from cmscale.shell import admins, wiring
from cmscale.shell import config as configuration
from cmscale.shell.config import Config, ConfigError
from cmscale.shell.overrides import Author, Do, Word
from cmscale.sim.clock import VirtualClock
from tests.cli.program import Said
from tests.cli.test_overriding import FILE

MEMBER, GROUP = "nobody", "nogroup"
"""Debian has both, and he is in it."""
OTHER = "daemon"
HOST = socket.gethostname()

AS_ANOTHER = """
import io, json, os, sqlite3, sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
import cmscale.cli.cm_scale as program
from cmscale.journal.sql import SqlJournal
with TemporaryDirectory() as folder:
    SqlJournal(Path(folder) / "journal.db").dispose()
uid, gid, commands = json.loads(sys.argv[1])
os.setgroups([])
os.setresgid(gid, gid, gid)
os.setresuid(uid, uid, uid)
told = []
for words in commands:
    sys.argv = ["cm-scale", *words]
    out, err, status = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            program.main()
        except SystemExit as end:
            status = end.code
    told.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(told))
"""
"""The program as another user calls it; its files may lie where that user can't go, so all it needs is imported first,
what making a journal needs, too."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="cm-scale-admins-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def config(folder: Path) -> Config:
    path = folder / "cmscale.toml"
    path.write_text(FILE.replace('mode = "act"', f'mode = "act"\nadmins = "{GROUP}"'), encoding="utf-8")
    return configuration.load(path)


@pytest.fixture
def journal(config: Config) -> Iterator[SqlJournal]:
    with wiring.journal(config) as journal:
        yield journal


def typed(user: str, config: Config, *commands: Sequence[str], env: Mapping[str, str] | None = None) -> list[Said]:
    """What cm-scale says to this user, who types one command after the other."""
    who = pwd.getpwnam(user)
    given = [who.pw_uid, who.pw_gid, [["-c", str(config.path), *words] for words in commands]]
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER, json.dumps(given)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path), **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return [Said(*each) for each in json.loads(done.stdout)]


KEEP = ("keep", "t4-[1-2]", "--for", "2h", "--why", "the driver is debugged")
PAUSE = Word(Do.PAUSE, for_s=60.0, why="x")


def facts(journal: SqlJournal) -> list[Fact]:
    return list(journal.facts(0.0))


# --- who -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_member_of_the_group_overrules_by_the_daemon_under_their_own_name_and_its_files_stay_out_of_reach(
    config: Config, journal: SqlJournal
) -> None:
    with admins.listening(lambda: config, journal, VirtualClock()):
        (said,) = typed(MEMBER, config, KEEP, env={"SUDO_USER": "root", "LOGNAME": "root", "USER": "root"})
    assert (said.status, said.err) == (0, "")
    assert said.out.startswith("t4-[1-2]: kept until ")
    assert [(fact.kind, fact.subject, fact.why, fact.by) for fact in facts(journal)] == [
        (FactKind.KEEP, name, "the driver is debugged", MEMBER) for name in ("t4-1", "t4-2")
    ]
    (event,) = journal.events(0.0)
    assert event.text == f"{MEMBER} on {HOST}: keep t4-[1-2] for 2h: the driver is debugged"
    for file in (config.state_dir, *config.state_dir.iterdir()):
        assert file.stat().st_uid == 0
        assert not file.stat().st_mode & 0o022


@pytest.mark.slow
def test_a_member_can_take_it_back_and_list_what_stands(config: Config, journal: SqlJournal) -> None:
    with admins.listening(lambda: config, journal, VirtualClock(1e10)):
        _, listed, cleared = typed(MEMBER, config, KEEP, ("clear", "--list"), ("clear", "t4-[1-8]"))
    assert "the driver is debugged" in listed.out
    assert cleared.out == f"Cleared: keep t4-[1-2] (by {MEMBER}: the driver is debugged)\n"
    assert facts(journal) == []


@pytest.mark.slow
def test_others_are_told_in_one_sentence_and_nothing_changes(config: Config, journal: SqlJournal) -> None:
    drain = ("drain-site", "east", "--for", "1h", "--why", "x")
    with admins.listening(lambda: config, journal, VirtualClock()):
        told = typed(OTHER, config, KEEP, drain, ("pause",), ("resume",), ("clear", "t4-1"))
    assert len(told) == 5
    for said in told:
        assert (said.status, said.out) == (2, "")
        assert said.problems == [f"only root and members of group {GROUP} may do this, and you are {OTHER}"]
    assert (facts(journal), journal.events(0.0)) == ([], ())


@pytest.mark.slow
def test_without_a_group_only_root_may_and_others_are_told_how_to_name_one(config: Config, journal: SqlJournal) -> None:
    config.path.write_text(FILE, encoding="utf-8")
    plain = configuration.load(config.path)
    with admins.listening(lambda: plain, journal, VirtualClock()):
        (said,) = typed(MEMBER, plain, KEEP)
    assert said.status == 2
    assert said.problems == [
        f"only root may do this, and you are {MEMBER}; to allow a group, set admins under [cluster] in {config.path}"
    ]


@pytest.mark.slow
def test_the_daemons_own_user_needs_no_daemon(folder: Path, config: Config) -> None:
    who = pwd.getpwnam(OTHER)
    config.state_dir.mkdir()
    os.chown(config.state_dir, who.pw_uid, who.pw_gid)
    assert [said.status for said in typed(OTHER, config, KEEP)] == [0]
    with wiring.journal(config) as journal:
        assert {fact.by for fact in facts(journal)} == {OTHER}


@pytest.mark.slow
def test_without_a_daemon_a_member_is_told_that_none_runs(config: Config, journal: SqlJournal) -> None:
    told = f"no daemon is running that could do this for members of {GROUP}; only root may without it"
    assert [said.problems for said in typed(MEMBER, config, KEEP)] == [[told]]


def test_what_a_killed_daemon_has_left_is_no_daemon_and_no_hindrance_for_the_next(
    config: Config, journal: SqlJournal
) -> None:
    path = config.state_dir / admins.SOCKET
    with closing(socket.socket(socket.AF_UNIX)) as killed:
        killed.bind(str(path))
    with pytest.raises(Unavailable, match="no daemon is running"):
        admins.ask(config, PAUSE)
    with admins.listening(lambda: config, journal, VirtualClock()):
        assert admins.ask(config, PAUSE).put
    assert not path.exists()


@pytest.mark.slow
def test_whoever_may_not_read_the_journal_is_told_what_it_takes(config: Config, journal: SqlJournal) -> None:
    path = config.state_dir / "journal.db"
    path.chmod(0o600)
    for said in typed(OTHER, config, ("events",), ("clear",)):
        assert said.status == 2
        assert said.problems == [f"{path}: the journal is not for this user to read; type this as root or as its owner"]


def test_a_group_that_is_none_is_told_by_check(config: Config) -> None:
    config.path.write_text(FILE.replace('mode = "act"', 'mode = "act"\nadmins = "nogrup"'), encoding="utf-8")
    unknown = configuration.load(config.path)
    assert list(admins.problems(unknown)) == ['cluster.admins: there is no group "nogrup" on this machine']
    assert list(admins.problems(config)) == []


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "root"),
        ({"SUDO_USER": "root"}, "root"),
        ({"SUDO_USER": "anna"}, "anna as root"),
        ({"SUDO_USER": "anna\nevil"}, "root"),
        ({"LOGNAME": "anna"}, "root"),
    ],
)
def test_behind_sudo_both_names_are_told(env: dict[str, str], name: str) -> None:
    assert admins.author(env) == Author(name, HOST)


# --- the socket ------------------------------------------------------------------------------------------------------


def asked(config: Config, said: bytes) -> bytes:
    return admins._answer(config, said)


def test_what_is_no_word_is_told_and_the_next_one_is_heard(config: Config, journal: SqlJournal) -> None:
    with admins.listening(lambda: config, journal, VirtualClock()):
        for rubbish in (b"", b"keep t4-1", b'{"do": "keep", "names": 1}', b'{"do": "kill"}', b"\xff\xfe"):
            assert b"the daemon does not understand this" in asked(config, rubbish)
        assert admins.ask(config, PAUSE).put
    assert len(facts(journal)) == 1


def test_one_who_says_nothing_or_far_too_much_is_cut_off(
    config: Config, journal: SqlJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admins, "PATIENCE_S", 0.2)
    monkeypatch.setattr(admins, "MOST_BYTES", 100_000)
    with admins.listening(lambda: config, journal, VirtualClock()), closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.connect(str(config.state_dir / admins.SOCKET))
        with pytest.raises(
            Unavailable, match=r"admins\.sock: the daemon could not be asked \(.*\); what is so: cm-scale"
        ):
            admins.ask(config, Word(Do.KEEP, ("t4-1",), 60.0, "x" * 1_000_000))
        assert admins.ask(config, PAUSE).put


@pytest.mark.slow
def test_who_may_is_what_the_configuration_in_effect_says_when_they_ask(config: Config, journal: SqlJournal) -> None:
    without = replace(config, admins="")
    in_effect = [config]
    with admins.listening(lambda: in_effect[-1], journal, VirtualClock()):
        in_effect.append(without)
        (refused,) = typed(MEMBER, config, KEEP)
        in_effect.append(config)
        (heard,) = typed(MEMBER, config, KEEP)
    assert refused.problems == [f"only root may do this, and you are {MEMBER}"]
    assert heard.status == 0


def test_a_long_path_of_the_state_directory_is_no_hindrance(folder: Path, config: Config) -> None:
    deep = folder.joinpath(*["a-rather-long-name-of-a-folder"] * 6)
    config.path.write_text(config.path.read_text().replace('"state"', f'"{deep}"'), encoding="utf-8")
    far = configuration.load(config.path)
    with wiring.journal(far) as journal, admins.listening(lambda: far, journal, VirtualClock()):
        assert admins.ask(far, PAUSE).put


def test_where_no_socket_can_be_made_the_daemon_goes_on_without_it(
    config: Config, journal: SqlJournal, caplog: pytest.LogCaptureFixture
) -> None:
    (config.state_dir / admins.SOCKET).mkdir()
    with admins.listening(lambda: config, journal, VirtualClock()):
        assert f"members of {GROUP} can't be heard" in caplog.text


def test_a_problem_is_raised_where_it_was_asked_for(config: Config, journal: SqlJournal) -> None:
    with (
        admins.listening(lambda: config, journal, VirtualClock()),
        pytest.raises(ConfigError, match="no pool has a node"),
    ):
        admins.ask(config, Word(Do.KEEP, ("op1",), 60.0, "x"))
