"""What a provider's refusal means: any answer that is no answer, as one of our errors. Pure.

Above: `endpoint.py`, and the decoders, for errors that are told inside a stream. Below: `core/error.py`.

    secret.py   keys that are repeated in an error, made unreadable
    wait.py     how long to wait
    said.py     what was said, whatever shape it came in
    signs.py    the tables: which codes and words mean what

The order matters. A request that is too long is told in a hundred ways under any status, so that comes first. Then a
status that is clear is believed, whatever the words beneath it sound like: half of all rate limits link to a page
about billing. Only what has no clear status, an error in the middle of a stream say, is judged by codes and words.
"""

from collections.abc import Mapping

from perdure.core.error import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    ModelError,
    ProviderDown,
    QuotaSpent,
    RateLimited,
    Refused,
    ReplyCutOff,
)
from perdure.core.plain import clean

from . import signs
from .said import Said, folded, read
from .signs import Meaning
from .wait import seconds_from

__all__ = ["classified"]

SOON_SECONDS = 900.0
"""A provider that asks for a longer wait than this will not answer while anybody waits."""

_LEAST_WINDOW, _LARGEST_WINDOW = 128, 1_000_000_000


def classified(
    status: int, headers: Mapping[str, str], body: bytes | str, provider: str, *, now: float | None = None
) -> ModelError:
    """The error that an answer stands for.

    `status` is 0 for an error that is told inside a stream. `now`, in seconds since 1970, is what a date in
    `Retry-After` is counted from; without it, the date of the answer is.
    """
    said = read(body)
    kind = folded(next((value for name, value in headers.items() if name.lower() == "x-amzn-errortype"), ""))
    if kind:
        said.codes |= {kind}
    wait = seconds_from(headers, now)
    if wait is None:
        wait = said.delay
    told = status if status in signs.STATUSES else said.status
    meaning = _meaning(told, said, wait)
    return _error(meaning, clean(provider) or "the provider", told, said, wait)


def _meaning(status: int, said: Said, wait: float | None) -> Meaning:
    code = _code(said)
    expected = signs.STATUSES.get(status)
    if _overflows(expected, said, code):
        return "overflow"
    if code == "spoiled":
        return "spoiled"
    if expected is None:
        return code or _by_words(said.words) or "down"  # the request was taken: what went wrong then is on their side
    if expected == "rate":
        is_unpaid = code == "unpaid" or (code != "rate" and signs.UNPAID.search(said.words))
        return "unpaid" if is_unpaid and wait is None else "rate"
    return _refined(expected, said, code) if status in signs.VAGUE else expected


def _code(said: Said) -> Meaning | None:
    known = {signs.CODES[code] for code in said.codes if code in signs.CODES}
    return next((meaning for meaning in signs.RANKED if meaning in known), None)


def _overflows(expected: Meaning | None, said: Said, code: Meaning | None) -> bool:
    if expected in ("key", "unpaid"):
        return False
    if signs.TOO_LARGE_AT_ONCE.search(said.words) or "overflow" in (expected, code):
        return True
    is_rate = expected == "rate" or (expected is None and code == "rate")  # these count tokens as well
    return not is_rate and bool(signs.OVERFLOW.search(said.words))


def _refined(expected: Meaning, said: Said, code: Meaning | None) -> Meaning:
    """What it is that is reported under a status which is used for many things."""
    if code == "refused" or signs.REFUSED.search(said.words):
        return "refused"
    if code == "unpaid" or signs.UNPAID.search(said.words):
        return "unpaid"
    if code == "key" or signs.KEY.search(said.words):
        return "key"
    return "rate" if code == "rate" else expected


def _by_words(words: str) -> Meaning | None:
    """For what has neither a status nor a code."""
    return next((meaning for meaning, pattern in signs.WORDS.items() if pattern.search(words)), None)


# -- what is raised ----------------------------------------------------------------------------------------------------


def _error(meaning: Meaning, provider: str, status: int, said: Said, wait: float | None) -> ModelError:
    if meaning == "overflow":
        message = _sentence(f"the request is too long for this model of {provider}", status, said, _SHORTEN)
        return ContextOverflow(message, window_tokens=_window(said))
    if meaning == "rate" and wait is not None and wait > SOON_SECONDS:
        return QuotaSpent(
            _sentence(f"the quota at {provider} is spent", status, said, _LATER), retry_after_seconds=wait
        )
    kind, what, advice = _ERRORS[meaning]
    if meaning == "request":
        advice = _request_advice(status, said)
    return kind(_sentence(what.format(provider), status, said, advice), retry_after_seconds=wait)


_SHORTEN = "shorten the conversation, or use a model with a larger window"
_LATER = "wait for the next period, or ask for a higher quota"
_ERRORS: Mapping[Meaning, tuple[type[ModelError], str, str]] = {
    "unpaid": (AuthFailed, "the account at {} has no credit or quota left", "check its plan and its billing"),
    "key": (AuthFailed, "{} did not accept the key", "check the key, and what it is allowed to do"),
    "refused": (Refused, "{} refused to answer this", "say it in another way, or ask another model"),
    "spoiled": (ReplyCutOff, "{} threw away what the model wrote", "asking again may help"),
    "rate": (RateLimited, "{} asks to slow down", "ask less often, or ask for a higher limit"),
    "down": (ProviderDown, "{} fails on its side", "try again later, or ask another model"),
    "request": (BadRequest, "{} did not accept the request", ""),
}
"""What is raised, what it says, and what to do."""


def _request_advice(status: int, said: Said) -> str:
    if "modelnotfound" in said.codes or signs.NO_MODEL.search(said.words):
        return "check the name of the model, and that the key may use it"
    if status in signs.ELSEWHERE:
        return "check the base address, and the name of the model"
    return "the request has to be made differently; asking again does not help"


def _sentence(what: str, status: int, said: Said, advice: str) -> str:
    heading = f"{what} (HTTP {status})" if status else what
    words = f": {said.words}" if said.words else ", and did not say why"
    return f"{heading}{words.rstrip('.')}. {advice[:1].upper()}{advice[1:]}."


def _window(said: Said) -> int | None:
    if said.window_tokens is not None:
        return said.window_tokens
    for pattern in signs.WINDOW:
        found = pattern.search(said.words)
        if found is not None:
            tokens = int(found[1].replace(",", "").replace("_", "")[:12] or "0")
            if _LEAST_WINDOW <= tokens <= _LARGEST_WINDOW:
                return tokens
    return None
