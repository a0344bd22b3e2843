"""How is one region of EC2 reached, and what is an admin told when it is not?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cmscale.adapters.aws.buckets import Buckets
from cmscale.adapters.aws.credentials import expiry
from cmscale.adapters.aws.errors import errors
from cmscale.adapters.aws.names import MOST_AT_ONCE
from cmscale.model import Result, SiteName
from cmscale.ports import Misconfigured, Unavailable

if TYPE_CHECKING:
    import boto3
    from botocore.loaders import Loader
    from mypy_boto3_ec2 import EC2Client

_SOURCES: Mapping[str, str] = {
    "env": "in the environment (AWS_ACCESS_KEY_ID)",
    "shared-credentials-file": "in ~/.aws/credentials",
    "config-file": "in ~/.aws/config",
    "iam-role": "of this machine's role",
    "container-role": "of this container's role",
}
"""Where credentials come from, by boto3's word for it."""


class Connection:
    """One region of EC2, through boto3."""

    def __init__(self, site: SiteName, region: str, endpoint_url: str, profile: str, buckets: Buckets) -> None:
        self.site = site
        self.region = region
        self._session = _session(site, region, profile)
        buckets.guard(self._session)
        self._endpoint_url = endpoint_url
        self.errors = errors()
        self.client: EC2Client = self._connect(attempts=2, answer_s=20)

    @cached_property
    def once(self) -> EC2Client:
        """For calls that change something, which go out once: what the SDK would repeat after half a minute has not
        been looked at again. And EC2 says "no capacity" with status 500: repeating that would cost a launch."""
        client: EC2Client = self._connect(attempts=1, answer_s=60)
        return client

    def service(self, name: str, region: str = "", *, attempts: int = 2, answer_s: float = 20) -> Any:
        """A client for another service, of this region if none is named. A test server answers for all; Amazon's
        endpoint of EC2, which may be one in the site's own network, does not."""
        amazons = (urlsplit(self._endpoint_url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
        endpoint_url = "" if amazons else self._endpoint_url
        return self._connect(attempts, answer_s, service=name, endpoint_url=endpoint_url, region=region)

    def pages(self, call: str, item: str, filters: Mapping[str, Sequence[str]]) -> Iterator[Mapping[str, Any]]:
        """All that a call describes, however many pages it takes."""
        client: Any = self.client
        wanted = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        for page in client.get_paginator(call).paginate(Filters=wanted, PaginationConfig={"PageSize": MOST_AT_ONCE}):
            yield from page[item]

    def knows(self, call: str, parameter: str) -> bool:
        """True if the installed SDK has this parameter; older ones refuse what they don't know."""
        shape: Any = self.client.meta.service_model.operation_model(call).input_shape
        return parameter in shape.members

    def unavailable(self, error: Exception) -> Unavailable:
        """The sentence about a region that does not answer, or refuses us."""
        where = f"site {self.site}: EC2 in {self.region} at {self.client.meta.endpoint_url}"
        if self.errors.result(error) is Result.AUTH:
            credentials = self._credentials()
            return Misconfigured(
                f"{where} refuses {credentials}: {self.errors.said(error)}"
                if credentials
                else f"site {self.site}: there are no credentials for EC2 in {self.region}{self._of_profile()}: "
                "none in the environment, in ~/.aws, or of the machine's role"
            )
        return Unavailable(f"{where} does not answer: {self.errors.said(error)}")

    def expires(self) -> float | None:
        """When the credentials end for good, as far as the SDK knows."""
        return expiry(self._session)

    def _connect(
        self,
        attempts: int,
        answer_s: float,
        service: str = "ec2",
        endpoint_url: str | None = None,
        region: str = "",
    ) -> Any:
        from botocore.config import Config

        config = Config(
            connect_timeout=min(answer_s, 5),
            read_timeout=answer_s,
            retries={"mode": "standard", "total_max_attempts": attempts},
        )
        try:
            endpoint_url = self._endpoint_url if endpoint_url is None else endpoint_url
            client: Any = self._session.client  # its overloads know services by literal names alone
            return client(service, region_name=region or self.region, endpoint_url=endpoint_url or None, config=config)
        except ValueError as error:
            raise Misconfigured(f"site {self.site} cannot be reached: {self.errors.said(error)}") from error

    def _credentials(self) -> str:
        """Where boto3 found credentials, never what they are; empty if it found none."""
        try:
            found = self._session.get_credentials()
        except self.errors.any:
            return f"us: the credentials{self._of_profile()} cannot be read"
        source = f'that boto3 calls "{found.method}"' if found else ""
        return f"the credentials{self._of_profile()} {_SOURCES.get(found.method, source)}" if found else ""

    def _of_profile(self) -> str:
        return f" of profile {self._session.profile_name}" if self._session.profile_name != "default" else ""


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
