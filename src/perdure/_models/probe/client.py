"""Client of a model probe, which tests an endpoint's capabilities with a few small requests.

Requests are encoded by the same wire as in production, with the profile found so far: the probe tests whether the
runtime's own requests are accepted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import OutputSpec, Request, Settings, ToolSpec, assemble_reply
from perdure._core.values import checks
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import ModelError, RateLimited
from perdure._core.values.event import ModelEvent, ReplyFinished
from perdure._core.values.message import Message, Usage
from perdure._io.http.transport import Response, Transport
from perdure._models.endpoint.auth import Auth
from perdure._models.endpoint.memo import EncodingMemo
from perdure._models.endpoint.model_list import append_url_path
from perdure._models.endpoint.profile import Profile
from perdure._models.endpoint.wire import Wire
from perdure._models.provider_errors.classify import classify_error

MAX_REQUESTS = 28
"""Maximum number of requests of a probe."""
MAX_REPLY_TOKENS = 512
"""Maximum length of a reply: enough for a model that thinks before a one-word answer."""
_MOST_BYTES = 4 * 1024 * 1024
_OK = range(200, 300)
_MAX_ATTEMPTS = 3
"""Number of attempts for a request that is rate limited."""
_WAIT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 30.0

_SETTINGS = Settings(max_output_tokens=MAX_REPLY_TOKENS)
_INSTRUCTIONS = "You take part in a test. Do exactly what is asked, briefly."

BodyChange: TypeAlias = Callable[[dict[str, Any]], object]
"""Function that modifies the body of a request, for fields that the wire itself does not send."""


class ProbeReply(Struct):
    """An endpoint's reply to one request of a model probe, or the error if the request failed."""

    error: ModelError | None = None
    """Error, if there is no reply."""
    message: Message = Message("assistant")
    usage: Usage | None = None
    is_streamed: bool = False
    """True if the reply was streamed."""
    body: bytes = b""
    """Raw body of the response."""
    status: int = 200

    @property
    def is_accepted(self) -> bool:
        """True if the endpoint replied without an error."""
        return self.error is None

    @property
    def reason(self) -> str:
        """Error message on one line; empty if the request was accepted."""
        return " ".join(str(self.error).split())[:200] if self.error else ""


class RequestLimitReached(Exception):
    """Raised when a model probe (a test of an endpoint's capabilities) would exceed its limit of requests."""


class ProbeClient:
    """Client that sends the test requests of a model probe to one endpoint, and counts them."""

    def __init__(
        self,
        wire: Wire,
        base_url: str,
        auth: Auth,
        transport: Transport,
        *,
        clock: Clock = SYSTEM_CLOCK,
        on_progress: Callable[[str], object] = bool,
    ) -> None:
        checks.require_plain_function("probe", "on_progress", on_progress)
        self.wire = wire
        self.base_url = base_url
        self.auth = auth
        self.transport = transport
        self.request_count = 0
        """Number of requests sent."""
        self._clock = clock
        self._on_progress = on_progress

    async def send_request(
        self,
        about: str,
        profile: Profile,
        message: Message,
        *,
        tools: Sequence[ToolSpec] = (),
        output: OutputSpec | None = None,
        settings: Mapping[str, Any] | None = None,
        change: BodyChange | None = None,
    ) -> ProbeReply:
        """Send one request and return the reply, which may be an error. Raises a `NetError` if the endpoint is
        unreachable.
        """
        request = Request(
            messages=(message,),
            instructions=_INSTRUCTIONS,
            tools=tools,
            output=output,
            settings=replace(_SETTINGS, **(settings or {})),
        )
        reply = ProbeReply()
        for _ in range(_MAX_ATTEMPTS):
            reply = await self._send_once(about, profile, request, change)
            if not isinstance(reply.error, RateLimited):
                break
            wait = min(reply.error.retry_after_seconds or _WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
            self._on_progress(f"rate limited: waiting {wait:.0f} s")
            await self._clock.sleep(wait)
        return reply

    async def _send_once(self, about: str, profile: Profile, request: Request, change: BodyChange | None) -> ProbeReply:
        if self.request_count == MAX_REQUESTS:
            raise RequestLimitReached
        self.request_count += 1
        self._on_progress(about)
        try:
            sending = self.wire.encode(request, profile, EncodingMemo())
        except ModelError as error:  # it breaks a known rule: no request is needed
            return ProbeReply(error)
        body = sending.body if change is None else _apply_change(sending.body, change)
        url = append_url_path(self.base_url, sending.path)
        headers = {"content-type": "application/json", **sending.headers, **await self.auth.headers(url, body)}
        async with self.transport.post(url, headers, body) as answer:
            return await self._read_reply(answer, profile)

    async def _read_reply(self, answer: Response, profile: Profile) -> ProbeReply:
        body = await answer.read(_MOST_BYTES)
        if answer.status not in _OK:
            return ProbeReply(
                classify_error(answer.status, answer.headers, body, profile.provider), body=body, status=answer.status
            )
        media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        decoder = self.wire.decoder(profile, media_type)
        try:
            events = [*decoder.feed(body), *decoder.end()]
        except ModelError as error:
            return ProbeReply(error, body=body)
        return _build_reply(events, body, streamed=media_type != "application/json")


def _apply_change(body: bytes, change: BodyChange) -> bytes:
    value: dict[str, Any] = msgspec.json.decode(body)
    change(value)
    return msgspec.json.encode(value)


def _build_reply(events: list[ModelEvent], body: bytes, *, streamed: bool) -> ProbeReply:
    *deltas, last = events
    finished = last if isinstance(last, ReplyFinished) else None
    message = assemble_reply(deltas, finished)
    return ProbeReply(None, message, finished.usage if finished else None, streamed, body)
