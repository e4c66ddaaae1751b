"""Build a reply from the parts of a Gemini response: text, streamed calls and cited sources. No I/O."""

import binascii
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias, cast

import msgspec

from perdure._core.values.event import CitationAdded, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Audio, Citation, Image, Message, Part, Text, Thinking, ToolCall
from perdure._models.endpoint.profile import Profile
from perdure._models.wires.lenient_json import as_count, as_dict, as_dicts, as_list, as_text

from .chunks import ABSENT, GeminiBlob

_KINDS = ("web", "retrievedContext", "maps", "image")
"""Kinds of sources; each chunk has one."""


def list_citations(grounding: Mapping[str, Any], recitations: Mapping[str, Any], text: str) -> list[Citation]:
    """Return the citations of a reply with this text, from its grounding and citation metadata."""
    return [*_list_grounded(grounding, text), *_list_recited(recitations, text)]


def _list_grounded(grounding: Mapping[str, Any], text: str) -> Iterator[Citation]:
    """Yield a citation for each source of each supported passage, then one for each source without a passage."""
    chunks = as_dicts(grounding.get("groundingChunks"))
    used: set[int] = set()
    for support in as_dicts(grounding.get("groundingSupports")):
        span = _locate_passage(as_dict(support.get("segment")), text)
        for place in as_list(support.get("groundingChunkIndices")):
            if type(place) is int and 0 <= place < len(chunks):
                used.add(place)
                yield _build_citation(chunks[place], span)
    for place, chunk in enumerate(chunks):
        if place not in used:
            yield _build_citation(chunk, None)


def _list_recited(recitations: Mapping[str, Any], text: str) -> Iterator[Citation]:
    """Yield a citation for each passage that the model has recited from a source."""
    listed = as_dicts(recitations.get("citationSources")) or as_dicts(recitations.get("citations"))
    for each in listed:
        start, end = _locate_passage(each, text) or (None, None)
        title = as_text(each.get("title"))
        yield Citation(as_text(each.get("uri")) or title, title, "", start, end, each)


def _build_citation(chunk: dict[str, Any], span: tuple[int, int] | None) -> Citation:
    told = next((found for kind in _KINDS if (found := as_dict(chunk.get(kind)))), chunk)
    title = as_text(told.get("title"))
    source = as_text(told.get("uri")) or as_text(told.get("sourceUri")) or title
    start, end = span or (None, None)
    return Citation(source, title, as_text(told.get("text")), start, end, chunk)


def _locate_passage(segment: Mapping[str, Any], text: str) -> tuple[int, int] | None:
    """Return the start and end of a passage in characters of the reply's text; None if it is not in there."""
    data = text.encode("utf-8", "surrogatepass")
    first, last = as_count(segment.get("startIndex")), as_count(segment.get("endIndex"))
    start = len(data[:first].decode("utf-8", "ignore"))
    end = start + len(data[first:last].decode("utf-8", "ignore"))
    passage = as_text(segment.get("text"))
    if passage and text[start:end] != passage:
        start = text.find(passage)
        end = start + len(passage)
    return (start, end) if 0 <= start < end <= len(text) else None


_STEP = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")


class PartialCallBuilder:
    """Builder of a Gemini function call whose arguments are streamed in pieces."""

    __slots__ = ("_arguments", "_unfinished", "call_id", "name", "signature")

    def __init__(self, name: str, call_id: str, signature: str, arguments: str = "{}") -> None:
        self.name = name
        self.call_id = call_id
        self.signature = signature
        known: Any = msgspec.json.decode(arguments)
        self._arguments: dict[str, Any] = known if isinstance(known, dict) else {}
        self._unfinished = ""
        """Path of a string that will be continued."""

    @property
    def arguments(self) -> str:
        """The arguments received so far, as JSON."""
        return msgspec.json.encode(self._arguments).decode()

    def add_piece(self, piece: Mapping[str, Any]) -> None:
        """Add a streamed value, or the next piece of a string, at its JSON path."""
        path = piece.get("jsonPath")
        kind = next((kind for kind in _VALUES if kind in piece), None)
        if not isinstance(path, str) or kind is None:
            return
        value = None if kind == "nullValue" else piece[kind]
        _put_value(self._arguments, path, value, goes_on=isinstance(value, str) and self._unfinished == path)
        self._unfinished = path if piece.get("willContinue") else ""


def _put_value(root: dict[str, Any], path: str, value: Any, *, goes_on: bool) -> None:
    steps = _parse_path(path)
    place: Any = root
    for step, following in pairwise(steps):
        place = _enter_container(place, step, [] if isinstance(following, int) else {})
    last: str | int = steps[-1] if steps else path
    if not _is_valid_step(place, last):
        place, last = root, path
    before = _get_value(place, last)
    _set_value(place, last, before + value if goes_on and isinstance(before, str) else value)


def _parse_path(path: str) -> list[str | int]:
    """Parse a JSON path into its steps: `$.a['b c'][0]` becomes `a`, `b c`, 0. Empty if it is not understood."""
    steps: list[str | int] = []
    place = 1
    while path[:1] == "$" and place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return []
        place = found.end()
        index = found[2]
        quoted = found[3] if found[3] is not None else found[4]
        steps.append(int(index) if index else found[1] or re.sub(r"\\(.)", r"\1", quoted))
    return steps


def _is_valid_step(place: Any, step: str | int) -> bool:
    return isinstance(place, list) if isinstance(step, int) else isinstance(place, dict)


def _enter_container(place: Any, step: str | int, empty: Any) -> Any:
    """Return the object or list at this step, created if it is missing; None if another value is there."""
    if not _is_valid_step(place, step):
        return None
    found = _get_value(place, step)
    if found is None:
        _set_value(place, step, empty)
        return empty
    return found


def _get_value(place: Any, step: str | int) -> Any:
    if isinstance(step, int):
        items = cast("list[Any]", place)
        return items[step] if step < len(items) else None
    return place.get(step)


def _set_value(place: Any, step: str | int, value: Any) -> None:
    """Set a value. List elements arrive in order: an index beyond the end appends, however large it is."""
    if isinstance(step, int) and step >= len(place):
        place.append(value)
    else:
        place[step] = value


_TextPieces: TypeAlias = list[str]
"""Pieces of a text without a signature, which may be continued."""


class GeminiReplyBuilder:
    """Builder of one reply of a Gemini model: it collects the message, and appends delta events to `events`."""

    __slots__ = ("_calls", "_citations", "_open", "_parts", "_profile", "_thoughts", "_whole")

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._parts: list[Part | _TextPieces | tuple[_TextPieces, int]] = []
        """Finished parts; pieces of a text; pieces of a thought with its number."""
        self._open: _TextPieces | None = None
        """Pieces of the last part, if it may be continued."""
        self._thoughts = 0
        self._calls = 0
        self._whole = False
        """True if the deltas do not carry everything."""
        self._citations: list[Citation] = []

    @property
    def has_calls(self) -> bool:
        """True if the reply has tool calls."""
        return self._calls > 0

    @property
    def has_parts(self) -> bool:
        """True if the reply has any part."""
        return bool(self._parts)

    @property
    def text(self) -> str:
        """Text of the reply so far."""
        texts = [part for part in map(self._build_part, self._parts) if isinstance(part, Text)]
        return "".join([part.text for part in texts])

    def add_citations(self, citations: list[Citation], events: list[ModelEvent]) -> None:
        """Add the citations of the whole text, and emit them."""
        self._citations = citations
        events.extend(map(CitationAdded, citations))

    def add_text(self, text: str, signature: str, events: list[ModelEvent]) -> None:
        """Add a piece of the answer's text, and emit its delta."""
        if signature:
            self._append_part(Text(text, signature))
            self._whole = True
        elif text:
            parts = self._parts
            if self._open is None or type(parts[-1]) is not list:
                parts.append(words := [text])
                self._open = words
            else:
                self._open.append(text)
        if text:
            events.append(TextDelta(text=text))

    def add_thought(self, text: str, signature: str, events: list[ModelEvent]) -> None:
        """Add a piece of readable thinking, and emit its delta."""
        if not text and not signature:
            return
        last = self._parts[-1] if self._open is not None else None
        if signature or type(last) is not tuple:
            self._thoughts += 1
        if signature:
            self._append_part(self._build_thinking(text, signature))
        elif type(last) is tuple:
            last[0].append(text)
        else:
            words = [text]
            self._parts.append((words, self._thoughts))
            self._open = words
        events.append(ThinkingDelta(text=text, signature=signature, index=self._thoughts))

    def add_call(self, name: str, call_id: str, arguments: str, signature: str, events: list[ModelEvent]) -> None:
        """Add a complete tool call, and emit its delta."""
        call = ToolCall(replace_surrogates(call_id), replace_surrogates(name), replace_surrogates(arguments), signature)
        self._append_part(call)
        events.append(
            ToolCallDelta(
                call_id=call.call_id, name=call.name, arguments=call.arguments, signature=signature, index=self._calls
            )
        )
        self._calls += 1

    def add_media(self, blob: GeminiBlob, signature: str, events: list[ModelEvent]) -> None:
        """Add media made by the model. Their signature is stored in a separate part."""
        try:
            data = binascii.a2b_base64(blob.data.replace("-", "+").replace("_", "/"))
        except ValueError:
            data = b""
        kind = Audio if blob.mime_type.startswith("audio/") else Image
        self._append_part(kind(data, media_type=blob.mime_type))
        self._whole = True
        if signature:
            self.add_opaque_part({"of": "the part before"}, signature, events)

    def add_opaque_part(self, details: dict[str, Any], signature: str, events: list[ModelEvent]) -> None:
        """Add a part of an unknown type, which is only stored so that it can be sent back to its author."""
        self._thoughts += 1
        part = self._build_thinking("", signature, details)
        self._append_part(part)
        events.append(ThinkingDelta(signature=signature, details=details, index=self._thoughts, is_item=part.is_item))

    def build_message(self) -> Message | None:
        """Return the whole message; None if the emitted deltas already contain all of the reply."""
        if not self._whole:
            return None
        return Message("assistant", (*map(self._build_part, self._parts), *self._citations))

    def _append_part(self, part: Part) -> None:
        self._parts.append(part)
        self._open = None

    def _build_part(self, part: Part | _TextPieces | tuple[_TextPieces, int]) -> Part:
        if isinstance(part, list):
            return Text("".join(part))
        return self._build_thinking("".join(part[0]), "") if isinstance(part, tuple) else part

    def _build_thinking(self, text: str, signature: str, details: dict[str, Any] | None = None) -> Thinking:
        is_item = details is not None and "part" in details  # otherwise it is a signature of the part before
        return Thinking(text, signature, "", self._profile.provider, self._profile.model, details or {}, is_item)


def strip_json_whitespace(arguments: msgspec.Raw) -> str:
    """Return a call's JSON arguments without whitespace between tokens; an empty object if there are none."""
    if arguments is ABSENT:
        return "{}"
    text = msgspec.json.format(bytes(arguments), indent=-1).decode()
    return "{}" if text == "null" else text
