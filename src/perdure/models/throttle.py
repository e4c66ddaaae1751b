"""How often a key may be used: limits that all sessions of a process share. Above: `endpoint.py`, callers. Below:
`flow.py`, which does the sums.

A request takes a slot before it is sent and gives it back when its answer is over. Whoever finds none stands in a line,
first come, first served, whatever event loop or thread it comes from. When the provider asks for a pause, all of the
line waits, and goes on little by little: however many were refused, they do not come back all at once.
"""

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, overload
from weakref import WeakValueDictionary

from perdure.core import check
from perdure.core.clock import SYSTEM_CLOCK, Clock

from .flow import Bucket, Flow, Obstacle, Slot

_SPREAD = 0.1
"""How much a pause is lengthened by chance, so that processes with the same key do not come back together."""


class Place:
    """A place in the line."""

    __slots__ = ("awaited", "loop", "obstacle", "tokens", "woken")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.loop = asyncio.get_running_loop()
        self.awaited = False
        """Whether somebody is waiting here now. A place that nobody waits at is kept, and holds nobody up."""
        self.woken = self.loop.create_future()
        self.obstacle = Obstacle(None, "")
        """What it was waiting for when it last looked."""

    def wake(self) -> None:
        """Look again. To be called in its own loop."""
        if not self.woken.done():
            self.woken.set_result(None)


class Throttle:
    """The limits of one key. Without any it costs next to nothing, and only keeps the pauses.

    The limits per minute are buckets: after a quiet minute, as much as a minute allows may be sent at once.
    """

    def __init__(
        self,
        *,
        concurrency: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        clock: Clock = SYSTEM_CLOCK,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._flow = Flow()
        self._line: deque[Place] = deque()
        self._open = False
        """Whether there is nothing to look at: no limits, no pause, nobody in the line."""
        self.limit(
            concurrency=concurrency, requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute
        )

    def limit(
        self,
        *,
        concurrency: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        """Its limits from now on. `None` is no limit."""
        if concurrency is not None:
            check.whole_number("Throttle", "concurrency", concurrency, 1)
        requests = self._bucket("requests_per_minute", requests_per_minute)
        tokens = self._bucket("tokens_per_minute", tokens_per_minute)
        with self._lock:
            self._flow.concurrency, self._flow.requests, self._flow.tokens = concurrency, requests, tokens
            self._changed()

    def _bucket(self, name: str, per_minute: float | None) -> Bucket | None:
        if per_minute is None:
            return None
        check.number("Throttle", name, per_minute)
        if not per_minute:
            check.refuse("Throttle", name, per_minute, "give a number above 0, or None for no limit")
        return Bucket(per_minute, self._clock.monotonic())

    # -- slots ---------------------------------------------------------------------------------------------------------

    def enter(self, tokens: int = 0) -> Slot | None:
        """A slot for a request of about so many tokens; `None` when it has to be waited for, in the `line`."""
        if self._open:
            return Slot(self._flow.epoch)
        with self._lock:
            now = self._clock.monotonic()
            if self._line or self._flow.obstacle(tokens, now) is not None:
                return None
            return self._flow.taken(tokens, now)

    def accepted(self, slot: Slot) -> None:
        """The provider has begun to answer."""
        slot.accepted = True
        if self._flow.recovering:
            with self._lock:
                self._flow.accepted(slot, others_wait=bool(self._line))
                self._changed()

    def refused(self, slot: Slot, seconds: float | None = None) -> None:
        """The provider asked to slow down, and perhaps for how long. Refusals of what was sent together count once."""
        with self._lock:
            is_late = slot.epoch != self._flow.epoch
            if not is_late or seconds is not None:
                self._pause(seconds, is_late=is_late)

    def leave(self, slot: Slot, tokens: int | None = None) -> None:
        """The answer is over, however it went, and has used so many tokens, if anybody said."""
        if slot.counted:
            with self._lock:
                self._flow.left(slot, tokens, self._clock.monotonic())
                self._changed()

    def pause(self, seconds: float | None = None) -> None:
        """Send nothing more for so long; `None` when nobody said how long."""
        with self._lock:
            self._pause(seconds)

    def __repr__(self) -> str:
        flow = self._flow
        limits = [f"concurrency={flow.concurrency}"] if flow.concurrency is not None else []
        limits += [f"requests_per_minute={flow.requests.most:g}"] if flow.requests is not None else []
        limits += [f"tokens_per_minute={flow.tokens.most:g}"] if flow.tokens is not None else []
        return f"Throttle({', '.join(limits)})"

    # -- the line ------------------------------------------------------------------------------------------------------

    def line(self, tokens: int = 0) -> Place:
        """A place at the end of the line, for a request of about so many tokens. It has to be given up in the end."""
        place = Place(tokens)
        with self._lock:
            self._line.append(place)
            self._changed()
        return place

    @overload
    async def reached(self, place: Place) -> Slot: ...

    @overload
    async def reached(self, place: Place, within_seconds: float) -> Slot | None: ...

    async def reached(self, place: Place, within_seconds: float | None = None) -> Slot | None:
        """Wait until it is this place's turn; `None` when it is not within so many seconds."""
        ends = None if within_seconds is None else self._clock.monotonic() + within_seconds
        place.awaited = True
        try:
            while (slot := self._looked(place)) is None:
                seconds = place.obstacle.seconds
                if ends is not None:
                    left = ends - self._clock.monotonic()
                    if left <= 0:
                        return None
                    seconds = left if seconds is None else min(left, seconds)
                await self._woken(place, seconds)
            return slot
        finally:
            place.awaited = False
            with self._lock:
                self._changed()

    def give_up(self, place: Place) -> None:
        """Leave the line, if it is still there."""
        with self._lock:
            if place in self._line:
                self._line.remove(place)
                self._changed()

    def _looked(self, place: Place) -> Slot | None:
        """The slot, when it is this place's turn; else why not is written down there."""
        with self._lock:
            now = self._clock.monotonic()
            place.woken = place.loop.create_future()
            if self._first() is not place:
                place.obstacle = Obstacle(None, f"{self._line.index(place)} requests with the same key come first")
                return None
            obstacle = self._flow.obstacle(place.tokens, now)
            if obstacle is not None:
                place.obstacle = obstacle
                return None
            self._line.remove(place)
            return self._flow.taken(place.tokens, now)

    async def _woken(self, place: Place, seconds: float | None) -> None:
        timer = None if seconds is None else self._clock.call_later(seconds, place.wake)
        try:
            await place.woken
        finally:
            if timer is not None:
                timer.cancel()

    # -- under the lock ------------------------------------------------------------------------------------------------

    def _pause(self, seconds: float | None, *, is_late: bool = False) -> None:
        stretch = 1 + _SPREAD * self._jitter()
        self._flow.paused(seconds, self._clock.monotonic(), stretch=stretch, is_late=is_late)
        self._changed()

    def _changed(self) -> None:
        """See whether it is simple again, and let the first in the line look."""
        self._open = not self._line and self._flow.unlimited
        while (first := self._first()) is not None:
            try:
                first.loop.call_soon_threadsafe(first.wake)
                return
            except RuntimeError:  # its loop is closed, and whoever waited there is gone
                self._line.remove(first)

    def _first(self) -> Place | None:
        return next((place for place in self._line if place.awaited), None)


# -- one for each key --------------------------------------------------------------------------------------------------


class _Limits(NamedTuple):
    concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


_lock = threading.Lock()
_throttles: WeakValueDictionary[tuple[str, str], Throttle] = WeakValueDictionary()
_limits: dict[tuple[str, str], _Limits] = {}
"""What was asked for, by address and key; by address alone for all of its keys."""


def throttle_for(base_url: str, identity: str = "") -> Throttle:
    """The throttle of this key at this address, the same one for everybody. `identity` names the key (`Auth`)."""
    name = (base_url.rstrip("/"), identity)
    with _lock:
        throttle = _throttles.get(name)
        if throttle is None:
            limits = _limits.get(name) or _limits.get((name[0], "")) or _Limits()
            throttle = _throttles[name] = Throttle(**limits._asdict())
        return throttle


def limit_key(
    base_url: str,
    identity: str = "",
    *,
    concurrency: int | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
) -> None:
    """Limit what this process asks with one key, or with each key of this address when none is named.

    It holds from now on for every model at that address, also for those that are in use. `None` is no limit.
    """
    limits = _Limits(concurrency, requests_per_minute, tokens_per_minute)
    Throttle(**limits._asdict())  # refuses what cannot be
    address = base_url.rstrip("/")
    with _lock:
        _limits[address, identity] = limits
        concerned = [
            throttle
            for (where, whose), throttle in _throttles.items()
            if where == address and (whose == identity or not (identity or (where, whose) in _limits))
        ]
    for throttle in concerned:
        throttle.limit(**limits._asdict())
