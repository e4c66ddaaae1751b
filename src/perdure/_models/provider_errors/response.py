"""Extract the text, codes and retry delay from a provider's error response, whatever its format."""

import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure._core.schema.definitions import is_json_array, is_json_object
from perdure._core.values.jsonable import replace_surrogates

MAX_WAIT_SECONDS = 86_400.0
"""Maximum wait: longer ones are cut to a day."""

_UNITS: Mapping[str, float] = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
_AMOUNT = (
    r"\d{1,9}(?:\.\d{1,12})?\s?(?:milliseconds?|msecs?|ms|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
)
_DURATION = re.compile(rf"(?:{_AMOUNT}\s?){{1,4}}", re.IGNORECASE)
_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,12})?)\s?([a-z]*)", re.IGNORECASE)
_WAIT_PHRASE = re.compile(
    rf"(?:retry|try again|wait)[ -]{{0,2}}(?:in|after|for|starting from)?[:=~ ]{{0,4}}((?:{_AMOUNT}\s?){{1,4}})"
    r"|retry[ -]after['\"]?[:= ]{1,3}['\"]?(\d{1,9}(?:\.\d{1,12})?)",
    re.IGNORECASE,
)


def parse_wait_in_text(text: str) -> float | None:
    """Return the wait in seconds that a sentence asks for: `Please try again in 1m30.5s.` is 90.5."""
    found = _WAIT_PHRASE.search(text)
    return None if found is None else _clamp_seconds(_sum_duration(found[1] or found[2]))


def parse_wait_field(value: Any, unit: float = 1.0) -> float | None:
    """Return the seconds to wait that an error field or header gives: a number times `unit`, or `"22s"`.

    `None` if it gives none.
    """
    if isinstance(value, str):
        text = value.strip()[:60]
        if _DURATION.fullmatch(text):
            return _clamp_seconds(_sum_duration(text))
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return _clamp_seconds(float(value) * unit)
    except OverflowError:  # an integer with hundreds of digits
        return MAX_WAIT_SECONDS


def parse_wait_headers(headers: Mapping[str, str], now: float | None) -> float | None:
    """Return the seconds to wait that the `retry-after` headers of an HTTP response ask for; `None` if none.

    A date is relative to `now` (seconds since 1970), or to the `Date` header.
    """
    named = {name.lower(): value for name, value in headers.items()}
    exact = parse_wait_field(named.get("retry-after-ms"), 0.001)
    if exact is not None:
        return exact
    told = named.get("retry-after")
    if told is None:
        return None
    seconds = parse_wait_field(told)
    if seconds is not None:
        return seconds
    until = _parse_date(told)
    since = now if now is not None else _parse_date(named.get("date", ""))
    return None if until is None or since is None else _clamp_seconds(until - since)


def _sum_duration(duration: str) -> float:
    return sum(float(number) * _get_unit_seconds(unit.lower()) for number, unit in _PARTS.findall(duration))


def _get_unit_seconds(unit: str) -> float:
    return 0.001 if unit.startswith(("milli", "ms")) else _UNITS[unit[:1]]


def _parse_date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text[:100])
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError, OSError):
        return None


def _clamp_seconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else min(max(seconds, 0.0), MAX_WAIT_SECONDS)


MAX_BODY_BYTES = 256 * 1024
"""Maximum number of bytes of a response that are parsed."""
MAX_TEXT_CHARACTERS = 2_000
"""Maximum number of characters of the error text."""

_MAX_NODES = 300
_MAX_DEPTH = 10

# Fields with text for people. Objects in them are searched too.
_TEXT_FIELDS = {
    *("message", "Message", "msg", "detail", "details", "error", "errors", "raw", "title"),
    *("error_message", "errorMessage", "error_msg", "error_description", "status_msg"),
}
# Fields that may contain more of an error. No others are searched: a response may also repeat the request.
_NESTED_FIELDS = {
    *("response", "metadata", "cause", "fault", "data", "body", "base_resp", "innererror", "inner_error"),
    *("violations", "fieldViolations", "field_violations"),
}
# Fields with error codes.
_CODE_FIELDS = {
    "code",
    "type",
    "status",
    "error_type",
    "errorType",
    "error_code",
    "errorCode",
    "reason",
    "__type",
    "kind",
}
_STATUS_FIELDS = {"code", "status", "status_code", "statusCode", "http_code", "raw_status_code"}
_DELAY_FIELDS: Mapping[str, float] = {
    "retryDelay": 1.0,
    "retry_delay": 1.0,
    "retry_after": 1.0,
    "retryAfter": 1.0,
    "retry_after_seconds": 1.0,
    "retry_after_ms": 0.001,
}


class ParsedError(Struct):
    """Text, codes, status, retry delay and context window found in a provider's error response."""

    text: str = ""
    """Error text on one line, with keys masked."""
    codes: frozenset[str] = frozenset()
    """Error codes of all kinds, in lower case and without separators."""
    status: int = 0
    """HTTP status given in the body, the outermost one. 0: none."""
    retry_after_seconds: float | None = None
    """Seconds to wait before a retry."""
    window_tokens: int | None = None
    """Context window of the model, if the body has a field for it."""


def parse_error_body(body: bytes | str) -> ParsedError:
    """Return the text, codes, status, retry delay and context window in an error response. Never raises."""
    text = _decode_body(body)
    found = _ErrorBodyVisitor()
    value = _parse_json(text)
    if value is None:
        found.add_text(_strip_html(text))
    else:
        found.visit(value, 0)
        if not found.words:
            found.add_text(text)
    words = mask_keys(" ".join("; ".join(found.words)[: MAX_TEXT_CHARACTERS * 4].split()))
    delay = found.delay if found.delay is not None else parse_wait_in_text(words)
    return ParsedError(_shorten(words), frozenset(found.codes), found.status, delay, found.window)


def normalize_code(code: str) -> str:
    """Return an error code in one spelling: `RESOURCE_EXHAUSTED` and `ResourceExhausted` become `resourceexhausted`."""
    return re.sub(r"[\W_]+", "", code.rpartition("#")[2].partition(":")[0]).lower()


class _ErrorBodyVisitor:
    """Walk through a parsed error body that collects its content and visits a bounded number of values."""

    __slots__ = ("codes", "delay", "left", "status", "window", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self.codes: set[str] = set()
        self.status = 0
        self.delay: float | None = None
        self.window: int | None = None
        self.left = _MAX_NODES

    def visit(self, value: Any, depth: int) -> None:
        """Visit one value, and the values inside it."""
        self.left -= 1
        if self.left < 0 or depth > _MAX_DEPTH:
            return
        if is_json_object(value):
            self.visit_object(value, depth)
        elif is_json_array(value):
            for item in value[:_MAX_NODES]:
                self.visit(item, depth + 1)
        elif isinstance(value, str):
            inner = _parse_json(value) if value[:1] in "{[" else None
            if inner is None:
                self.add_text(value)
            else:
                self.visit(inner, depth + 1)

    def visit_object(self, fields: dict[str, Any], depth: int) -> None:
        """Visit the fields of an object, in order."""
        self.collect_codes(fields)
        if "msg" in fields or "description" in fields:
            self.add_text(_format_located_error(fields))
        for key, value in list(fields.items())[:_MAX_NODES]:
            if key in _TEXT_FIELDS or (key in _NESTED_FIELDS and not isinstance(value, str)):
                self.visit(value, depth + 1)
            elif key.endswith("Exception") and is_json_object(value):  # the name of an error in AWS event streams
                self.codes.add(normalize_code(key))
                self.visit(value, depth + 1)

    def collect_codes(self, fields: dict[str, Any]) -> None:
        """Collect codes, status, retry delay and context window from the fields of an object."""
        for key in _CODE_FIELDS & fields.keys():
            if isinstance(fields[key], str):
                self.codes.add(normalize_code(fields[key][:200]))
        for key in sorted(_STATUS_FIELDS & fields.keys()):
            self.status = self.status or _parse_status(fields[key])
        for key in _DELAY_FIELDS.keys() & fields.keys():
            self.delay = parse_wait_field(fields[key], _DELAY_FIELDS[key]) if self.delay is None else self.delay
        size = fields.get("n_ctx")
        if isinstance(size, int) and size > 0:
            self.window = size
        message, param = fields.get("message"), fields.get("param")
        if isinstance(message, str) and isinstance(param, str) and not param.isidentifier() and param not in message:
            self.add_text(f"{message} (at {param})")

    def add_text(self, text: str) -> None:
        """Add a sentence to the error text, unless the text contains it already."""
        text = text[: MAX_TEXT_CHARACTERS * 2].strip().rstrip(";")
        if text and not any(text in known for known in self.words) and len(self.words) < _MAX_NODES:
            self.words.append(text)


def _format_located_error(fields: dict[str, Any]) -> str:
    """Return an error about a part of the request, with its location: `body.tools.0: Field required`."""
    said = fields.get("msg") or fields.get("description")
    where = fields.get("loc") or fields.get("field")
    if is_json_array(where):
        where = ".".join(str(step) for step in where[:30])
    if not isinstance(said, str) or not isinstance(where, str):
        return said if isinstance(said, str) and "msg" in fields else ""
    return f"{where}: {said}"


def _parse_status(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[1-5][0-9]{2}", value):
        return int(value)
    return value if isinstance(value, int) and 100 <= value <= 599 else 0  # noqa: PLR2004 - the range of HTTP statuses


def _decode_body(body: bytes | str) -> str:
    if isinstance(body, str):
        return replace_surrogates(body[:MAX_BODY_BYTES]).strip("\ufeff \t\r\n\0")
    return body[:MAX_BODY_BYTES].decode("utf-8", "replace").strip("\ufeff \t\r\n\0")


def _parse_json(text: str) -> Any:
    """Parse JSON, also from a stream event; `None` if it is invalid, empty or a number."""
    if text.startswith(("data:", "event:")):
        text = "".join(line[5:] for line in text.splitlines() if line.startswith("data:"))
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    return cast("Any", value) if isinstance(value, (dict, list, str)) and value else None


def _strip_html(text: str) -> str:
    """Return the title or visible text of an HTML page; other text unchanged."""
    start = text[:20_000]
    if not re.match(r"<(?:!doctype|html|head|body|\?xml|h1|center)", start, re.IGNORECASE):
        return text
    title = re.search(r"<(?:title|h1)\b[^<>]*>([^<]+)", start, re.IGNORECASE)
    if title and title[1].strip():
        return title[1]
    return re.sub(r"<[^<>]*>", " ", re.sub(r"(?s)<(?:style|script)\b[^<]*", " ", start))


def _shorten(words: str) -> str:
    return words if len(words) <= MAX_TEXT_CHARACTERS else f"{words[: MAX_TEXT_CHARACTERS - 1]}…"


# -- masking keys that a provider repeats in its error -----------------------------------------------------------------

_PREFIXED_KEY = re.compile(
    r"\b(sk|pk|rk|ak|gsk|xai|hf|nvapi|csk|tgp|fw|r8|esk|pplx|key|ghp|gho|ghu|github_pat|glpat|dapi|AIza|ya29\.|AKIA|ASIA)"
    r"([-_]|(?<=AIza)|(?<=ya29\.)|(?<=AKIA)|(?<=ASIA))[A-Za-z0-9_*.\-]{6,500}"
)
"""Keys that begin with a prefix of their issuer."""
_LABELLED_KEY = re.compile(
    r"\b(api[ _-]?key(?: provided| is)?(?:\s?[:=]\s?['\"`]?|\s?['\"`])|(?:bearer|token|secret)\s?[:= ]\s?['\"`]?)"
    r"([^\s'\"`,;]{8,500})",
    re.IGNORECASE,
)
"""Text that is labelled as a key."""
_LONG_KEY = re.compile(
    r"\b(?=[A-Za-z0-9]{0,199}[0-9])(?=[A-Za-z0-9]{0,199}[A-Za-z])[A-Za-z0-9]{32,500}\b|\beyJ[\w.\-]{20,2000}"
)
"""Text that is long and random enough to be a key."""


def mask_keys(text: str) -> str:
    """Mask every API key in the text, except for its prefix."""
    text = _PREFIXED_KEY.sub(r"\1\2***", text)
    text = _LABELLED_KEY.sub(lambda found: f"{found[1]}***" if _is_secret(found[1], found[2]) else found[0], text)
    return _LONG_KEY.sub("***", text)


def _is_secret(name: str, value: str) -> bool:
    """Return True if a labelled value looks like a key, unlike in `unexpected token: identifier`."""
    return re.search(r"[0-9*_-]" if name.lower().startswith("api") else r"[0-9*]", value) is not None
