"""Why does a job wait, and would more nodes help?

One table of Slurm's reason texts, those of 22.05 to 25.11. squeue shows either the reason's word or a longer text that
slurmctld wrote about it; both are here. A text that is not here gives ASK_AGAIN with the text itself: a new release may
add words, and silence about them would be worse than a job that waits.
"""

from __future__ import annotations

import re
from functools import lru_cache

from cmscale.model import Help

_LAST_RUN = "its last run failed; Slurm has not looked at it since"
_LIMIT = "a limit of its account, QOS or user is reached"
_SITE = "the site's rules do not let it run there"

_TABLE: tuple[tuple[str, Help, str], ...] = (
    # More nodes would help.
    (r"Resources", Help.NODES, "waits for free nodes"),
    (r"Priority", Help.NODES, "waits behind jobs of higher priority"),
    (r"Nodes required for job are DOWN, DRAINED or reserved.*", Help.NODES, "the nodes it could use are off or taken"),
    (r"ReqNodeNotAvail, *Reserved for maintenance", Help.NO, "the nodes it asks for are reserved"),
    (r"ReqNodeNotAvail(,.*)?", Help.NODES, "the nodes it could use are off or taken"),
    # Not looked at yet, or not since its last run.
    (r"|None|\(null\)", Help.ASK_AGAIN, "Slurm has not looked at it yet"),
    (r"SchedDefer", Help.ASK_AGAIN, "Slurm has put off looking at it"),
    (
        r"(NodeDown|SystemFailure|JobLaunchFailure|NonZeroExitCode|RaisedSignal|TimeLimit|InactiveLimit|OutOfMemory)(:.*)?",
        Help.ASK_AGAIN,
        _LAST_RUN,
    ),
    # The job's own wish.
    (r"JobHeldUser", Help.NO, "held by its user"),
    (r"JobHeldAdmin", Help.NO, "held by an admin"),
    (r"JobHoldMaxRequeue|job requeued in held state|launch failed requeued held", Help.NO, "held after a failed start"),
    (r"BeginTime", Help.NO, "its begin time has not come"),
    (r"Dependency", Help.NO, "waits for other jobs"),
    (r"DependencyNeverSatisfied", Help.NO, "waits for a job that did not end as asked"),
    (r"JobArrayTaskLimit", Help.NO, "as many tasks of its array run as it allows"),
    (r"DeadLine", Help.NO, "its deadline has passed"),
    # What is not a node.
    (r"Licenses", Help.NO, "waits for licences"),
    (r"BurstBuffer(Operation|Resources|StageIn)|burst_buffer/.*", Help.NO, "waits for its burst buffer"),
    (r"Reservation", Help.NO, "waits for its reservation"),
    (
        r"Reservation ?(Deleted|Invalid)|Reservation .* (was deleted|is invalid|has ended)",
        Help.NO,
        "its reservation is gone",
    ),
    (r"Prolog", Help.NO, "its prolog runs"),
    (r"Cleaning", Help.NO, "its last run is being cleaned up"),
    (r"FedJobLock", Help.NO, "another cluster of the federation may run it"),
    (r"FrontEndDown", Help.NO, "no front end node is up"),
    (r"Power(NotAvail|Reserved)", Help.NO, "waits for power under the site's power cap"),
    (r"MpiPortsBusy", Help.NO, "waits for MPI ports"),
    (r"NvidiaImexChannels", Help.NO, "waits for an IMEX channel"),
    (r"Block(MaxError|FreeAction)", Help.NO, "waits for a Blue Gene block"),
    # What an admin set.
    (r"PartitionDown|PartitionInactive", Help.NO, "its partition is closed"),
    (r"PartitionTimeLimit", Help.NO, "its time limit is beyond the partition's"),
    (r"PartitionNodeLimit", Help.NO, "asks for more nodes than its partition has or allows"),
    (r"PartitionConfig", Help.NO, "its partition cannot hold it"),
    (r"BadConstraints|Constraints", Help.NO, "no node can ever meet its constraints"),
    (r"MaxMemPerLimit", Help.NO, "asks for more memory than the limit"),
    (r"(Account|QOS)NotAllowed|Invalid(Account|QOS)|uid \d+ not in group permitted.*", Help.NO, _SITE),
    (r"QOS\w+|Assoc\w+|Max\w+PerAccount|AccountingPolicy|Job is at or exceeds .*", Help.NO, _LIMIT),
)

_COMPILED = tuple((re.compile(pattern, re.DOTALL), help_, why) for pattern, help_, why in _TABLE)


@lru_cache(maxsize=4096)
def judge(reason: str) -> tuple[Help, str]:
    """Whether more nodes help a job that waits for `reason`, and a sentence that says why."""
    for pattern, help_, why in _COMPILED:
        if pattern.fullmatch(reason):
            return help_, why
    return Help.ASK_AGAIN, f"waits for a reason that cm-scale does not know: {reason}"
