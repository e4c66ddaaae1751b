"""Detection of prompt cache misses: requests that do not begin like the request before them.

A request is segments in a fixed order: model, instructions, tools, then the messages. A provider reads unchanged
segments from its cache, at a tenth of the price, up to the first one that changed. Text added to one request only
(`PASSING_ORIGINS`) is at its very end, where it costs nothing.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec import Struct

from perdure._core.values.event import ModelRequested
from perdure._core.values.message import PASSING_ORIGINS, Message, Usage

from .protocol import ModelInfo, Request
from .transcript import MessagesSnapshot


class PartHash(Struct, frozen=True):
    """The hash of the instructions or the tools of a model request, as the log stores it."""

    digest: str
    length: int
    """Number of bytes of its JSON."""


def hash_request_part(part: object) -> PartHash:
    """Return the hash of one part of a request to a model, such as its tools."""
    import hashlib  # imported at first use: it loads OpenSSL

    encoded = msgspec.json.encode(part)
    return PartHash(hashlib.sha256(encoded).hexdigest()[:16], len(encoded))


@lru_cache(maxsize=32)
def hash_instructions(instructions: str) -> PartHash:
    """Return the hash of the instructions of a request; recent ones are cached."""
    return hash_request_part(instructions)


class PrefixChange(Struct, frozen=True):
    """A change at the beginning of a request to the model, which made it miss the provider's prompt cache."""

    turn: int
    """Turn of the run whose request it was."""
    segment: str
    """First segment that differs: `model`, `instructions`, `tools`, or `messages[3]`."""
    messages_resent: int
    """Number of messages from there on that had been sent before, and are read at full price again."""


class CacheReport(Struct, frozen=True, kw_only=True):
    """A report on how well a run used the provider's prompt cache."""

    requests: int = 0
    """Number of requests that were compared with the one before them."""
    changes: tuple[PrefixChange, ...] = ()
    """Requests that did not begin with the one before them."""
    input_tokens: int = 0
    """All input tokens."""
    read_tokens: int = 0
    """Input tokens read from the cache."""
    written_tokens: int = 0
    """Input tokens written to the cache."""

    @property
    def first_changed(self) -> str:
        """The first part of a request that changed in this run, such as `tools`; empty if none did."""
        return self.changes[0].segment if self.changes else ""


class PrefixComparer:
    """Compares each request of a session with the one before it, to find misses of the provider's prompt cache."""

    __slots__ = ("_previous_request", "changes", "requests")

    def __init__(self) -> None:
        self._previous_request: tuple[ModelInfo, Request] | None = None
        self.requests = 0
        self.changes: list[PrefixChange] = []

    def begin_run(self) -> None:
        """Reset the counts for a new run. Its first request is still compared with the last one before it."""
        self.requests = 0
        self.changes = []

    def compare_request(self, request: Request, info: ModelInfo, turn: int) -> str:
        """Compare a request with the one before it; return the first part that differs, such as `tools`, or `""`."""
        previous, self._previous_request = self._previous_request, (info, request)
        if previous is None:
            return ""
        self.requests += 1
        known, before = previous
        is_same_model = known is info or (known.name == info.name and known.provider == info.provider)
        segment, resent = find_first_change(before, request) if is_same_model else ("model", len(before.messages))
        if segment:
            self.changes.append(PrefixChange(turn, segment, resent))
        return segment

    def build_report(self, usage: Usage) -> CacheReport:
        """Return the cache report of the run so far."""
        return CacheReport(
            requests=self.requests,
            changes=tuple(self.changes),
            input_tokens=usage.input_tokens,
            read_tokens=usage.cache_read_tokens,
            written_tokens=usage.cache_write_tokens,
        )


def find_first_change(before: Request, after: Request) -> tuple[str, int]:
    """Return the first part in which two requests differ, and the number of messages that miss the prompt cache.

    The part is `instructions`, `tools` or a message such as `messages[3]`; empty if the second request begins like the
    first.
    """
    sent, sent_now = before.messages, after.messages
    is_grown = (
        isinstance(sent, MessagesSnapshot) and isinstance(sent_now, MessagesSnapshot) and sent_now.is_extension_of(sent)
    )
    if is_grown and before.tools is after.tools and before.instructions == after.instructions:
        return "", 0  # nearly always: the same transcript, grown
    kept = count_cacheable_messages(before.messages)
    if before.instructions != after.instructions:
        return "instructions", kept
    if before.tools is not after.tools and list(before.tools) != list(after.tools):
        return "tools", kept
    shared = kept if is_grown else _count_shared_messages(before.messages, after.messages, kept)
    return ("", 0) if shared == kept else (f"messages[{shared}]", kept - shared)


def count_cacheable_messages(messages: Sequence[Message]) -> int:
    """Count the messages of a request that the next request will repeat: all but the reminders at its end."""
    count = len(messages)
    while count and messages[count - 1].origin in PASSING_ORIGINS:
        count -= 1
    return count


def _count_shared_messages(before: Sequence[Message], after: Sequence[Message], kept: int) -> int:
    """Return how many messages at the beginning of two requests are the same, at most `kept`."""
    shared = 0
    for one, other in zip(before, after, strict=False):
        if shared == kept or (one is not other and one != other):
            break
        shared += 1
    return shared


def describe_prefix_change(before: ModelRequested, now: ModelRequested, segment: str) -> str:
    """Return the cause of a prompt cache miss: `model`, `instructions`, `tools` or `messages`; empty if none.

    `segment` is the first part that differs from the request before.
    """
    if before.model != now.model or before.provider != now.provider:
        return "model"
    if before.prefix != now.prefix:
        return "tools" if before.prefix.partition("-")[0] == now.prefix.partition("-")[0] else "instructions"
    return "messages" if segment.startswith("messages") else ""
