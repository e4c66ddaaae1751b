"""Model that is reached over HTTP: combines an API format (wire), a profile, a base URL and a key.

    encode the request → wait for a slot → post → decode the response, as it arrives

Encoding checks the order of the messages. A request that the provider refuses nevertheless is checked as a whole, and
the error says what was found. All failures are raised as a `ModelError`. A request is repeated here only with a renewed
key, without a tool that the provider rejects, or in another form if it refuses the history or a setting; all other
retries are left to `retried`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from perdure._core.model.protocol import Request
from perdure._core.values.clock import SYSTEM_CLOCK, Clock
from perdure._core.values.error import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    ModelError,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
)
from perdure._core.values.event import ErrorRaised, ModelEvent, ReplyFinished, RetryScheduled
from perdure._io.http.pooled import get_shared_transport
from perdure._io.http.tap import apply_current_taps, mask_sent_secrets, mask_url
from perdure._io.http.transport import HttpTimeoutExceeded, NetError, Response, Transport
from perdure._models.provider_errors.classify import classify_error

from .auth import Auth, FixedHeaders
from .memo import EncodingMemo
from .profile import Profile
from .rejections import NextForm, RefusedForms, RejectedTools, find_next_form
from .throttle import Throttle, get_shared_throttle
from .throttle_state import RequestSlot, WaitReason
from .wire import Decoder, EncodedRequest, Wire, load_wire

PROGRESS_SECONDS = 600.0
"""Timeout of a response that sends pings but no content."""
DRAIN_SECONDS = 1.0
"""How long to wait for a response to end after its last event."""
REPORT_WAIT_AFTER_SECONDS = 1.0
"""After waiting this long for a slot, an event with the reason is emitted."""

_MAX_PROBLEMS = 3
"""Maximum number of broken rules that an error names."""
_MAX_ERROR_BYTES = 256 * 1024
_BYTES_PER_TOKEN = 4
"""Rule of thumb, until the provider reports usage."""
_REDIRECTS = range(300, 400)
_OVERLOADED = frozenset({503, 529})


class HttpModel:
    """Model that is reached over HTTP: it encodes requests, keeps to rate limits, and decodes responses."""

    def __init__(
        self,
        wire: Wire | str,
        profile: Profile,
        *,
        base_url: str,
        auth: Auth | None = None,
        transport: Transport | None = None,
        throttle: Throttle | None = None,
        progress_seconds: float = PROGRESS_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Create the model. The wire is the name of one, such as `openai_chat`, or an object of your own. By default,
        connections (`transport`) and rate limits (`throttle`) are shared by the process.

        The query of `base_url`, if any, is sent with every request.
        """
        self.profile = profile
        """Profile of the model. A context window that is not known is learned from the first overflow error."""
        self.info = profile.info
        """Model info for `model_info`."""
        base, _, self._query = base_url.partition("?")
        self._base = base.rstrip("/")
        self._wire = load_wire(wire) if isinstance(wire, str) else wire
        self._auth = auth or FixedHeaders({})
        self._transport = transport or get_shared_transport()
        self._throttle = throttle or get_shared_throttle(self._base, self._auth.identity)
        self._progress_seconds = progress_seconds
        self._clock = clock
        self._memo = EncodingMemo()
        self._quarantine = RejectedTools()
        self._refused = RefusedForms()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:  # noqa: C901, PLR0912, PLR0915 - helpers would add a generator per event
        """Send a request, and yield the events of the reply as they arrive. Raises a `ModelError`.

        A `RetryScheduled` event with attempt 0 means that the request waits for a slot of its key: nothing has failed.
        """
        throttle, chances = self._throttle, _ImmediateRetries(self._auth, self._quarantine)
        request = self._refused.adapt_request(request)
        while True:
            asked = self._quarantine.remove_rejected_tools(request)
            sending = self._wire.encode(asked, self.profile, self._memo)
            tokens = len(sending.body) // _BYTES_PER_TOKEN
            slot = throttle.try_take_slot(tokens)
            if slot is None:
                if not request.may_wait:
                    self._check_pause()
                place = throttle.join_queue(tokens)
                try:
                    slot = await throttle.wait_for_slot(place, REPORT_WAIT_AFTER_SECONDS)
                    if slot is None:
                        yield _build_waiting_event(place.obstacle)
                    while slot is None:
                        if not request.may_wait:
                            self._check_pause()
                        slot = await throttle.wait_for_slot(place, REPORT_WAIT_AFTER_SECONDS)
                finally:
                    throttle.leave_queue(place)
            event: ModelEvent | None = None
            decoder: Decoder | None = None
            headers: Mapping[str, str] = {}
            try:  # every event passes here: no extra generator, task or timer per event
                url, headers = await self._build_url_and_headers(sending)
                async with apply_current_taps(self._transport).post(url, headers, sending.body) as answer:
                    media_type = await self._check_response(answer, slot)
                    decoder = self._wire.decoder(self.profile, media_type)
                    quiet_since: float | None = None
                    chunks = answer.chunks()
                    async for data in chunks:
                        before = event
                        for event in decoder.feed(data):
                            yield event
                        if decoder.done:
                            await _drain_response(answer, chunks)
                            break
                        quiet_since = None if event is not before else self._check_progress(quiet_since)
                for event in decoder.end():
                    yield event
                return
            except NetError as error:
                for event in self._finish_broken_reply(decoder, error):
                    yield event
                return
            except ModelError as error:
                error.args = (mask_sent_secrets(str(error), headers), *error.args[1:])
                self._learn_from_error(error, slot)
                notices = await chances.prepare_retry(error, asked, has_started=event is not None)
                if (
                    notices is None
                    and event is None
                    and (form := self._find_next_form(error, asked, sending)) is not None
                ):
                    request, notices = form.request, (ErrorRaised(type(error).__name__, form.notice, "model"),)
                for notice in self._raise_explained(error, sending) if notices is None else notices:
                    yield notice
            finally:
                throttle.release_slot(slot, _get_used_tokens(event))

    def _check_pause(self) -> None:
        """Raise `RateLimited` while requests wait for a pause, so that another model is asked instead."""
        if (seconds := self._throttle.find_pause_seconds()) is not None:
            raise RateLimited(
                f"{self.profile.provider} asked for a pause, which ends in about {seconds:.0f} s",
                retry_after_seconds=seconds,
            )

    async def _build_url_and_headers(self, sending: EncodedRequest) -> tuple[str, Mapping[str, str]]:
        """Return the URL and headers of a request."""
        url = self._base + sending.path
        if self._query:
            url += f"{'&' if '?' in sending.path else '?'}{self._query}"
        headers = {"content-type": "application/json"}
        for name, text in sending.headers.items():
            headers[name.lower()] = text
        for name, text in (await self._auth.headers(url, sending.body)).items():
            headers[name.lower()] = text
        return url, headers

    # -- the response --------------------------------------------------------------------------------------------------

    async def _check_response(self, answer: Response, slot: RequestSlot) -> str:
        """Return the media type of a response. Raises a `ModelError` if its status is an error, or it is a web page."""
        status = answer.status
        if status < _REDIRECTS.start:
            media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type == "text/html":
                self._raise_wrong_url(f"answers with a web page instead of a reply (HTTP {status})")
            self._throttle.record_accepted(slot)
            return media_type
        if status in _REDIRECTS and (location := answer.headers.get("location")):
            self._raise_wrong_url(
                f"answers with a redirect to {mask_url(location)!r} (HTTP {status}), which is not followed"
            )
        error = await self._read_error(answer)
        if status in _OVERLOADED and error.retry_after_seconds is None:  # otherwise `_learn_from_error` does it
            self._throttle.record_refused(slot)
        raise error

    async def _read_error(self, answer: Response) -> ModelError:
        try:
            body = await answer.read(_MAX_ERROR_BYTES)
        except NetError:
            body = b""  # the status is enough
        return classify_error(answer.status, answer.headers, body, self.profile.provider, now=self._clock.now())

    def _raise_wrong_url(self, told: str) -> NoReturn:
        error = BadRequest(
            f"{mask_url(self._base)!r} {told}: check base_url, which must be the API of {self.profile.provider}"
        )
        error.is_unknown_model = True
        raise error

    def _finish_broken_reply(self, decoder: Decoder | None, error: NetError) -> Iterable[ModelEvent]:
        """Return the last events of a reply whose connection broke. Raises a `ModelError` if it is incomplete."""
        if decoder is None:
            kind = ProviderDown if error.retryable else ModelError
            raise kind(f"{self.info.name} of {self.profile.provider} cannot be reached: {error}") from error
        if not error.retryable:
            raise ModelError(f"the reply of {self.info.name} cannot be read: {error}") from error
        try:
            return list(decoder.end())
        except ReplyCutOff:
            raise ReplyCutOff(f"the reply of {self.info.name} broke off: {error}") from error

    def _check_progress(self, quiet_since: float | None) -> float:
        """Return the time since which the response has had no content. Raises `HttpTimeoutExceeded` if too long ago."""
        now = self._clock.monotonic()
        if quiet_since is None:
            return now
        if now - quiet_since > self._progress_seconds:
            raise HttpTimeoutExceeded(f"no content for {self._progress_seconds:g} s, though the connection is alive")
        return quiet_since

    def _learn_from_error(self, error: ModelError, slot: RequestSlot) -> None:
        """Update the rate limits, or the model's context window, from what an error reveals."""
        if isinstance(error, (RateLimited, ProviderDown)) and error.retryable:
            if isinstance(error, RateLimited) or error.retry_after_seconds is not None:
                self._throttle.record_refused(slot, error.retry_after_seconds)
        elif isinstance(error, ContextOverflow) and error.window_tokens and self.profile.context_tokens is None:
            self.profile = replace(self.profile, context_tokens=error.window_tokens)
            self.info = self.profile.info

    def _find_next_form(self, error: ModelError, sent: Request, sending: EncodedRequest) -> NextForm | None:
        """Return the form in which to send a refused request once more, and keep it for later requests."""
        profile = self.profile
        while (form := find_next_form(error, sent, profile)) is not None:
            sent, profile = form.request, form.profile
            if self._wire.encode(sent, profile, EncodingMemo()).body != sending.body:  # else it was this form already
                self.profile = profile
                self._refused.record_form(form)
                break
        return form

    def _raise_explained(self, error: ModelError, sent: EncodedRequest) -> NoReturn:
        """Raise the error of a failed request; if the provider refused it, with the rules that it breaks."""
        if type(error) is BadRequest:
            with suppress(ValueError, TypeError, AttributeError, KeyError):  # a rule must not hide what was said
                if problems := self._wire.lint(msgspec.json.decode(sent.body), self.profile):
                    found = "; ".join(problems[:_MAX_PROBLEMS])
                    error.args = (f"{error} What may be the reason: {found}.", *error.args[1:])
        raise error

    def __repr__(self) -> str:
        return f"HttpModel({self.info.name!r} at {mask_url(self._base)!r})"


class _ImmediateRetries:
    """Immediate retries of one request: with a renewed key, or without a tool that the provider rejects."""

    __slots__ = ("_auth", "_quarantine", "_renewed")

    def __init__(self, auth: Auth, quarantine: RejectedTools) -> None:
        self._auth = auth
        self._quarantine = quarantine
        self._renewed = False

    async def prepare_retry(
        self, error: ModelError, sent_request: Request, *, has_started: bool
    ) -> Sequence[ModelEvent] | None:
        """Return the events to emit before a retry; `None` if there is none, or the reply has started."""
        if has_started:
            return None
        if isinstance(error, AuthFailed) and not self._renewed and await self._auth.renew():
            self._renewed = True
            return ()
        warning = self._quarantine.quarantine_from_error(error, sent_request)
        return None if warning is None else (ErrorRaised(type(error).__name__, warning, "model"),)


async def _drain_response(answer: Response, chunks: AsyncIterator[bytes]) -> None:
    """Read the rest of a completed response, for a short time, so that its connection can be reused."""
    if getattr(answer, "is_complete", False):  # most are, by then, and a timer would take as long as several events
        return
    with suppress(TimeoutError, NetError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in chunks:
                pass


def _build_waiting_event(obstacle: WaitReason) -> RetryScheduled:
    return RetryScheduled(0, 0, obstacle.seconds or 0.0, "RateLimited", f"waiting to send: {obstacle.reason}")


def _get_used_tokens(last: ModelEvent | None) -> int | None:
    """Return the number of tokens that the reply reports as used; `None` if it reports none."""
    return last.usage.total_tokens if type(last) is ReplyFinished and last.usage is not None else None
