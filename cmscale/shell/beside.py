"""What if a cloud takes longer to answer than a tick may wait?

Then the call goes on beside the ticks, on a thread of its own, and the tick goes on without it. While a look at a site
is under way, or a deed, no second one like it is begun. Sites do not wait for one another: each has its own few
threads. They end with the process, whatever they are doing: what was begun is in the journal.
"""

from __future__ import annotations

import contextvars
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

from cmscale.model import OpId, SiteName
from cmscale.ports import Unavailable

T = TypeVar("T")

CALLS_AT_ONCE = 16
"""At one site."""

SURPRISES_KEPT = 20

log = logging.getLogger(__name__)


class Silent(Unavailable):
    """The answer is still to come."""


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[T]):
    """One call to a site, under way or ended."""

    site: SiteName
    name: str
    make: Callable[[], T]
    deeds: int
    """How often something was done at the site before."""
    began: float = field(default_factory=time.monotonic)
    future: futures.Future[T] = field(default_factory=futures.Future)

    @property
    def ended(self) -> bool:
        return self.future.done()

    def answer(self, within_s: float) -> T:
        """What the call gave, or raises what it raised; Silent if it has not ended."""
        if not self.ended:
            raise Silent(f"site {self.site} did not answer within {within_s:g} s (limits.answer); it is not waited for")
        return self.future.result()

    def run(self) -> None:
        try:
            self.future.set_result(self.make())
        except BaseException as error:  # noqa: BLE001 - whoever asks for the answer is told, whatever it was
            self.future.set_exception(error)


@dataclass(slots=True)
class Beside:
    """All calls of a process to its sites."""

    answer_s: float = 10.0
    """How long a tick waits for an answer."""
    _calls: dict[tuple[SiteName, str], Call[Any]] = field(default_factory=dict)
    _waiting: dict[SiteName, deque[Callable[[], None]]] = field(default_factory=dict)
    _threads: Counter[SiteName] = field(default_factory=Counter)
    _deeds: Counter[SiteName] = field(default_factory=Counter)
    _surprises: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def look(self, site: SiteName, make: Callable[[], T]) -> tuple[Call[T], bool]:
        """A look at a site, and whether it was begun just now. One that outlasted its tick is the look of this one,
        unless something was done at the site since it began: it may not show that."""
        before = self._calls.get((site, ""))
        if before is None or (before.ended and before.deeds != self._deeds[site]):
            return self._begin(site, "", make), True
        return before, False

    def do(self, site: SiteName, operation: OpId, make: Callable[[], None]) -> Call[None]:
        """Do something at a site."""
        self._deeds[site] += 1
        return self._begin(site, operation, make)

    def doing(self) -> frozenset[str]:
        """The operations whose calls are under way."""
        return frozenset(call.name for call in self._under_way() if call.name and not call.ended)

    def wait(self, calls: Iterable[Call[Any]], limit_s: float | None = None) -> None:
        """Wait for these, as long as a tick may, or for `limit_s`."""
        futures.wait([call.future for call in calls], self.answer_s if limit_s is None else limit_s)

    def taken(self, call: Call[Any]) -> None:
        """The answer of a call has been heard."""
        if call.ended:
            self._calls.pop((call.site, call.name), None)
            self._deeds[call.site] += bool(call.name)

    def deeds_ended(self) -> list[Call[None]]:
        """The deeds that ended beside the ticks, each once."""
        ended = [call for call in self._under_way() if call.name and call.ended]
        for call in ended:
            self.taken(call)
        return ended

    def wait_for_all(self, limit_s: float) -> None:
        """Give what is under way some time to end."""
        self.wait([call for call in self._under_way() if call.name], limit_s)

    def troubles(self) -> list[str]:
        """A sentence for each deed that raised what nobody foresaw, and each site with deeds that take long."""
        late = Counter(
            call.site
            for call in self._under_way()
            if call.name and not call.ended and time.monotonic() - call.began > self.answer_s
        )
        return list(self._surprises.values()) + [
            f"site {site} has not answered {'a call' if count == 1 else f'{count} calls'} for more than "
            f"{self.answer_s:g} s (limits.answer); nothing waits for it"
            for site, count in sorted(late.items())
        ]

    def surprised(self, by: str, error: Exception | None) -> None:
        """Remember that a deed raised what nobody foresaw, and log it once; None: it did not this time."""
        if error is None:
            self._surprises.pop(by, None)
            return
        told = f"{by} raised {type(error).__name__}: {error}"
        if self._surprises.get(by) != told:
            log.error("%s", told, exc_info=error)
        self._surprises[by] = told
        while len(self._surprises) > SURPRISES_KEPT:
            self._surprises.pop(next(iter(self._surprises)))

    def _under_way(self) -> list[Call[Any]]:
        return list(self._calls.values())

    def _begin(self, site: SiteName, name: str, make: Callable[[], T]) -> Call[T]:
        # What is logged by the call names the tick that began it.
        call = Call(site, name, partial(contextvars.copy_context().run, make), self._deeds[site])
        self._calls[site, name] = call
        with self._lock:
            self._waiting.setdefault(site, deque()).append(call.run)
            if self._threads[site] < CALLS_AT_ONCE:
                self._threads[site] += 1
                Thread(target=self._work, args=(site,), name=f"beside {site}", daemon=True).start()
        return call

    def _work(self, site: SiteName) -> None:
        while True:
            with self._lock:
                if not self._waiting[site]:
                    self._threads[site] -= 1
                    return
                run = self._waiting[site].popleft()
            run()
