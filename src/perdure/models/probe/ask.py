"""One question to an endpoint, and what came back, looked at closely. Above: the experiments. Below: wires, `net`.

The questions go through the wire that the runtime would use, with the profile as far as it is known: what is found out
is whether the runtime's own requests are understood.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure.core.clock import SYSTEM_CLOCK, Clock
from perdure.core.error import ModelError, RateLimited
from perdure.core.event import ModelEvent, ReplyFinished, ThinkingDelta
from perdure.core.message import Message, Usage
from perdure.core.model import OutputSpec, Request, Settings, ToolSpec, assemble
from perdure.models.auth import Auth
from perdure.models.listing import with_path
from perdure.models.memo import Memo
from perdure.models.profile import Profile
from perdure.models.refusal import classified
from perdure.models.wire import Wire
from perdure.net.transport import Answer, Transport

MOST_REQUESTS = 28
"""How many questions are asked at most."""
MOST_TOKENS = 512
"""How long an answer may be: enough for a model that thinks before it says one word."""
_MOST_BYTES = 4 * 1024 * 1024
_OK = range(200, 300)
_PATIENCE = 3
"""How often a question is put to an endpoint that is told to be asked more slowly."""
_WAIT_SECONDS = 5.0
_LONGEST_WAIT_SECONDS = 30.0

_SETTINGS = Settings(max_output_tokens=MOST_TOKENS)
_INSTRUCTIONS = "You take part in a test. Do exactly what is asked, briefly."

Change: TypeAlias = Callable[[dict[str, Any]], object]
"""Changes the body of a request, for what the wire itself would not say."""


class Heard(Struct):
    """What came back."""

    error: ModelError | None = None
    """Why there is no answer, if there is none."""
    message: Message = Message("assistant")
    usage: Usage | None = None
    streamed: bool = False
    """Whether the answer came as a stream."""
    thought: bool = False
    """Whether thinking was shown."""
    body: bytes = b""
    """What came, as it came."""
    status: int = 200

    @property
    def answered(self) -> bool:
        """Whether the request was accepted."""
        return self.error is None

    @property
    def reason(self) -> str:
        """Why it was not, in a line."""
        return " ".join(str(self.error).split())[:200] if self.error else ""


class NoMoreQuestions(Exception):
    """The endpoint has been asked often enough."""


class Asker:
    """Asks one endpoint, and counts."""

    def __init__(
        self,
        wire: Wire,
        base_url: str,
        auth: Auth,
        transport: Transport,
        *,
        clock: Clock = SYSTEM_CLOCK,
        tell: Callable[[str], object] = bool,
    ) -> None:
        self.wire = wire
        self.base_url = base_url
        self.auth = auth
        self.transport = transport
        self.asked = 0
        """How many questions have been asked."""
        self._clock = clock
        self._tell = tell

    async def ask(
        self,
        about: str,
        profile: Profile,
        message: Message,
        *,
        tools: Sequence[ToolSpec] = (),
        output: OutputSpec | None = None,
        settings: Mapping[str, Any] | None = None,
        change: Change | None = None,
    ) -> Heard:
        """Put one question. A refusal is an answer too; raises a `NetError` when nobody answers at all."""
        request = Request(
            messages=(message,),
            instructions=_INSTRUCTIONS,
            tools=tools,
            output=output,
            settings=replace(_SETTINGS, **(settings or {})),
        )
        heard = Heard()
        for _ in range(_PATIENCE):
            heard = await self._once(about, profile, request, change)
            if not isinstance(heard.error, RateLimited):
                break
            wait = min(heard.error.retry_after_seconds or _WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
            self._tell(f"asked to slow down: waiting {wait:.0f} s")
            await self._clock.sleep(wait)
        return heard

    async def _once(self, about: str, profile: Profile, request: Request, change: Change | None) -> Heard:
        if self.asked == MOST_REQUESTS:
            raise NoMoreQuestions
        self.asked += 1
        self._tell(about)
        try:
            sending = self.wire.encode(request, profile, Memo())
        except ModelError as error:  # our own rules: then the endpoint need not be asked
            return Heard(error)
        body = sending.body if change is None else _changed(sending.body, change)
        url = with_path(self.base_url, sending.path)
        headers = {"content-type": "application/json", **sending.headers, **await self.auth.headers(url, body)}
        async with self.transport.post(url, headers, body) as answer:
            return await self._heard(answer, profile)

    async def _heard(self, answer: Answer, profile: Profile) -> Heard:
        body = await answer.read(_MOST_BYTES)
        if answer.status not in _OK:
            return Heard(
                classified(answer.status, answer.headers, body, profile.provider), body=body, status=answer.status
            )
        media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        decoder = self.wire.decoder(profile, media_type)
        try:
            events = [*decoder.feed(body), *decoder.end()]
        except ModelError as error:
            return Heard(error, body=body)
        return _understood(events, body, streamed=media_type != "application/json")


def _changed(body: bytes, change: Change) -> bytes:
    value: dict[str, Any] = msgspec.json.decode(body)
    change(value)
    return msgspec.json.encode(value)


def _understood(events: list[ModelEvent], body: bytes, *, streamed: bool) -> Heard:
    *deltas, last = events
    finished = last if isinstance(last, ReplyFinished) else None
    message = assemble(deltas, finished)
    thought = any(isinstance(event, ThinkingDelta) for event in deltas)
    return Heard(None, message, finished.usage if finished else None, streamed, thought, body)
