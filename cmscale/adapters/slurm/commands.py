"""How are Slurm's queue and nodes read, and nodes drained, resumed and jobs told, by Slurm's own commands?

Every call is one process with an environment of our own.
Bulk reading asks for fields by name at any width (`field:0`), with a unit separator between them and a word drawn for
this call alone at the end of each record: no text that a user chose can end a record or forge one.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from cmscale.adapters.slurm import check, records, reservations
from cmscale.adapters.slurm.hostlist import fold
from cmscale.adapters.slurm.printing import Printing
from cmscale.model import Job, JobId, NodeName, NodeRecord, Outcome, Pool, Reservation, Result
from cmscale.ports import Backend, Misconfigured, Reading, Unavailable

T = TypeVar("T")

_SEPARATOR = records.SEPARATOR
_GROUP = records.GROUP_SEPARATOR
_AT_ONCE = 1000
"""Items in one call: the longest argument Linux takes is 128 KiB."""

_OK = Outcome(Result.OK)
_OWN_PREFIX = re.compile(r"^(\w+: )?(error|fatal): (_?[a-z]+(_[a-z]+)+: )?|^slurm_\w+( error)?: |^slurm_update error: ")
_PARSE_ERROR = re.compile(r"Parse error in file .* line \d+")
_RETRYING = re.compile(r", retrying in .*")
_NOISE = re.compile(r"If munged is up")
_BAD_CONFIGURATION = re.compile(
    r"configuration (file|source)|cannot stat file|[Pp]arsing error|ClusterName needs|DNS SRV|failed to fetch config"
)
_UNREACHABLE = re.compile(r"Unable to contact|Unexpected message|timed out|Zero Bytes|onnection|[Mm]unge")
_FORBIDDEN = re.compile(r"[Pp]ermission denied|Invalid user id|uthentication")
_GONE = re.compile(r"Invalid job id|already completing or completed")
_NO_ERROR = "No error"
"""What the tasks of an array are told that took an update, once one of them did not."""
_NOT_DRAINED = "Invalid node state"
_OF_ONE_JOB = re.compile(r"(?P<what>.+) for job (?P<id>\S+)|(?P<array>[\d+]+(_\S+)?): (?P<why>.+)")


class _Answer(NamedTuple):
    status: int
    err: str
    out: str = ""

    @property
    def complaint(self) -> str:
        """Slurm's own first useful line; of a configuration it cannot parse, the one that tells the line."""
        lines = [line for line in self.err.splitlines() if line.strip() and not _NOISE.search(line)]
        first = next((line for line in lines if _PARSE_ERROR.search(line)), lines[0] if lines else "")
        return _RETRYING.sub("", _OWN_PREFIX.sub("", first)).strip() or f"exit status {self.status}"


class SlurmCommands:
    """The Scheduler port, by squeue, sinfo and scontrol."""

    def __init__(self, conf: Path | None = None, bin_dir: Path | None = None, time_limit_s: float = 20.0) -> None:
        self._conf = conf
        self._bin_dir = bin_dir
        self._time_limit_s = time_limit_s

    # --- reading ---

    def jobs(self) -> Reading[Job]:
        groups = records.SQUEUE_GROUPS
        wanted = f":0{_GROUP},".join(f":0{_SEPARATOR},".join(fields) for fields in groups)
        with (
            ThreadPoolExecutor(max_workers=2) as beside,
            self._listed("squeue", ("-h", "-a", "--local"), wanted) as listed,
        ):
            excluded, settings = beside.submit(self._excluded), beside.submit(self.settings)
            asked = (record.partition(_GROUP) for record in listed)
            rows = (records.JobRow(ask, words.split(_SEPARATOR, len(groups[-1]) - 1)) for ask, _, words in asked)
            return records.jobs(rows, excluded.result(), time.time(), records.counting(settings.result()))

    def _excluded(self) -> dict[str, str]:
        # squeue -O has no field for excluded nodes before 24.05, squeue -o has none for the resources.
        # Of all jobs: one that starts between the two answers is pending in the first and must not be missed for that.
        listed = self._ask("squeue", "-h", "-a", "--local", "-o", f"%A{_SEPARATOR}%x")
        return dict(line.split(_SEPARATOR, 1) for line in listed.splitlines() if _SEPARATOR in line)

    def nodes(self) -> Reading[NodeRecord]:
        with ThreadPoolExecutor(max_workers=1) as beside:
            shown = beside.submit(self._ask, "scontrol", "-a", "show", "nodes", "--oneliner")
            alike = self.rows("sinfo", ("-h", "-a", "--local"), records.ALIKE_FIELDS)
        return records.nodes(records.node_rows(alike, shown.result()))

    def reservations(self) -> Reading[Reservation]:
        return reservations.read(self._ask("scontrol", "show", "reservation", "--oneliner"), time.time())

    def version(self) -> tuple[int, int]:
        """The release of Slurm's commands, such as (22, 5)."""
        answer = self._ask("squeue", "--version")
        found = re.search(r"(\d+)\.(\d+)", answer)
        if not found:
            raise Misconfigured(f"squeue --version says {answer.strip()!r}, which names no release of Slurm")
        return int(found[1]), int(found[2])

    def problems(self, pools: Sequence[Pool], *, configless: bool = False) -> Sequence[str]:
        """What an admin must change in Slurm before cm-scale can work, a sentence each; `configless`: slurmds are to
        get their configuration from slurmctld. Raises Unavailable."""
        return check.problems(self.settings(), self.version(), self.nodes().items, pools, configless=configless)

    def backend(self) -> Backend:
        return Backend("commands", 'slurm.backend is "commands"')

    def settings(self) -> dict[str, str]:
        """Slurm's configuration, as slurmctld has it. Raises Unavailable."""
        return check.config(self._ask("scontrol", "show", "config"))

    def rows(self, command: str, options: Sequence[str], fields: Sequence[str]) -> list[list[str]]:
        """What squeue or sinfo says in these fields, a row for each record. Raises Unavailable."""
        # A person's words stand last, so the last field takes all separators that are left.
        with self._listed(command, options, f":0{_SEPARATOR},".join(fields)) as listed:
            return [record.split(_SEPARATOR, len(fields) - 1) for record in listed]

    @contextmanager
    def _listed(self, command: str, options: Sequence[str], wanted: str) -> Iterator[Iterator[str]]:
        """The records of squeue or sinfo, while it prints them."""
        # A width is read up to the first character that is no digit, so the end must not begin with one.
        end = f"\x1e{secrets.token_hex(16)}"
        with self._started(command, *options, "-O", f"{wanted}:0{end}") as printing:
            yield self._to_the_end(command, printing, end + "\n")

    def _to_the_end(self, command: str, printing: Printing, end: str) -> Iterator[str]:
        yield from printing.records(end)
        answer = self._ended(command, printing)
        unknown = re.search(r"Invalid \w+ format specification: *(\S*)", answer.err)
        if unknown:
            raise Misconfigured(
                f"{command} of this Slurm knows no field {unknown[1]!r}; cm-scale needs Slurm 22.05 or later"
            )
        self._must_be_ok(command, answer)

    # --- acting ---

    def drain(self, nodes: Sequence[NodeName], reason: str, *, off: bool = False) -> Mapping[NodeName, Outcome]:
        text = f"reason={_one_line(reason)}"
        outcomes = self._update_nodes(nodes, lambda some: [f"nodename={fold(some)}", "state=drain", text])
        if off:
            # DRAIN is what holds. DOWN makes Slurm wait for a new registration instead of trusting the last one.
            drained = [node for node, outcome in outcomes.items() if outcome.ok]
            outcomes |= self._update_nodes(drained, lambda some: [f"nodename={fold(some)}", "state=down", text])
        return outcomes

    def resume(self, addresses: Mapping[NodeName, str]) -> Mapping[NodeName, Outcome]:
        placed = {node: address for node, address in addresses.items() if address}

        def at_address(some: Sequence[NodeName]) -> list[str]:
            # Slurm pairs the two lists by position, so neither is folded.
            return [f"nodename={','.join(some)}", f"nodeaddr={','.join(placed[node] for node in some)}", "state=resume"]

        outcomes = self._update_nodes(list(placed), at_address)
        outcomes |= self._update_nodes(
            [node for node in addresses if node not in placed],
            lambda some: [f"nodename={fold(some)}", "state=resume"],
        )
        # Slurm refuses to resume a node that is neither drained nor down: it is where we want it.
        return {
            node: Outcome(Result.OK, "was not drained") if _NOT_DRAINED in outcome.detail else outcome
            for node, outcome in outcomes.items()
        }

    def say(self, comments: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        return self._set_of_jobs("comment", {job: _one_line(comment) for job, comment in comments.items()})

    def pin(self, constraints: Mapping[JobId, str]) -> Mapping[JobId, Outcome]:
        return self._set_of_jobs("features", constraints)

    def requeue(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        queued, outcomes = self._queued(jobs)
        # Without this word Slurm would run jobs once more that have ended since we looked.
        return outcomes | self._for_jobs(list(queued), lambda ids: ["requeue", "Incomplete", ids])

    def release(self, jobs: Sequence[JobId]) -> Mapping[JobId, Outcome]:
        queued, outcomes = self._queued(jobs)
        outcomes |= {job: outcome for job, line in queued.items() if (outcome := _not_released(line))}
        ours = [job for job in queued if job not in outcomes]
        outcomes |= self._for_jobs(ours, _update("starttime=now"))
        held = [job for job in ours if outcomes[job].ok and queued[job].priority == "0"]
        return outcomes | self._for_jobs(held, lambda ids: ["release", ids])

    def _queued(self, jobs: Sequence[JobId]) -> tuple[dict[JobId, _Line], dict[JobId, Outcome]]:
        """The lines of the queue for these jobs, and the outcomes of those that have none."""
        queued: dict[JobId, _Line] = {}
        outcomes: dict[JobId, Outcome] = {}
        wanted = ("-h", "-a", "--local", "-o", _SEPARATOR.join(_LINE), "-j")
        for some in _chunks(jobs):
            outcome, answer = self._act("squeue", *wanted, ",".join(some))
            rows = (line.split(_SEPARATOR) for line in answer.out.splitlines())
            shown = {_known_as(line): line for line in (_Line(*row) for row in rows if len(row) == len(_LINE))}
            gone = Outcome(Result.GONE, "is no longer in the queue") if outcome.ok else outcome
            queued |= {job: shown[job] for job in some if job in shown}
            outcomes |= {job: gone for job in some if job not in shown}
        return queued, outcomes

    def _update_nodes(
        self, nodes: Sequence[NodeName], words: Callable[[Sequence[NodeName]], list[str]]
    ) -> dict[NodeName, Outcome]:
        outcomes: dict[NodeName, Outcome] = {}
        waiting = list(_chunks(nodes))
        while waiting:
            some = waiting.pop()
            outcome = self._act("scontrol", "update", *words(some))[0]
            if outcome.result is Result.BAD_REQUEST and len(some) > 1:
                # Slurm doesn't say which of them it refused; halving finds it.
                middle = len(some) // 2
                waiting += [some[:middle], some[middle:]]
            else:
                outcomes |= dict.fromkeys(some, outcome)
        return outcomes

    def _set_of_jobs(self, what: str, values: Mapping[JobId, str]) -> dict[JobId, Outcome]:
        alike: dict[str, list[JobId]] = {}
        for job, value in values.items():
            alike.setdefault(f"{what}={value}", []).append(job)
        outcomes: dict[JobId, Outcome] = {}
        for word, jobs in alike.items():
            outcomes |= self._for_jobs(jobs, _update(word))
        return outcomes

    def _for_jobs(self, jobs: Sequence[JobId], words: Callable[[str], list[str]]) -> dict[JobId, Outcome]:
        outcomes: dict[JobId, Outcome] = {}
        for some in _chunks(jobs):
            outcome, answer = self._act("scontrol", *words(",".join(some)))
            # Slurm goes on after a job it refuses, and names each of those.
            refused = {} if outcome.ok else _refused(some, answer)
            outcomes |= {job: refused.get(job, _OK if refused else outcome) for job in some}
        return outcomes

    def _act(self, command: str, *words: str) -> tuple[Outcome, _Answer]:
        try:
            answer = self._run(command, *words)
        except Misconfigured:
            raise
        except Unavailable as error:
            return Outcome(Result.TRANSIENT, str(error)), _Answer(1, "")
        return (_OK if answer.status == 0 else _outcome(answer.complaint)), answer

    # --- running ---

    def _ask(self, command: str, *words: str) -> str:
        answer = self._run(command, *words)
        self._must_be_ok(command, answer)
        return answer.out

    def _must_be_ok(self, command: str, answer: _Answer) -> None:
        if answer.status != 0:
            raise self._error(command, answer)

    def _error(self, command: str, answer: _Answer) -> Unavailable:
        if _BAD_CONFIGURATION.search(answer.err):
            where = self._conf or "slurm.conf"
            return Misconfigured(f"{command} cannot use {where} ([slurm] conf): {answer.complaint}")
        return Unavailable(f"{command} got no answer from slurmctld: {answer.complaint}")

    def _run(self, command: str, *words: str) -> _Answer:
        with self._started(command, *words) as printing:
            return self._ended(command, printing, "".join(printing.text()))

    def _started(self, command: str, *words: str) -> Printing:
        if self._conf and not self._conf.is_file():
            # Slurm's commands would try for a minute.
            raise Misconfigured(f"{self._conf} ([slurm] conf) does not exist")
        program = str(self._bin_dir / command) if self._bin_dir else command
        try:
            return Printing([program, *words], self.environment(), self._time_limit_s)
        except OSError as error:
            raise Misconfigured(
                f"{program} could not be run ({error.strerror}): install Slurm's client commands, "
                "or set bin_dir under [slurm] to the folder that has them"
            ) from None

    def _ended(self, command: str, printing: Printing, out: str = "") -> _Answer:
        answer = _Answer(*printing.ended(), out)
        if printing.late:
            if _BAD_CONFIGURATION.search(answer.err):
                raise self._error(command, answer)
            raise Unavailable(f"{command} gave no answer within {self._time_limit_s:g} s")
        return answer

    def environment(self) -> dict[str, str]:
        """Ours, less what would change Slurm's answers."""
        # A site's SQUEUE_FORMAT, SINFO_PARTITION or SLURM_CLUSTERS would change what we read.
        keep = {"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"}
        own = {
            name: value
            for name, value in os.environ.items()
            if name in keep or not name.startswith(("SLURM_", "SQUEUE_", "SINFO_", "SCONTROL_"))
        }
        own |= {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
        if self._conf:
            own["SLURM_CONF"] = str(self._conf)
        return own


class _Line(NamedTuple):
    """What the queue shows of a job, as far as it matters for requeue and release."""

    id: str
    array: str
    state: str
    priority: str
    reason: str


_LINE = _Line(id="%i", array="%F", state="%T", priority="%Q", reason="%r")


def _known_as(line: _Line) -> JobId:
    """An array that is still folded goes by its own number."""
    return JobId(line.array if line.id.endswith("]") else line.id)


def _not_released(line: _Line) -> Outcome | None:
    if line.state == "COMPLETING":
        # A begin time set now is taken, and overwritten when the last run has ended.
        return Outcome(Result.TRANSIENT, "its last run is still being ended")
    if line.state not in records.WAITING:
        return Outcome(Result.OK, "runs already")
    if line.reason == "JobHeldUser":
        return Outcome(Result.BAD_REQUEST, "held by its user")
    return None


def _update(word: str) -> Callable[[str], list[str]]:
    return lambda ids: ["update", f"jobid={ids}", word]


def _refused(jobs: Sequence[JobId], answer: _Answer) -> dict[JobId, Outcome]:
    refused: dict[JobId, Outcome] = {}
    for line in answer.err.splitlines():
        found = _OF_ONE_JOB.fullmatch(line.strip())
        if found:
            name = found["id"] or found["array"]
            job = next((JobId(known) for known in (name, name.partition("_")[0]) if known in jobs), None)
            if job:
                refused[job] = _outcome(found["what"] or found["why"])
    return refused


def _outcome(complaint: str) -> Outcome:
    if complaint == _NO_ERROR:
        return _OK
    if _GONE.search(complaint):
        return Outcome(Result.GONE, complaint)
    if _FORBIDDEN.search(complaint):
        return Outcome(Result.AUTH, complaint)
    if _UNREACHABLE.search(complaint):
        return Outcome(Result.TRANSIENT, complaint)
    return Outcome(Result.BAD_REQUEST, complaint)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)]
