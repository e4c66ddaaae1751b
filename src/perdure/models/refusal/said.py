"""What a provider said when it refused, whatever shape it said it in. Above: the package. Below: `core`, `wait.py`.

An error is an object under `error`, a text there, `detail`, `message`, a flat object, an array, JSON within a text of
JSON, an event of a stream, plain text, a page of HTML, or nothing. Foreign bytes: nothing here raises because of them,
and none takes long.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.core.definitions import is_array, is_object
from perdure.core.plain import clean

from .secret import masked
from .wait import seconds_in, seconds_of

MOST_BYTES = 256 * 1024
"""How much of an answer is looked at."""
MOST_WORDS = 2_000
"""How many characters of what was said are kept."""

_MOST_NODES = 300
_MOST_DEPTH = 10

# What is said to people. What is no text there is looked into.
_TEXTS = {
    *("message", "Message", "msg", "detail", "details", "error", "errors", "raw", "title"),
    *("error_message", "errorMessage", "error_msg", "error_description", "status_msg"),
}
# What may hold more of an error. Nothing else is looked into: an answer may also repeat the request.
_INSIDE = {
    *("response", "metadata", "cause", "fault", "data", "body", "base_resp", "innererror", "inner_error"),
    *("violations", "fieldViolations", "field_violations"),
}
# What is said to programs.
_CODES = {"code", "type", "status", "error_type", "errorType", "error_code", "errorCode", "reason", "__type", "kind"}
_STATUSES = {"code", "status", "status_code", "statusCode", "http_code", "raw_status_code"}
_DELAYS: Mapping[str, float] = {
    "retryDelay": 1.0,
    "retry_delay": 1.0,
    "retry_after": 1.0,
    "retryAfter": 1.0,
    "retry_after_seconds": 1.0,
    "retry_after_ms": 0.001,
}


class Said(Struct):
    """What can be read out of one answer."""

    words: str = ""
    """What it says to people, on one line, without keys."""
    codes: frozenset[str] = frozenset()
    """What it says to programs: all kinds of codes, in lower case and without anything between the words."""
    status: int = 0
    """The HTTP status that is told inside, the outermost one. 0: none."""
    delay: float | None = None
    """How many seconds to wait."""
    window_tokens: int | None = None
    """How large the window is, where there is a field for it."""


def read(body: bytes | str) -> Said:
    """Everything that an answer says."""
    text = _text(body)
    found = _Reading()
    value = _parsed(text)
    if value is None:
        found.say(_readable(text))
    else:
        found.look(value, 0)
        if not found.words:
            found.say(text)
    words = masked(" ".join("; ".join(found.words)[: MOST_WORDS * 4].split()))
    delay = found.delay if found.delay is not None else seconds_in(words)
    return Said(_cut(words), frozenset(found.codes), found.status, delay, found.window)


def folded(code: str) -> str:
    """`RESOURCE_EXHAUSTED`, `ResourceExhausted` and `resource-exhausted` are one code; so is one with an address."""
    return re.sub(r"[\W_]+", "", code.rpartition("#")[2].partition(":")[0]).lower()


class _Reading:
    """One walk through a parsed answer, which may be as large and as deep as somebody wants."""

    __slots__ = ("codes", "delay", "left", "status", "window", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.codes: set[str] = set()
        self.status = 0
        self.delay: float | None = None
        self.window: int | None = None
        self.left = _MOST_NODES

    def look(self, value: Any, depth: int) -> None:
        """At one value, and what is in it."""
        self.left -= 1
        if self.left < 0 or depth > _MOST_DEPTH:
            return
        if is_object(value):
            self.look_into(value, depth)
        elif is_array(value):
            for item in value[:_MOST_NODES]:
                self.look(item, depth + 1)
        elif isinstance(value, str):
            inner = _parsed(value) if value[:1] in "{[" else None
            if inner is None:
                self.say(value)
            else:
                self.look(inner, depth + 1)

    def look_into(self, fields: dict[str, Any], depth: int) -> None:
        """At the fields of an object, in their order."""
        self.note(fields)
        if "msg" in fields or "description" in fields:
            self.say(_place(fields))
        for key, value in list(fields.items())[:_MOST_NODES]:
            if key in _TEXTS or (key in _INSIDE and not isinstance(value, str)):
                self.look(value, depth + 1)
            elif key.endswith("Exception") and is_object(value):  # how event streams of AWS name an error
                self.codes.add(folded(key))
                self.look(value, depth + 1)

    def note(self, fields: dict[str, Any]) -> None:
        """What is there for programs."""
        for key in _CODES & fields.keys():
            if isinstance(fields[key], str):
                self.codes.add(folded(fields[key][:200]))
        for key in sorted(_STATUSES & fields.keys()):
            self.status = self.status or _as_status(fields[key])
        for key in _DELAYS.keys() & fields.keys():
            self.delay = seconds_of(fields[key], _DELAYS[key]) if self.delay is None else self.delay
        size = fields.get("n_ctx")
        if isinstance(size, int) and size > 0:
            self.window = size
        message, param = fields.get("message"), fields.get("param")
        if isinstance(message, str) and isinstance(param, str) and not param.isidentifier() and param not in message:
            self.say(f"{message} (at {param})")

    def say(self, text: str) -> None:
        """One more sentence, unless it is a part of one that is known."""
        text = text[: MOST_WORDS * 2].strip().rstrip(";")
        if text and not any(text in known for known in self.words) and len(self.words) < _MOST_NODES:
            self.words.append(text)


def _place(fields: dict[str, Any]) -> str:
    """A complaint about a part of the request, with where that is: `body.tools.0: Field required`."""
    said = fields.get("msg") or fields.get("description")
    where = fields.get("loc") or fields.get("field")
    if is_array(where):
        where = ".".join(str(step) for step in where[:30])
    if not isinstance(said, str) or not isinstance(where, str):
        return said if isinstance(said, str) and "msg" in fields else ""
    return f"{where}: {said}"


def _as_status(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[1-5][0-9]{2}", value):
        return int(value)
    return value if isinstance(value, int) and 100 <= value <= 599 else 0  # noqa: PLR2004 - what HTTP has


def _text(body: bytes | str) -> str:
    if isinstance(body, str):
        return clean(body[:MOST_BYTES]).strip("\ufeff \t\r\n\0")
    return body[:MOST_BYTES].decode("utf-8", "replace").strip("\ufeff \t\r\n\0")


def _parsed(text: str) -> Any:
    """The JSON in it, also when it comes as an event of a stream; None when there is none, or just a number."""
    if text.startswith(("data:", "event:")):
        text = "".join(line[5:] for line in text.splitlines() if line.startswith("data:"))
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return cast("Any", value) if isinstance(value, (dict, list, str)) and value else None


def _readable(text: str) -> str:
    """A page of HTML as the words that a reader sees first; other text as it is."""
    start = text[:20_000]
    if not re.match(r"<(?:!doctype|html|head|body|\?xml|h1|center)", start, re.IGNORECASE):
        return text
    title = re.search(r"<(?:title|h1)\b[^<>]*>([^<]+)", start, re.IGNORECASE)
    if title and title[1].strip():
        return title[1]
    return re.sub(r"<[^<>]*>", " ", re.sub(r"(?s)<(?:style|script)\b[^<]*", " ", start))


def _cut(words: str) -> str:
    return words if len(words) <= MOST_WORDS else f"{words[: MOST_WORDS - 1]}…"
