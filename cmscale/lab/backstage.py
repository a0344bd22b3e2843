"""What can tests, and the lab itself, see and do behind the curtain of the lab's EC2?

JSON goes in and out, without signatures:

    GET    /_lab/calls          all lines of the journal; ?since=TIME for those from a time on
    GET    /_lab/instances      all not forgotten: id, region, state, index, address, type, zone, tags, launched, spot
    GET    /_lab/faults         faults still set        POST: add one (the fields of `faults.Fault`)    DELETE: clear
    GET    /_lab/rates          token buckets that are set  POST: add one (`faults.Rate`)    DELETE: take all away
    GET    /_lab/capacity       {"capacity", "limits", "prices"}  POST: the same, by the keys of `market.keys`; null
                                takes a number away again. Capacity is what Amazon has, limits are what the account may
                                (InsufficientInstanceCapacity, 500; InstanceLimitExceeded), prices are dollars an hour
    GET    /_lab/clock          {"now"}; POST: stop the clock at that time, or null: let it go again
    POST   /_lab/times          change fields of `instance.Times`, e.g. {"pending_s": 3}
    POST   /_lab/interruptions  take a spot instance back (the fields of `faults.Interruption`); EventBridge tells of it
    POST   /_lab/rebalances     recommend to move off a spot instance (the fields of `faults.Rebalance`)
    POST   /_lab/impairments    let a check of an instance fail, or pass again (the fields of `faults.Impairment`)
    POST   /_lab/blocks         buy a capacity block (the fields of `reserved.Block`); its id comes back
    POST   /_lab/events         schedule an event for an instance (the fields of `faults.Scheduled`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cmscale.lab import bus
from cmscale.lab.clock import LabClock
from cmscale.lab.faults import Fault, Faults, Impairment, Interruption, Rate, Rebalance, Scheduled
from cmscale.lab.instance import Times, changed
from cmscale.lab.instances import Region
from cmscale.lab.reserved import Block


class Backstage:
    """The /_lab/ side of one EC2 double; calls take turns with those of the API."""

    def __init__(
        self,
        regions: Mapping[str, Region],
        faults: Faults,
        calls: Sequence[Mapping[str, Any]],
        times: Times,
        *,
        clock: LabClock,
        put_event: Callable[[str, bus.Event], None],
    ) -> None:
        self._put_event = put_event
        self._regions, self._faults, self._calls, self._times = regions, faults, calls, times
        self._clock = clock

    def answer(self, method: str, topic: str, given: Any, query: Mapping[str, list[str]]) -> Any:
        """What a topic holds after the call; KeyError, TypeError or ValueError if it makes no sense."""
        if (method, topic) == ("GET", "calls"):
            since = float(query.get("since", ["0"])[0])
            return [line for line in self._calls if line["at"] >= since]
        if (method, topic) == ("GET", "instances"):
            return self._seen(self._clock.now())
        if (method, topic) == ("POST", "blocks"):
            return self._keep(Block(**given), self._clock.now())
        happens: Mapping[tuple[str, str], Callable[[], object]] = {
            ("POST", "faults"): lambda: self._faults.add(Fault(**given)),
            ("DELETE", "faults"): self._faults.clear,
            ("POST", "rates"): lambda: self._faults.add_rate(Rate(**given)),
            ("DELETE", "rates"): self._faults.clear_rates,
            ("POST", "capacity"): lambda: self._set_counts(given),
            ("POST", "times"): lambda: self._set_times(given),
            ("POST", "interruptions"): lambda: self._interrupt(Interruption(**given), self._clock.now()),
            ("POST", "rebalances"): lambda: self._rebalance(Rebalance(**given), self._clock.now()),
            ("POST", "impairments"): lambda: self._impair(Impairment(**given), self._clock.now()),
            ("POST", "events"): lambda: self._schedule(Scheduled(**given), self._clock.now()),
            ("POST", "clock"): lambda: self._set_clock(**given),
        }
        if (method, topic) in happens:
            happens[method, topic]()
        stands: Mapping[str, Callable[[], object]] = {
            "faults": self._faults.listed,
            "rates": self._faults.rates,
            "capacity": self._counts,
            "clock": lambda: {"now": self._clock.now()},
            "times": lambda: asdict(self._times),
        }
        if topic in stands:
            return stands[topic]()
        if (method, topic) in happens:
            return given
        raise KeyError(topic)

    def _interrupt(self, fault: Interruption, now: float) -> None:
        region = self._region_of(fault.instance, now)
        instance = region.interrupt(fault, now)
        self._put_event(region.name, bus.interruption(instance))

    def _rebalance(self, fault: Rebalance, now: float) -> None:
        region = self._region_of(fault.instance, now)
        self._put_event(region.name, bus.rebalance(region.rebalance(fault, now), region.name, now))

    def _impair(self, fault: Impairment, now: float) -> None:
        self._region_of(fault.instance, now).impair(fault, now)

    def _schedule(self, fault: Scheduled, now: float) -> None:
        self._region_of(fault.instance, now).schedule(fault, now)

    def _keep(self, block: Block, now: float) -> dict[str, str]:
        for name, region in self._regions.items():
            if block.zone.startswith(name):
                return {"id": region.keep(block, now).id}
        raise KeyError(block.zone)

    def _region_of(self, instance: str, now: float) -> Region:
        for region in self._regions.values():
            if any(each.id == instance for each in region.described((), now)):
                return region
        raise KeyError(instance)

    def _set_clock(self, now: float | None) -> None:
        self._clock.stopped_at = now

    def _set_times(self, given: Mapping[str, float]) -> None:
        self._times = changed(self._times, given)
        for region in self._regions.values():
            region.times = self._times

    def _tables(self, region: Region) -> dict[str, dict[str, Any]]:
        return {"capacity": region.capacity, "limits": region.limits, "prices": region.prices}

    def _counts(self) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for region in self._regions.values():
            for name, table in self._tables(region).items():
                found.setdefault(name, {}).update(table)
        return found

    def _set_counts(self, given: Mapping[str, Mapping[str, float | None]]) -> None:
        for region in self._regions.values():
            tables = self._tables(region)
            for name, numbers in given.items():
                table = tables[name]
                for key, number in numbers.items():
                    if number is None:
                        table.pop(key, None)
                    else:
                        table[key] = float(number) if name == "prices" else int(number)

    def _seen(self, now: float) -> list[dict[str, Any]]:
        return [
            {
                "id": each.id,
                "region": name,
                "state": each.state(now, region.times).value[0],
                "index": each.index,
                "address": each.address,
                "type": each.launch.type,
                "zone": each.launch.zone,
                "tags": each.tags,
                "launched": each.launched,
                "spot": each.launch.spot,
            }
            for name, region in self._regions.items()
            for each in region.described((), now)
        ]
