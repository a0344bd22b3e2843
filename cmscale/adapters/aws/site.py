"""How do machines of Amazon EC2 come and go for us?

One call launches many like machines. Their tags hold all that must outlive a crash of ours: the cluster, the operation
and the nodes launched together, with what tells which of them a machine is. How they are launched is told in
`launching`, how they get their names in `names`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cmscale.adapters.aws.buckets import Buckets
from cmscale.adapters.aws.checks import Checks
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.errors import NOT_NOW
from cmscale.adapters.aws.launching import Launching
from cmscale.adapters.aws.leftovers import Leftovers, is_part
from cmscale.adapters.aws.machines import ENDED, STATES, as_machine
from cmscale.adapters.aws.names import MOST_AT_ONCE
from cmscale.adapters.aws.pool import CLUSTER_TAG, AwsPool
from cmscale.adapters.aws.queue import NoticeQueue
from cmscale.adapters.aws.watch import Watch
from cmscale.model import Leftover, Machine, MachineId, NodeName, Notice, Operation, Outcome, PoolName, Result, SiteName
from cmscale.ports import Unavailable

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
        buckets: Buckets | None = None,
    ) -> None:
        self.site = site
        self._cluster = cluster
        self._pools = pools
        self._ec2 = Connection(site, region, endpoint_url, profile, buckets or Buckets())
        self._errors = self._ec2.errors
        self._queue = NoticeQueue(self._ec2, cluster, notices_queue, steady)
        self._watch = Watch(self._ec2, self._queue, steady)
        self._launching = Launching(self._ec2, cluster, site, pools, instances=self._instances, delete=self.delete)
        self._leftovers = Leftovers(self._ec2, cluster)
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

    def leftovers(self) -> tuple[Leftover, ...]:
        """Volumes and network interfaces with our cluster's tag that belong to no machine: a call for each kind."""
        try:
            return tuple(self._leftovers.found())
        except self._errors.any as error:
            raise self._ec2.unavailable(error) from error

    def expires(self) -> float | None:
        return self._ec2.expires()

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
        return [*queue, *Checks(self._ec2, self._cluster, self._launching).problems(self._pools)]

    # --- acting

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        """Launch the operation's nodes; power on its machines instead if it names some, in the order of its nodes.

        A machine that is powered on keeps its tags, and so the operation that launched it. One that runs already is
        ok, one that is ending is gone. EC2 starts all machines of such a call or none.
        """
        if not operation.machines:
            return self._launching.start(operation)
        on = self._powered(self._ec2.once.start_instances, operation.machines)
        return {node: on[id_] for node, id_ in zip(operation.nodes, operation.machines, strict=True)}

    def stop(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        """Power off. A spot instance of a one-time request, as ours are, cannot be: EC2 says so, a `bad-request`."""
        return self._powered(self._ec2.once.stop_instances, machines, **self._hard("StopInstances", hard))

    def delete(self, machines: Sequence[MachineId], *, hard: bool = False) -> Mapping[MachineId, Outcome]:
        given = self._hard("TerminateInstances", hard)
        parts = [each for each in machines if is_part(each)]
        whole = [each for each in machines if not is_part(each)]
        gone = self._each(self._ec2.once.terminate_instances, whole, Result.OK, **given)
        return {**gone, **self._leftovers.delete(parts)}

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
