"""How do machines of Amazon EC2 come and go for us?

One call launches many like machines. Their tags hold all that must outlive a crash of ours: the cluster, the operation
and the folded list of the nodes launched together; a machine's own node is the name in that list at its launch index.
The operation's id is the token of the launch, so the same operation again gives the same machines.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cmscale.adapters.aws.checks import Checks
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.errors import NOT_NOW
from cmscale.adapters.aws.machines import ENDED, STATES, as_machine, started
from cmscale.adapters.aws.names import MOST_AT_ONCE, LaunchCall, launch_calls
from cmscale.adapters.aws.pool import CLUSTER_TAG, OPERATION_TAG, AwsPool
from cmscale.adapters.aws.queue import NoticeQueue
from cmscale.adapters.aws.watch import Watch
from cmscale.model import Machine, MachineId, NodeName, Notice, Operation, Outcome, PoolName, Result, SiteName
from cmscale.ports import Unavailable

REPEATS = 2
"""How often a launch whose answer was lost is asked for again."""

LONGEST_CONSOLE = 64 * 1024
"""EC2 keeps no more, and so do we."""

LONGEST_FILTER = 200
"""A filter of EC2 takes no more values."""


class AwsSite:
    """One region of EC2, as far as it is ours."""

    def __init__(
        self,
        cluster: str,
        site: SiteName,
        region: str,
        pools: Mapping[PoolName, AwsPool],
        *,
        endpoint_url: str = "",
        profile: str = "",
        notices_queue: str = "",
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.site = site
        self._cluster = cluster
        self._pools = pools
        self._ec2 = Connection(site, region, endpoint_url, profile)
        self._errors = self._ec2.errors
        self._queue = NoticeQueue(self._ec2, cluster, notices_queue, steady)
        self._watch = Watch(self._ec2, self._queue, steady)
        self._markets: Mapping[MachineId, str] | None = None
        """Of the machines of the last listing; "spot" or nothing."""

    # --- looking

    def list(self) -> tuple[Machine, ...]:
        """All machines that carry our cluster's tag and still exist. One whose node is "" has lost its other tags."""
        try:
            instances = self._instances({})
        except self._errors.any as error:
            raise self._ec2.unavailable(error) from error
        self._markets = {MachineId(each["InstanceId"]): each.get("InstanceLifecycle", "") for each in instances}
        return tuple(as_machine(each) for each in instances)

    def notices(self) -> Mapping[MachineId, Sequence[Notice]]:
        """What EC2 has announced for the machines of the last listing."""
        if self._markets is None:
            self.list()
        try:
            return self._watch.notices(self._markets or {})
        except self._errors.any as error:
            raise self._ec2.unavailable(error) from error

    def evidence(self, machine: MachineId) -> str:
        """The end of what the machine wrote to its console; empty if EC2 has nothing of it, or knows it no more."""
        try:
            text = self._console(machine)
        except self._errors.any as error:
            if self._errors.result(error) is Result.GONE:
                return ""
            raise self._ec2.unavailable(error) from error
        return text.encode()[-LONGEST_CONSOLE:].decode(errors="ignore")  # a character may be cut in two

    def problems(self) -> Sequence[str]:
        """What keeps the site from working. Launches are tried as dry runs, which make nothing."""
        try:
            self.list()
        except Unavailable as error:
            return [str(error)]
        spot = any(pool.market == "spot" for pool in self._pools.values())
        queue = [f"site {self.site}: {said}" for said in self._queue.problems()] if spot else []
        return [*queue, *Checks(self._ec2, self._cluster).problems(self._pools)]

    # --- acting

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        """Launch the operation's nodes; power on its machines instead if it names some, in the order of its nodes.

        An operation whose list of nodes is too long for one call takes several. If it is all or none and one of them
        is refused, the machines of the others are given back; if its answer is lost, all are asked for again.

        A machine that is powered on keeps its tags, and so the operation that launched it. One that runs already is
        ok, one that is ending is gone. EC2 starts all machines of such a call or none.
        """
        if operation.machines:
            on = self._powered(self._ec2.once.start_instances, operation.machines)
            return {node: on[id_] for node, id_ in zip(operation.nodes, operation.machines, strict=True)}
        outcomes: dict[NodeName, Outcome] = {}
        for call in launch_calls(operation):
            outcomes |= self._launch(operation, call)
            if operation.all_or_none and (failed := _failed(outcomes.values())):
                return dict.fromkeys(operation.nodes, self._given_back(outcomes.values(), failed))
        return outcomes

    def stop(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        """Power off. A spot instance of a one-time request, as ours are, cannot be: EC2 says so, a `bad-request`."""
        return self._powered(self._ec2.once.stop_instances, machines, **self._hard("StopInstances", hard))

    def delete(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        given = self._hard("TerminateInstances", hard)
        return self._each(self._ec2.once.terminate_instances, machines, Result.OK, **given)

    # --- what EC2 knows

    def _instances(self, tags: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        filters = {
            f"tag:{CLUSTER_TAG}": [self._cluster],
            "instance-state-name": [*STATES],
            **{f"tag:{key}": [value] for key, value in tags.items()},
        }
        reservations = self._ec2.pages("describe_instances", "Reservations", filters)
        return [instance for each in reservations for instance in each["Instances"]]

    def _console(self, machine: MachineId) -> str:
        """The console's text (the SDK decodes it): as it is now or, of types that cannot tell, as it was last kept."""
        try:
            return self._ec2.client.get_console_output(InstanceId=machine, Latest=True).get("Output", "")
        except self._errors.any as error:
            if self._errors.code(error) != "UnsupportedOperation":
                raise
        return self._ec2.client.get_console_output(InstanceId=machine).get("Output", "")

    # --- launching

    def _launch(self, operation: Operation, call: LaunchCall) -> Mapping[NodeName, Outcome]:
        nodes = call.nodes
        pool = self._pools.get(operation.pool)
        if pool is None:
            return dict.fromkeys(nodes, Outcome(Result.BAD_REQUEST, f"site {self.site} has no pool {operation.pool}"))
        try:
            request = pool.request(self._cluster, operation.id, call.label)
        except (OSError, UnicodeDecodeError) as error:
            return dict.fromkeys(nodes, Outcome(Result.BAD_REQUEST, f"the user data cannot be read: {error}"))
        least = len(nodes) if operation.all_or_none else 1
        try:
            instances = self._run(**request, MinCount=least, MaxCount=len(nodes), ClientToken=call.token)
        except self._errors.any as error:
            if self._errors.code(error) == "IdempotentParameterMismatch":
                return self._launched_before(operation, call)
            return dict.fromkeys(nodes, self._errors.outcome(error))
        made = {nodes[instance["AmiLaunchIndex"]]: started(instance) for instance in instances}
        short = Outcome(Result.CAPACITY, f"EC2 had {len(made)} of {len(nodes)} machines")
        return {node: made.get(node, short) for node in nodes}

    def _run(self, **request: Any) -> Iterable[Mapping[str, Any]]:
        """The machines launched. The token makes it safe to ask again when an answer was lost."""
        for _ in range(REPEATS):
            try:
                return self._ec2.once.run_instances(**request)["Instances"]
            except self._errors.lost:
                continue
        return self._ec2.once.run_instances(**request)["Instances"]

    def _launched_before(self, operation: Operation, call: LaunchCall) -> Mapping[NodeName, Outcome]:
        """What an earlier call with this token made, when the pool was configured otherwise."""
        try:
            found = {each.node: each.id for each in map(as_machine, self._instances({OPERATION_TAG: operation.id}))}
        except self._errors.any as error:
            return dict.fromkeys(call.nodes, self._errors.outcome(error))
        none = Outcome(Result.GONE, "launched before with other settings, and no machine of it is left")
        return {node: Outcome(Result.OK, machine=found[node]) if node in found else none for node in call.nodes}

    def _given_back(self, outcomes: Iterable[Outcome], failed: Outcome) -> Outcome:
        """The outcome of every node of an operation that is all or none, once one has failed."""
        made = [outcome.machine for outcome in outcomes if outcome.ok and outcome.machine]
        if not made or failed.result is Result.TRANSIENT:
            return failed
        kept = sum(1 for outcome in self.delete(made).values() if not outcome.ok)
        rest = f", {kept} of them could not be deleted yet" if kept else ""
        return Outcome(failed.result, f"{failed.detail}; all or none, so {len(made)} machines were given back{rest}")

    # --- many machines in one call

    def _hard(self, call: str, hard: bool) -> dict[str, bool]:
        """Don't ask the machine's system to shut down, and don't wait for a machine that hangs; where the SDK can."""
        return {word: True for word in ("Force", "SkipOsShutdown") if hard and self._ec2.knows(call, word)}

    def _powered(
        self, call: Callable[..., Any], machines: Sequence[MachineId], **given: bool
    ) -> Mapping[MachineId, Outcome]:
        """As `_each`. EC2 says alike of machines that end and of those that will soon do: so it is asked which end."""
        outcomes = self._each(call, machines, Result.GONE, **given)
        refused = [id_ for id_, outcome in outcomes.items() if outcome.detail.startswith(NOT_NOW)]
        if not refused:
            return outcomes
        filters = {"instance-id": refused[:LONGEST_FILTER], "instance-state-name": ENDED}
        try:
            reservations = [*self._ec2.pages("describe_instances", "Reservations", filters)]
        except self._errors.any:
            return outcomes
        ended = [MachineId(instance["InstanceId"]) for each in reservations for instance in each["Instances"]]
        return outcomes | {id_: Outcome(Result.GONE, outcomes[id_].detail) for id_ in ended}

    def _each(
        self, call: Callable[..., Any], machines: Sequence[MachineId], gone: Result, **given: bool
    ) -> dict[MachineId, Outcome]:
        """Call for all machines at once, and again without those that EC2 complains about by name."""
        outcomes: dict[MachineId, Outcome] = {}
        for first in range(0, len(machines), MOST_AT_ONCE):
            left = [*dict.fromkeys(machines[first : first + MOST_AT_ONCE])]
            while left:
                outcomes |= self._some(call, left, gone, **given)
                left = [id_ for id_ in left if id_ not in outcomes]
        return outcomes

    def _some(
        self, call: Callable[..., Any], machines: Sequence[MachineId], gone: Result, **given: bool
    ) -> dict[MachineId, Outcome]:
        """The outcomes of one call: of all its machines, or of those alone that its error names."""
        try:
            call(InstanceIds=machines, **given)
        except self._errors.any as error:
            outcome = self._errors.outcome(error)
            if outcome.result in {Result.AUTH, Result.THROTTLED}:
                return dict.fromkeys(machines, outcome)
            words = set(re.findall(r"[\w-]+", outcome.detail))
            if outcome.result is Result.GONE:
                outcome = Outcome(gone, outcome.detail)
            return dict.fromkeys([id_ for id_ in machines if id_ in words] or machines, outcome)
        return {id_: Outcome(Result.OK, machine=id_) for id_ in machines}


def _failed(outcomes: Iterable[Outcome]) -> Outcome | None:
    return next((outcome for outcome in outcomes if not outcome.ok), None)
