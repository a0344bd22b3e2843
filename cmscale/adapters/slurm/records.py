"""Which jobs and nodes do the lines of squeue and sinfo describe?

The fields are asked for by name, in this order, so nothing is guessed. The field that holds a person's words (a
comment, a drain reason) is the last of its record: it may contain anything. A record that cannot be read costs itself
and one sentence, never its neighbours.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from cmscale.adapters.slurm import parse
from cmscale.adapters.slurm.hostlist import expand, unfold
from cmscale.adapters.slurm.reasons import judge
from cmscale.model import OFF_REASON, OUR_MARK, Ask, Constraint, Help, Job, JobId, NodeName, NodeRecord, Shape
from cmscale.ports import Reading


class _AskWords(NamedTuple):
    partitions: str
    tres: str
    tasks: str
    cpus_per_task: str
    tasks_per_node: str
    cpus_per_node: str
    memory: str
    sharing: str
    features: str
    limit: str
    deadline: str
    reservation: str
    licences: str
    nodelist: str
    per_job: str
    per_node: str
    per_task: str
    per_socket: str
    sockets: str
    cpus_per_tres: str
    memory_per_tres: str


_ASK_FIELDS = (
    "Partition",
    "tres-alloc",  # what is asked while the job waits; its node= is -N, where NumNodes is slurmctld's estimate
    "NumTasks",
    "cpus-per-task",
    "NTPerNode",
    "MinCpus",
    "MinMemory",
    "OverSubscribe",
    "Feature",
    "TimeLimit",
    "Deadline",
    "Reservation",
    "Licenses",
    "ReqNodes",
    "tres-per-job",
    "tres-per-node",
    "tres-per-task",
    "tres-per-socket",
    "Sockets",
    "cpus-per-tres",
    "mem-per-tres",
)


class _JobWords(NamedTuple):
    key: str
    id: str
    array: str
    tasks: str
    het: str
    state: str
    user: str
    account: str
    qos: str
    submit: str
    eligible: str
    start: str
    requeue: str
    priority: str
    nodes: str
    reason: str
    comment: str


_JOB_FIELDS = (
    "JobID",
    "JobArrayID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "State",
    "UserName",
    "Account",
    "QOS",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "Requeue",
    "PriorityLong",
    "NodeList",
    "Reason",
    "Comment",
)

SQUEUE_FIELDS = _ASK_FIELDS + _JOB_FIELDS

SEPARATOR = "\x1f"
GROUP_SEPARATOR = "\x1d"


class JobRow(NamedTuple):
    """The words of SQUEUE_FIELDS. What many jobs ask alike is one text, so that it is read once for all of them."""

    ask: str
    """The first of the words, with a separator between them."""
    words: Sequence[str]


def job_row(words: Sequence[str]) -> JobRow:
    split = len(_ASK_FIELDS)
    return JobRow(SEPARATOR.join(words[:split]), words[split:])


SQUEUE_GROUPS = (_ASK_FIELDS, _JOB_FIELDS)
"""The fields as JobRow has them."""


class _NodeWords(NamedTuple):
    name: str
    partition: str
    states: str
    cpus: str
    memory: str
    memory_used: str
    gres: str
    gres_used: str
    features: str
    address: str
    reason: str


SINFO_FIELDS = (
    "NodeList",
    "Partition",
    "StateComplete",
    "CPUsState",
    "Memory",
    "AllocMem",
    "Gres",
    "GresUsed",
    "features_act",
    "NodeAddr",
    "Reason",
)


ALIKE_FIELDS = ("NodeList", "Partition", "StateComplete", "Memory", "Gres", "GresUsed", "features_act", "Reason")
"""What sinfo tells of nodes that are alike in one line. With what differs from node to node, or by -N, it compares
each with all others: 0.3 s for 5,000 nodes instead of 0.04 s, and four times as long for twice as many."""


class _OfItsOwn(NamedTuple):
    """What a node has for itself, in sinfo's words."""

    cpus: str
    memory_used: str
    address: str


_SHOWN = re.compile(
    r"^NodeName=(\S+) .*? CPUAlloc=(\d+) .*?CPUTot=(\d+) .*?NodeAddr=(\S+) .*?AllocMem=(\d+) ", re.MULTILINE
)


WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
"""The states of jobs that wait: Slurm shows what befell a job in the place of its PENDING, also after its release."""

_BLANK = frozenset({"None", *parse.NOTHING})

# --- jobs ------------------------------------------------------------------------------------------------------------


class Counting(NamedTuple):
    """What Slurm's select plugin counts."""

    memory: bool = True
    """False: --mem is no more than a bound on the size of a node; a job without it takes nothing."""
    whole_nodes: bool = False
    """select/linear: every job has its nodes to itself."""


_MEMORY_COUNTED = Counting()


def counting(settings: Mapping[str, str]) -> Counting:
    """What is counted, by the settings of `scontrol show config`."""
    return Counting(
        memory="MEMORY" in settings.get("SelectTypeParameters", "").upper(),
        whole_nodes=settings.get("SelectType", "") == "select/linear",
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """An ask, and why no nodes should be started for it whatever Slurm's reason is."""

    ask: Ask
    help: Help | None = None
    why: str = ""


class _Memory(NamedTuple):
    per_node: int = 0
    per_cpu: int = 0
    per_gpu: int = 0
    whole: bool = False


class _Gpus(NamedTuple):
    job: int
    node: int
    task: int
    kind: str
    unserved: str


def jobs(
    rows: Iterable[JobRow], exclude: Mapping[str, str], now: float, counts: Counting = _MEMORY_COUNTED
) -> Reading[Job]:
    """The jobs of these rows; `exclude` has the excluded nodes of each pending job, by its JobID."""
    found: list[tuple[_JobWords, _Asked]] = []
    unreadable: list[str] = []
    # Tasks with a record of their own use up the array's % limit: running ones, and waiting ones that were split off.
    apart: Counter[str] = Counter()
    for ask, told in rows:
        if len(told) != len(_JOB_FIELDS):
            unreadable.append(f"a job could not be read: {len(told)} fields where {len(_JOB_FIELDS)} were asked for")
            continue
        words = _JobWords._make(told)
        if words.tasks.isdecimal() and words.state != "COMPLETING":
            apart[words.array] += 1
        excluded = exclude.get(words.key)
        if excluded is None and words.state in WAITING:
            # It is in one of the two answers alone: it changed between them, and is read again next tick.
            continue
        try:
            # At once, so that what many ask alike is held once: a queue's words are ten times the size of its jobs.
            found.append((words, _asked(ask, excluded or "", counts)))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this record's
            unreadable.append(f"job {words.id} could not be read: {error}")
    items: list[Job] = []
    for words, asked in found:
        try:
            items.append(_job(words, asked, apart[words.array], now))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this record's
            unreadable.append(f"job {words.id} could not be read: {error}")
    return Reading(tuple(items), tuple(unreadable))


def _job(words: _JobWords, asked: _Asked, apart: int, now: float) -> Job:
    pending = words.state in WAITING
    in_array = words.tasks not in parse.NOTHING
    folded = in_array and not words.tasks.isdecimal()
    count = 1
    if folded:
        count, limit = parse.array_tasks(words.tasks)
        if limit:
            count = min(count, max(limit - apart, 0))
    priority = int(words.priority)
    begin = parse.moment(words.eligible)
    help_, why = _judge(words, asked, begin, now) if pending else (Help.NO, "")
    return Job(
        id=JobId(words.array if folded else words.id),
        ask=asked.ask,
        state="PENDING" if pending else words.state,
        count=count,
        array=JobId(words.array) if in_array else None,
        user=words.user,
        account=parse.text(words.account),
        qos=parse.text(words.qos),
        submit=parse.moment(words.submit) or 0.0,
        begin=begin,
        priority=priority,
        reason=words.reason,
        help=help_,
        why=why,
        # A job requeued from a node that then died keeps that node in its record while it waits; and the start of a job
        # that waits is an estimate.
        nodes=frozenset() if pending else _nodes(words.nodes),
        comment=parse.text(words.comment),
        started=None if pending else parse.moment(words.start),
        requeue=parse.number(words.requeue) > 0,
    )


def _judge(words: _JobWords, asked: _Asked, begin: float | None, now: float) -> tuple[Help, str]:
    help_, why = judge(words.reason)
    if words.reason in _BLANK and OUR_MARK in words.comment:
        # Each update of a job, of its comment too, blanks its reason until the scheduler comes by again: 30 s and more
        # on a quiet cluster. We comment only on jobs that more nodes would help, so what Slurm said before still holds.
        help_, why = Help.NODES, "Slurm's reason is blank since its comment was set; nodes would help it before"
    if words.priority == "0":
        return (help_, why) if help_ is Help.NO else (Help.NO, "held")
    if words.het not in parse.NOTHING:
        # Its components start together or not at all, and each would be counted alone.
        return Help.NO, "heterogeneous jobs are not served yet"
    if asked.help:
        return asked.help, asked.why
    # Right after its submission a job may show that its nodes are off although its time has not come.
    if help_ is Help.NODES and begin is None:
        return Help.ASK_AGAIN, "Slurm has not found it ready to run yet"
    if help_ is Help.NODES and begin is not None and begin > now:
        return judge("BeginTime")
    return help_, why


@lru_cache(maxsize=65536)
def _asked(ask: str, excluded: str, counts: Counting) -> _Asked:
    told = ask.split(SEPARATOR)
    if len(told) != len(_ASK_FIELDS):
        raise ValueError(f"{len(told)} fields of what it asks where {len(_ASK_FIELDS)} were asked for")
    words = _AskWords._make(told)
    tres = parse.tres(words.tres)
    per_task = parse.tres(words.per_task)
    gpus = _gpus(words)
    memory = _memory(words, tres)
    help_, why = (Help.NO, gpus.unserved) if gpus.unserved else (None, "")
    try:
        constraint = parse.constraint(words.features)
    except ValueError as error:
        constraint = Constraint(words.features, ())
        help_, why = Help.ASK_AGAIN, f"{error} is of a form that cm-scale does not know"
    asks = Ask(
        partitions=tuple(words.partitions.split(",")),
        nodes=parse.number(tres.get("node", "")) or 1,
        tasks=parse.number(words.tasks) or 1,
        cpus_per_task=parse.number(words.cpus_per_task) or parse.number(per_task.get("cpu", "")) or 1,
        tasks_per_node=parse.number(words.tasks_per_node),
        cpus_per_node=parse.number(words.cpus_per_node) or 1,
        mem_mb_per_node=memory.per_node,
        mem_mb_per_cpu=memory.per_cpu,
        mem_mb_per_gpu=memory.per_gpu,
        whole_memory=memory.whole and counts.memory,
        gpus=gpus.job,
        gpus_per_node=gpus.node,
        gpus_per_task=gpus.task,
        cpus_per_gpu=parse.gpus(words.cpus_per_tres)[0],
        gpu_type=gpus.kind,
        exclusive=counts.whole_nodes or words.sharing not in {"OK", "YES"},
        constraint=constraint,
        nodelist=_nodes(words.nodelist),
        exclude=_nodes(excluded),
        limit_s=parse.duration(words.limit),
        deadline=parse.moment(words.deadline),
        reservation=parse.text(words.reservation),
        licences=parse.text(words.licences),
    )
    return _Asked(asks, help_, why)


def _memory(words: _AskWords, tres: Mapping[str, str]) -> _Memory:
    per_gpu = parse.tres(words.memory_per_tres)
    if per_gpu:
        return _Memory(per_gpu=max(parse.memory(amount) for amount in per_gpu.values()))
    each = parse.memory(words.memory)
    if "mem" not in tres:
        return _Memory(per_node=each)
    if each == 0:
        # --mem=0, or no --mem where the site set no default: both take all there is.
        return _Memory(whole=True)
    # squeue writes --mem and --mem-per-cpu alike; their product in tres tells which it is.
    total = parse.memory(tres["mem"])
    off_by = {unit: abs(total - each * parse.number(tres.get(unit, ""))) for unit in ("node", "cpu")}
    return _Memory(per_cpu=each) if off_by["cpu"] < off_by["node"] else _Memory(per_node=each)


def _gpus(words: _AskWords) -> _Gpus:
    asked = [parse.gres(word) for word in (words.per_job, words.per_node, words.per_task, words.per_socket)]
    job, node, task, socket = (sum(count for (name, _), count in counts.items() if name == "gpu") for counts in asked)
    kinds = sorted({kind for counts in asked for name, kind in counts if name == "gpu" and kind})
    others = sorted({name for counts in asked for name, _ in counts} - {"gpu", "cpu", "mem", "none"})
    unserved = ""
    if others:
        unserved = f"asks for {', '.join(others)}, which no pool offers"
    elif len(kinds) > 1:
        unserved = f"asks for GPUs of several types ({', '.join(kinds)}) in one job"
    # GPUs of each socket are a lower bound for the node where the number of sockets is left open.
    node = max(node, socket * max(parse.number(words.sockets), 1))
    return _Gpus(job, node, task, kinds[0] if kinds else "", unserved)


def _nodes(word: str) -> frozenset[NodeName]:
    return frozenset(expand(word)) if word not in parse.NOTHING else frozenset()


# --- nodes -----------------------------------------------------------------------------------------------------------


def node_rows(alike: Iterable[Sequence[str]], shown: str) -> Iterator[Sequence[str]]:
    """Rows of SINFO_FIELDS, of those of ALIKE_FIELDS and of what `scontrol show nodes --oneliner` says of each node.

    What is in one of the two alone came or went between them, and is read again next tick.
    """
    own = {
        name: _OfItsOwn(f"{used}/{int(total) - int(used)}/0/{total}", memory_used, address)
        for name, used, total, address, memory_used in _SHOWN.findall(shown)
    }
    for row in alike:
        if len(row) != len(ALIKE_FIELDS):
            yield row
            continue
        names, partition, states, memory, gres, gres_used, features, reason = row
        for name in unfold(names):
            if name in own:
                cpus, memory_used, address = own[name]
                yield name, partition, states, cpus, memory, memory_used, gres, gres_used, features, address, reason


def nodes(rows: Iterable[Sequence[str]]) -> Reading[NodeRecord]:
    """The nodes of rows of SINFO_FIELDS, of which there is one for each partition of a node."""
    first: dict[str, _NodeWords] = {}
    partitions: dict[str, list[str]] = {}
    unreadable: list[str] = []
    for row in rows:
        if len(row) != len(SINFO_FIELDS):
            unreadable.append(f"a node could not be read: {len(row)} fields where {len(SINFO_FIELDS)} were asked for")
            continue
        words = _NodeWords._make(row)
        first.setdefault(words.name, words)
        # The default partition carries a star.
        partitions.setdefault(words.name, []).append(words.partition.removesuffix("*"))
    items: list[NodeRecord] = []
    for name, words in first.items():
        try:
            items.append(_node(words, tuple(sorted(partitions[name]))))
        except Exception as error:  # noqa: BLE001 - as above
            unreadable.append(f"node {name} could not be read: {error}")
    return Reading(tuple(items), tuple(unreadable))


def _node(words: _NodeWords, partitions: tuple[str, ...]) -> NodeRecord:
    allocated, _idle, _other, cpus = (int(part) for part in words.cpus.split("/"))
    memory = parse.memory(words.memory)
    gpus, kind = parse.gpus(words.gres)
    used = sum(count for (name, of), count in parse.gres(words.gres_used).items() if name == "gpu" and of in {kind, ""})
    states = parse.states(words.states)
    reason = "" if words.reason in {"none", *parse.NOTHING} else words.reason
    if not reason and states >= {"CLOUD", "DRAIN"}:
        # Slurm (22.05 to 25.11) forgets the reason, not the drain, when a POWERED_DOWN node registers. A person's drain
        # always has one: scontrol insists.
        reason = OFF_REASON
    return NodeRecord(
        name=NodeName(words.name),
        states=states,
        shape=Shape(cpus, memory, gpus, kind),
        free=Shape(
            max(cpus - allocated, 0),
            max(memory - parse.memory(words.memory_used), 0),
            max(gpus - used, 0),
            kind,
        ),
        features=frozenset(words.features.split(",")) if words.features not in parse.NOTHING else frozenset(),
        partitions=partitions,
        reason=reason,
        address=words.address,
    )
