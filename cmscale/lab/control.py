"""How do tests, and the lab itself, look behind the curtain of the lab's EC2 and make its calls go wrong?"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from cmscale.lab.faults import WARNING_S, Fault, Impairment, Interruption, Rate, Rebalance, Scheduled
from cmscale.lab.processes import LabError
from cmscale.lab.reserved import Block


class Control:
    """The /_lab/ side of one EC2 double; see `cmscale.lab.backstage` for what each topic holds."""

    def __init__(self, endpoint: str) -> None:
        self._host = urlsplit(endpoint).netloc

    def ask(self, method: str, topic: str, given: object = None) -> Any:
        """What the double says; raises LabError if it refuses, OSError if it is not there."""
        connection = http.client.HTTPConnection(self._host, timeout=20)
        try:
            connection.request(method, f"/_lab/{topic}", body=None if given is None else json.dumps(given))
            response = connection.getresponse()
            said = json.loads(response.read())
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK:
            raise LabError(said["error"])
        return said

    def calls(self, action: str = "", since: float = 0.0) -> list[dict[str, Any]]:
        """The calls that reached the API, oldest first."""
        lines: list[dict[str, Any]] = self.ask("GET", f"calls?since={since}")
        return [line for line in lines if action in {"", line["action"]}]

    def instances(self) -> list[dict[str, Any]]:
        """All instances that are not forgotten, terminated ones too."""
        found: list[dict[str, Any]] = self.ask("GET", "instances")
        return found

    def set_fault(self, fault: Fault) -> None:
        self.ask("POST", "faults", asdict(fault))

    def clear_faults(self) -> None:
        self.ask("DELETE", "faults")

    def set_rates(self, *rates: Rate) -> None:
        """From now on EC2 throttles by these token buckets, full ones, alone; `faults.DOCUMENTED` are EC2's own."""
        self.ask("DELETE", "rates")
        for each in rates:
            self.ask("POST", "rates", asdict(each))

    def interrupt(self, instance: str, warning_s: float = WARNING_S) -> None:
        """Take a spot instance back, after this warning; raises LabError for any other."""
        self.ask("POST", "interruptions", asdict(Interruption(instance, warning_s)))

    def buy_block(self, block: Block) -> str:
        """Buy a capacity block: the id of its reservation."""
        return str(self.ask("POST", "blocks", asdict(block))["id"])

    def rebalance(self, instance: str) -> None:
        """Recommend to move off a spot instance; raises LabError for any other."""
        self.ask("POST", "rebalances", asdict(Rebalance(instance)))

    def impair(self, impairment: Impairment) -> None:
        """Let a check of an instance fail, or pass again."""
        self.ask("POST", "impairments", asdict(impairment))

    def schedule(self, event: Scheduled) -> None:
        """Schedule an event for an instance."""
        self.ask("POST", "events", asdict(event))

    def set_capacity(self, counts: Mapping[str, int | None]) -> None:
        """How many Amazon has, by the keys of `market.keys`: "g5.xlarge/us-east-1a/spot"...; None: no bound."""
        self.ask("POST", "capacity", {"capacity": dict(counts)})

    def set_limits(self, counts: Mapping[str, int | None]) -> None:
        """How many the account may have; keys as for capacity."""
        self.ask("POST", "capacity", {"limits": dict(counts)})

    def set_prices(self, dollars: Mapping[str, float | None]) -> None:
        """What an hour costs; keys as for capacity; None: the lab's own price."""
        self.ask("POST", "capacity", {"prices": dict(dollars)})

    def set_times(self, **seconds: float) -> None:
        """Change how long passing states last: the fields of `instance.Times`."""
        self.ask("POST", "times", seconds)

    def set_clock(self, now: float | None) -> None:
        """Stop the double's clock at this time; None: let it go again."""
        self.ask("POST", "clock", {"now": now})
