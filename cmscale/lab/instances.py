"""Which instances exist in one region of the lab's EC2, and what becomes of them?

Where moto answers as EC2 does not (always MinCount, no client token, no time between states, slow scans), this takes
its place: counts between MinCount and MaxCount as capacity allows, idempotent launches, states that follow from time.
Time is a parameter; nothing here waits, reads a clock or knows of HTTP.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar, cast

from cmscale.lab.faults import Impairment, Interruption, Rebalance, Scheduled
from cmscale.lab.instance import TAKES_ROOM, Event, Instance, Launch, Refused, State, Times, changed
from cmscale.lab.market import BLOCK, ON_DEMAND, keys, price
from cmscale.lab.parts import Card, Disk, Place, cards, disks
from cmscale.lab.reserved import Block, Group, Reservation

__all__ = ["Event", "Instance", "Launch", "Refused", "Region", "State", "Times", "changed"]

ENDLESS = 1_000_000
"""How many there is room for where no table says anything."""

Made = TypeVar("Made")

Change = tuple[Instance, State, State]
"""An instance with its states before and after a call."""


class Region:
    """The instances of one region."""

    def __init__(
        self, name: str, times: Times, take_address: Callable[[str], str], free_address: Callable[[str, str], None]
    ) -> None:
        self.name = name
        self.times = times
        self.capacity: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        """How many instances may exist, by the keys of `market.keys`: what Amazon has, and what we may."""
        self._take_address, self._free_address = take_address, free_address
        self._instances: dict[str, Instance] = {}
        self.prices: dict[str, float] = {}
        """Dollars an hour, by the same keys, where the lab's own prices shall not hold."""
        self.groups: dict[str, Group] = {}
        """Placement groups by name."""
        self.reservations: dict[str, Reservation] = {}
        self._left: dict[str, Disk | Card] = {}
        """Volumes and interfaces that outlived their instance."""
        self.fleets: dict[str, Any] = {}
        """What `ec2.fleets` has made."""
        self._by_token: dict[tuple[str, str], tuple[Mapping[str, str], object]] = {}
        self._taken: Counter[str] = Counter()
        """How many instances take room, by the keys of those tables."""
        self._leaving: dict[str, Instance] = {}
        """Those that give their room back, or are forgotten, as time passes."""
        self._watched: dict[str, Instance] = {}
        """Those to which something happens of EC2's own accord."""
        self._serial = itertools.count(1)

    # --- calls -------------------------------------------------------------------------------------------------------

    def run(self, launch: Launch, least: int, most: int, now: float) -> list[Instance]:
        """New instances: `most` of them, or as many as there is room for; refused if that is below `least`."""
        room, refusal = self.room(launch, now)
        if refusal and room < least:
            raise refusal
        count = min(most, room)
        reservation = "r-" + secrets.token_hex(8)
        instances = [self._new(launch, reservation, index, now) for index in range(count)]
        self._instances |= {instance.id: instance for instance in instances}
        self._count(launch, count)
        return instances

    def _new(self, launch: Launch, reservation: str, index: int, now: float) -> Instance:
        serial, id_ = next(self._serial), "i-" + secrets.token_hex(9)[:17]
        place = Place(launch.zone, launch.subnet, launch.vpc, launch.groups)
        new_cards = cards(launch.parts, place, self._take_address, serial, now)
        new_disks = disks(launch.parts, launch.zone, now)
        parts: list[Disk | Card] = [*new_cards, *new_disks]
        for part in parts:
            part.instance = id_
        return Instance(
            id=id_,
            serial=serial,
            reservation=reservation,
            index=index,
            launch=launch,
            tags=dict(launch.tags),
            made=now,
            launched=now,
            course=State.PENDING,
            since=now,
            cards=new_cards,
            disks=new_disks,
            request="sir-" + secrets.token_hex(4) if launch.spot else "",
        )

    def once(self, token: str, params: Mapping[str, str], make: Callable[[], Made]) -> Made:
        """What `make` makes; what it made the first time if this action's token was seen before."""
        key = params["Action"], token
        if token and key in self._by_token:
            before, made = self._by_token[key]
            if before != params:
                raise Refused(
                    "IdempotentParameterMismatch",
                    f"Arguments on this idempotent request are inconsistent with arguments used in previous request(s) "
                    f"with the client token {token}.",
                )
            return cast(Made, made)
        result = make()
        if token:
            self._by_token[key] = params, result
        return result

    def price(self, kind: str, zone: str, market: str) -> float:
        """Dollars an hour."""
        return price(self.prices, kind, zone, self.name, market)

    def room(
        self, launch: Launch, now: float, planned: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[int, Refused | None]:
        """How many more like these there may be, and what is said to one more.

        What is planned but not launched, by the keys of the tables, takes room already.
        """
        self._age(now)
        if launch.reservation:
            return self._room_reserved(self.reservation(launch.reservation), launch, now)
        found: tuple[int, Refused | None] = (ENDLESS, None)
        for table, refusal in ((self.limits, _over_limit), (self.capacity, _no_capacity)):
            for key in keys(launch.type, launch.zone, self.name, launch.market):
                left = max(0, table[key] - self._taken[key] - planned.get(key, 0)) if key in table else ENDLESS
                if left < found[0]:
                    found = left, refusal(launch)
        return found

    def described(self, ids: Sequence[str], now: float, *, after: int = 0) -> Iterator[Instance]:
        """What EC2 shows, oldest first: of these ids, or all; `after` is the serial of the last one shown before."""
        self._age(now)
        for instance in self._find(ids, now) if ids else list(self._instances.values()):
            if instance.serial > after and instance.described(now, self.times):
                yield instance

    def requested(self, ids: Sequence[str], now: float, *, after: int = 0) -> Iterator[Instance]:
        """The instances of the spot requests that EC2 shows; otherwise as `described`."""
        spot = {each.request: each for each in self.described((), now) if each.request}
        for each in ids:
            if each not in spot:
                raise Refused("InvalidSpotInstanceRequestID.NotFound", f"There is no spot instance request '{each}'")
        for instance in [spot[each] for each in ids] or spot.values():
            if instance.serial > after:
                yield instance

    def terminate(self, ids: Sequence[str], now: float) -> list[Change]:
        """End them all, or none if one is unknown; an ended one stays ended."""
        return [self._send(instance, State.SHUTTING_DOWN, now) for instance in self._find(ids, now)]

    def stop(self, ids: Sequence[str], now: float) -> list[Change]:
        """Stop them all, or none if one cannot be."""
        found = self._find(ids, now)
        for instance in found:
            if instance.launch.spot:
                raise Refused(
                    "UnsupportedOperation",
                    f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time Spot "
                    f"Instance request. You can only stop Spot Instances associated with persistent Spot Instance "
                    f"requests.",
                )
            if instance.state(now, self.times) not in {State.RUNNING, State.STOPPING, State.STOPPED}:
                raise _wrong_state(instance, "stopped")
        return [self._send(instance, State.STOPPING, now) for instance in found]

    def start(self, ids: Sequence[str], now: float) -> list[Change]:
        """Start them all, or none if one cannot be, or there is no room for all."""
        found = self._find(ids, now)
        for instance in found:
            if instance.state(now, self.times) not in {State.STOPPED, State.PENDING, State.RUNNING}:
                raise _wrong_state(instance, "started")
        stopped = [instance for instance in found if instance.state(now, self.times) is State.STOPPED]
        for launch in {id(each.launch): each.launch for each in stopped}.values():
            like = sum(each.launch.type == launch.type and each.launch.zone == launch.zone for each in stopped)
            room, refusal = self.room(launch, now)
            if refusal and room < like:
                raise refusal
        for instance in stopped:
            instance.launched, instance.takes_room = now, True
            self._count(instance.launch, 1)
        return [self._send(instance, State.PENDING, now) for instance in found]

    def tag(self, ids: Sequence[str], tags: Mapping[str, str], now: float) -> list[Instance]:
        """Tag instances and what they have; the instances among them."""
        instances, parts = self._tagged(ids, now)
        for each in (*instances, *parts):
            each.tags.update(tags)
        return instances

    def untag(self, ids: Sequence[str], tags: Mapping[str, str | None], now: float) -> list[Instance]:
        """Take tags away; with a value only where it is that one."""
        instances, parts = self._tagged(ids, now)
        for each in (*instances, *parts):
            for key, value in tags.items():
                if value in {None, each.tags.get(key)}:
                    each.tags.pop(key, None)
        return instances

    def _tagged(self, ids: Sequence[str], now: float) -> tuple[list[Instance], list[Disk | Card]]:
        named = [each for each in ids if each.startswith("i-")]
        instances = self._find(named, now, known_s=self.times.tags_unseen_s)
        return instances, [part for part in self._parts(now) if part.id in set(ids)] if len(named) < len(ids) else []

    # --- what is set aside -------------------------------------------------------------------------------------------

    def reserve(self, wanted: Reservation, now: float) -> Reservation:
        """Set capacity aside, which takes room whether it is used or not; refused if there is too little."""
        room, refusal = self.room(_as_launch(wanted), now)
        if refusal and room < wanted.count:
            raise refusal
        self._count(_as_launch(wanted), wanted.count)
        self.reservations[wanted.id] = wanted
        return wanted

    def unreserve(self, one: Reservation, now: float) -> None:
        """Give back what is set aside; what runs in it goes on running, without it."""
        self._age(now)
        if not one.released:
            one.cancelled = True
            self._release(one, now)

    def keep(self, block: Block, now: float) -> Reservation:
        """A capacity block that was bought. Its room is Amazon's own, beside all tables."""
        starts = now + block.starts_in_s
        kept = Reservation(
            block.type,
            block.zone,
            block.count,
            now,
            BLOCK,
            starts=starts,
            ends=starts + block.lasts_s,
            match="targeted",
        )
        self.reservations[kept.id] = kept
        return kept

    def _release(self, one: Reservation, at: float) -> None:
        """Give back the room that is not used; what runs in a block is ended, all else goes on."""
        one.released = True
        if one.kind != BLOCK:
            self._count(_as_launch(one), one.used - one.count)
            return
        for each in self._instances.values():
            if each.launch.reservation == one.id:
                self._send(each, State.SHUTTING_DOWN, at)

    def reservation(self, id_: str) -> Reservation:
        if id_ not in self.reservations:
            raise Refused("InvalidCapacityReservationId.NotFound", f"The reservation ID '{id_}' is not found.")
        return self.reservations[id_]

    def uses_group(self, name: str, now: float) -> bool:
        self._age(now)
        return any(each.launch.group == name and each.takes_room for each in self._instances.values())

    # --- volumes and interfaces --------------------------------------------------------------------------------------

    def disks(self, now: float) -> Iterator[Disk]:
        """All volumes that instances have, and those that outlived theirs."""
        for each in self.described((), now):
            yield from (disk for disk in each.disks if disk.instance)
        yield from (each for each in self._left.values() if isinstance(each, Disk))

    def cards(self, now: float) -> Iterator[Card]:
        """All network interfaces, likewise."""
        for each in self.described((), now):
            yield from (card for card in each.cards if card.instance)
        yield from (each for each in self._left.values() if isinstance(each, Card))

    def has_part(self, id_: str, now: float) -> bool:
        return any(each.id == id_ for each in self._parts(now))

    def _parts(self, now: float) -> Iterator[Disk | Card]:
        yield from self.disks(now)
        yield from self.cards(now)

    def discard(self, part: Disk | Card) -> None:
        """Delete what outlived its instance."""
        del self._left[part.id]
        if isinstance(part, Card) and part.address:
            self._free_address(part.subnet, part.address)

    def _strip(self, instance: Instance) -> None:
        """Its volumes and interfaces go with it, but for those that shall stay."""
        parts: list[Disk | Card] = [*instance.disks, *instance.cards]
        for part in parts:
            part.instance = ""
            self._left[part.id] = part
            if part.ends_with_it:
                self.discard(part)

    # --- what EC2 does of its own accord -----------------------------------------------------------------------------

    def interrupt(self, fault: Interruption, now: float) -> Instance:
        """Mark a spot instance; it ends when its warning is over."""
        instance = self._spot(fault.instance)
        instance.taken_at = now + fault.warning_s
        self._watched[instance.id] = instance
        return instance

    def rebalance(self, fault: Rebalance, now: float) -> Instance:
        """Say of a spot instance that it may be taken back."""
        instance = self._spot(fault.instance)
        instance.rebalance_at = now
        return instance

    def _spot(self, id_: str) -> Instance:
        instance = self._instances[id_]
        if not instance.request:
            raise ValueError(f"{instance.id} is no spot instance")
        return instance

    def impair(self, fault: Impairment, now: float) -> None:
        impaired = self._instances[fault.instance].impaired
        impaired.pop(fault.part, None)
        if not fault.mended:
            impaired[fault.part] = now - fault.since_s

    def schedule(self, fault: Scheduled, now: float) -> None:
        event = Event(f"instance-event-{secrets.token_hex(8)}", fault.code, fault.description, now + fault.in_s)
        instance = self._instances[fault.instance]
        instance.events.append(event)
        self._watched[instance.id] = instance

    def _age(self, now: float) -> None:
        """Let happen what should have happened by now, and forget what ended long ago."""
        for each in self._watched.values():
            if each.taken_at is not None and now >= each.taken_at:
                self._send(each, State.SHUTTING_DOWN, each.taken_at)
            for event in each.events:
                ends_in = State.STOPPING if not each.launch.spot else State.SHUTTING_DOWN
                stops = event.code in {"instance-stop", "instance-retirement"} and not event.cancelled
                if stops and each.course is State.PENDING and each.launched < event.not_before <= now:
                    self._send(each, ends_in, event.not_before)
        for kept in self.reservations.values():
            if kept.ends is not None and now >= kept.ends and not kept.released:
                self._release(kept, kept.ends)
        self._settle(now)

    def turned(self, now: float) -> Iterator[tuple[Instance, State]]:
        """The instances whose state is another than at the last look, with what it is."""
        self._age(now)
        for each in self._instances.values():
            state = each.state(now, self.times)
            if state is not each.told:
                each.told = state
                yield each, state

    # --- inside ------------------------------------------------------------------------------------------------------

    def _room_reserved(self, kept: Reservation, launch: Launch, now: float) -> tuple[int, Refused]:
        """How many more may be launched into a reservation."""
        if kept.state(now) != "active":
            words = f"The capacity reservation '{kept.id}' is {kept.state(now)}."
            raise Refused("InvalidCapacityReservationState", words)
        if (kept.type, kept.zone) != (launch.type, launch.zone):
            words = f"The capacity reservation '{kept.id}' is for {kept.type} in {kept.zone}."
            raise Refused("InvalidParameterValue", words)
        if (kept.kind == BLOCK) != (launch.market == BLOCK):
            words = f"The market type capacity-block is for capacity blocks alone; '{kept.id}' is of type {kept.kind}."
            raise Refused("InvalidParameterCombination", words)
        words = f"The capacity reservation '{kept.id}' has too little capacity for this request."
        return kept.count - kept.used, Refused("ReservationCapacityExceeded", words)

    def _count(self, launch: Launch, more: int) -> None:
        kept = self.reservations.get(launch.reservation)
        if kept:
            kept.used += more
            if kept.kind == BLOCK or not kept.released:
                return  # its room is set aside already
        for key in keys(launch.type, launch.zone, self.name, launch.market):
            self._taken[key] += more

    def _find(self, ids: Sequence[str], now: float, *, known_s: float = 0.0) -> list[Instance]:
        """Those with these ids; all must be known, for `known_s` already."""
        self._age(now)
        for each in ids:
            if not each.startswith("i-"):
                raise Refused("InvalidInstanceID.Malformed", f'Invalid id: "{each}" (expecting "i-...")')
        unknown = [each for each in ids if not self._knows(each, now, known_s)]
        if unknown:
            many = len(unknown) > 1
            raise Refused(
                "InvalidInstanceID.NotFound",
                f"The instance ID{'s' if many else ''} '{', '.join(unknown)}' do{'' if many else 'es'} not exist",
            )
        return [self._instances[each] for each in ids]

    def _knows(self, id_: str, now: float, known_s: float) -> bool:
        instance = self._instances.get(id_)
        return instance is not None and instance.described(now, self.times) and now - instance.made >= known_s

    def _send(self, instance: Instance, course: State, now: float) -> Change:
        before = instance.state(now, self.times)
        if instance.course is not course:
            instance.course, instance.since = course, now
            if course is not State.PENDING:
                self._leaving[instance.id] = instance
            if course is State.SHUTTING_DOWN:
                self._strip(instance)
        return instance, before, instance.state(now, self.times)

    def _settle(self, now: float) -> None:
        """Give back the room of what has stopped or ended by now, and forget what ended long ago."""
        for each in list(self._leaving.values()):
            if each.state(now, self.times) in TAKES_ROOM:
                continue
            if each.takes_room:
                each.takes_room = False
                self._count(each.launch, -1)
            if each.course is not State.SHUTTING_DOWN:
                del self._leaving[each.id]
            elif each.forgotten(now, self.times):
                for table in (self._leaving, self._instances, self._watched):
                    table.pop(each.id, None)


def _as_launch(kept: Reservation) -> Launch:
    """What takes the room that a reservation keeps."""
    market = BLOCK if kept.kind == BLOCK else ON_DEMAND
    return Launch(image="", type=kept.type, zone=kept.zone, subnet="", vpc="", market=market)


def _wrong_state(instance: Instance, verb: str) -> Refused:
    return Refused(
        "IncorrectInstanceState", f"The instance '{instance.id}' is not in a state from which it can be {verb}."
    )


def _over_limit(launch: Launch) -> Refused:
    if launch.spot:
        return Refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    return Refused(
        "InstanceLimitExceeded",
        f"You have requested more instances of {launch.type} than your current instance limit allows for the specified "
        f"instance type.",
    )


def _no_capacity(launch: Launch) -> Refused:
    return Refused(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {launch.type} capacity in the Availability Zone you requested "
        f"({launch.zone}).",
        500,  # as EC2 answers it, which is why SDKs retry it in vain
    )
