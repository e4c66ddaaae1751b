"""Classify a provider's error response as one of Perdure's errors. No I/O.

`response` parses error bodies of any shape and says how long to wait before a retry; `codes` has tables of error codes
and phrases, and their kinds.

The order matters. A request that is too long is reported in many ways under any status, so that is checked first. Then
an unambiguous status decides, whatever the message says: half of all rate limits link to a page about billing. Errors
without such a status, for example in the middle of a stream, are classified by codes and phrases.
"""

from collections.abc import Mapping

from perdure._core.values.error import (
    AuthFailed,
    BadRequest,
    ContentRefused,
    ContextOverflow,
    ModelError,
    ProviderDown,
    QuotaSpent,
    RateLimited,
    ReplyCutOff,
)
from perdure._core.values.jsonable import replace_surrogates

from . import codes as signs
from .codes import ErrorKind
from .response import ParsedError, normalize_code, parse_error_body, parse_wait_headers

__all__ = ["classify_error"]

MAX_RATE_LIMIT_WAIT_SECONDS = 900.0
"""A rate limit with a longer wait than this is a `QuotaSpent` error."""

_MIN_WINDOW, _MAX_WINDOW = 128, 1_000_000_000


def classify_error(
    status: int, headers: Mapping[str, str], body: bytes | str, provider: str, *, now: float | None = None
) -> ModelError:
    """Return the `ModelError` that an error response means, by its status, codes and text.

    `status` is 0 for an error inside a stream. `now`, in seconds since 1970, is the time that a date in `Retry-After`
    is relative to; without it, the `Date` header is used.
    """
    said = parse_error_body(body)
    kind = normalize_code(next((value for name, value in headers.items() if name.lower() == "x-amzn-errortype"), ""))
    if kind:
        said.codes |= {kind}
    wait = parse_wait_headers(headers, now)
    if wait is None:
        wait = said.retry_after_seconds
    told = status if status in signs.KIND_BY_STATUS else said.status
    meaning = _find_kind(told, said, wait)
    return _build_error(meaning, replace_surrogates(provider) or "the provider", told, said, wait)


def _find_kind(status: int, said: ParsedError, wait: float | None) -> ErrorKind:
    code = _find_kind_by_code(said)
    expected = signs.KIND_BY_STATUS.get(status)
    if _is_context_overflow(expected, said, code):
        return "overflow"
    if code == "spoiled":
        return "spoiled"
    if expected is None:
        return (
            code or _find_kind_by_text(said.text) or "down"
        )  # the request was accepted, so the failure is the provider's
    if expected == "rate":
        is_unpaid = code == "unpaid" or (code != "rate" and signs.UNPAID_PHRASES.search(said.text))
        return "unpaid" if is_unpaid and wait is None else "rate"
    return _refine_kind(expected, said, code) if status in signs.AMBIGUOUS_STATUSES else expected


def _find_kind_by_code(said: ParsedError) -> ErrorKind | None:
    known = {signs.KIND_BY_CODE[code] for code in said.codes if code in signs.KIND_BY_CODE}
    return next((meaning for meaning in signs.KINDS_BY_PRIORITY if meaning in known), None)


def _is_context_overflow(expected: ErrorKind | None, said: ParsedError, code: ErrorKind | None) -> bool:
    if expected in ("key", "unpaid"):
        return False
    if signs.ABOVE_MINUTE_LIMIT_PHRASES.search(said.text) or "overflow" in (expected, code):
        return True
    is_rate = expected == "rate" or (expected is None and code == "rate")  # rate limits mention tokens too
    return not is_rate and bool(signs.OVERFLOW_PHRASES.search(said.text))


def _refine_kind(expected: ErrorKind, said: ParsedError, code: ErrorKind | None) -> ErrorKind:
    """Return the kind of an error whose status is ambiguous, by its codes and text."""
    if code == "refused" or signs.REFUSED_PHRASES.search(said.text):
        return "refused"
    if code == "unpaid" or signs.UNPAID_PHRASES.search(said.text):
        return "unpaid"
    if code == "key" or signs.AUTH_PHRASES.search(said.text):
        return "key"
    return "rate" if code == "rate" else expected


def _find_kind_by_text(words: str) -> ErrorKind | None:
    """Return the kind of an error that has neither a status nor a known code, by its text."""
    return next((meaning for meaning, pattern in signs.PHRASES_BY_KIND.items() if pattern.search(words)), None)


# -- building the error ------------------------------------------------------------------------------------------------


def _build_error(meaning: ErrorKind, provider: str, status: int, said: ParsedError, wait: float | None) -> ModelError:
    if meaning == "overflow":
        message = _format_message(f"the request is too long for this model of {provider}", status, said, _SHORTEN)
        return ContextOverflow(message, window_tokens=_find_window_tokens(said))
    if meaning == "rate" and wait is not None and wait > MAX_RATE_LIMIT_WAIT_SECONDS:
        return QuotaSpent(
            _format_message(f"the quota at {provider} is spent", status, said, _LATER), retry_after_seconds=wait
        )
    kind, what, advice = _ERRORS[meaning]
    if meaning == "request":
        advice = _get_request_advice(status, said)
    error = kind(_format_message(what.format(provider), status, said, advice), retry_after_seconds=wait)
    if isinstance(error, BadRequest):
        error.is_unknown_model = advice in {_CHECK_MODEL, _CHECK_URL}
    return error


_SHORTEN = "shorten the conversation, or use a model with a larger window"
_LATER = "wait for the next period, or request a higher quota"
_CHECK_MODEL = "check the name of the model, and that the key may use it"
_CHECK_URL = "check the base URL and the name of the model"
_ERRORS: Mapping[ErrorKind, tuple[type[ModelError], str, str]] = {
    "unpaid": (AuthFailed, "the account at {} has no credit or quota left", "check its plan and its billing"),
    "key": (AuthFailed, "{} rejected the API key", "check the key and its permissions"),
    "refused": (ContentRefused, "{} refused to answer this", "rephrase it, or use another model"),
    "spoiled": (ReplyCutOff, "{} discarded what the model wrote", "a retry may help"),
    "rate": (RateLimited, "{} asks to slow down", "send fewer requests, or request a higher limit"),
    "down": (ProviderDown, "{} has a server failure", "try again later, or use another model"),
    "request": (BadRequest, "{} rejected the request", ""),
}
"""For each kind: the exception class, the message, and the advice."""


def _get_request_advice(status: int, said: ParsedError) -> str:
    if "modelnotfound" in said.codes or signs.UNKNOWN_MODEL_PHRASES.search(said.text):
        return _CHECK_MODEL
    if status in signs.WRONG_URL_STATUSES:
        return _CHECK_URL
    return "the request has to be changed; a retry does not help"


def _format_message(what: str, status: int, said: ParsedError, advice: str) -> str:
    heading = f"{what} (HTTP {status})" if status else what
    words = f": {said.text}" if said.text else ", without a reason"
    return f"{heading}{words.rstrip('.')}. {advice[:1].upper()}{advice[1:]}."


def _find_window_tokens(said: ParsedError) -> int | None:
    if said.window_tokens is not None:
        return said.window_tokens
    for pattern in signs.WINDOW_PHRASES:
        found = pattern.search(said.text)
        if found is not None:
            tokens = int(found[1].replace(",", "").replace("_", "")[:12] or "0")
            if _MIN_WINDOW <= tokens <= _MAX_WINDOW:
                return tokens
    return None
