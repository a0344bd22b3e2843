"""What is an instance, as EC2 describes it, to us?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmscale.adapters.aws.errors import result_of
from cmscale.adapters.aws.names import node_of
from cmscale.adapters.aws.pool import OPERATION_TAG
from cmscale.model import Machine, MachineId, MachineState, OpId, Outcome, Result

STATES: Mapping[str, MachineState] = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
    "shutting-down": MachineState.ENDING,
}
"""EC2's states of machines that still exist."""

ENDED = ("shutting-down", "terminated")
"""EC2's states of machines that will never run again."""


def as_machine(instance: Mapping[str, Any]) -> Machine:
    """The machine that an instance is; `launched` is when it was started last, as EC2's LaunchTime is."""
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    operation = tags.get(OPERATION_TAG)
    return Machine(
        id=MachineId(instance["InstanceId"]),
        # A machine whose tags were changed serves no node that we know. It is listed all the same: it costs money.
        node=node_of(instance["InstanceId"], tags, instance.get("AmiLaunchIndex", 0)),
        state=STATES[instance["State"]["Name"]],
        address=instance.get("PrivateIpAddress", ""),
        launched=instance["LaunchTime"].timestamp(),
        op=OpId(operation) if operation else None,
    )


def started(instance: Mapping[str, Any]) -> Outcome:
    """What became of one machine that EC2 launched: some end at once, with the reason in their state."""
    made = MachineId(instance["InstanceId"])
    if instance["State"]["Name"] not in ENDED:
        return Outcome(Result.OK, machine=made)
    reason = instance.get("StateReason", {})
    code = str(reason.get("Code", "")).partition(".")[2]  # "Server.InsufficientInstanceCapacity"
    result = result_of(code)
    # Not TRANSIENT, which would be asked for again: under this token EC2 gives this machine and no other.
    result = Result.GONE if result is Result.TRANSIENT else result
    return Outcome(result, f"{made} ended at once: {reason.get('Message') or 'EC2 gives no reason'}")
