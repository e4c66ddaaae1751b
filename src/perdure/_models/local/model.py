"""Build a model whose weights are loaded into this process, and adapt requests to the small packaged one."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from perdure._core.model.protocol import Model, Price, Request, Settings, ToolSpec
from perdure._core.model.wrappers import WrappedModel, open_stream
from perdure._core.values import checks
from perdure._core.values.event import ModelEvent, ReplyFinished, TextDelta
from perdure._core.values.jsonable import replace_surrogates
from perdure._core.values.message import Message, StopReason, ToolResult, assistant, user
from perdure._models.endpoint.http_model import HttpModel
from perdure._models.endpoint.json_tools import json_tools
from perdure._models.endpoint.profile import Profile

from .llama import DEFAULT_SLOTS, BackendOptions, InProcessTransport, get_default_thread_count
from .tool_choice import choose_tool, restrict_tool_values
from .weights import PACKAGED_NAME, WeightsFile, find_weights

MAX_REPLY_TOKENS = 200
"""Tokens after which a reply of the chat is cut off, unless the caller sets a limit."""
MAX_RESULT_CHARACTERS = 600
"""Characters of a tool result that a reply repeats."""
_MAX_ARGUMENT = 80
"""Characters of an argument that a reply repeats."""
_REPEAT_PENALTY = 1.08
"""With less, the weights repeat a sentence for ever; with more, they avoid the right words."""
_MIN_CONTEXT = 1024
"""Smallest context window that has room for the examples."""

_INSTRUCTIONS = "You are SmolLM2, a tiny language model. You know little. Answer in one or two short sentences."
_CHAT: Sequence[tuple[str, str]] = (
    ("Good evening", "Good evening! How can I help you?"),
    ("Who are you?", "I am SmolLM2, a tiny language model that runs on this machine."),
    (
        "What can you do?",
        "I can chat a little in English, calculate, tell the time, and read a file that you name. I am often wrong.",
    ),
    ("What is the largest planet?", "The largest planet is Jupiter."),
    ("Wie hei\u00dft du?", "I am sorry, I only understand English."),
    ("What will happen tomorrow?", "I am sorry, I do not know that."),
    ("Why do leaves fall?", "Leaves fall in autumn because trees save water and energy for the winter."),
)
"""Examples of the chat: with them the weights answer briefly, and stop."""

_RESULT_INSTRUCTIONS = "Say the result of the tool."
_RESULTS: Sequence[tuple[str, str]] = (
    ("How much is 6 * 7?\nResult of calculate: 42", "6 * 7 is 42"),
    ("What day is it?\nResult of now: Monday, 2025-03-03 10:15:00 UTC", "It is Monday, 2025-03-03 10:15:00 UTC"),
    ("What is in todo.txt?\nResult of read_text: Buy bread.", "todo.txt says: Buy bread."),
    ("Save it as a.txt\nResult of write_text: wrote 3 bytes to 'a.txt'", "Done: wrote 3 bytes to 'a.txt'"),
)
_ERROR_LEAD = "I am sorry, that did not work: "


def adapt_to_small_model(model: Model, context_tokens: int) -> Model:
    """Wrap the small packaged model so that a tool is offered to it only if the prompt seems to need one.

    So simple prompts get simple answers and valid tool calls.

    Requests for structured output, and those that require a tool call, are passed on as they are.
    """

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        plan = build_small_model_request(request, context_tokens)
        if plan.prefix:
            yield TextDelta(plan.prefix)
        async with open_stream(model, plan.request) as events:
            async for event in events:
                if plan.may_cut and type(event) is ReplyFinished and event.stop is StopReason.LENGTH:
                    yield TextDelta(" … (cut off: I do not always find an end)")
                    yield replace(event, stop=StopReason.STOP)
                else:
                    yield event

    return WrappedModel(model, stream)


class SmallModelRequest(Struct, frozen=True):
    """Request adapted to the small packaged model, and how its reply is treated."""

    request: Request
    prefix: str = ""
    """Beginning of the reply, which the model does not write: what it did not read of the prompt."""
    may_cut: bool = False
    """True if a reply that reaches its limit counts as complete."""


def build_small_model_request(request: Request, context_tokens: int) -> SmallModelRequest:
    """Simplify a request for the small packaged model, with at most one tool: the one that best matches the prompt.

    The result asks for one tool call, for a sentence about a tool result, or for a chat answer.
    """
    if request.output is not None or request.settings.tool_choice not in {None, "auto", "none"}:
        return SmallModelRequest(request)
    prompt, results = _split_last_exchange(request.messages)
    if results:
        return SmallModelRequest(_request_result_reply(request, prompt or "", results[-1]))
    if prompt is not None and request.settings.tool_choice != "none":
        tool = choose_tool(prompt, request.tools)
        narrowed = tool and restrict_tool_values(tool, prompt)
        if narrowed:
            return SmallModelRequest(_request_call(request, prompt, narrowed))
    return _plan_chat(request, context_tokens)


def _split_last_exchange(messages: Sequence[Message]) -> tuple[str | None, list[ToolResult]]:
    """Return the text of the last message of the user, and the tool results after it."""
    results: list[ToolResult] = []
    for message in reversed(messages):
        if message.role == "user":
            return replace_surrogates(message.text), results
        results[:0] = message.tool_results
    return None, results


def _request_call(request: Request, prompt: str, tool: ToolSpec) -> Request:
    """Return a request that can only be answered by a call of this tool."""
    settings = replace(request.settings, tool_choice=tool.name, parallel_tool_calls=False)
    return replace(request, instructions="", messages=(user(prompt[:2000]),), tools=(tool,), settings=settings)


# -- after a call ------------------------------------------------------------------------------------------------------


def _request_result_reply(request: Request, prompt: str, result: ToolResult) -> Request:
    """Return a request whose reply is a few words followed by the tool result."""
    text = _cut_result(replace_surrogates(result.text).strip())
    label = "Error" if result.is_error else "Result"
    asked = f"{prompt[:200]}\n{label} of {result.name}: {text}"
    choices = " | ".join(map(_quote_for_grammar, _list_leads(request.messages, result)))
    grammar = f"root ::= ({choices}) {_quote_for_grammar(text)}" if text else 'root ::= "Done."'
    return replace(
        request,
        instructions=_RESULT_INSTRUCTIONS,
        messages=(*_build_examples(_RESULTS), user(asked)),
        tools=(),
        settings=_add_to_body(request.settings, {"grammar": grammar}),
    )


def _list_leads(messages: Sequence[Message], result: ToolResult) -> tuple[str, ...]:
    """Return the phrases that may precede a tool result, such as `17 * 23 is `."""
    if result.is_error:
        return (_ERROR_LEAD,)
    values = _get_argument_values(messages, result.call_id)
    if len(values) != 1:
        return ("Done: ", "It is ") if values else ("It is ", "It says: ")
    only = replace_surrogates(str(values[0]))[:_MAX_ARGUMENT]
    return (f"{only} is ",) if _is_number(result.text) else (f"{only} says: ",)


def _get_argument_values(messages: Sequence[Message], call_id: str) -> list[Any]:
    arguments = [call.arguments for message in messages for call in message.tool_calls if call.call_id == call_id]
    try:
        return list(msgspec.json.decode(arguments[-1], type=dict[str, Any]).values()) if arguments else []
    except msgspec.DecodeError:  # it was cut off
        return []


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cut_result(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARACTERS:
        return text
    return f"{text[:MAX_RESULT_CHARACTERS].rstrip()} … (the first {MAX_RESULT_CHARACTERS} of {len(text):,} characters)"


def _quote_for_grammar(text: str) -> str:
    """Quote a text as a literal of a llama.cpp grammar."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    quoted = [escapes.get(each) or (each if each.isprintable() else f"\\U{ord(each):08X}") for each in text]
    return f'"{"".join(quoted)}"'


# -- the chat ----------------------------------------------------------------------------------------------------------


def _plan_chat(request: Request, context_tokens: int) -> SmallModelRequest:
    """Return a request for an answer without tools: examples, and as much of the conversation as fits."""
    given = request.settings
    messages, prefix = _cut_conversation(request.messages, context_tokens)
    examples = not request.instructions and context_tokens >= _MIN_CONTEXT
    settings = _add_to_body(given, {"repeat_penalty": _REPEAT_PENALTY})
    plain = replace(
        request,
        instructions=_INSTRUCTIONS if examples else request.instructions,
        messages=(*(_build_examples(_CHAT) if examples else ()), *messages),
        tools=(),
        settings=replace(settings, max_output_tokens=given.max_output_tokens or MAX_REPLY_TOKENS, tool_choice=None),
    )
    return SmallModelRequest(plain, prefix, may_cut=given.max_output_tokens is None)


def _cut_conversation(messages: Sequence[Message], context_tokens: int) -> tuple[list[Message], str]:
    """Return the latest messages that fit, without calls and results, and a remark if the last one was cut.

    A token is at least one byte, so what has fewer bytes than the window has tokens fits.
    """
    room = context_tokens // 4
    most = context_tokens * 3 // 8
    kept: list[Message] = []
    prefix = ""
    for message in reversed([each for each in messages if each.role != "tool" and each.text]):
        text = replace_surrogates(message.text)
        data = text.encode()
        if not kept:
            if len(data) > most:
                cut = data[:most].decode(errors="ignore")
                prefix = f"(I read only the first {len(cut):,} of {len(text):,} characters.) "
                text = cut
        elif (room := room - len(data)) < 0:
            break
        kept.insert(0, user(text) if message.role == "user" else assistant(text))
    return kept, prefix


def _build_examples(pairs: Sequence[tuple[str, str]]) -> tuple[Message, ...]:
    return tuple([message for asked, said in pairs for message in (user(asked), assistant(said))])


def _add_to_body(settings: Settings, fields: dict[str, Any]) -> Settings:
    return replace(settings, extra_body={**fields, **settings.extra_body})


MAX_DEFAULT_CONTEXT = 8192
"""Maximum default context window: memory for all of it is allocated when the weights are loaded."""
_UNKNOWN_CONTEXT = 2048
_REPLY_FRACTION = 4
"""Fraction of the context for one reply by default (a quarter): small models do not always stop."""


def build_local_model(name: str, *, context_tokens: int | None, slots: int | None, threads: int | None) -> Model:
    """Build a model that runs in this process with llama.cpp, for `open_local`; `slots` is the number of parallel
    replies.
    """
    for argument, value in (("context_tokens", context_tokens), ("slots", slots), ("threads", threads)):
        if value is not None:
            checks.require_int("open_local", argument, value, 1)
    weights = find_weights(name)
    context = context_tokens or min(weights.context_tokens or _UNKNOWN_CONTEXT, MAX_DEFAULT_CONTEXT)
    setup = BackendOptions(weights.path, context, slots or DEFAULT_SLOTS, threads or get_default_thread_count())
    endpoint = HttpModel(
        "openai_chat", _build_profile(weights, context), base_url="local:", transport=InProcessTransport(setup)
    )
    model = json_tools(_with_default_settings(endpoint, context))
    return adapt_to_small_model(model, context) if weights.name == PACKAGED_NAME else model


def _build_profile(weights: WeightsFile, context: int) -> Profile:
    return Profile(
        provider="local",
        model=weights.name,
        context_tokens=context,
        max_output_tokens=context,
        price=Price(input_usd=0.0, output_usd=0.0),
        tools="json",
        parallel_tool_calls=False,
        output="schema",
        images=False,
    )


def _with_default_settings(model: HttpModel, context: int) -> Model:
    """Wrap a model with default settings: temperature 0 for reproducible replies, and a limit on their length."""

    async def stream(request: Request) -> AsyncIterator[ModelEvent]:
        given = request.settings
        settings = replace(
            given,
            temperature=0.0 if given.temperature is None else given.temperature,
            max_output_tokens=given.max_output_tokens or context // _REPLY_FRACTION,
            extra_body={"return_progress": True, **given.extra_body},
        )
        async with open_stream(model, replace(request, settings=settings)) as events:
            async for event in events:
                yield event

    return WrappedModel(model.info, stream)
