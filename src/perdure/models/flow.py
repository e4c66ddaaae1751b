"""What may be sent with one key, and when: the sums behind a `Throttle`. Pure: it is told the time, and nobody waits
here. Above: `throttle.py`. Below: nothing.

After a pause one request goes first; each answer that begins lets two more go, until nobody is left to wait.
"""

from typing import NamedTuple

SHORTEST_PAUSE_SECONDS = 1.0
"""The first pause, when a provider does not say how long; it doubles with each refusal that follows."""
LONGEST_PAUSE_SECONDS = 60.0
"""The longest pause, whatever the provider says: then it is asked again."""
PATIENCE_SECONDS = 3.0
"""A request that has not been refused for so long has been accepted, even when its answer takes its time."""
_MOST_DOUBLINGS = 10
_ROUNDING_SECONDS = 1e-6
"""What floating point leaves over."""


class Obstacle(NamedTuple):
    """Why a request has to wait."""

    seconds: float | None
    """For how long; `None` until something happens."""
    reason: str


class Slot:
    """What a request holds while it is under way."""

    __slots__ = ("accepted", "counted", "epoch", "tokens")

    def __init__(self, epoch: int, tokens: int = 0, *, counted: bool = False) -> None:
        self.epoch = epoch
        """After how many pauses it was given."""
        self.tokens = tokens
        """How many tokens were expected."""
        self.counted = counted
        """Whether it has to be given back: not when nothing was limited at that time."""
        self.accepted = False
        """Whether its answer has begun."""


class Bucket:
    """Fills evenly, up to what a minute allows. It may be emptied beyond its bottom; that is filled up first."""

    __slots__ = ("_at", "_level", "most")

    def __init__(self, per_minute: float, now: float) -> None:
        self.most = per_minute
        self._level = per_minute
        self._at = now

    def missing(self, amount: float, now: float) -> float:
        """In how many seconds there is so much; what is more than a minute allows needs a full bucket."""
        self.take(0, now)
        lack = (min(amount, self.most) - self._level) * 60 / self.most
        return lack if lack > _ROUNDING_SECONDS else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take so much out; put it back when it is less than nothing."""
        full = min(self.most, self._level + (now - self._at) * self.most / 60)
        self._level = min(self.most, full - amount)
        self._at = now


class Flow:
    """The limits of one key, and how much of them is used."""

    def __init__(self) -> None:
        self.concurrency: int | None = None
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.epoch = 0
        """How many pauses there were: what was sent before one says nothing about what comes after it."""
        self._busy = 0
        """Slots that are taken."""
        self._paused_until = 0.0
        self._pauses = 0
        """How many there were in a row; 0 when all is well."""
        self._window: int | None = None
        """After a pause: how many requests may be under way whose answers have not begun."""
        self._trying = 0
        """How many of them there are."""
        self._tried_at = 0.0
        """When the last of them was sent."""

    @property
    def unlimited(self) -> bool:
        """Whether nobody has to ask before sending."""
        limits = (self.concurrency, self.requests, self.tokens, self._window)
        return limits == (None, None, None, None)

    @property
    def recovering(self) -> bool:
        """Whether a pause was asked for, and not all that waited for its end has been sent."""
        return self._window is not None

    def obstacle(self, tokens: int, now: float) -> Obstacle | None:
        """What keeps a request of about so many tokens from being sent."""
        if self._paused_until > now:
            return Obstacle(self._paused_until - now, "the provider asked for a pause")
        if self._window is not None and self._trying >= self._window:
            patience = self._tried_at + PATIENCE_SECONDS - now
            if patience > 0:
                return Obstacle(patience, "after a pause, another request is tried first")
            self._window += self._trying
        if self.concurrency is not None and self._busy >= self.concurrency:
            return Obstacle(None, f"{self._busy} requests with the same key are under way, and that is the limit")
        for bucket, amount, what in ((self.requests, 1, "requests"), (self.tokens, tokens, "tokens")):
            if bucket is not None and (seconds := bucket.missing(amount, now)) > 0:
                return Obstacle(seconds, f"the limit of {bucket.most:g} {what} a minute is reached")
        return None

    def taken(self, tokens: int, now: float) -> Slot:
        """A slot, now that nothing keeps it."""
        self._busy += 1
        if self._window is not None:
            self._trying += 1
            self._tried_at = now
        if self.requests is not None:
            self.requests.take(1, now)
        if self.tokens is not None:
            self.tokens.take(tokens, now)
        return Slot(self.epoch, tokens, counted=True)

    def accepted(self, slot: Slot, *, others_wait: bool) -> None:
        """An answer has begun: all is well, and more may be sent."""
        if self._window is None or slot.epoch != self.epoch or not slot.counted:
            return
        self._pauses = 0
        self._trying -= 1
        self._window = self._window + 1 if others_wait else None

    def paused(self, seconds: float | None, now: float, *, stretch: float, is_late: bool = False) -> None:
        """Send nothing more for so long, `stretch` times as long; `None` when nobody said how long.

        What is late belongs to a pause that goes on: it may lengthen that one, and is no other.
        """
        usual: float = SHORTEST_PAUSE_SECONDS * 2 ** min(self._pauses, _MOST_DOUBLINGS)
        wait = min(usual if seconds is None else seconds, LONGEST_PAUSE_SECONDS)
        self._paused_until = max(self._paused_until, now + wait * stretch)
        if is_late and self.recovering:
            return
        self._pauses += 1
        self.epoch += 1
        self._window, self._trying = 1, 0

    def left(self, slot: Slot, tokens: int | None, now: float) -> None:
        """An answer is over, and has used so many tokens, if anybody said. What was refused has used none."""
        slot.counted = False
        self._busy -= 1
        if self._window is not None and slot.epoch == self.epoch and not slot.accepted:
            self._trying -= 1
        if self.tokens is not None:
            likely = slot.tokens if slot.accepted else 0
            self.tokens.take((likely if tokens is None else tokens) - slot.tokens, now)
