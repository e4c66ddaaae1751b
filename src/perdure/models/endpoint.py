"""A model somewhere else: a wire, a profile, an address and a key, put together. Above: the catalogue, callers. Below:
wires, `throttle.py`, `net`.

    encode the request → wait for a slot → post → decode the answer, as it comes

Whatever goes wrong on the way leaves here as a `ModelError`. Nothing is tried again here but a request with a renewed
key, and one without a tool that the provider does not take; the rest is up to `retried`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from msgspec.structs import replace

from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.error import (
    AuthFailed,
    BadRequest,
    ContextOverflow,
    ModelError,
    ProviderDown,
    RateLimited,
    ReplyCutOff,
)
from perdure.core.event import ErrorRaised, ModelEvent, ReplyFinished, RetryScheduled
from perdure.core.model import Request
from perdure.net.error import NetError, TooSlow
from perdure.net.http import shared
from perdure.net.tap import masked_url, without_secrets
from perdure.net.transport import Answer, Transport

from .auth import Auth, Fixed
from .flow import Obstacle, Slot
from .memo import Memo
from .profile import Profile
from .quarantine import Quarantine
from .refusal import classified
from .throttle import Throttle, throttle_for
from .wire import Decoder, Sending, Wire

PROGRESS_SECONDS = 600.0
"""How long an answer may go on that says nothing: pings keep a connection open, and somebody has to lose patience."""
GRACE_SECONDS = 1.0
"""How long an answer may take to end that has said all."""
MOMENT_SECONDS = 1.0
"""Whoever waits for a slot for longer than this gets to know why."""

_MOST_REFUSAL_BYTES = 256 * 1024
_BYTES_PER_TOKEN = 4
"""A rule of thumb, until the provider says what it has counted."""
_REDIRECTS = range(300, 400)
_OVERLOADED = frozenset({503, 529})


class Endpoint:
    """A model that is reached over the network."""

    def __init__(
        self,
        wire: Wire,
        profile: Profile,
        *,
        base_url: str,
        auth: Auth | None = None,
        transport: Transport | None = None,
        throttle: Throttle | None = None,
        progress_seconds: float = PROGRESS_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Without a `transport`, connections are shared by the process; without a `throttle`, so are the limits of the
        key. `base_url` may hold a query, which goes with every request.
        """
        self.profile = profile
        """What the model can do; its window is learned when it is not known."""
        self.info = profile.info
        """What `info_of` tells about it."""
        base, _, self._query = base_url.partition("?")
        self._base = base.rstrip("/")
        self._wire = wire
        self._auth = auth or Fixed({})
        self._transport = transport or shared()
        self._throttle = throttle or throttle_for(self._base, self._auth.identity)
        self._progress_seconds = progress_seconds
        self._clock = clock
        self._memo = Memo()
        self._quarantine = Quarantine()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:  # noqa: PLR0912 - nothing may be put in between
        """The answer, as it comes. Raises a `ModelError`.

        A `RetryScheduled` of attempt 0 tells that the request waits for a slot of its key: nothing has failed.
        """
        throttle, chances = self._throttle, _Chances(self._auth, self._quarantine)
        while True:
            asked = self._quarantine.without(request)
            sending = self._wire.encode(asked, self.profile, self._memo)
            tokens = len(sending.body) // _BYTES_PER_TOKEN
            slot = throttle.enter(tokens)
            if slot is None:
                place = throttle.line(tokens)
                try:
                    slot = await throttle.reached(place, MOMENT_SECONDS)
                    if slot is None:
                        yield _waiting(place.obstacle)
                        slot = await throttle.reached(place)
                finally:
                    throttle.give_up(place)
            event: ModelEvent | None = None
            decoder: Decoder | None = None
            headers: Mapping[str, str] = {}
            try:  # every event passes here, so no generator, no task and no timer of its own is put in between
                url, headers = await self._addressed(sending)
                async with self._transport.post(url, headers, sending.body) as answer:
                    await self._check(answer, slot)
                    decoder = self._wire.decoder(self.profile, _media_type(answer))
                    quiet_since: float | None = None
                    chunks = answer.chunks()
                    async for data in chunks:
                        before = event
                        for event in decoder.feed(data):
                            yield event
                        if decoder.done:
                            await _let_end(chunks)
                            break
                        quiet_since = None if event is not before else self._patient(quiet_since)
                for event in decoder.end():
                    yield event
                return
            except NetError as error:
                for event in self._ending(decoder, error):
                    yield event
                return
            except ModelError as error:
                error.args = (without_secrets(str(error), headers), *error.args[1:])
                self._learn(error, slot)
                for notice in await chances.another(error, asked, begun=event is not None):
                    yield notice
            finally:
                throttle.leave(slot, _used(event))

    async def _addressed(self, sending: Sending) -> tuple[str, Mapping[str, str]]:
        """Where to send it, and with which headers."""
        url = self._base + sending.path
        if self._query:
            url += f"{'&' if '?' in sending.path else '?'}{self._query}"
        headers = {"content-type": "application/json"}
        for said in (sending.headers, await self._auth.headers(url, sending.body)):
            for name, text in said.items():
                headers[name.lower()] = text
        return url, headers

    # -- the answer ----------------------------------------------------------------------------------------------------

    async def _check(self, answer: Answer, slot: Slot) -> None:
        """Raise what the provider says, when it does not answer."""
        status = answer.status
        if status < _REDIRECTS.start:
            if _media_type(answer) == "text/html":
                self._refuse(f"answers with a web page instead of a reply (HTTP {status})")
            self._throttle.accepted(slot)
            return
        if status in _REDIRECTS and (location := answer.headers.get("location")):
            self._refuse(f"answers with a redirect to {masked_url(location)!r} (HTTP {status}), which is not followed")
        error = await self._refusal(answer)
        if status in _OVERLOADED and error.retry_after_seconds is None:  # else it says so itself: see `_learn`
            self._throttle.refused(slot)
        raise error

    async def _refusal(self, answer: Answer) -> ModelError:
        try:
            body = await answer.read(_MOST_REFUSAL_BYTES)
        except NetError:
            body = b""  # the status says enough
        return classified(answer.status, answer.headers, body, self.profile.provider, now=self._clock.now())

    def _refuse(self, told: str) -> NoReturn:
        raise BadRequest(
            f"{masked_url(self._base)!r} {told}: check base_url, which must be where {self.profile.provider} answers"
        )

    def _ending(self, decoder: Decoder | None, error: NetError) -> Iterable[ModelEvent]:
        """The end of an answer that broke off, if the provider had said all: then nothing is lost."""
        if decoder is None:
            kind = ProviderDown if error.retryable else ModelError
            raise kind(f"{self.info.name} of {self.profile.provider} cannot be asked: {error}") from error
        if not error.retryable:
            raise ModelError(f"the reply of {self.info.name} cannot be read: {error}") from error
        try:
            return list(decoder.end())
        except ReplyCutOff:
            raise ReplyCutOff(f"the reply of {self.info.name} broke off: {error}") from error

    def _patient(self, quiet_since: float | None) -> float:
        """Since when the answer has said nothing. Raises `TooSlow` when that is too long."""
        now = self._clock.monotonic()
        if quiet_since is None:
            return now
        if now - quiet_since > self._progress_seconds:
            raise TooSlow(f"it has said nothing for {self._progress_seconds:g} s, though its connection is alive")
        return quiet_since

    def _learn(self, error: ModelError, slot: Slot) -> None:
        """What an error says about the provider: that it wants a pause, or how much the model can read."""
        if isinstance(error, (RateLimited, ProviderDown)) and error.retryable:
            if isinstance(error, RateLimited) or error.retry_after_seconds is not None:
                self._throttle.refused(slot, error.retry_after_seconds)
        elif isinstance(error, ContextOverflow) and error.window_tokens and self.profile.context_tokens is None:
            self.profile = replace(self.profile, context_tokens=error.window_tokens)
            self.info = self.profile.info

    def __repr__(self) -> str:
        return f"Endpoint({self.info.name!r} at {masked_url(self._base)!r})"


class _Chances:
    """Why one request may be sent again at once: a renewed key, and each tool that the provider does not take."""

    __slots__ = ("_auth", "_quarantine", "_renewed")

    def __init__(self, auth: Auth, quarantine: Quarantine) -> None:
        self._auth = auth
        self._quarantine = quarantine
        self._renewed = False

    async def another(self, error: ModelError, asked: Request, *, begun: bool) -> Sequence[ModelEvent]:
        """What to tell before it is sent again. Raises the error when that is hopeless, or the answer has begun."""
        if begun:
            raise error
        if isinstance(error, AuthFailed) and not self._renewed and await self._auth.renew():
            self._renewed = True
            return ()
        warning = self._quarantine.blamed(error, asked)
        if warning is None:
            raise error
        return (ErrorRaised(type(error).__name__, warning, "model"),)


async def _let_end(chunks: AsyncIterator[bytes]) -> None:
    """Wait for the end of an answer that has said all, so that its connection can be used again; but not for long,
    because there are servers that leave it open.
    """
    with suppress(TimeoutError, NetError):
        async with asyncio.timeout(GRACE_SECONDS):
            async for _ in chunks:
                pass


def _waiting(obstacle: Obstacle) -> RetryScheduled:
    return RetryScheduled(0, 0, obstacle.seconds or 0.0, "RateLimited", f"waiting to ask: {obstacle.reason}")


def _media_type(answer: Answer) -> str:
    return answer.headers.get("content-type", "").partition(";")[0].strip().lower()


def _used(last: ModelEvent | None) -> int | None:
    """How many tokens an answer has used, when it has said so."""
    return last.usage.total_tokens if type(last) is ReplyFinished and last.usage is not None else None
