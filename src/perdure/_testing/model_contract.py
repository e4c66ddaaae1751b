"""Test suite for your own models: `check_model` checks what every `Model` must guarantee.

    async def test_my_model_keeps_the_contract():
        await check_model(lambda: MyModel(...))

Each guarantee is one function below. A violation raises an `AssertionError` that says what to fix.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias, cast, get_args

import msgspec

from perdure._core.model.protocol import Model, Request, ToolSpec, assemble_reply
from perdure._core.values.error import ConfigError, ModelError
from perdure._core.values.event import ModelEvent, ReplyFinished
from perdure._core.values.message import Message, ToolCall, Usage, user

_EVENTS = get_args(ModelEvent)

_ADD = ToolSpec(
    "add",
    "Add two numbers.",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)

REQUEST = Request(messages=(user("Use the tool to add 20 and 22."),), instructions="Be brief.", tools=(_ADD,))
"""Request that `check_model` sends unless another is given."""

_ROUNDS = 10
"""Event loop iterations after which a cancelled task must be gone."""

_Make: TypeAlias = Callable[[], Model]


async def check_model(make: _Make, *, request: Request | None = None, timeout_seconds: float = 10.0) -> None:
    """Check that a model streams, ends, cancels and closes as every `Model` must; `make` creates a new model.

    About ten requests are sent. The request must be one that the model answers, best with a tool call. A real provider
    may need a longer `timeout_seconds`, which bounds each answer, each close and each cancel.
    """
    given: Any = make
    if not callable(given) or not callable(getattr(given(), "stream", None)):
        raise ConfigError(f"check_model({make!r}): give a function that makes a model, such as lambda: MyModel(...)")
    asked = request or REQUEST
    checks = (
        _answers_and_leaves_the_request_alone,
        _keeps_two_streams_apart,
        _can_be_closed_before_it_begins,
        _can_be_closed_early,
        _can_be_cancelled_while_it_waits,
        _can_be_cancelled_after_its_first_event,
    )
    for check in checks:
        before = asyncio.all_tasks()
        try:
            async with asyncio.timeout(timeout_seconds):
                await check(make, asked)
        except TimeoutError as error:
            raise AssertionError(
                f"the model {check.__name__.strip('_').replace('_', ' ')}: not within {timeout_seconds:g} s; "
                f"end the stream, and let go of connections, as soon as you are closed or cancelled"
            ) from error
        await _expect_no_new_task(before)


# -- the promises ------------------------------------------------------------------------------------------------------


async def _answers_and_leaves_the_request_alone(make: _Make, request: Request) -> None:
    before = msgspec.json.encode(request)
    events = await _collect_events(make().stream(request))
    _expect_whole(events)
    _expect(
        msgspec.json.encode(request) == before,
        "the model changed the request (its messages, tools or settings): copy what you need to change",
    )


async def _keeps_two_streams_apart(make: _Make, request: Request) -> None:
    """Check that two streams of one model, read alternately, produce the same as one after the other."""
    alone, again = [await _read_sequentially(make(), request) for _ in range(2)]
    model = make()
    together = await _read_alternately(model.stream(request), model.stream(request))
    for events in together:
        _expect_whole(events)
    if alone == again:  # a model that answers differently each time cannot be compared
        _expect(
            [_comparable_content(events) for events in together] == alone,
            "two streams of one model, read at the same time, mixed: keep what belongs to a stream in local variables "
            "of `stream`, not on the model",
        )


async def _can_be_closed_before_it_begins(make: _Make, request: Request) -> None:
    stream = make().stream(request)
    await _close_stream(stream)
    await _expect_end(stream)


async def _can_be_closed_early(make: _Make, request: Request) -> None:
    stream = make().stream(request)
    await _next_event(stream)
    await _close_stream(stream)
    await _expect_end(stream)


async def _can_be_cancelled_while_it_waits(make: _Make, request: Request) -> None:
    task = asyncio.create_task(_collect_events(make().stream(request)))
    await asyncio.sleep(0)  # now it has begun: it is either done, or waits inside the model
    await _expect_cancelled(task)


async def _can_be_cancelled_after_its_first_event(make: _Make, request: Request) -> None:
    begun = asyncio.Event()
    task = asyncio.create_task(_collect_events(make().stream(request), begun))
    task.add_done_callback(lambda _: begun.set())
    await begun.wait()
    await _expect_cancelled(task)


# -- what a whole stream is --------------------------------------------------------------------------------------------


def _expect_whole(events: Sequence[ModelEvent]) -> None:
    endings = [event for event in events if isinstance(event, ReplyFinished)]
    _expect(
        len(endings) > 0,
        f"the stream ended after {len(events)} events without a ReplyFinished: yield one at the end, or raise "
        f"ReplyCutOff when the provider broke off",
    )
    _expect(len(endings) == 1, f"the stream holds {len(endings)} ReplyFinished: yield exactly one")
    finished = endings[0]
    _expect(events[-1] is finished, f"{events[-1]!r} came after ReplyFinished: it must be the last event of a stream")
    told = assemble_reply(events[:-1], ReplyFinished(finished.stop, finished.usage, finished.model, finished.provider))
    if finished.message is not None:
        _expect_agreement(told, finished.message)
    _expect_sound_calls((finished.message or told).tool_calls)
    if finished.usage is not None:
        _expect_sound_usage(finished.usage)


def _expect_agreement(told: Message, message: Message) -> None:
    _expect(message.role == "assistant", f"ReplyFinished.message has the role {message.role!r}: it must be 'assistant'")
    for what in ("text", "thinking"):
        streamed, whole = getattr(told, what), getattr(message, what)
        _expect(
            not streamed or streamed == whole,
            f"the {what} of the deltas, {streamed!r}, is not that of ReplyFinished.message, {whole!r}: "
            f"stream every piece once and in order, or none of them",
        )
    streamed_calls, whole_calls = _comparable_calls(told), _comparable_calls(message)
    _expect(
        not streamed_calls or streamed_calls == whole_calls,
        f"the calls of the deltas, {streamed_calls!r}, are not those of ReplyFinished.message, {whole_calls!r}: give "
        f"each call its own `index`, and its id and name once",
    )


def _expect_sound_calls(calls: Sequence[ToolCall]) -> None:
    seen: set[str] = set()
    for call in calls:
        _expect(call.name, f"{call!r} has no name: put it into the first ToolCallDelta of the call")
        _expect(call.call_id, f"the call of {call.name!r} has no id: make one up when the provider gives none")
        _expect(call.call_id not in seen, f"two calls have the id {call.call_id!r}: ids are unique within a reply")
        seen.add(call.call_id)
        try:
            msgspec.json.decode(call.arguments)
        except (msgspec.DecodeError, TypeError) as error:
            raise AssertionError(
                f"the arguments of the call of {call.name!r} are {call.arguments!r}, which is no JSON text ({error}): "
                f"pass on what the provider sent, and '{{}}' when it sent nothing"
            ) from error


def _expect_sound_usage(usage: Usage) -> None:
    counts = {name: getattr(usage, name) for name in usage.__struct_fields__ if name.endswith("_tokens")}
    _expect(
        all(isinstance(count, int) and count >= 0 for count in counts.values()),
        f"{usage!r} holds a count that is no whole number from 0 on",
    )
    _expect(
        usage.cache_read_tokens + usage.cache_write_tokens <= usage.input_tokens,
        f"{usage!r}: input_tokens counts everything that was read, so add the cached tokens to it",
    )
    _expect(
        usage.reasoning_tokens <= usage.output_tokens,
        f"{usage!r}: output_tokens counts everything that was written, so add the reasoning tokens to it",
    )


def _expect(condition: object, message: str) -> None:
    """Raise `AssertionError` unless the condition is true, also under `python -O`."""
    if not condition:
        raise AssertionError(message)


# -- listening ---------------------------------------------------------------------------------------------------------


async def _next_event(stream: AsyncIterator[ModelEvent]) -> ModelEvent | None:
    """Return the next event, or `None` at the end."""
    try:
        event: Any = await anext(stream)
    except StopAsyncIteration:
        return None
    except ModelError as error:
        raise AssertionError(f"check_model needs a request that the model answers, and it raised {error!r}") from error
    except Exception as error:
        raise AssertionError(
            f"the model raised {error!r}: turn foreign errors into a ModelError of the right class at the border"
        ) from error
    _expect(
        isinstance(event, _EVENTS),
        f"the stream yielded {event!r}: yield the events of perdure.events.ModelEvent",
    )
    return cast("ModelEvent", event)


async def _collect_events(stream: AsyncIterator[ModelEvent], begun: asyncio.Event | None = None) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    while (event := await _next_event(stream)) is not None:
        events.append(event)
        if begun is not None:
            begun.set()
    return events


async def _read_sequentially(model: Model, request: Request) -> list[Any]:
    return [_comparable_content(await _collect_events(model.stream(request))) for _ in range(2)]


async def _read_alternately(*streams: AsyncIterator[ModelEvent]) -> list[list[ModelEvent]]:
    heard: list[list[ModelEvent]] = [[] for _ in streams]
    going = list(range(len(streams)))
    while going:
        for place in tuple(going):
            event = await _next_event(streams[place])
            if event is None:
                going.remove(place)
            else:
                heard[place].append(event)
    return heard


def _comparable_content(events: Sequence[ModelEvent]) -> Any:
    """Return the content of a stream without what may differ: ids, signatures, tokens."""
    finished = next((event for event in events if isinstance(event, ReplyFinished)), None)
    message = assemble_reply([event for event in events if event is not finished], finished)
    return message.text, message.thinking, [(call.name, call.arguments) for call in message.tool_calls]


def _comparable_calls(message: Message) -> list[tuple[str, str, str]]:
    return [(call.call_id, call.name, call.arguments) for call in message.tool_calls]


# -- leaving -----------------------------------------------------------------------------------------------------------


async def _close_stream(stream: AsyncIterator[ModelEvent]) -> None:
    aclose: Any = getattr(stream, "aclose", None)
    _expect(
        callable(aclose),
        f"{stream!r} cannot be closed: write `stream` as an async generator, or give the iterator an `aclose`",
    )
    await aclose()


async def _expect_end(stream: AsyncIterator[ModelEvent]) -> None:
    event = await _next_event(stream)
    _expect(event is None, f"the stream said {event!r} after it was closed: a closed stream is over")


async def _expect_cancelled(task: asyncio.Task[list[ModelEvent]]) -> None:
    if not task.cancel():
        task.result()  # it never waited, and was done before it could be cancelled; was all well?
        return
    await asyncio.wait((task,))
    _expect(
        task.cancelled(),
        "the model did not end with CancelledError when it was cancelled: never swallow or translate it, not in "
        "`except BaseException` or `finally` either",
    )


async def _expect_no_new_task(before: set[asyncio.Task[Any]]) -> None:
    for _ in range(_ROUNDS):
        if not asyncio.all_tasks() - before:
            return
        await asyncio.sleep(0)
    left = sorted(task.get_name() for task in asyncio.all_tasks() - before)
    raise AssertionError(
        f"the model left tasks behind: {', '.join(left)}; end every task that a stream starts in its `finally`"
    )
