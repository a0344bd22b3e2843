"""How are machines of a pool launched, so that none is made twice and none is lost?

A pool of one offer, a type in a subnet, is launched by RunInstances; one of several by an instant fleet, which takes
from each what it has. The operation's id, which is stored before the call, is the token of the launch: the same
operation again gives the same machines. Calls go out once; what the SDK would repeat is decided here, by what it means.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cmscale.adapters.aws import fleet
from cmscale.adapters.aws.choices import Choices, soonest
from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.lookups import Lookups
from cmscale.adapters.aws.machines import as_machine, started
from cmscale.adapters.aws.names import NO_ORDER_YET, LaunchCall, launch_calls, marks, order_tags
from cmscale.adapters.aws.pool import CLUSTER_TAG, IMAGE_TAG, NODE_TAG, OPERATION_TAG, AwsPool, Offer, tagged
from cmscale.adapters.aws.templates import Templates, encoded
from cmscale.model import MachineId, NodeName, Operation, Outcome, PoolName, Result, SiteName
from cmscale.ports import Misconfigured

REPEATS = 2
"""How often a call whose answer was lost is made again."""

UNSEEN_PAUSES_S = (0.5, 1.0, 2.0)
"""How long is waited before machines that EC2 has just made, and does not know yet, are named again."""

Instances = Callable[[Mapping[str, str]], Iterable[Mapping[str, Any]]]
"""The cluster's instances with these tags."""
Delete = Callable[[Sequence[MachineId]], Mapping[MachineId, Outcome]]


class Launching:
    """The launches of one site."""

    def __init__(
        self,
        ec2: Connection,
        cluster: str,
        site: SiteName,
        pools: Mapping[PoolName, AwsPool],
        *,
        instances: Instances,
        delete: Delete,
    ) -> None:
        self._ec2, self._errors = ec2, ec2.errors
        self._cluster, self._site, self._pools = cluster, site, pools
        self._instances, self._delete = instances, delete
        self._lookups = Lookups(ec2)
        self._templates = Templates(ec2, cluster, site)
        self._choices = Choices()
        self._asked: dict[str, tuple[Offer, ...]] = {}
        """By token, what fleets were asked for whose answer is not known: asked again, they must be asked alike."""

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        """Launch the operation's nodes.

        An operation whose list of nodes is too long for one call takes several. If it is all or none and one of them
        is refused, the machines of the others are given back; if its answer is lost, all are asked for again. After one
        that is throttled the rest are not made: they would take from the same bucket.
        """
        outcomes: dict[NodeName, Outcome] = {}
        throttled: Outcome | None = None
        for call in launch_calls(operation):
            outcomes |= _alike(call, throttled) if throttled else self._launch(operation, call)
            throttled = _throttled([outcomes[node] for node in call.nodes])
            failed = next((outcome for outcome in outcomes.values() if not outcome.ok), None)
            if operation.all_or_none and failed:
                return dict.fromkeys(operation.nodes, self._given_back(outcomes.values(), failed))
        return outcomes

    def request(self, pool: AwsPool, operation: Operation, label: str) -> dict[str, Any]:
        """All of RunInstances but its counts and its token, for the best offer of the pool; raises what boto3 raises,
        and Misconfigured if the user data will not do."""
        facts = self._lookups.facts(pool)
        return pool.request(facts, pool.script(self._cluster, label), self._tags(pool, operation, label))

    def template(self, pool: AwsPool) -> dict[str, Any]:
        """All of CreateLaunchTemplate; raises as `request` does."""
        return self._templates.request(self._template_data(pool))

    def fleet_request(self, pool: AwsPool, operation: Operation, label: str) -> dict[str, Any]:
        """All of CreateFleet but its token, for one machine of any offer of the pool; raises as `request` does."""
        template = self._templates.name(self._template_data(pool))
        return fleet.request(pool, pool.offers, template, self._tags(pool, operation, label), 1, together=False)

    # --- one call

    def _launch(self, operation: Operation, call: LaunchCall) -> Mapping[NodeName, Outcome]:
        pool = self._pools.get(operation.pool)
        if pool is None:
            return _alike(call, Outcome(Result.BAD_REQUEST, f"site {self._site} has no pool {operation.pool}"))
        try:
            return (self._fleet if len(pool.offers) > 1 else self._run)(operation, call, pool)
        except self._errors.any as error:
            return _alike(call, self._errors.outcome(error))
        except Misconfigured as error:
            return _alike(call, Outcome(Result.BAD_REQUEST, f"pool {operation.pool}: {error}"))

    def _run(self, operation: Operation, call: LaunchCall, pool: AwsPool) -> Mapping[NodeName, Outcome]:
        nodes = call.nodes
        request = self.request(pool, operation, call.label)
        request |= {"MinCount": len(nodes) if operation.all_or_none else 1, "MaxCount": len(nodes)}
        try:
            instances = self._surely(self._ec2.once.run_instances, call, request)["Instances"]
        except self._errors.any as error:
            if self._errors.code(error) == "IdempotentParameterMismatch":
                return self._launched_before(operation, call, pool)
            raise
        made = {nodes[instance["AmiLaunchIndex"]]: started(instance) for instance in instances}
        short = Outcome(Result.CAPACITY, f"EC2 had {len(made)} of {len(nodes)} machines")
        return {node: made.get(node, short) for node in nodes}

    def _surely(self, launch: Callable[..., Any], call: LaunchCall, request: Mapping[str, Any]) -> Any:
        """What a launch answers. The token makes it safe to ask again when an answer was lost."""
        for _ in range(REPEATS):
            try:
                return launch(**request, ClientToken=call.token)
            except self._errors.lost:
                continue
        return launch(**request, ClientToken=call.token)

    def _launched_before(self, operation: Operation, call: LaunchCall, pool: AwsPool) -> Mapping[NodeName, Outcome]:
        """What an earlier call with this token made, when the pool was configured otherwise. A listing may not show it
        yet, so nothing is concluded from what is not found: it is looked for again."""
        found = [*self._instances({OPERATION_TAG: operation.id, NODE_TAG: call.label})]
        fleets = {tag["Value"] for each in found for tag in each.get("Tags", ()) if tag["Key"] == fleet.FLEET_TAG}
        if fleets:
            (before,) = self._ec2.client.describe_fleets(FleetIds=[*fleets])["Fleets"]
            return self._named(call, fleet.read(before, pool.market))
        made = {each.node: each.id for each in map(as_machine, found)}
        missing = Outcome(Result.TRANSIENT, "launched before with other settings, and not found yet")
        return {node: Outcome(Result.OK, machine=made[node]) if node in made else missing for node in call.nodes}

    def _given_back(self, outcomes: Iterable[Outcome], failed: Outcome) -> Outcome:
        """The outcome of every node of an operation that is all or none, once one has failed."""
        made = [outcome.machine for outcome in outcomes if outcome.ok and outcome.machine]
        if not made or failed.result is Result.TRANSIENT:
            return failed
        kept = sum(1 for outcome in self._delete(made).values() if not outcome.ok)
        rest = f", {kept} of them could not be deleted yet" if kept else ""
        return Outcome(failed.result, f"{failed.detail}; all or none, so {len(made)} machines were given back{rest}")

    # --- fleets

    def _fleet(self, operation: Operation, call: LaunchCall, pool: AwsPool) -> Mapping[NodeName, Outcome]:
        offers = self._asked.pop(call.token, None) or self._choices.open(pool.offers, time.monotonic())
        outcomes = self._of_fleet(operation, call, pool, offers)
        if any(outcome.result is Result.TRANSIENT for outcome in outcomes.values()):
            self._asked[call.token] = offers
        return outcomes

    def _of_fleet(
        self, operation: Operation, call: LaunchCall, pool: AwsPool, offers: Sequence[Offer]
    ) -> Mapping[NodeName, Outcome]:
        template = self._templates.ready(self._template_data(pool), self._templates_in_use)
        tags = self._tags(pool, operation, call.label) | NO_ORDER_YET
        request = fleet.request(pool, offers, template, tags, len(call.nodes), together=operation.all_or_none)
        try:
            answer = fleet.read(self._surely(self._ec2.once.create_fleet, call, request), pool.market)
        except self._errors.any as error:
            code = self._errors.code(error)
            if code == "IdempotentParameterMismatch":
                return self._launched_before(operation, call, pool)
            if code.startswith("InvalidLaunchTemplate"):
                self._templates.forget(template)
            return _alike(call, self._errors.outcome(error))
        self._choices.learn(answer.made, answer.refused, time.monotonic())
        return self._named(call, answer)

    def _named(self, call: LaunchCall, answer: fleet.Answer) -> Mapping[NodeName, Outcome]:
        """The outcomes of a fleet's nodes, once its machines bear the tags that tell which node each of them is."""
        nodes, machines = call.nodes, answer.machines
        if machines and (unnamed := self._unnamed(machines)):
            return _alike(call, unnamed)
        short = Outcome(
            soonest(answer.refused.values()) or (Result.GONE if answer.refused else Result.CAPACITY),
            f"EC2 had {len(machines)} of {len(nodes)} machines" + (f"; {answer.said}" if answer.refused else ""),
        )
        made = [Outcome(Result.OK, machine=machine) for machine in machines]
        return dict(zip(nodes, [*made, *[short] * (len(nodes) - len(made))], strict=True))

    def _unnamed(self, machines: Sequence[MachineId]) -> Outcome | None:
        """Write the order of the machines on all of them; why that failed, if it did. The operation is then still
        open: asked again, EC2 gives the same machines, and their order is the same."""
        tags = [{"Key": key, "Value": value} for key, value in order_tags(marks(machines)).items()]
        for pause_s in (*UNSEEN_PAUSES_S, None):
            try:
                self._ec2.once.create_tags(Resources=machines, Tags=tags)  # type: ignore[arg-type]
            except self._errors.any as error:
                outcome = self._errors.outcome(error)
                if pause_s is None or outcome.result not in {Result.GONE, Result.TRANSIENT}:
                    return Outcome(Result.TRANSIENT, f"{len(machines)} machines have no names yet: {outcome.detail}")
                time.sleep(pause_s)
            else:
                return None
        return None

    def _template_data(self, pool: AwsPool) -> dict[str, Any]:
        """The same for all launches of a pool: a machine of a fleet learns from its tags which node it is."""
        script = pool.script(self._cluster, "")
        # A fleet tags its machines and their volumes, and leaves interfaces to its template.
        tags = tagged({CLUSTER_TAG: self._cluster}, "network-interface")
        return pool.machine(self._lookups.facts(pool), encoded(script) if script else "") | {"TagSpecifications": tags}

    def _templates_in_use(self) -> list[str]:
        """Of all pools; raises as `_template_data` does, so that nothing is swept on doubt."""
        several = (pool for pool in self._pools.values() if len(pool.offers) > 1)
        return [self._templates.name(self._template_data(pool)) for pool in several]

    # --- words

    def _tags(self, pool: AwsPool, operation: Operation, label: str) -> dict[str, str]:
        """Ours, by which machines are known to be; and for whom, for the bill. A word of ours is never overwritten."""
        ours = {CLUSTER_TAG: self._cluster, NODE_TAG: label, OPERATION_TAG: operation.id, IMAGE_TAG: pool.image}
        return {**operation.tags, **ours, "Name": label}


def _throttled(outcomes: Sequence[Outcome]) -> Outcome | None:
    """Why nothing came of a call, if EC2 throttled it."""
    return outcomes[0] if all(each.result is Result.THROTTLED for each in outcomes) else None


def _alike(call: LaunchCall, outcome: Outcome) -> dict[NodeName, Outcome]:
    return dict.fromkeys(call.nodes, outcome)
