"""Recorded and made-up lines of squeue and sinfo, as rows of fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cmscale.adapters.slurm.records import SINFO_FIELDS, SQUEUE_FIELDS, JobRow, job_row

RECORDED = Path(__file__).parent / "recorded"
SEPARATOR = "\x1f"
END = "\x1eEND\n"


def rows(release: str, name: str, fields: tuple[str, ...]) -> list[list[str]]:
    """The rows of a recording; newlines inside a record are kept."""
    text = (RECORDED / release / name).read_bytes().decode()
    return [record.split(SEPARATOR, len(fields) - 1) for record in text.split(END) if record]


def excluded(release: str) -> dict[str, str]:
    lines = (RECORDED / release / "excluded.txt").read_text().splitlines()
    return dict(line.split(SEPARATOR, 1) for line in lines)


def shown(sinfo: Iterable[Sequence[str]]) -> str:
    """What `scontrol show nodes --oneliner` says beside these rows of sinfo."""
    text = ""
    for row in sinfo:
        words = dict(zip(SINFO_FIELDS, row, strict=True))
        used, _, _, total = words["CPUsState"].split("/")
        text += (
            f"NodeName={words['NodeList']} CoresPerSocket=1  CPUAlloc={used} CPUEfctv={total} CPUTot={total} "
            f"CPULoad=N/A Gres={words['Gres']} NodeAddr={words['NodeAddr']} NodeHostName=h  "
            f"RealMemory={words['Memory']} AllocMem={words['AllocMem']} FreeMem=N/A State=IDLE\n"
        )
    return text


def squeue_row(**changes: str) -> JobRow:
    """A pending one-core job as squeue writes it; the names of fields are Slurm's, with _ for -."""
    words = dict.fromkeys(SQUEUE_FIELDS, "N/A")
    words |= {
        "Partition": "batch",
        "tres-alloc": "cpu=1,mem=100M,node=1,billing=1",
        "NumTasks": "1",
        "cpus-per-task": "1",
        "NTPerNode": "0",
        "MinCpus": "1",
        "MinMemory": "100M",
        "OverSubscribe": "OK",
        "Feature": "(null)",
        "TimeLimit": "UNLIMITED",
        "Deadline": "N/A",
        "Reservation": "(null)",
        "Licenses": "(null)",
        "ReqNodes": "",
        "Sockets": "*",
        "JobID": "17",
        "JobArrayID": "17",
        "ArrayJobID": "17",
        "State": "PENDING",
        "UserName": "ada",
        "Account": "(null)",
        "QOS": "(null)",
        "SubmitTime": "1795192544",
        "EligibleTime": "1795192544",
        "StartTime": "N/A",
        "Requeue": "1",
        "PriorityLong": "4294901755",
        "NodeList": "",
        "Reason": "Resources",
        "Comment": "(null)",
    }
    by_key = {field.replace("-", "_"): field for field in SQUEUE_FIELDS}
    words |= {by_key[key]: value for key, value in changes.items()}
    return job_row([words[field] for field in SQUEUE_FIELDS])


def sinfo_row(**changes: str) -> list[str]:
    """An idle node as sinfo writes it."""
    words = {
        "NodeList": "n1",
        "Partition": "batch*",
        "StateComplete": "idle",
        "CPUsState": "0/4/0/4",
        "Memory": "16000",
        "AllocMem": "0",
        "Gres": "(null)",
        "GresUsed": "gpu:0",
        "features_act": "(null)",
        "NodeAddr": "n1",
        "Reason": "none",
    }
    return [(words | changes)[field] for field in SINFO_FIELDS]
