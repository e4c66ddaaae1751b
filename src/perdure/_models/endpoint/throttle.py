"""Rate limiter of the requests with one API key: limits per minute, and the pauses that the provider asks for.

A request takes a slot before it is sent, and releases it when its response is over. If no slot is free it waits in a
queue, first in, first out, across all event loops and threads. When the provider asks for a pause, the whole queue
waits and is then admitted gradually, so that refused requests are not all repeated at once.
"""

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, overload
from weakref import WeakValueDictionary

from perdure._core.values import checks
from perdure._core.values.clock import SYSTEM_CLOCK, Clock

from .throttle_state import RequestSlot, ThrottleState, TokenBucket, WaitReason

_SPREAD = 0.1
"""Maximum random extension of a pause, as a fraction, so that processes with the same key do not resume at the same
time.
"""


class QueuedRequest:
    """Request that waits in the queue of a `Throttle`."""

    __slots__ = ("awaited", "loop", "obstacle", "tokens", "woken")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.loop = asyncio.get_running_loop()
        self.awaited = False
        """True while a task waits at this place. One that no task waits at keeps its position, but does not block the
        others.
        """
        self.woken = self.loop.create_future()
        self.obstacle = WaitReason(None, "")
        """Reason for waiting, as of the last check."""

    def wake(self) -> None:
        """Make the waiting task check again if it may be sent. Must be called in its own event loop."""
        if not self.woken.done():
            self.woken.set_result(None)


class Throttle:
    """Rate limiter for one API key, shared by all models with this key.

    Without limits, requests wait only while the provider has asked for a pause.

    The limits per minute are token buckets: after a quiet minute, a minute's allowance may be sent at once.
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
        checks.require_plain_function("Throttle", "jitter", jitter)
        self._clock = clock
        self._jitter = jitter
        self._lock = threading.Lock()
        self._flow = ThrottleState()
        self._queue: deque[QueuedRequest] = deque()
        self._is_open = False
        """True if no check is needed: no limits, no pause, and an empty queue."""
        self.set_limits(
            concurrency=concurrency, requests_per_minute=requests_per_minute, tokens_per_minute=tokens_per_minute
        )

    def set_limits(
        self,
        *,
        concurrency: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        """Set the limits from now on. `None` is no limit."""
        if concurrency is not None:
            checks.require_int("Throttle", "concurrency", concurrency, 1)
        requests = self._build_bucket("requests_per_minute", requests_per_minute)
        tokens = self._build_bucket("tokens_per_minute", tokens_per_minute)
        with self._lock:
            self._flow.concurrency, self._flow.requests, self._flow.tokens = concurrency, requests, tokens
            self._wake_first()

    def _build_bucket(self, name: str, per_minute: float | None) -> TokenBucket | None:
        if per_minute is None:
            return None
        checks.require_number("Throttle", name, per_minute)
        if not per_minute:
            checks.raise_config_error("Throttle", name, per_minute, "give a number above 0, or None for no limit")
        return TokenBucket(per_minute, self._clock.monotonic())

    # -- slots ---------------------------------------------------------------------------------------------------------

    def try_take_slot(self, tokens: int = 0) -> RequestSlot | None:
        """Take a slot (permission to send a request of about `tokens` tokens); `None` if it has to `join_queue`."""
        if self._is_open:
            return RequestSlot(self._flow.epoch)
        with self._lock:
            now = self._clock.monotonic()
            if self._queue or self._flow.find_wait_reason(tokens, now) is not None:
                return None
            return self._flow.take_slot(tokens, now)

    def find_pause_seconds(self) -> float | None:
        """Return how long requests wait because the provider asked for a pause; `None` if they do not."""
        if self._is_open:
            return None
        with self._lock:
            return self._flow.find_pause_seconds(self._clock.monotonic(), has_queue=bool(self._queue))

    def record_accepted(self, slot: RequestSlot) -> None:
        """Record that the provider has started to respond, so that more requests may be sent after a pause."""
        slot.accepted = True
        if self._flow.is_recovering:
            with self._lock:
                self._flow.record_accepted(slot, has_queue=bool(self._queue))
                self._wake_first()

    def record_refused(self, slot: RequestSlot, seconds: float | None = None) -> None:
        """Record that the provider asked to slow down, and pause all requests.

        Refusals of requests sent together count once.
        """
        with self._lock:
            is_late = slot.epoch != self._flow.epoch
            if not is_late or seconds is not None:
                self._pause(seconds, is_late=is_late)

    def release_slot(self, slot: RequestSlot, tokens: int | None = None) -> None:
        """Give a slot back when the response is over, and account for the tokens that it used, if known."""
        if slot.counted:
            with self._lock:
                self._flow.release_slot(slot, tokens, self._clock.monotonic())
                self._wake_first()

    def pause(self, seconds: float | None = None) -> None:
        """Pause all requests for `seconds`; with `None`, for a duration that doubles each time."""
        with self._lock:
            self._pause(seconds)

    def __repr__(self) -> str:
        flow = self._flow
        limits = [f"concurrency={flow.concurrency}"] if flow.concurrency is not None else []
        limits += [f"requests_per_minute={flow.requests.most:g}"] if flow.requests is not None else []
        limits += [f"tokens_per_minute={flow.tokens.most:g}"] if flow.tokens is not None else []
        return f"Throttle({', '.join(limits)})"

    # -- the queue -----------------------------------------------------------------------------------------------------

    def join_queue(self, tokens: int = 0) -> QueuedRequest:
        """Join the end of the queue with a request of about `tokens` tokens. It must be removed with `leave_queue` in
        the end.
        """
        place = QueuedRequest(tokens)
        with self._lock:
            self._queue.append(place)
            self._wake_first()
        return place

    @overload
    async def wait_for_slot(self, place: QueuedRequest) -> RequestSlot: ...

    @overload
    async def wait_for_slot(self, place: QueuedRequest, within_seconds: float) -> RequestSlot | None: ...

    async def wait_for_slot(self, place: QueuedRequest, within_seconds: float | None = None) -> RequestSlot | None:
        """Wait until the queued request `place` may be sent, and return its slot; `None` after `within_seconds`."""
        ends = None if within_seconds is None else self._clock.monotonic() + within_seconds
        place.awaited = True
        try:
            while (slot := self._take_slot_if_first(place)) is None:
                seconds = place.obstacle.seconds
                if ends is not None:
                    left = ends - self._clock.monotonic()
                    if left <= 0:
                        return None
                    seconds = left if seconds is None else min(left, seconds)
                await self._wait_until_woken(place, seconds)
            return slot
        finally:
            place.awaited = False
            with self._lock:
                self._wake_first()

    def leave_queue(self, place: QueuedRequest) -> None:
        """Remove a request from the queue, if it is still there."""
        with self._lock:
            if place in self._queue:
                self._queue.remove(place)
                self._wake_first()

    def _take_slot_if_first(self, place: QueuedRequest) -> RequestSlot | None:
        """Take a slot if this request is first in the queue and no limit blocks it; otherwise record the reason."""
        with self._lock:
            now = self._clock.monotonic()
            place.woken = place.loop.create_future()
            if self._find_first_awaited() is not place:
                place.obstacle = WaitReason(
                    None, f"{self._queue.index(place)} requests with the same key are ahead of it"
                )
                return None
            obstacle = self._flow.find_wait_reason(place.tokens, now)
            if obstacle is not None:
                place.obstacle = obstacle
                return None
            self._queue.remove(place)
            return self._flow.take_slot(place.tokens, now)

    async def _wait_until_woken(self, place: QueuedRequest, seconds: float | None) -> None:
        timer = None if seconds is None else self._clock.call_later(seconds, place.wake)
        try:
            await place.woken
        finally:
            if timer is not None:
                timer.cancel()

    # -- under the lock ------------------------------------------------------------------------------------------------

    def _pause(self, seconds: float | None, *, is_late: bool = False) -> None:
        stretch = 1 + _SPREAD * self._jitter()
        self._flow.start_pause(seconds, self._clock.monotonic(), jitter_factor=stretch, is_late=is_late)
        self._wake_first()

    def _wake_first(self) -> None:
        """Recompute `_is_open`, and wake the first request in the queue."""
        self._is_open = not self._queue and self._flow.is_unlimited
        while (first := self._find_first_awaited()) is not None:
            try:
                first.loop.call_soon_threadsafe(first.wake)
                return
            except RuntimeError:  # its loop is closed, and the task that waited there is gone
                self._queue.remove(first)

    def _find_first_awaited(self) -> QueuedRequest | None:
        return next((place for place in self._queue if place.awaited), None)


# -- one for each key --------------------------------------------------------------------------------------------------


class _Limits(NamedTuple):
    concurrency: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


_lock = threading.Lock()
_throttles: WeakValueDictionary[tuple[str, str], Throttle] = WeakValueDictionary()
_limits: dict[tuple[str, str], _Limits] = {}
"""Configured limits by base URL and key; by base URL alone for all of its keys."""


def get_shared_throttle(base_url: str, identity: str = "") -> Throttle:
    """Return the `Throttle` (rate limiter) that all models with this base URL and API key share.

    `identity` names the key, as in `Auth`.
    """
    name = (base_url.rstrip("/"), identity)
    with _lock:
        throttle = _throttles.get(name)
        if throttle is None:
            limits = _limits.get(name) or _limits.get((name[0], "")) or _Limits()
            throttle = _throttles[name] = Throttle(**limits._asdict())
        return throttle


def set_api_key_limits(
    base_url: str,
    identity: str = "",
    *,
    concurrency: int | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
) -> None:
    """Set the rate limits of one API key in this process; if `identity` is empty, of each key of a base URL.

    The limits apply at once to every model at that base URL, also to those in use. `None` is no limit.
    """
    limits = _Limits(concurrency, requests_per_minute, tokens_per_minute)
    Throttle(**limits._asdict())  # validates them
    address = base_url.rstrip("/")
    with _lock:
        _limits[address, identity] = limits
        concerned = [
            throttle
            for (where, whose), throttle in _throttles.items()
            if where == address and (whose == identity or not (identity or (where, whose) in _limits))
        ]
    for throttle in concerned:
        throttle.set_limits(**limits._asdict())
