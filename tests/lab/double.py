"""One running EC2 double, as a client of it sees it through the real boto3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions
import pytest
from botocore.config import Config

from cmscale.lab.control import Control
from cmscale.lab.ec2 import ACCESS_KEY, SECRET_KEY

TIMES = {"pending_s": 0.3, "stopping_s": 0.3, "ending_s": 0.3, "forget_s": 0.6}


class Double:
    """One running double, as a client sees it."""

    def __init__(self, directory: Path) -> None:
        state = json.loads((directory / "ec2.json").read_text(encoding="utf-8"))
        self.directory, self.endpoint, self.regions = directory, state["endpoint"], state["regions"]
        self.control = Control(self.endpoint)
        self._clients: dict[tuple[str, str, str], Any] = {}

    def client(self, region: str = "us-east-1", service: str = "ec2", key: str = ACCESS_KEY) -> Any:
        wanted = (region, service, key)
        if wanted not in self._clients:
            self._clients[wanted] = boto3.client(
                service,  # type: ignore[call-overload]
                region_name=region,
                endpoint_url=self.endpoint,
                aws_access_key_id=key,
                aws_secret_access_key=SECRET_KEY,
                config=Config(retries={"total_max_attempts": 1}, proxies={}),
            )
        return self._clients[wanted]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def run(self, least: int = 1, most: int = 1, region: str = "us-east-1", **more: Any) -> list[dict[str, Any]]:
        home = self.regions[region]
        asked = {"ImageId": home["image"], "SubnetId": home["subnet"], "InstanceType": "g4dn.xlarge"} | more
        said = self.client(region).run_instances(MinCount=least, MaxCount=most, **asked)
        found: list[dict[str, Any]] = said["Instances"]
        return found

    def describe(self, region: str = "us-east-1", **more: Any) -> dict[str, dict[str, Any]]:
        said = self.client(region).describe_instances(**more)
        return {each["InstanceId"]: each for group in said["Reservations"] for each in group["Instances"]}

    def run_spot(self, most: int = 1) -> list[str]:
        return ids(self.run(1, most, InstanceMarketOptions={"MarketType": "spot"}))

    def requests(self, **more: Any) -> dict[str, dict[str, Any]]:
        said = self.client().describe_spot_instance_requests(**more)
        return {each["InstanceId"]: each for each in said["SpotInstanceRequests"]}

    def events(self, instance: str, **more: Any) -> list[dict[str, Any]]:
        said = self.client().describe_instance_status(**more)["InstanceStatuses"]
        return [event for each in said if each["InstanceId"] == instance for event in each.get("Events", ())]

    def state(self, instance: str) -> str:
        seen = self.describe(Filters=[{"Name": "instance-id", "Values": [instance]}])
        return str(seen[instance]["State"]["Name"]) if seen else ""


def ids(instances: list[dict[str, Any]]) -> list[str]:
    return [each["InstanceId"] for each in instances]


def refused(error: pytest.ExceptionInfo[botocore.exceptions.ClientError]) -> tuple[str, int]:
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]
