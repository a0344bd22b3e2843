"""From which launch template does a fleet make its machines?

A fleet takes image, disks and user data from a template alone. Ours is made once for its content, of which its name
bears the hash: who makes it again, after a crash perhaps, finds it there. One whose content no pool has any more is
swept when the next one is made.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cmscale.adapters.aws.connection import Connection
from cmscale.adapters.aws.pool import CLUSTER_TAG, tagged
from cmscale.model import SiteName
from cmscale.ports import Misconfigured

SITE_TAG = "cm-scale:site"
PAGE = 200
"""DescribeLaunchTemplates gives no more at once."""


@dataclass(slots=True)
class Templates:
    """The launch templates of one site."""

    ec2: Connection
    cluster: str
    site: SiteName
    _there: set[str] = field(default_factory=set)

    def ready(self, data: Mapping[str, Any], in_use: Callable[[], Collection[str]]) -> str:
        """The name of a template with this content, which is there; `in_use` names those that pools need. Raises what
        boto3 raises."""
        name = self.name(data)
        if name not in self._there:
            self._make(data)
            self._there.add(name)
            # What a pool that is wrong needs is not known, and nothing is swept then; but no other waits for it.
            with suppress(Misconfigured, *self.ec2.errors.any):
                self._sweep({name, *in_use()})
        return name

    def name(self, data: Mapping[str, Any]) -> str:
        text = json.dumps([self.site, data], sort_keys=True)
        return f"cm-scale-{self.cluster}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"

    def request(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """All of CreateLaunchTemplate."""
        tags = {CLUSTER_TAG: self.cluster, SITE_TAG: self.site}
        return {
            "LaunchTemplateName": self.name(data),
            "LaunchTemplateData": data,
            "TagSpecifications": tagged(tags, "launch-template"),
        }

    def forget(self, name: str) -> None:
        """EC2 says that it is not there."""
        self._there.discard(name)

    def _make(self, data: Mapping[str, Any]) -> None:
        try:
            self.ec2.once.create_launch_template(**self.request(data))
        except self.ec2.errors.any as error:
            if self.ec2.errors.code(error) != "InvalidLaunchTemplateName.AlreadyExistsException":
                raise

    def _sweep(self, needed: Collection[str]) -> None:
        """Delete ours that are not needed. A template costs nothing: what can't be done now is done another time."""
        filters = [
            {"Name": f"tag:{CLUSTER_TAG}", "Values": [self.cluster]},
            {"Name": f"tag:{SITE_TAG}", "Values": [self.site]},
        ]
        pages = self.ec2.client.get_paginator("describe_launch_templates").paginate(
            Filters=filters,  # type: ignore[arg-type]
            PaginationConfig={"PageSize": PAGE},
        )
        for name in [each["LaunchTemplateName"] for page in pages for each in page["LaunchTemplates"]]:
            if name not in needed:
                self.ec2.once.delete_launch_template(LaunchTemplateName=name)


def encoded(script: bytes) -> str:
    """User data as a template takes it; the SDK encodes it for RunInstances alone."""
    return base64.b64encode(script).decode()
