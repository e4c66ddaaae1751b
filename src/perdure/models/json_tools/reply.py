"""A reply in JSON tool mode, read as it comes. Pure. Above: `mode.py`. Below: `pieces.py`, `core`.

    {"tool": "add", "args": {"a": 1, "b": 2}}     a call, told once all of it is there
    {"final": "They are three."}                  the answer, told while it comes

An endpoint may ignore what it was asked for. Fences around the JSON are overlooked, several calls may follow one
another, and whatever is not of this form is an answer in plain text.
"""

import re
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure.core.event import TextDelta, ToolCallDelta

from .pieces import JsonSpan, JsonString

MOST_UNDECIDED = 1000
"""So many characters may come before it is clear what a reply begins with."""

_FENCE = re.compile(r"```\w*[ \t]*\r?\n\s*(?=\S)")
_FENCE_BEGUN = re.compile(r"`{1,2}|```\w*[ \t]*(?:\r?\n\s*|\r)?")
_FIRST_KEY = re.compile(r'\{\s*"((?:[^"\\]|\\.)*)"\s*:\s*(?=\S)')
_BETWEEN_CALLS = re.compile(r"[\s,;]*")

Told: TypeAlias = list[TextDelta | ToolCallDelta]


class JsonReply:
    """Takes the text of one reply in pieces of any size, and tells what it says."""

    def __init__(self, call_prefix: str, *, most_calls: int, structured: bool) -> None:
        """`structured`: the answer is a JSON value, told as it is written; otherwise it is a text."""
        self._call_prefix = call_prefix
        self._most_calls = most_calls
        self._structured = structured
        self._calls = 0
        self._told: Told = []
        self._undecided = True
        """Nothing has been told: it may yet turn out to be plain text."""
        self._before = ""
        """What came before the first object: blanks, or a fence."""
        self._pieces: list[str] = []
        """The object that is being read."""
        self._beginning = ""
        """As much of it as can tell what it begins with."""
        self._span = JsonSpan()
        self._string = JsonString()
        self._read: Callable[[str], str] = self._opening
        """What the next characters are: takes them, and returns those that are something else."""

    def feed(self, text: str) -> Told:
        """More of the reply: what it says."""
        while text:
            text = self._read(text)
        told, self._told = self._told, []
        return told

    def end(self) -> Told:
        """The reply is over: what is left to tell. A call that is not whole is no call."""
        if self._undecided:
            self._say(self._before + "".join(self._pieces))
        self._read = self._ignored
        return self.feed("")

    def _say(self, text: str) -> None:
        self._undecided = False
        if text:
            self._told.append(TextDelta(text))

    # -- what the next characters are ----------------------------------------------------------------------------------

    def _opening(self, text: str) -> str:
        self._before += text
        seen = self._before[:MOST_UNDECIDED]
        stripped = seen.lstrip()
        fence = _FENCE.match(stripped)
        begin = len(seen) - len(stripped) + (fence.end() if fence else 0)
        if seen[begin : begin + 1] == "{":
            self._read = self._in_object
            self._before, rest = self._before[:begin], self._before[begin:]
            return rest
        may_be_json = not stripped or (not fence and _FENCE_BEGUN.fullmatch(stripped))
        if may_be_json and len(seen) < MOST_UNDECIDED:
            return ""
        self._read = self._plain
        return self._before

    def _plain(self, text: str) -> str:
        self._say(text)
        return ""

    def _ignored(self, _text: str) -> str:
        return ""

    def _in_object(self, text: str) -> str:
        self._pieces.append(text)
        if self._undecided and len(self._beginning) < MOST_UNDECIDED:
            self._beginning = (self._beginning + text)[:MOST_UNDECIDED]
            opening = _FIRST_KEY.match(self._beginning)
            if opening and opening[1] == "final":
                return self._answer_from("".join(self._pieces)[opening.end() :])
        end = self._span.feed(text)
        if end is None:
            return ""
        self._pieces[-1] = text[:end]
        whole = "".join(self._pieces)
        self._pieces, self._span = [], JsonSpan()
        return self._understand(whole, text[end:])

    def _answer_from(self, value: str) -> str:
        self._undecided = False
        if value[0] == '"' and not self._structured:
            self._read = self._in_text
            return value[1:]
        self._span = JsonSpan()
        self._read = self._in_value
        return value

    def _in_text(self, text: str) -> str:
        said, rest = self._string.feed(text)
        self._say(said)
        if rest is not None:
            self._read = self._ignored
        return ""

    def _in_value(self, text: str) -> str:
        end = self._span.feed(text)
        self._say(text[:end])
        if end is not None:
            self._read = self._ignored
        return ""

    def _between(self, text: str) -> str:
        rest = _BETWEEN_CALLS.sub("", text, count=1)
        if rest:
            more = rest[0] == "{" and self._calls < self._most_calls
            self._read = self._in_object if more else self._ignored
        return rest

    # -- what a whole object says --------------------------------------------------------------------------------------

    def _understand(self, whole: str, rest: str) -> str:
        """Tell what an object says; returns what is to be read after it."""
        said = _parsed(whole)
        if said.tool and said.result is UNSET and self._most_calls:
            self._undecided = False
            self._call(said.tool, said.args)
            self._read = self._between
            return rest
        self._read = self._ignored
        if not self._calls:
            if said.final is not UNSET:
                self._say(_written(said.final, structured=self._structured))
            elif self._structured:  # what was asked for, without what should be around it
                self._say(whole)
            else:
                self._read = self._plain
                return f"{self._before}{whole}{rest}"
        return rest

    def _call(self, name: str, args: Raw | UnsetType) -> None:
        arguments = "{}" if args is UNSET else _written(_on_one_line(args), structured=False)
        self._told.append(ToolCallDelta(f"{self._call_prefix}{self._calls}", name, arguments, index=self._calls))
        self._calls += 1


class _Said(Struct):
    """What an object of a reply may hold."""

    tool: str | UnsetType = UNSET
    args: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    """Of a call, as it is told to a model: one that repeats it does not ask for anything."""
    final: Raw | UnsetType = UNSET


_decode_said = msgspec.json.Decoder(_Said).decode


def _parsed(whole: str) -> _Said:
    """What there is in an object; nothing when it is not JSON after all."""
    try:
        return _decode_said(whole)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _Said()


def _on_one_line(value: Raw) -> bytes:
    """The same JSON; the blanks that some models put between its parts mean nothing."""
    return msgspec.json.format(bytes(value), indent=0)


def _written(value: Raw | bytes, *, structured: bool) -> str:
    """A JSON value as it is written; or what a text says, unless it is to stay JSON."""
    raw = bytes(value).decode()
    return JsonString().feed(raw[1:])[0] if raw[0] == '"' and not structured else raw
