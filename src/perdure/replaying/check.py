"""What happens now, held against the record, event by event. Above: `drive.py` and the stand-ins. Below: the record.

The calls of one reply may end in any order, so the events of a call are compared with those of the same call; all
others come in the order in which they were recorded. Names and times of entries are not compared, nor is what the log
keeps for a crash only, nor what calls have stored beside their results, nor the runs of other agents below this one.

That the model is sent something else than before (`ViewChanged`) is compared where it makes the conversation shorter:
by a summary, or by the short form of older results. Where it only tells that instructions, tools, model or messages
have changed, it follows from the requests, and these are compared themselves.
"""

from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from perdure.core.error import StoreError
from perdure.core.event import (
    AutoContinued,
    Compacted,
    CompactionStarted,
    Entry,
    Event,
    GuardrailTripped,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    ReplyDiscarded,
    RunEnded,
    ToolFinished,
    ToolsChanged,
    ToolStarted,
)
from perdure.core.message import Message
from perdure.core.model import Request
from perdure.transfer import Prefix

from .diff import (
    NOTHING,
    About,
    Divergence,
    about,
    as_json,
    conversation_lines,
    difference,
    message_lines,
    prefix_lines,
    prefix_of,
    told,
)
from .prefix import same_prefix, what_differs
from .record import Record
from .stretch import Stretch, is_compaction, is_shortening

COMPARED = (
    AutoContinued,
    Compacted,
    CompactionStarted,
    GuardrailTripped,
    MessageAdded,
    ModelRequested,
    ReplyDiscarded,
    RunEnded,
    ToolFinished,
    ToolStarted,
    ToolsChanged,
)


class Stopped(StoreError):
    """The replay goes no further: it has left the record, or the record breaks off here."""


class Check:
    """Follows a replay along the record, and stops it at the first difference."""

    def __init__(self, record: Record, prefixes: Mapping[str, Prefix]) -> None:
        self.record = record
        self.divergence: Divergence | None = None
        self.requests = 0
        """How many requests were as recorded."""
        self.prefixes: dict[str, Prefix] = {}
        """What the hashes of these requests stand for."""
        self.asked: set[str] = set()
        """The calls that somebody would have been asked about now."""
        self.at = 0.0
        """When what happens now was recorded."""
        self.current: int | None = None
        """The entry of the request that is to be answered now."""
        self._known = prefixes
        self._left: list[Entry] = []
        self._cut = False
        self._request: tuple[int, ModelRequested, ModelRequested] | None = None
        """A request that is about to be seen: where it was recorded, what it was, and what it is now."""

    def begin(self, stretch: Stretch) -> None:
        """Follow this stretch from its beginning."""
        self._left = [entry for entry in stretch.entries if _is_compared(entry.event)]
        self._cut = stretch.ended is None
        self.current, self._request = None, None
        self.at = stretch.entries[0].at

    @property
    def left(self) -> list[Entry]:
        """What was recorded in this stretch and has not happened yet."""
        return self._left

    @property
    def upcoming(self) -> Event | None:
        """What was recorded next."""
        return self._left[0].event if self._left else None

    def meet(self, event: Event) -> None:
        """This happens now. Raises `Stopped` when something else was recorded, or nothing any more."""
        if self.divergence is not None:
            raise Stopped(str(self.divergence))
        if not _is_compared(event):
            return
        place = self._place_of(event)
        if place is None and self._breaks_off():
            raise Stopped(f"the record breaks off after entry {self.record.last}")
        if place is None or not self._agrees(self._left[place], event):
            self._differ(None if place is None else self._left[place], event)
        self.at = self._left.pop(place).at

    def _breaks_off(self) -> bool:
        """Whether nothing is left of a stretch that was cut off, but what other calls did."""
        return self._cut and all(call_of(entry.event) is not None for entry in self._left)

    def _place_of(self, event: Event) -> int | None:
        """Where in the rest of the record this is expected."""
        call_id = call_of(event)
        if call_id is None:
            others = (place for place, entry in enumerate(self._left) if call_of(entry.event) is None)
            return next(others, None) if _shortens(event) else (0 if self._left else None)  # by a call, or in order
        for place, entry in enumerate(self._left):
            recorded = call_of(entry.event)
            if recorded is None:
                return None
            if recorded == call_id:
                return place
        return None

    def _agrees(self, entry: Entry, now: Event) -> bool:
        then = entry.event
        if type(then) is not type(now):
            return False
        if isinstance(then, ModelRequested) and isinstance(now, ModelRequested):
            self.current = entry.seq
            self._request = (entry.seq, then, now)  # what is in it is known when the model is asked
            return True
        if isinstance(now, ToolStarted) and now.call_id in self.record.asked and now.call_id not in self.asked:
            self._unasked(entry, now)
        return _essence(then) == _essence(now)

    # -- differences ---------------------------------------------------------------------------------------------------

    def diverge(self, seq: int, about: About, what: str, recorded: str, now: str) -> None:
        """Note a difference, if it is the first; nothing more can be stored from here on."""
        if self.divergence is None:
            self.divergence = Divergence(seq, about, what, recorded, now)

    def _differ(self, expected: Entry | None, now: Event) -> NoReturn:
        expected = expected or (self._left[0] if self._left else None)
        arguments = self.record.arguments
        seq = expected.seq if expected else self.record.last + 1
        then = expected.event if expected else None
        self.diverge(seq, *difference(then, now), told(then, arguments), told(now, arguments))
        raise Stopped(str(self.divergence))

    def _unasked(self, entry: Entry, now: ToolStarted) -> NoReturn:
        what = f"the call of {now.name!r} is made without asking anybody"
        call = told(now, self.record.arguments)
        self.diverge(entry.seq, "permission", what, f"somebody is asked\n{call}", call)
        raise Stopped(str(self.divergence))

    def finish(self) -> None:
        """Nothing more happens in this stretch."""
        if self._left and not self._cut and self.divergence is None:
            entry = self._left[0]
            then = told(entry.event, self.record.arguments)
            self.diverge(entry.seq, about(entry.event), "nothing more happens here", then, NOTHING)

    def see(self, request: Request, transcript: Sequence[Message]) -> None:
        """The request that goes out now, and the conversation that it is made of.

        Raises when it is not the one that was recorded.
        """
        if self._request is None:
            return
        (seq, then, now), self._request = self._request, None
        parts = _other_parts(then, now, request)
        if not parts:
            self.requests += 1
            self.prefixes[then.prefix] = prefix_of(request)
            return
        recorded, sent = self._texts(then, now, request, transcript)
        self.diverge(
            seq, "request", f"the request of turn {then.turn} is another one: {', '.join(parts)}", recorded, sent
        )
        raise Stopped(str(self.divergence))

    def _texts(
        self, then: ModelRequested, now: ModelRequested, request: Request, transcript: Sequence[Message]
    ) -> tuple[str, str]:
        """Both requests in words, as far as the recorded one is known."""
        recorded, sent = [f"request of turn {then.turn}"], [f"request of turn {now.turn}"]
        if not _same_settings(then, now):
            recorded.append(f"settings: {as_json(then.settings)}")
            sent.append(f"settings: {as_json(now.settings)}")
        if not same_prefix(then, now, request):
            known = self._known.get(then.prefix)
            recorded += prefix_lines(known) if known else [_hash_line(then)]
            sent += prefix_lines(prefix_of(request)) if known else [_hash_line(now), *self._gone(request)]
        if then.messages != now.messages:
            recorded.append(f"messages: {then.messages}")
            sent.append(f"messages: {now.messages}")
            if len(transcript) == then.messages:  # nothing was left out then, so we know what was sent
                recorded += conversation_lines(transcript)
                sent += conversation_lines(request.messages)
        return "\n".join(recorded), "\n".join(sent)

    def _gone(self, request: Request) -> list[str]:
        """The tools that were called then and are not there now."""
        offered = {tool.name for tool in request.tools}
        return [f"tool {name} is not offered" for name in sorted(self.record.called - offered)]


def _hash_line(event: ModelRequested) -> str:
    return f"instructions and tools: {event.prefix} (a hash is all that the log keeps of them)"


def _is_compared(event: Event) -> bool:
    if event.path:
        return False
    if isinstance(event, PermissionDecided):
        return not event.allow  # a yes shows itself: the call is made
    return isinstance(event, COMPARED) or _shortens(event)


def _shortens(event: Event) -> bool:
    """Whether it makes what the model is sent shorter, or was to."""
    return is_compaction(event) or is_shortening(event)


def call_of(event: Event) -> str | None:
    """The call that an event is about."""
    return event.call_id if isinstance(event, ToolStarted | ToolFinished | PermissionDecided) else None


def _same_settings(then: ModelRequested, now: ModelRequested) -> bool:
    return bool(dict(then.settings) == msgspec.to_builtins(dict(now.settings)))


def _other_parts(then: ModelRequested, now: ModelRequested, request: Request) -> list[str]:
    """In what a request differs from the recorded one."""
    parts = {
        "its turn": (then.turn, then.attempt) != (now.turn, now.attempt),
        "its settings": not _same_settings(then, now),
        what_differs(then, now): not same_prefix(then, now, request),
        "the messages": then.messages != now.messages,
    }
    return [name for name, is_other in parts.items() if is_other]


def _essence(event: Event) -> object:
    """What of an event is compared."""
    match event:
        case MessageAdded(message=message):
            return list(message_lines(message))
        case ToolStarted():
            return (event.name, event.attempt)
        case ToolFinished(result=result):
            return result
        case PermissionDecided():
            return (event.tool, event.action, event.target, event.allow)
        case RunEnded():
            return (event.status, event.reason)
        case ReplyDiscarded():
            return event.reason
        case _:
            return msgspec.structs.replace(event, run_id="", path="")
