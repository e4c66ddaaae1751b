"""Parse a streamed reply in JSON tool mode (tools are called by JSON text) into tool calls and text. No I/O."""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure._core.values.event import TextDelta, ToolCallDelta

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ORDINARY = re.compile(r'[^"\\]*')
_UNIT = re.compile(r"\\u([0-9a-fA-F]{4})")
_UNIT_BEGUN = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair."""
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_PAIR_BEGUN = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?")
_LANDMARK = re.compile(r'["{}\[\]]')
_END_OF_STRING = re.compile(r'["\\]')
_END_OF_SCALAR = re.compile(r"[\s,}\]]")


class JsonStringDecoder:
    """Incremental decoder of a JSON string, started after its opening quote. Escapes may be split anywhere."""

    __slots__ = ("_torn",)

    def __init__(self) -> None:
        self._torn = ""

    def feed(self, text: str) -> tuple[str, str | None]:
        """Decode more of the string. Return the decoded text, and the text after the string once it has ended."""
        if self._torn:
            text, self._torn = self._torn + text, ""
        said: list[str] = []
        place = 0
        while ordinary := _ORDINARY.match(text, place):  # always matches: it may be empty
            said.append(ordinary[0])
            place = ordinary.end()
            if text[place : place + 1] == '"':
                return "".join(said), text[place + 1 :]
            character, length = _decode_escape(text, place)
            if not length:
                self._torn = text[place:]
                break
            said.append(character)
            place += length
        return "".join(said), None


def _decode_escape(text: str, place: int) -> tuple[str, int]:
    """Decode the escape at this index; return the character and the length of the escape, 0 if it is incomplete.

    An invalid escape is kept as it is, and a lone surrogate becomes the replacement character.
    """
    if pair := _PAIR.match(text, place):
        high, low = int(pair[1], 16), int(pair[2], 16)
        return chr(0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF)), pair.end() - place
    if place == len(text) or _UNIT_BEGUN.fullmatch(text, place) or _PAIR_BEGUN.fullmatch(text, place):
        return "", 0
    if unit := _UNIT.match(text, place):
        return _REPLACEMENT if _HALF.match(text, place) else chr(int(unit[1], 16)), unit.end() - place
    letter = text[place + 1]
    return _ESCAPES.get(letter, f"\\{letter}"), 2


class JsonValueScanner:
    """Incremental scanner that finds the end of a JSON value."""

    __slots__ = ("_begun", "_depth", "_escaped", "_in_string", "_scalar")

    def __init__(self) -> None:
        self._begun = self._scalar = self._in_string = self._escaped = False
        self._depth = 0

    def feed(self, text: str) -> int | None:
        """Return how many of these characters belong to the value; `None` if all do, and it may continue."""
        if text and not self._begun:
            self._begun = True
            self._scalar = text[0] not in '{["'
        if self._scalar:
            end = _END_OF_SCALAR.search(text)
            return end.start() if end else None
        place = self._advance(text, 0)
        while place is not None and (self._depth or self._in_string):
            place = self._advance(text, place)
        return place

    def _advance(self, text: str, place: int) -> int | None:
        """Return the index after the next significant character; `None` if there is none."""
        if self._escaped and place < len(text):
            self._escaped = False
            place += 1
        found = (_END_OF_STRING if self._in_string else _LANDMARK).search(text, place)
        if not found:
            return None
        match found[0]:
            case '"':
                self._in_string = not self._in_string
            case "\\":
                self._escaped = True
            case "{" | "[":
                self._depth += 1
            case _:
                self._depth -= 1
        return found.end()


MAX_UNDECIDED_CHARACTERS = 1000
"""Maximum number of characters to read before the form of a reply is decided."""

_FENCE = re.compile(r"```\w*[ \t]*\r?\n\s*(?=\S)")
_FENCE_BEGUN = re.compile(r"`{1,2}|```\w*[ \t]*(?:\r?\n\s*|\r)?")
_FIRST_KEY = re.compile(r'\{\s*"((?:[^"\\]|\\.)*)"\s*:\s*(?=\S)')
_BETWEEN_CALLS = re.compile(r"[\s,;]*")

ReplyEvents: TypeAlias = list[TextDelta | ToolCallDelta]


class JsonReplyParser:
    """Incremental parser of one reply in JSON tool mode: turns its JSON into events of tool calls, or of the answer."""

    def __init__(self, call_prefix: str, *, most_calls: int, structured: bool) -> None:
        """Create the parser; with `structured`, the answer is a JSON value and streamed as written, else text."""
        self._call_prefix = call_prefix
        self._most_calls = most_calls
        self._structured = structured
        self._calls = 0
        self._events: ReplyEvents = []
        self._undecided = True
        """True until something is emitted: the reply may still be plain text."""
        self._before = ""
        """Text before the first object: blanks, or a code fence."""
        self._pieces: list[str] = []
        """Object that is being read."""
        self._beginning = ""
        """Beginning of that object, to find its first key."""
        self._span = JsonValueScanner()
        self._string = JsonStringDecoder()
        self._read: Callable[[str], str] = self._read_opening
        """Current parser state: consumes characters, and returns those that belong to the next state."""

    def feed(self, text: str) -> ReplyEvents:
        """Parse more of the reply, and return the events for it."""
        while text:
            text = self._read(text)
        told, self._events = self._events, []
        return told

    def end(self) -> ReplyEvents:
        """Return the remaining events at the end of the reply. An incomplete tool call is dropped."""
        if self._undecided:
            self._emit_text(self._before + "".join(self._pieces))
        self._read = self._skip_text
        return self.feed("")

    def _emit_text(self, text: str) -> None:
        self._undecided = False
        if text:
            self._events.append(TextDelta(text))

    # -- parser states -------------------------------------------------------------------------------------------------

    def _read_opening(self, text: str) -> str:
        self._before += text
        seen = self._before[:MAX_UNDECIDED_CHARACTERS]
        stripped = seen.lstrip()
        fence = _FENCE.match(stripped)
        begin = len(seen) - len(stripped) + (fence.end() if fence else 0)
        if seen[begin : begin + 1] == "{":
            self._read = self._read_object
            self._before, rest = self._before[:begin], self._before[begin:]
            return rest
        may_be_json = not stripped or (not fence and _FENCE_BEGUN.fullmatch(stripped))
        if may_be_json and len(seen) < MAX_UNDECIDED_CHARACTERS:
            return ""
        self._read = self._read_plain_text
        return self._before

    def _read_plain_text(self, text: str) -> str:
        self._emit_text(text)
        return ""

    def _skip_text(self, _text: str) -> str:
        return ""

    def _read_object(self, text: str) -> str:
        self._pieces.append(text)
        if self._undecided and len(self._beginning) < MAX_UNDECIDED_CHARACTERS:
            self._beginning = (self._beginning + text)[:MAX_UNDECIDED_CHARACTERS]
            opening = _FIRST_KEY.match(self._beginning)
            if opening and opening[1] == "final":
                return self._start_answer("".join(self._pieces)[opening.end() :])
        end = self._span.feed(text)
        if end is None:
            return ""
        self._pieces[-1] = text[:end]
        whole = "".join(self._pieces)
        self._pieces, self._span = [], JsonValueScanner()
        return self._emit_object(whole, text[end:])

    def _start_answer(self, value: str) -> str:
        self._undecided = False
        if value[0] == '"' and not self._structured:
            self._read = self._read_answer_text
            return value[1:]
        self._span = JsonValueScanner()
        self._read = self._read_answer_value
        return value

    def _read_answer_text(self, text: str) -> str:
        said, rest = self._string.feed(text)
        self._emit_text(said)
        if rest is not None:
            self._read = self._skip_text
        return ""

    def _read_answer_value(self, text: str) -> str:
        end = self._span.feed(text)
        self._emit_text(text[:end])
        if end is not None:
            self._read = self._skip_text
        return ""

    def _read_between_calls(self, text: str) -> str:
        rest = _BETWEEN_CALLS.sub("", text, count=1)
        if rest:
            more = rest[0] == "{" and self._calls < self._most_calls
            self._read = self._read_object if more else self._skip_text
        return rest

    # -- complete objects ----------------------------------------------------------------------------------------------

    def _emit_object(self, whole: str, rest: str) -> str:
        """Emit the content of a complete object; return the text to parse after it."""
        said = _parse_reply_object(whole)
        if said.tool and said.result is UNSET and self._most_calls:
            self._undecided = False
            self._emit_call(said.tool, said.args)
            self._read = self._read_between_calls
            return rest
        self._read = self._skip_text
        if not self._calls:
            if said.final is not UNSET:
                self._emit_text(_get_value_text(said.final, structured=self._structured))
            elif self._structured:  # the requested value, without the object around it
                self._emit_text(whole)
            else:
                self._read = self._read_plain_text
                return f"{self._before}{whole}{rest}"
        return rest

    def _emit_call(self, name: str, args: Raw | UnsetType) -> None:
        arguments = "{}" if args is UNSET else _get_value_text(_format_on_one_line(args), structured=False)
        self._events.append(ToolCallDelta(f"{self._call_prefix}{self._calls}", name, arguments, index=self._calls))
        self._calls += 1


class _ReplyObject(Struct):
    """JSON object in a reply: a tool call, or the answer."""

    tool: str | UnsetType = UNSET
    args: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    """Result of a call, as it is shown to the model: a model that repeats one makes no call."""
    final: Raw | UnsetType = UNSET


_decode_reply_object = msgspec.json.Decoder(_ReplyObject).decode


def _parse_reply_object(whole: str) -> _ReplyObject:
    """Parse a JSON object of a reply; without any fields if it is invalid."""
    try:
        return _decode_reply_object(whole)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _ReplyObject()


def _format_on_one_line(value: Raw) -> bytes:
    """Reformat JSON on one line, dropping the blanks that some models write between its parts."""
    return msgspec.json.format(bytes(value), indent=0)


def _get_value_text(value: Raw | bytes, *, structured: bool) -> str:
    """Return a JSON value as it was written; unless `structured`, return the content of a string."""
    raw = bytes(value).decode()
    return JsonStringDecoder().feed(raw[1:])[0] if raw[0] == '"' and not structured else raw
