"""How do machines of Amazon EC2 come and go for us?

One call launches many like machines. Their tags hold all that must outlive a crash of ours: the cluster, the operation
and the folded list of the nodes launched together; a machine's own node is the name in that list at its launch index.
The operation's id is the token of the launch, so the same operation again gives the same machines.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from cmscale.model import (
    Machine,
    MachineId,
    MachineState,
    NodeName,
    Operation,
    OpId,
    Outcome,
    PoolName,
    Result,
    Shape,
    SiteName,
)
from cmscale.ports import Misconfigured, Unavailable

if TYPE_CHECKING:
    import boto3
    from botocore.loaders import Loader
    from mypy_boto3_ec2 import EC2Client

CLUSTER_TAG = "cm-scale:cluster"
NODE_TAG = "cm-scale:node"
OPERATION_TAG = "cm-scale:operation"

LONGEST_TAG = 256
LONGEST_TOKEN = 64
LONGEST_SCRIPT = 16 * 1024
MOST_AT_ONCE = 1000
"""EC2's bucket of launches holds so many; longer lists of ids are refused by other calls too."""

REPEATS = 2
"""How often a launch whose answer was lost is asked for again."""


_NOTHING = Shape(0, 0)


@dataclass(frozen=True, slots=True)
class AwsPool:
    """What EC2 is asked for when a machine of a pool is started."""

    instance_type: str
    image: str
    subnet: str
    security_groups: tuple[str, ...] = ()
    key_name: str = ""
    instance_profile: str = ""
    user_data: Path | None = None
    """A script; @CLUSTER@ and @NODES@ in it become the cluster and the folded list of the nodes launched together."""
    market: str = "on-demand"
    promised: Shape = _NOTHING
    """What Slurm is told a node has; compared with the instance type's room by `problems`."""


# --- what an error of EC2 means --------------------------------------------------------------------------------------

_RESULTS: Mapping[str, Result] = {
    "InsufficientInstanceCapacity": Result.CAPACITY,
    "InsufficientHostCapacity": Result.CAPACITY,
    "InsufficientCapacity": Result.CAPACITY,
    "InsufficientReservedInstanceCapacity": Result.CAPACITY,
    "ReservationCapacityExceeded": Result.CAPACITY,
    "SpotMaxPriceTooLow": Result.CAPACITY,
    "UnfulfillableCapacity": Result.CAPACITY,
    "RequestLimitExceeded": Result.THROTTLED,
    "BandwidthLimitExceeded": Result.THROTTLED,
    "EC2ThrottledException": Result.THROTTLED,
    "SlowDown": Result.THROTTLED,
    "TooManyRequestsException": Result.THROTTLED,
    "InsufficientFreeAddressesInSubnet": Result.QUOTA,
    "AuthFailure": Result.AUTH,
    "Blocked": Result.AUTH,
    "IncompleteSignature": Result.AUTH,
    "InvalidAccessKeyId": Result.AUTH,
    "InvalidClientTokenId": Result.AUTH,
    "MissingAuthenticationToken": Result.AUTH,
    "NotAuthorized": Result.AUTH,
    "OptInRequired": Result.AUTH,
    "PendingVerification": Result.AUTH,
    "RequestExpired": Result.AUTH,
    "SignatureDoesNotMatch": Result.AUTH,
    "UnauthorizedOperation": Result.AUTH,
    "UnrecognizedClientException": Result.AUTH,
    "IdempotentParameterMismatch": Result.BAD_REQUEST,
    "OperationNotPermitted": Result.BAD_REQUEST,
    "ValidationError": Result.BAD_REQUEST,
    "InvalidInstanceID.NotFound": Result.GONE,
}

_PATTERNS: Sequence[tuple[str, Result]] = (
    (r".*LimitExceeded|.*CountExceeded", Result.QUOTA),
    (r"(Request)?Throttl.*", Result.THROTTLED),
    (r"AccessDenied.*|ExpiredToken.*", Result.AUTH),
    (r"InvalidAMI.*", Result.IMAGE),
    (r"(Invalid|Malformed|Missing|Unknown|Unsupported).*", Result.BAD_REQUEST),
)
"""For codes that stand for many; the first that fits counts. What fits none may pass by itself."""


def result_of(code: str) -> Result:
    """What an error code of EC2 means in our words."""
    if code in _RESULTS:
        return _RESULTS[code]
    return next((result for pattern, result in _PATTERNS if re.fullmatch(pattern, code)), Result.TRANSIENT)


_SOURCES: Mapping[str, str] = {
    "env": "in the environment (AWS_ACCESS_KEY_ID)",
    "shared-credentials-file": "in ~/.aws/credentials",
    "config-file": "in ~/.aws/config",
    "iam-role": "of this machine's role",
    "container-role": "of this container's role",
}
"""Where credentials come from, by boto3's word for it."""


@dataclass(frozen=True, slots=True)
class _Errors:
    """What boto3 raises, by what it means to us; known only once boto3 is there."""

    any: tuple[type[Exception], ...]
    lost: tuple[type[Exception], ...]
    """The call may have taken effect, its answer did not arrive."""
    credentials: tuple[type[Exception], ...]
    request: tuple[type[Exception], ...]

    def code(self, error: Exception) -> str:
        """EC2's code; empty if it was not EC2 that complained."""
        answer: Mapping[str, Any] = getattr(error, "response", None) or {}
        return str(answer.get("Error", {}).get("Code", ""))

    def outcome(self, error: Exception) -> Outcome:
        return Outcome(self.result(error), self.said(error))

    def result(self, error: Exception) -> Result:
        if code := self.code(error):
            return result_of(code)
        if isinstance(error, self.credentials):
            return Result.AUTH
        return Result.BAD_REQUEST if isinstance(error, self.request) else Result.TRANSIENT

    def said(self, error: Exception) -> str:
        """The complaint on one line."""
        if code := self.code(error):
            message = getattr(error, "response", {})["Error"].get("Message", "")
            return " ".join(f"{code}: {message}".split())
        return " ".join(str(error).split()) or type(error).__name__


def _errors() -> _Errors:
    from botocore import exceptions as sdk
    from botocore.parsers import ResponseParserError

    return _Errors(
        any=(sdk.BotoCoreError, sdk.ClientError, ResponseParserError),
        lost=(sdk.ConnectionError, sdk.HTTPClientError, ResponseParserError),
        credentials=(
            sdk.NoCredentialsError,
            sdk.PartialCredentialsError,
            sdk.CredentialRetrievalError,
            sdk.TokenRetrievalError,
            sdk.SSOError,
            sdk.UnauthorizedSSOTokenError,
        ),
        request=(sdk.ParamValidationError,),
    )


# --- which node a machine is -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Launch:
    """One call: nodes that are launched together, in the order in which EC2 numbers them."""

    label: str
    """The folded list of the nodes, as the tag holds it."""
    token: str

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        return _names(self.label)


def _launches(operation: Operation) -> list[_Launch]:
    """The calls that an operation takes: one, unless its list of nodes is too long for a tag or a call."""
    labels = list(_labels(operation.nodes))
    tokens = [operation.id] if len(labels) == 1 else [f"{operation.id}-{number}" for number in range(len(labels))]
    return [_Launch(label, _token(token)) for label, token in zip(labels, tokens, strict=True)]


def _labels(nodes: Sequence[NodeName]) -> Iterator[str]:
    label = _folded(nodes)
    # Always the order of the folded list, whatever the order of the operation: `list` knows no other.
    names = _names(label)
    if len(names) == 1 or (len(label) <= LONGEST_TAG and len(names) <= MOST_AT_ONCE):
        yield label
    else:
        middle = len(names) // 2
        yield from _labels(names[:middle])
        yield from _labels(names[middle:])


def _folded(nodes: Sequence[NodeName]) -> str:
    """The nodes as a hostlist that Slurm's own tools on the machine can read: they know no text after a bracket."""
    numbered = NodeSet.fromlist([node for node in nodes if node[-1].isdigit()], resolver=RESOLVER_NOGROUP)
    numbered.fold_axis = (-1,)
    others = sorted(node for node in nodes if not node[-1].isdigit())
    return ",".join(filter(None, [str(numbered), *others]))


def _token(text: str) -> str:
    return text if len(text) <= LONGEST_TOKEN else hashlib.sha256(text.encode()).hexdigest()[:LONGEST_TOKEN]


@lru_cache(maxsize=4096)
def _names(label: str) -> tuple[NodeName, ...]:
    """The nodes of a folded list as they stand in it, which is the order of the launch; none if it cannot be read."""
    parts = re.split(r",(?![^\[]*\])", label)  # a NodeSet of all parts would sort them
    try:
        return tuple(NodeName(name) for part in parts for name in NodeSet(part, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        return ()


_STATES: Mapping[str, MachineState] = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
    "shutting-down": MachineState.ENDING,
}


def _machine(instance: Mapping[str, Any]) -> Machine:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
    names = _names(tags.get(NODE_TAG, ""))
    index: int = instance.get("AmiLaunchIndex", 0)
    operation = tags.get(OPERATION_TAG)
    return Machine(
        id=MachineId(instance["InstanceId"]),
        # A machine whose tags were changed serves no node that we know. It is listed all the same: it costs money.
        node=names[index] if index < len(names) else NodeName(""),
        state=_STATES[instance["State"]["Name"]],
        address=instance.get("PrivateIpAddress", ""),
        launched=instance["LaunchTime"].timestamp(),
        op=OpId(operation) if operation else None,
    )


def _started(instance: Mapping[str, Any]) -> Outcome:
    """What became of one machine that EC2 launched: some end at once, with the reason in their state."""
    machine = MachineId(instance["InstanceId"])
    if instance["State"]["Name"] in _STATES and instance["State"]["Name"] != "shutting-down":
        return Outcome(Result.OK, machine=machine)
    reason = instance.get("StateReason", {})
    code = str(reason.get("Code", "")).partition(".")[2]  # "Server.InsufficientInstanceCapacity"
    result = result_of(code)
    # Not TRANSIENT, which would be asked for again: under this token EC2 gives this machine and no other.
    result = Result.GONE if result is Result.TRANSIENT else result
    return Outcome(result, f"{machine} ended at once: {reason.get('Message') or 'EC2 gives no reason'}")


def _failed(outcomes: Iterable[Outcome]) -> Outcome | None:
    return next((outcome for outcome in outcomes if not outcome.ok), None)


# --- the site --------------------------------------------------------------------------------------------------------


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
    ) -> None:
        self.site = site
        self._cluster = cluster
        self._region = region
        self._pools = pools
        self._session = _session(site, region, profile)
        self._errors = _errors()
        self._endpoint_url = endpoint_url
        self._client = self._connect(attempts=2, answer_s=20)

    @cached_property
    def _launcher(self) -> EC2Client:
        # EC2 says "no capacity" with status 500, which the SDK would repeat, each time at the cost of a launch.
        return self._connect(attempts=1, answer_s=60)

    def list(self) -> tuple[Machine, ...]:
        """All machines that carry our cluster's tag and still exist. One whose node is "" has lost its other tags."""
        try:
            return tuple(self._machines())
        except self._errors.any as error:
            raise self._unavailable(error) from error

    def start(self, operation: Operation) -> Mapping[NodeName, Outcome]:
        """Launch the operation's nodes; power on its machines instead if it names some, in the order of its nodes.

        An operation whose list of nodes is too long for one call takes several. If it is all or none and one of them
        is refused, the machines of the others are given back; if its answer is lost, all are asked for again.
        """
        if operation.machines:
            started = self._each(self._launcher.start_instances, operation.machines, gone=Result.GONE)
            return {node: started[id_] for node, id_ in zip(operation.nodes, operation.machines, strict=True)}
        outcomes: dict[NodeName, Outcome] = {}
        for launch in _launches(operation):
            outcomes |= self._launch(operation, launch)
            if operation.all_or_none and (failed := _failed(outcomes.values())):
                return dict.fromkeys(operation.nodes, self._given_back(outcomes.values(), failed))
        return outcomes

    def stop(self, machines: Sequence[MachineId]) -> Mapping[MachineId, Outcome]:
        return self._each(self._client.stop_instances, machines, gone=Result.GONE)

    def delete(self, machines: Sequence[MachineId]) -> Mapping[MachineId, Outcome]:
        return self._each(self._client.terminate_instances, machines, gone=Result.OK)

    def problems(self) -> Sequence[str]:
        """What keeps the site from working. Launches are tried as dry runs, which make nothing."""
        try:
            self.list()
        except Unavailable as error:
            return [str(error)]
        return [f"pool {name}: {said}" for name, pool in self._pools.items() for said in self._pool_problems(pool)]

    # --- connecting

    def _connect(self, attempts: int, answer_s: float) -> EC2Client:
        from botocore.config import Config

        config = Config(
            connect_timeout=5,
            read_timeout=answer_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
        )
        try:
            return self._session.client("ec2", endpoint_url=self._endpoint_url or None, config=config)
        except ValueError as error:
            raise Misconfigured(f"site {self.site} cannot be reached: {self._errors.said(error)}") from error

    def _unavailable(self, error: Exception) -> Unavailable:
        where = f"site {self.site}: EC2 in {self._region} at {self._client.meta.endpoint_url}"
        if self._errors.result(error) is Result.AUTH:
            credentials = self._credentials()
            return Misconfigured(
                f"{where} refuses {credentials}: {self._errors.said(error)}"
                if credentials
                else f"site {self.site}: there are no credentials for EC2 in {self._region}{self._of_profile()}: "
                "none in the environment, in ~/.aws, or of the machine's role"
            )
        return Unavailable(f"{where} does not answer: {self._errors.said(error)}")

    def _credentials(self) -> str:
        """Where boto3 found credentials, never what they are; empty if it found none."""
        try:
            found = self._session.get_credentials()
        except self._errors.any:
            return f"us: the credentials{self._of_profile()} cannot be read"
        source = f'that boto3 calls "{found.method}"' if found else ""
        return f"the credentials{self._of_profile()} {_SOURCES.get(found.method, source)}" if found else ""

    def _of_profile(self) -> str:
        return f" of profile {self._session.profile_name}" if self._session.profile_name != "default" else ""

    # --- looking

    def _machines(self, **tags: str) -> Iterator[Machine]:
        filters: Any = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]},
            {"Name": "instance-state-name", "Values": list(_STATES)},
            *({"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()),
        ]
        pages = self._client.get_paginator("describe_instances").paginate(
            Filters=filters, PaginationConfig={"PageSize": MOST_AT_ONCE}
        )
        for page in pages:
            for reservation in page["Reservations"]:
                for instance in reservation["Instances"]:
                    yield _machine(instance)

    # --- launching

    def _launch(self, operation: Operation, launch: _Launch) -> Mapping[NodeName, Outcome]:
        nodes = launch.nodes
        pool = self._pools.get(operation.pool)
        if pool is None:
            return dict.fromkeys(nodes, Outcome(Result.BAD_REQUEST, f"site {self.site} has no pool {operation.pool}"))
        try:
            request = self._request(pool, operation.id, launch.label)
        except (OSError, UnicodeDecodeError) as error:
            return dict.fromkeys(nodes, Outcome(Result.BAD_REQUEST, f"the user data cannot be read: {error}"))
        least = len(nodes) if operation.all_or_none else 1
        try:
            instances = self._run(**request, MinCount=least, MaxCount=len(nodes), ClientToken=launch.token)
        except self._errors.any as error:
            if self._errors.code(error) == "IdempotentParameterMismatch":
                return self._launched_before(operation, launch)
            return dict.fromkeys(nodes, self._errors.outcome(error))
        made = {nodes[instance["AmiLaunchIndex"]]: _started(instance) for instance in instances}
        short = Outcome(Result.CAPACITY, f"EC2 had {len(made)} of {len(nodes)} machines")
        return {node: made.get(node, short) for node in nodes}

    def _run(self, **request: Any) -> Iterable[Mapping[str, Any]]:
        """The machines launched. The token makes it safe to ask again when an answer was lost."""
        for _ in range(REPEATS):
            try:
                return self._launcher.run_instances(**request)["Instances"]
            except self._errors.lost:
                continue
        return self._launcher.run_instances(**request)["Instances"]

    def _request(self, pool: AwsPool, operation: OpId, label: str) -> dict[str, Any]:
        tags = {CLUSTER_TAG: self._cluster, NODE_TAG: label, OPERATION_TAG: operation, "Name": label}
        tag_list = [{"Key": key, "Value": value} for key, value in tags.items()]
        request: dict[str, Any] = {
            "ImageId": pool.image,
            "InstanceType": pool.instance_type,
            "SubnetId": pool.subnet,
            "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list} for kind in ("instance", "volume")],
            "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
        }
        if pool.security_groups:
            request["SecurityGroupIds"] = list(pool.security_groups)
        if pool.key_name:
            request["KeyName"] = pool.key_name
        if pool.instance_profile:
            request["IamInstanceProfile"] = {"Name": pool.instance_profile}
        if pool.user_data:
            request["UserData"] = self._script(pool.user_data, label)
        if pool.market == "spot":
            request["InstanceMarketOptions"] = {"MarketType": "spot"}
        return request

    def _script(self, path: Path, label: str) -> str:
        return path.read_text(encoding="utf-8").replace("@CLUSTER@", self._cluster).replace("@NODES@", label)

    def _launched_before(self, operation: Operation, launch: _Launch) -> Mapping[NodeName, Outcome]:
        """What an earlier call with this token made, when the pool was configured otherwise."""
        try:
            found = {machine.node: machine.id for machine in self._machines(**{OPERATION_TAG: operation.id})}
        except self._errors.any as error:
            return dict.fromkeys(launch.nodes, self._errors.outcome(error))
        none = Outcome(Result.GONE, "launched before with other settings, and no machine of it is left")
        return {node: Outcome(Result.OK, machine=found[node]) if node in found else none for node in launch.nodes}

    def _given_back(self, outcomes: Iterable[Outcome], failed: Outcome) -> Outcome:
        """The outcome of every node of an operation that is all or none, once one has failed."""
        made = [outcome.machine for outcome in outcomes if outcome.ok and outcome.machine]
        if not made or failed.result is Result.TRANSIENT:
            return failed
        kept = sum(1 for outcome in self.delete(made).values() if not outcome.ok)
        rest = f", {kept} of them could not be deleted yet" if kept else ""
        return Outcome(failed.result, f"{failed.detail}; all or none, so {len(made)} machines were given back{rest}")

    # --- many machines in one call

    def _each(
        self, call: Callable[..., Any], machines: Sequence[MachineId], gone: Result
    ) -> Mapping[MachineId, Outcome]:
        """Call for all machines at once, and again without those that EC2 complains about by name."""
        outcomes: dict[MachineId, Outcome] = {}
        for start in range(0, len(machines), MOST_AT_ONCE):
            left = list(dict.fromkeys(machines[start : start + MOST_AT_ONCE]))
            while left:
                outcomes |= self._some(call, left, gone)
                left = [machine for machine in left if machine not in outcomes]
        return outcomes

    def _some(self, call: Callable[..., Any], machines: Sequence[MachineId], gone: Result) -> dict[MachineId, Outcome]:
        """The outcomes of one call: of all its machines, or of those alone that its error names."""
        try:
            call(InstanceIds=machines)
        except self._errors.any as error:
            outcome = self._errors.outcome(error)
            if outcome.result in {Result.AUTH, Result.THROTTLED}:
                return dict.fromkeys(machines, outcome)
            words = set(re.findall(r"[\w-]+", outcome.detail))
            if outcome.result is Result.GONE:
                outcome = Outcome(gone, outcome.detail)
            return dict.fromkeys([machine for machine in machines if machine in words] or machines, outcome)
        return {machine: Outcome(Result.OK, machine=machine) for machine in machines}

    # --- checking

    def _pool_problems(self, pool: AwsPool) -> Iterator[str]:
        sound = True
        for check in (self._image_problems, self._subnet_problems, self._type_problems, self._script_problems):
            for said in self._told(check, pool):
                sound = False
                yield said
        if sound:
            yield from self._told(self._launch_problems, pool)

    def _told(self, check: Callable[[AwsPool], Iterable[str]], pool: AwsPool) -> Iterator[str]:
        try:
            yield from check(pool)
        except self._errors.any as error:
            yield self._errors.said(error)

    def _image_problems(self, pool: AwsPool) -> Iterator[str]:
        images = self._client.describe_images(ImageIds=[pool.image])["Images"]
        if not images:
            yield f"there is no image {pool.image} in {self._region}"
        for image in images:
            if image["State"] != "available":
                yield f"image {pool.image} is {image['State']}"

    def _subnet_problems(self, pool: AwsPool) -> Iterator[str]:
        if not self._client.describe_subnets(SubnetIds=[pool.subnet])["Subnets"]:
            yield f"there is no subnet {pool.subnet} in {self._region}"

    def _type_problems(self, pool: AwsPool) -> Iterator[str]:
        kinds = self._client.describe_instance_types(InstanceTypes=[pool.instance_type])["InstanceTypes"]  # type: ignore[list-item]
        if not kinds:
            yield f"there is no instance type {pool.instance_type} in {self._region}"
        for kind in kinds:
            has = {
                "cpus": (pool.promised.cpus, kind["VCpuInfo"]["DefaultVCpus"]),
                "mem_mb": (pool.promised.mem_mb, kind["MemoryInfo"]["SizeInMiB"]),
                "gpus": (pool.promised.gpus, sum(gpu["Count"] for gpu in kind.get("GpuInfo", {}).get("Gpus", ()))),
            }
            for word, (promised, there) in has.items():
                if promised > there:
                    yield f"{word} = {promised}, but a {pool.instance_type} has {there}"

    def _script_problems(self, pool: AwsPool) -> Iterator[str]:
        if not pool.user_data:
            return
        try:
            size = len(self._script(pool.user_data, "").encode())
        except (OSError, UnicodeDecodeError) as error:
            yield f"the user data cannot be read: {error}"
        else:
            if size > LONGEST_SCRIPT - LONGEST_TAG:
                yield f"user data {pool.user_data} is longer than EC2 takes, {LONGEST_SCRIPT} bytes with its lists"

    def _launch_problems(self, pool: AwsPool) -> Iterator[str]:
        request = self._request(pool, OpId("check"), "check")
        try:
            self._launcher.run_instances(**request, MinCount=1, MaxCount=1, DryRun=True)
        except self._errors.any as error:
            if self._errors.code(error) != "DryRunOperation":
                yield f"a launch would be refused: {self._errors.said(error)}"


def _session(site: SiteName, region: str, profile: str) -> boto3.Session:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError as error:
        raise Misconfigured(f"site {site} needs boto3: pip install 'cm-scale[aws]' ({error})") from error
    try:
        basis = Session()
        basis.register_component("data_loader", _descriptions())
        session = boto3.Session(profile_name=profile or None, region_name=region, botocore_session=basis)
        basis.get_scoped_config()  # says whether there is such a profile
    except BotoCoreError as error:
        raise Misconfigured(f"site {site} cannot be reached: {error}") from error
    return session


@cache
def _descriptions() -> Loader:
    """What the SDK knows of EC2's calls: a fifth of a second to read, so all sites share it."""
    from botocore.loaders import create_loader

    return create_loader()
