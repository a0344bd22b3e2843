"""What must an admin change before a region of EC2 can work? Launches are tried as dry runs, which make nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.launching import Launching
from cmscale.adapters.aws.names import LONGEST_TAG
from cmscale.adapters.aws.pool import AwsPool
from cmscale.adapters.aws.rights import WATCH
from cmscale.model import Operation, OpId, PoolName, Verb
from cmscale.ports import Misconfigured

DRY = "DryRunOperation"
"""EC2's code for a call that would have succeeded."""


_TRIED = Operation(OpId("check"), Verb.START, PoolName("check"), (), 0.0)


@dataclass(frozen=True, slots=True)
class Checks:
    """What is wrong with the pools of one region, a sentence each."""

    ec2: Connection
    cluster: str
    launching: Launching

    def problems(self, pools: Mapping[PoolName, AwsPool]) -> Iterator[str]:
        yield from self._rights()
        for name, pool in pools.items():
            yield from (f"pool {name}: {said}" for said in self._of_pool(pool))

    def _rights(self) -> Iterator[str]:
        """What the daemon looks at, and must be allowed; what it looks up for a pool is tried with the pool."""
        from botocore import xform_name

        for call in (right.partition(":")[2] for right in WATCH):
            try:
                getattr(self.ec2.client, xform_name(call))(DryRun=True)
            except self.ec2.errors.any as error:
                if self.ec2.errors.code(error) != DRY:
                    yield f"site {self.ec2.site}: {call} is refused: {self.ec2.errors.said(error)}"

    def _of_pool(self, pool: AwsPool) -> Iterator[str]:
        sound = True
        for check in (self._image, self._subnet, self._type, self._script, self._list):
            for said in self._told(check, pool):
                sound = False
                yield said
        if sound:
            yield from self._told(self._launch, pool)

    def _told(self, check: Callable[[AwsPool], Iterable[str]], pool: AwsPool) -> Iterator[str]:
        try:
            yield from check(pool)
        except self.ec2.errors.any as error:
            yield self.ec2.errors.said(error)

    def _image(self, pool: AwsPool) -> Iterator[str]:
        images = self.ec2.client.describe_images(ImageIds=[pool.image])["Images"]
        if not images:
            yield f"there is no image {pool.image} in {self.ec2.region}"
        for image in images:
            if image["State"] != "available":
                yield f"image {pool.image} is {image['State']}"

    def _subnet(self, pool: AwsPool) -> Iterator[str]:
        for subnet in pool.subnets:
            if not self.ec2.client.describe_subnets(SubnetIds=[subnet])["Subnets"]:
                yield f"there is no subnet {subnet} in {self.ec2.region}"

    def _type(self, pool: AwsPool) -> Iterator[str]:
        kinds = self.ec2.client.describe_instance_types(InstanceTypes=list(pool.instance_types))["InstanceTypes"]  # type: ignore[arg-type]
        for missing in {*pool.instance_types} - {kind["InstanceType"] for kind in kinds}:
            yield f"there is no instance type {missing} in {self.ec2.region}"
        for kind in kinds:
            has = {
                "cpus": (pool.promised.cpus, kind["VCpuInfo"]["DefaultVCpus"]),
                "mem_mb": (pool.promised.mem_mb, kind["MemoryInfo"]["SizeInMiB"]),
                "gpus": (pool.promised.gpus, sum(gpu["Count"] for gpu in kind.get("GpuInfo", {}).get("Gpus", ()))),
                "efa": (pool.efa, kind.get("NetworkInfo", {}).get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)),
            }
            for word, (promised, there) in has.items():
                if promised > there:
                    yield f"{word} = {str(promised).lower()}, but a {kind['InstanceType']} has {there}"

    def _script(self, pool: AwsPool) -> Iterator[str]:
        try:
            pool.script(self.cluster, "n" * LONGEST_TAG)
        except Misconfigured as error:
            yield str(error)

    def _list(self, pool: AwsPool) -> Iterator[str]:
        with suppress(OSError):
            if pool.user_data and len(pool.offers) > 1 and b"@NODES@" in pool.user_data.read_bytes():
                yield (
                    f"user data {pool.user_data} names @NODES@, which is empty for a pool of several types or subnets; "
                    "a machine finds its node by its tags"
                )

    def _launch(self, pool: AwsPool) -> Iterator[str]:
        """One offer of the pool is tried as a launch of its own; what a fleet needs beside it is asked for as such."""
        single = replace(pool, instance_types=pool.instance_types[:1], subnets=pool.subnets[:1])
        request = self.launching.request(single, _TRIED, "check")
        yield from self._refused("a launch", self.ec2.once.run_instances, **request, MinCount=1, MaxCount=1)
        if len(pool.offers) > 1:
            yield from self._refused(
                "a launch template", self.ec2.once.create_launch_template, **self.launching.template(pool)
            )
            yield from self._refused(
                "a fleet", self.ec2.once.create_fleet, **self.launching.fleet_request(pool, _TRIED, "check")
            )

    def _refused(self, what: str, call: Callable[..., object], **request: Any) -> Iterator[str]:
        try:
            call(**request, DryRun=True)
        except self.ec2.errors.any as error:
            if self.ec2.errors.code(error) != DRY:
                yield f"{what} would be refused: {self.ec2.errors.said(error)}"
