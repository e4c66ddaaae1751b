"""Compare a replay with the recorded log, event by event, and stop it at the first difference.

The calls of one reply may end in any order, so the events of a call are compared with those of the same call; all
others are compared in recorded order. Not compared: ids and times of entries, entries kept only for crash recovery,
what calls stored besides their results, and the runs of subagents.

A `ViewChanged` is compared where it shortens what the model is sent: by a summary, or by the short form of older
results. Where it only reports changed instructions, tools, model or messages, the requests are compared instead.
"""

from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from perdure._core.model.protocol import Request
from perdure._core.values.error import StoreError
from perdure._core.values.event import Entry, MessageAdded, ModelRequested, PermissionDecided, ToolStarted, ViewChanged
from perdure._core.values.event_class import Event
from perdure._core.values.message import Message
from perdure._runtime.transfer import PromptPrefix

from .differences import (
    NOTHING,
    DifferenceKind,
    Divergence,
    describe_difference,
    describe_event,
    format_conversation_lines,
    format_instructions_and_tools,
    format_message_lines,
    get_difference_kind,
    get_prompt_prefix,
    to_sorted_json,
)
from .log import RecordedLog, RunSegment, is_compaction, is_result_shortening


class ReplayStopped(StoreError):
    """Raised to end a replay, at the first difference from the recorded log or at the end of that log."""


class LogComparer:
    """Comparer of a replay's events with the recorded log, which stops the replay at the first difference."""

    def __init__(self, record: RecordedLog, prefixes: Mapping[str, PromptPrefix]) -> None:
        self.record = record
        self.divergence: Divergence | None = None
        self.requests = 0
        """Number of model requests that were as recorded."""
        self.prefixes: dict[str, PromptPrefix] = {}
        """Instructions and tools of these requests, by hash."""
        self.approval_calls: set[str] = set()
        """Ids of the calls that need approval now."""
        self.at = 0.0
        """Recorded time of the current event."""
        self.current: int | None = None
        """Entry number of the request to be answered next."""
        self._known = prefixes
        self._left: list[Entry] = []
        self._cut = False
        self._request: tuple[int, ModelRequested, ModelRequested] | None = None
        """Pending request: its entry number, the recorded event, and the current one."""

    def begin(self, segment: RunSegment) -> None:
        """Start comparing with the next segment (a recorded run, or a part of one between interruptions)."""
        self._left = [entry for entry in segment.entries if _is_compared(entry.event)]
        self._cut = segment.ended is None
        self.current, self._request = None, None
        self.at = segment.entries[0].at

    @property
    def remaining(self) -> list[Entry]:
        """Recorded entries of the current segment that the replay has not reached yet."""
        return self._left

    @property
    def next_event(self) -> Event | None:
        """Next recorded event to be compared; `None` at the end of the segment."""
        return self._left[0].event if self._left else None

    def compare_event(self, event: Event) -> None:
        """Compare an event of the replay with the log. Raises `ReplayStopped` if the log has another one, or none."""
        if self.divergence is not None:
            raise ReplayStopped(str(self.divergence))
        if not _is_compared(event):
            return
        place = self._find_expected(event)
        if place is None and self._is_cut_off():
            raise ReplayStopped(f"the record breaks off after entry {self.record.last}")
        if place is None or not self._is_equal(self._left[place], event):
            self._raise_difference(None if place is None else self._left[place], event)
        self.at = self._left.pop(place).at

    def _is_cut_off(self) -> bool:
        """Return True if the segment was cut off, and only recorded events of other tool calls are left."""
        return self._cut and all(get_call_id(entry.event) is not None for entry in self._left)

    def _find_expected(self, event: Event) -> int | None:
        """Return the index of the recorded entry to compare with; `None` if there is none."""
        call_id = get_call_id(event)
        if call_id is None:
            others = (place for place, entry in enumerate(self._left) if get_call_id(entry.event) is None)
            return (
                next(others, None) if _is_shortening(event) else (0 if self._left else None)
            )  # by a call, or in order
        for place, entry in enumerate(self._left):
            recorded = get_call_id(entry.event)
            if recorded is None:
                return None
            if recorded == call_id:
                return place
        return None

    def _is_equal(self, entry: Entry, now: Event) -> bool:
        then = entry.event
        if type(then) is not type(now):
            return False
        if isinstance(then, ModelRequested) and isinstance(now, ModelRequested):
            self.current = entry.seq
            self._request = (entry.seq, then, now)  # what is in it is known when the model is asked
            return True
        if isinstance(now, ToolStarted) and now.call_id in self.record.asked and now.call_id not in self.approval_calls:
            self._raise_unasked(entry, now)
        return _compared_part(then) == _compared_part(now)

    # -- differences ---------------------------------------------------------------------------------------------------

    def record_divergence(self, seq: int, about: DifferenceKind, what: str, recorded: str, now: str) -> None:
        """Record where and how the replay differs from the log. Only the first difference is kept."""
        if self.divergence is None:
            self.divergence = Divergence(seq, about, what, recorded, now)

    def _raise_difference(self, expected: Entry | None, now: Event) -> NoReturn:
        expected = expected or (self._left[0] if self._left else None)
        arguments = self.record.arguments
        seq = expected.seq if expected else self.record.last + 1
        then = expected.event if expected else None
        self.record_divergence(
            seq, *describe_difference(then, now), describe_event(then, arguments), describe_event(now, arguments)
        )
        raise ReplayStopped(str(self.divergence))

    def _raise_unasked(self, entry: Entry, now: ToolStarted) -> NoReturn:
        what = f"the call of {now.name!r} is made without approval"
        call = describe_event(now, self.record.arguments)
        self.record_divergence(entry.seq, "permission", what, f"approval is requested\n{call}", call)
        raise ReplayStopped(str(self.divergence))

    def finish(self) -> None:
        """Record a difference if the replayed run has ended and recorded events of its segment are left."""
        if self._left and not self._cut and self.divergence is None:
            entry = self._left[0]
            then = describe_event(entry.event, self.record.arguments)
            self.record_divergence(
                entry.seq, get_difference_kind(entry.event), "nothing more happens here", then, NOTHING
            )

    def compare_request(self, request: Request, transcript: Sequence[Message]) -> None:
        """Compare a model request of the replay with the recorded one. Raises `ReplayStopped` if they differ."""
        if self._request is None:
            return
        (seq, then, now), self._request = self._request, None
        parts = _differing_parts(then, now)
        if not parts:
            self.requests += 1
            self.prefixes[then.prefix] = get_prompt_prefix(request)
            return
        recorded, sent = self._describe_requests(then, now, request, transcript)
        self.record_divergence(
            seq, "request", f"the request of turn {then.turn} is another one: {', '.join(parts)}", recorded, sent
        )
        raise ReplayStopped(str(self.divergence))

    def _describe_requests(
        self, then: ModelRequested, now: ModelRequested, request: Request, transcript: Sequence[Message]
    ) -> tuple[str, str]:
        """Return both requests as text, as far as the recorded one is known."""
        recorded, sent = [f"request of turn {then.turn}"], [f"request of turn {now.turn}"]
        if not _same_settings(then, now):
            recorded.append(f"settings: {to_sorted_json(then.settings)}")
            sent.append(f"settings: {to_sorted_json(now.settings)}")
        if then.prefix != now.prefix:
            known = self._known.get(then.prefix)
            recorded += format_instructions_and_tools(known) if known else [_hash_line(then)]
            sent += (
                format_instructions_and_tools(get_prompt_prefix(request))
                if known
                else [_hash_line(now), *self._missing_tools(request)]
            )
        if then.messages != now.messages:
            recorded.append(f"messages: {then.messages}")
            sent.append(f"messages: {now.messages}")
            if len(transcript) == then.messages:  # nothing was left out then, so we know what was sent
                recorded += format_conversation_lines(transcript)
                sent += format_conversation_lines(request.messages)
        return "\n".join(recorded), "\n".join(sent)

    def _missing_tools(self, request: Request) -> list[str]:
        """List the tools that were called in the log and are not offered now."""
        offered = {tool.name for tool in request.tools}
        return [f"tool {name} is not offered" for name in sorted(self.record.called - offered)]


def _hash_line(event: ModelRequested) -> str:
    return f"instructions and tools: {event.prefix} (a hash is all that the log keeps of them)"


def _is_compared(event: Event) -> bool:
    if event.path or event.replay != "compared":
        return False
    if isinstance(event, PermissionDecided):
        return not event.allow  # a yes shows itself: the call is made
    return _is_shortening(event) if isinstance(event, ViewChanged) else True


def _is_shortening(event: Event) -> bool:
    """Return True if the event shortens what the model is sent, or was meant to."""
    return is_compaction(event) or is_result_shortening(event)


def get_call_id(event: Event) -> str | None:
    """Return the id of the tool call that an event is about; `None` if it is about none."""
    call_id: str | None = getattr(event, "call_id", None) if event.replay == "compared" else None
    return call_id


def _same_settings(then: ModelRequested, now: ModelRequested) -> bool:
    return bool(dict(then.settings) == msgspec.to_builtins(dict(now.settings)))


def _differing_parts(then: ModelRequested, now: ModelRequested) -> list[str]:
    """List the parts in which a request differs from the recorded one."""
    parts = {
        "its turn": (then.turn, then.attempt) != (now.turn, now.attempt),
        "it is beside the conversation" if now.aside else "it is part of the conversation": then.aside != now.aside,
        "its settings": not _same_settings(then, now),
        _describe_prefix_difference(then.prefix, now.prefix): then.prefix != now.prefix,
        "the messages": then.messages != now.messages,
    }
    return [name for name, is_other in parts.items() if is_other]


def _describe_prefix_difference(then: str, now: str) -> str:
    """Return what two hashes of instructions and tools differ in, as text: the instructions, the tools, or both."""
    names = zip(("the instructions", "the tools"), then.split("-"), now.split("-"), strict=False)
    return ", ".join([name for name, one, other in names if one != other])


def _compared_part(event: Event) -> object:
    """Return the fields of an event that a replay compares."""
    if isinstance(event, MessageAdded):
        return list(format_message_lines(event.message))
    if event.compared_fields:
        return [getattr(event, name) for name in event.compared_fields]
    return msgspec.structs.replace(event, run_id="", path="")
