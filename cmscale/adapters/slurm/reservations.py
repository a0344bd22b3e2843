"""Which reservations do the lines of `scontrol show reservation --oneliner` describe?

A name may hold anything that an admin typed, so a line is read from its first StartTime on. A record that cannot be
read costs itself and one sentence. One that has ended stays in Slurm's list for a while and is left out.
"""

from __future__ import annotations

import re

from cmscale.adapters.slurm import parse
from cmscale.adapters.slurm.hostlist import expand
from cmscale.model import Reservation
from cmscale.ports import Reading

_RECORD = re.compile(r"ReservationName=(?P<name>.*?) StartTime=(?P<start>\S+) EndTime=(?P<end>\S+)(?P<rest> .*)")
_NONE = "No reservations in the system"


def read(answer: str, now: float) -> Reading[Reservation]:
    """The reservations that have not ended."""
    items: list[Reservation] = []
    unreadable: list[str] = []
    for line in answer.splitlines():
        if not line.strip() or line.startswith(_NONE):
            continue
        try:
            reservation = _reservation(line)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this record's
            unreadable.append(f"a reservation could not be read: {error}")
            continue
        if reservation.end > now:
            items.append(reservation)
    return Reading(tuple(items), tuple(unreadable))


def _reservation(line: str) -> Reservation:
    found = _RECORD.fullmatch(line.strip())
    if not found:
        raise ValueError(f"{line[:80]!r} names no reservation, start and end")
    start, end = (parse.moment(found[which]) for which in ("start", "end"))
    if start is None or end is None:
        raise ValueError(f"{found['name']} has no start or no end")
    nodes = _word(found["rest"], "Nodes")
    flags = _names(found["rest"], "Flags")
    return Reservation(
        name=found["name"],
        start=start,
        end=end,
        nodes=frozenset(expand(nodes)) if nodes not in parse.NOTHING else frozenset(),
        maintenance="MAINT" in flags,
        users=_names(found["rest"], "Users"),
        accounts=_names(found["rest"], "Accounts"),
        flags=flags,
    )


def _names(rest: str, key: str) -> frozenset[str]:
    return frozenset(parse.text(_word(rest, key)).split(",")) - {""}


def _word(rest: str, key: str) -> str:
    found = re.search(rf" {key}=(\S*)", rest)
    return found[1] if found else ""
