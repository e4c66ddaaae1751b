"""State of a `Throttle` (rate limiter): its limits, pauses and token buckets. No I/O: the time is a parameter.

After a pause one request is sent first; each response that starts admits two more, until no request waits.
"""

from typing import NamedTuple

MIN_PAUSE_SECONDS = 1.0
"""First pause if the provider does not give a duration; it doubles with each consecutive refusal."""
MAX_PAUSE_SECONDS = 60.0
"""Maximum pause, whatever duration the provider gives."""
ASSUME_ACCEPTED_SECONDS = 3.0
"""A request that has not been refused for this long counts as accepted, even if its response has not started."""
_MOST_DOUBLINGS = 10
_ROUNDING_SECONDS = 1e-6
"""Tolerance for floating-point rounding."""


class WaitReason(NamedTuple):
    """Reason why the rate limits make a request wait, and for how long."""

    seconds: float | None
    """Seconds to wait; `None` if it depends on another request."""
    reason: str


class RequestSlot:
    """Permission of a `Throttle` to send one request; it is released when the response has ended."""

    __slots__ = ("accepted", "counted", "epoch", "tokens")

    def __init__(self, epoch: int, tokens: int = 0, *, counted: bool = False) -> None:
        self.epoch = epoch
        """Number of pauses before the slot was given out."""
        self.tokens = tokens
        """Estimated number of tokens."""
        self.counted = counted
        """True if it has to be released; False if there was no limit when it was given out."""
        self.accepted = False
        """True once the response has started."""


class TokenBucket:
    """Token bucket of a rate limit: refills evenly, up to one minute's allowance, and may be overdrawn."""

    __slots__ = ("_at", "_level", "most")

    def __init__(self, per_minute: float, now: float) -> None:
        self.most = per_minute
        self._level = per_minute
        self._at = now

    def seconds_until_available(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` is available; an amount above the capacity waits for a full bucket."""
        self.take(0, now)
        lack = (min(amount, self.most) - self._level) * 60 / self.most
        return lack if lack > _ROUNDING_SECONDS else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take `amount` out of the bucket; a negative amount puts it back."""
        full = min(self.most, self._level + (now - self._at) * self.most / 60)
        self._level = min(self.most, full - amount)
        self._at = now


class ThrottleState:
    """Rate limits of one API key, how much of them is in use, and the pause that the provider asked for."""

    def __init__(self) -> None:
        self.concurrency: int | None = None
        self.requests: TokenBucket | None = None
        self.tokens: TokenBucket | None = None
        self.epoch = 0
        """Number of pauses so far. Responses to requests from before a pause are ignored after it."""
        self._busy = 0
        """Slots in use."""
        self._paused_until = 0.0
        self._pauses = 0
        """Number of consecutive pauses; 0 if requests are accepted."""
        self._window: int | None = None
        """After a pause: how many requests may be in flight whose responses have not started."""
        self._trying = 0
        """Number of those requests."""
        self._tried_at = 0.0
        """Time at which the last of them was sent."""

    @property
    def is_unlimited(self) -> bool:
        """True if there is no limit and no recovery from a pause, so that requests need no check."""
        limits = (self.concurrency, self.requests, self.tokens, self._window)
        return limits == (None, None, None, None)

    @property
    def is_recovering(self) -> bool:
        """True after a pause, until all requests that waited for its end have been sent."""
        return self._window is not None

    def find_wait_reason(self, tokens: int, now: float) -> WaitReason | None:
        """Return why a request of about `tokens` tokens cannot be sent now; `None` if it can."""
        if self._paused_until > now:
            return WaitReason(self._paused_until - now, "the provider asked for a pause")
        if self._window is not None and self._trying >= self._window:
            patience = self._tried_at + ASSUME_ACCEPTED_SECONDS - now
            if patience > 0:
                return WaitReason(patience, "after a pause, another request is sent first")
            self._window += self._trying
        if self.concurrency is not None and self._busy >= self.concurrency:
            return WaitReason(None, f"{self._busy} requests with the same key are in flight, which is the limit")
        for bucket, amount, what in ((self.requests, 1, "requests"), (self.tokens, tokens, "tokens")):
            if bucket is not None and (seconds := bucket.seconds_until_available(amount, now)) > 0:
                return WaitReason(seconds, f"the limit of {bucket.most:g} {what} a minute is reached")
        return None

    def find_pause_seconds(self, now: float, *, has_queue: bool) -> float | None:
        """Return the seconds of a pause that keeps further requests waiting; `None` if there is none.

        After its end the pause goes on for those that come while one request is tried, or others wait.
        """
        if self._paused_until > now:
            return self._paused_until - now
        if self._window is not None and (has_queue or self._trying >= self._window):
            return ASSUME_ACCEPTED_SECONDS
        return None

    def take_slot(self, tokens: int, now: float) -> RequestSlot:
        """Take a slot (permission to send one request). Call only if `find_wait_reason` returned `None`."""
        self._busy += 1
        if self._window is not None:
            self._trying += 1
            self._tried_at = now
        if self.requests is not None:
            self.requests.take(1, now)
        if self.tokens is not None:
            self.tokens.take(tokens, now)
        return RequestSlot(self.epoch, tokens, counted=True)

    def record_accepted(self, slot: RequestSlot, *, has_queue: bool) -> None:
        """Record that a response has started, and admit more requests."""
        if self._window is None or slot.epoch != self.epoch or not slot.counted:
            return
        self._pauses = 0
        self._trying -= 1
        self._window = self._window + 1 if has_queue else None

    def start_pause(self, seconds: float | None, now: float, *, jitter_factor: float, is_late: bool = False) -> None:
        """Pause all requests for `seconds` times `jitter_factor`; `None` uses a duration that doubles each time.

        `is_late` marks a refusal of a request sent before the current pause: it may lengthen that pause, but starts no
        new one.
        """
        usual: float = MIN_PAUSE_SECONDS * 2 ** min(self._pauses, _MOST_DOUBLINGS)
        wait = min(usual if seconds is None else seconds, MAX_PAUSE_SECONDS)
        self._paused_until = max(self._paused_until, now + wait * jitter_factor)
        if is_late and self.is_recovering:
            return
        self._pauses += 1
        self.epoch += 1
        self._window, self._trying = 1, 0

    def release_slot(self, slot: RequestSlot, tokens: int | None, now: float) -> None:
        """Give a slot back, and account for the tokens that its request used; a refused request has used none."""
        slot.counted = False
        self._busy -= 1
        if self._window is not None and slot.epoch == self.epoch and not slot.accepted:
            self._trying -= 1
        if self.tokens is not None:
            likely = slot.tokens if slot.accepted else 0
            self.tokens.take((likely if tokens is None else tokens) - slot.tokens, now)
