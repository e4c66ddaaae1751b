"""Whether each request begins with the one before it, which is what providers' prompt caches live from.

Above: `run.py`, which looks at every request before it is sent. Below: `model.py`.

A request is segments in a fixed order: model, instructions, tools, then the messages. A provider reads again, at a
tenth of the price, whatever has not changed from the beginning on; the first segment that has changed ends that. Words
that are added to one request alone (`PASSING`) stand at its very end, where they cost nothing.
"""

from collections.abc import Sequence

from msgspec import Struct

from .event import ModelRequested
from .message import PASSING, Message, Usage
from .model import ModelInfo, Request
from .view import View


class PrefixChange(Struct, frozen=True):
    """A request did not begin with the one before it."""

    turn: int
    """The turn of the run whose request it was."""
    segment: str
    """The first segment that differs: `model`, `instructions`, `tools`, or `messages[3]`."""
    messages_resent: int
    """How many messages from there on had been sent before, and are read at full price again."""


class CacheReport(Struct, frozen=True, kw_only=True):
    """How a run used the provider's prompt cache."""

    requests: int = 0
    """How many requests were compared with the one before them."""
    changes: tuple[PrefixChange, ...] = ()
    """Where a request did not begin with the one before it."""
    input_tokens: int = 0
    """Everything that was read."""
    read_tokens: int = 0
    """Of that: from the cache."""
    written_tokens: int = 0
    """Of that: put into the cache."""

    @property
    def first_changed(self) -> str:
        """The first segment that changed in this run; empty when every request began with the one before it."""
        return self.changes[0].segment if self.changes else ""


class PrefixWatch:
    """Looks at the requests of a session, one after the other."""

    __slots__ = ("_before", "changes", "requests")

    def __init__(self) -> None:
        self._before: tuple[str, Request] | None = None
        self.requests = 0
        self.changes: list[PrefixChange] = []

    def begin(self) -> None:
        """A run begins: its report is its own, but its first request is compared with the last one before it."""
        self.requests = 0
        self.changes = []

    def look(self, request: Request, info: ModelInfo, turn: int) -> str:
        """Compare a request with the one before it; returns the first segment that differs, or nothing."""
        model, segment = f"{info.provider}:{info.name}", ""
        if self._before is not None:
            self.requests += 1
            known, before = self._before
            segment, resent = ("model", len(before.messages)) if known != model else first_change(before, request)
            if segment:
                self.changes.append(PrefixChange(turn, segment, resent))
        self._before = (model, request)
        return segment

    def report(self, usage: Usage) -> CacheReport:
        """How it stands now."""
        return CacheReport(
            requests=self.requests,
            changes=tuple(self.changes),
            input_tokens=usage.input_tokens,
            read_tokens=usage.cache_read_tokens,
            written_tokens=usage.cache_write_tokens,
        )


def first_change(before: Request, after: Request) -> tuple[str, int]:
    """The first segment in which a request differs from the one before it, and how many messages are sent again."""
    kept = kept_messages(before.messages)
    if before.instructions != after.instructions:
        return "instructions", kept
    if before.tools is not after.tools and list(before.tools) != list(after.tools):
        return "tools", kept
    shared = _shared(before.messages, after.messages, kept)
    return ("", 0) if shared == kept else (f"messages[{shared}]", kept - shared)


def kept_messages(messages: Sequence[Message]) -> int:
    """How many messages were meant to stay."""
    count = len(messages)
    while count and messages[count - 1].origin in PASSING:
        count -= 1
    return count


def _shared(before: Sequence[Message], after: Sequence[Message], kept: int) -> int:
    """How many of the messages that were meant to stay have stayed."""
    if isinstance(before, View) and isinstance(after, View) and after.continues(before):
        return kept  # the same transcript, grown
    shared = 0
    for one, other in zip(before, after, strict=False):
        if shared == kept or (one is not other and one != other):
            break
        shared += 1
    return shared


def changed(before: ModelRequested, now: ModelRequested, segment: str) -> str:
    """Why a request does not begin with the one before it; empty when it does. `segment` is what was seen to differ."""
    if before.model != now.model or before.provider != now.provider:
        return "model"
    if before.prefix != now.prefix:
        return "tools" if before.prefix.partition("-")[0] == now.prefix.partition("-")[0] else "instructions"
    return "messages" if segment.startswith("messages") else ""
