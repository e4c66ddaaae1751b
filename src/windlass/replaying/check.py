"""What happens now, held against the record, event by event. Above: `replay.py` and its stand-ins. Below: the record.

The calls of one reply may end in any order, so the events of a call are compared with those of the same call; all
others come in the order in which they were recorded. Names and times of entries are not compared, nor is what the log
keeps for a crash only.
"""

from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from windlass.core.error import StoreError
from windlass.core.event import (
    AutoContinued,
    Compacted,
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
from windlass.core.message import Message
from windlass.core.model import Request
from windlass.transfer import Prefix

from .diff import (
    NOTHING,
    About,
    Divergence,
    about,
    as_json,
    conversation_lines,
    message_lines,
    prefix_lines,
    prefix_of,
    told,
)
from .record import Record, Stretch

COMPARED = (
    AutoContinued,
    Compacted,
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
        self._prefix = ""
        self._suspect: tuple[int, ModelRequested, ModelRequested] | None = None
        """A request that is not as recorded: where that was, what it was, and what it is now."""

    def begin(self, stretch: Stretch) -> None:
        """Follow this stretch from its beginning."""
        self._left = [entry for entry in stretch.entries if _is_compared(entry.event)]
        self._cut = stretch.ended is None
        self.current, self._suspect = None, None
        self.at = stretch.entries[0].at

    @property
    def left(self) -> list[Entry]:
        """What was recorded in this stretch and has not happened yet."""
        return self._left

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
        return self._cut and all(_call_of(entry.event) is not None for entry in self._left)

    def _place_of(self, event: Event) -> int | None:
        """Where in the rest of the record this is expected."""
        call_id = _call_of(event)
        if call_id is None:
            return 0 if self._left else None
        for place, entry in enumerate(self._left):
            recorded = _call_of(entry.event)
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
            if not _same_request(then, now):
                self._suspect = (entry.seq, then, now)  # what is in the request is known when the model is asked
            else:
                self.requests += 1
                self._prefix = now.prefix
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
        self.diverge(seq, *_difference(then, now), told(then, arguments), told(now, arguments))
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

    @property
    def suspicious(self) -> bool:
        """Whether the request that goes out now is known to be another one."""
        return self._suspect is not None

    def see(self, request: Request, transcript: Sequence[Message]) -> None:
        """The request that goes out now, and the conversation that it is made of.

        Raises when it is not the one that was recorded.
        """
        if self._suspect is None:
            self.prefixes[self._prefix] = prefix_of(request)
            return
        seq, then, now = self._suspect
        recorded, sent = self._texts(then, now, request, transcript)
        self.diverge(seq, "request", _request_difference(then, now), recorded, sent)
        raise Stopped(str(self.divergence))

    def _texts(
        self, then: ModelRequested, now: ModelRequested, request: Request, transcript: Sequence[Message]
    ) -> tuple[str, str]:
        """Both requests in words, as far as the recorded one is known."""
        recorded, sent = [f"request of turn {then.turn}"], [f"request of turn {now.turn}"]
        if then.settings != now.settings:
            recorded.append(f"settings: {as_json(then.settings)}")
            sent.append(f"settings: {as_json(now.settings)}")
        if then.prefix != now.prefix:
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
    if isinstance(event, PermissionDecided):
        return not event.allow  # a yes shows itself: the call is made
    return isinstance(event, COMPARED) and not event.path


def _call_of(event: Event) -> str | None:
    """The call that an event is about."""
    return event.call_id if isinstance(event, ToolStarted | ToolFinished | PermissionDecided) else None


def _same_request(then: ModelRequested, now: ModelRequested) -> bool:
    return (then.turn, then.attempt, dict(then.settings), then.prefix, then.messages) == (
        now.turn,
        now.attempt,
        msgspec.to_builtins(dict(now.settings)),
        now.prefix,
        now.messages,
    )


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


def _difference(then: Event | None, now: Event) -> tuple[About, str]:
    """What differs, and the difference in a sentence."""
    if isinstance(then, PermissionDecided):
        return "permission", f"the call of {then.tool!r} is not denied any more"
    if isinstance(now, PermissionDecided):
        return "permission", f"the call of {now.tool!r} is denied now"
    if isinstance(now, ToolStarted | ToolFinished):
        return "call", f"the call of {now.name!r} {_HOW.get((type(then), type(now)), 'was another one')}"
    if isinstance(now, ModelRequested) and (then is None or isinstance(then, RunEnded)):
        return "request", "the model is asked once more than recorded"
    if isinstance(now, RunEnded):
        return "ending", "the run ends otherwise" if isinstance(then, RunEnded) else "the run ends here now"
    if isinstance(then, MessageAdded) and isinstance(now, MessageAdded):
        return about(now), "another message is added to the conversation"
    return about(now), "something else happens"


_HOW: Mapping[tuple[type, type], str] = {
    (ToolStarted, ToolFinished): "is not made any more",
    (ToolFinished, ToolStarted): "is made now",
    (ToolFinished, ToolFinished): "ends otherwise",
}
"""How a call differs, by what was recorded and what happens now."""


def _request_difference(then: ModelRequested, now: ModelRequested) -> str:
    parts = {
        "its turn": then.turn != now.turn or then.attempt != now.attempt,
        "its settings": then.settings != now.settings,
        "the instructions or tools": then.prefix != now.prefix,
        "the messages": then.messages != now.messages,
    }
    return (
        f"the request of turn {then.turn} is another one: {', '.join([name for name, other in parts.items() if other])}"
    )
