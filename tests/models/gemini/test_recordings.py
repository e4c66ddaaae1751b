"""Every recorded exchange with Gemini: what it says, cut anywhere, and answered as its recorder answered it."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from perdure import (
    ContentRefused,
    Document,
    Image,
    Message,
    ModelError,
    RateLimited,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    tool_message,
)
from perdure._core.model.protocol import sanitize_reply
from perdure._models.provider_errors.classify import classify_error
from perdure._models.wires.gemini import WIRE
from perdure._models.wires.gemini.encode import PLACEHOLDER_SIGNATURE
from perdure.events import ModelEvent, ReplyFinished
from perdure.models import EncodingMemo, Profile, Request, assemble_reply
from tests.seeds import chance
from tests.wire.recordings import (
    Exchange,
    Recording,
    Skipped,
    chunked,
    cuts,
    each_exchange,
    each_recording,
    recordings,
)

pytestmark = pytest.mark.wire

API = "gemini"
WRAPPINGS = ("output", "error", "result", "return_value", "content")
SKIPPED = Skipped({"5299a9": "the prompt was refused: there is no answer"})
OTHER_APIS = {
    "gemini-count-tokens": "counts the tokens of a request, and answers nothing",
    "gemini-interactions": "another API with a server-side conversation, and the one recording is an error",
}


def has_answer(exchange: Exchange) -> bool:
    return exchange.ok and SKIPPED.reason(exchange) is None


def profile_of(exchange: Exchange) -> Profile:
    found = re.search(r"models/([^:]+):", exchange.path)
    assert found
    return Profile(provider=exchange.provider, model=found[1], schema="gemini", documents=True, audio=True, video=True)


def decoded(profile: Profile, pieces: Sequence[bytes]) -> Message:
    decoder = WIRE.decoder(profile, "text/event-stream")
    events: list[ModelEvent] = []
    for piece in pieces:
        events += decoder.feed(piece)
    *rest, finished = decoder.end()
    assert isinstance(finished, ReplyFinished)
    events += rest
    streamed = assemble_reply(events, ReplyFinished(provider=finished.provider, model=finished.model))
    whole = assemble_reply(events, finished)
    assert (whole.text, whole.thinking) == (streamed.text, streamed.thinking)
    assert whole.tool_calls == streamed.tool_calls
    return whole


# -- an independent reader, as plain as can be -------------------------------------------------------------------------


def chunks_of(exchange: Exchange) -> list[dict[str, Any]]:
    if exchange.streamed:
        lines = exchange.data.decode().replace("\r", "").split("\n")
        return [json.loads(line[5:]) for line in lines if line.startswith("data:")]
    body = exchange.json
    return body if isinstance(body, list) else [body]


def parts_of(exchange: Exchange) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for chunk in chunks_of(exchange):
        for candidate in chunk.get("candidates", [])[:1]:
            found += candidate.get("content", {}).get("parts", [])
    return found


def calls_of(parts: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any, str]]:
    calls: list[tuple[str, Any, str]] = []
    for part in parts:
        call = part.get("functionCall")
        if call is None:
            continue
        if "name" in call:
            calls.append((call["name"], dict(call.get("args", {})), part.get("thoughtSignature", "")))
        for piece in call.get("partialArgs", []):
            name = piece["jsonPath"].removeprefix("$.")
            arguments = calls[-1][1]
            arguments[name] = arguments.get(name, "") + piece["stringValue"]
    return calls


@each_exchange(API, where=has_answer)
def test_a_recorded_answer_is_understood(exchange):
    parts = parts_of(exchange)
    message = decoded(profile_of(exchange), chunked(exchange.data, chance(exchange.label)))

    texts = [part for part in parts if "text" in part]
    assert message.text == "".join([part["text"] for part in texts if not part.get("thought")])
    assert message.thinking == "".join([part["text"] for part in texts if part.get("thought")])
    assert [(call.name, json.loads(call.arguments), call.signature) for call in message.tool_calls] == calls_of(parts)
    signed = [(part["text"], part["thoughtSignature"]) for part in texts if "thoughtSignature" in part]
    assert [
        (part.text, part.signature) for part in message.parts if isinstance(part, Text) and part.signature
    ] == signed
    opaque = [part for part in parts if not {"text", "functionCall", "inlineData"} & part.keys()]
    kept = [part.details["part"] for part in message.parts if isinstance(part, Thinking) and part.details]
    assert kept == opaque


@each_exchange(API, where=has_answer)
def test_the_pieces_in_which_an_answer_arrived_make_no_difference(exchange):
    assert decoded(profile_of(exchange), exchange.chunks) == decoded(profile_of(exchange), [exchange.data])


@each_exchange(API, where=has_answer)
def test_recorded_usage_is_counted(exchange):
    told = [chunk["usageMetadata"] for chunk in chunks_of(exchange) if "usageMetadata" in chunk][-1]
    usage = decoded(profile_of(exchange), [exchange.data]).usage
    assert usage is not None
    thoughts = told.get("thoughtsTokenCount", 0)
    assert usage.output_tokens == told.get("candidatesTokenCount", 0) + thoughts
    assert usage.reasoning_tokens == thoughts
    assert usage.cache_read_tokens == told.get("cachedContentTokenCount", 0)
    if "promptTokenCount" in told:
        assert usage.precision == "exact"
        assert usage.total_tokens == told["totalTokenCount"]
    else:
        assert usage.precision == "partial"


@each_exchange(API, where=has_answer)
def test_recorded_reasons_to_stop_are_told(exchange):
    reason = [c["candidates"][0]["finishReason"] for c in chunks_of(exchange) if "finishReason" in c["candidates"][0]][
        -1
    ]
    expected = {
        "STOP": StopReason.STOP,
        1: StopReason.STOP,
        "MAX_TOKENS": StopReason.LENGTH,
        "SAFETY": StopReason.CONTENT_FILTER,
        "UNEXPECTED_TOOL_CALL": StopReason.TOOL_USE,
    }[reason]
    message = decoded(profile_of(exchange), [exchange.data])
    assert message.stop == (StopReason.TOOL_USE if message.tool_calls and expected == "stop" else expected)


@pytest.mark.faults
@each_exchange(API, where=has_answer)
def test_a_recorded_answer_that_is_cut_off_is_never_finished(exchange):
    data, profile = exchange.data, profile_of(exchange)
    whole = decoded(profile, [data])
    for cut in cuts(data, most=1_500):
        try:
            message = decoded(profile, [data[:cut]])
        except ModelError:
            continue
        # What is missing can only be the end of a line, or the bracket that closes an array.
        assert message == whole
        assert not data[cut:].strip(b"\r\n ]")


@each_exchange(API, where=lambda exchange: exchange.ok and exchange.request is not None)
def test_a_request_that_was_accepted_breaks_no_rule(exchange):
    assert list(WIRE.lint(exchange.request, profile_of(exchange))) == []


@each_exchange(API, where=lambda exchange: not exchange.ok)
def test_a_recorded_error_has_a_class_of_its_own(exchange):
    error = classify_error(exchange.status, exchange.headers, exchange.data, exchange.provider)
    assert type(error) is not ModelError
    assert isinstance(error, RateLimited) == (exchange.status == 429)


@each_exchange(API, where=lambda exchange: SKIPPED.reason(exchange) is not None)
def test_a_prompt_that_was_blocked_is_refused(exchange):
    with pytest.raises(ContentRefused, match="MODEL_ARMOR"):
        decoded(profile_of(exchange), chunked(exchange.data, chance(1)))


def test_nothing_is_left_out_silently():
    if not recordings(API):
        pytest.skip("no recordings")
    known = {API, "openai-chat", "anthropic-messages", *OTHER_APIS}
    assert {each.api for each in recordings() if each.provider.startswith("google")} <= known
    assert SKIPPED.unused(API) == []
    for api, reason in OTHER_APIS.items():
        print(f"{len(recordings(api))} recordings of {api} are left out: {reason}")  # noqa: T201 - shown by pytest -rA


# -- the next request, made by us --------------------------------------------------------------------------------------


def is_conversation(recording: Recording) -> bool:
    return any("contents" in (each.request or {}) and len(each.request["contents"]) > 1 for each in recording.exchanges)


@each_recording(API, where=is_conversation)
def test_the_next_request_of_a_conversation_is_the_one_that_was_recorded(recording):
    compared = 0
    for before, after in zip(recording.exchanges, recording.exchanges[1:], strict=False):
        known = before.request["contents"]
        if not before.ok or not _goes_on(known, after.request["contents"]):
            continue
        profile = profile_of(before)
        reply = sanitize_reply(decoded(profile, [before.data]), set())
        messages = [*read_contents(known, profile), reply, *answers(reply, after.request["contents"][len(known) + 1 :])]
        sent = WIRE.encode(Request(messages=messages), profile, EncodingMemo())
        body = json.loads(sent.body)
        assert list(WIRE.lint(body, profile)) == []
        assert meaning(body["contents"]) == meaning(after.request["contents"])
        compared += 1
    assert compared or not any(each.ok for each in recording.exchanges[1:])


def _goes_on(known: Sequence[Any], later: Sequence[Any]) -> bool:
    return len(later) > len(known) and meaning(later[: len(known)]) == meaning(known)


def read_contents(contents: Sequence[Mapping[str, Any]], profile: Profile) -> list[Message]:
    """Recorded contents as our messages."""
    messages: list[Message] = []
    for place, content in enumerate(contents):
        parts = [camel(part) for part in content["parts"]]
        if content.get("role") == "model":
            spoken = tuple([_spoken(part, f"call_{place}_{at}") for at, part in enumerate(parts)])
            messages.append(Message("assistant", spoken, "", profile.provider, profile.model))
        elif any("functionResponse" in part for part in parts):
            messages += answers(messages[-1], [content])
        else:
            messages.append(Message("user", tuple([_heard(part) for part in parts])))
    return messages


def answers(reply: Message, contents: Sequence[Mapping[str, Any]]) -> list[Message]:
    """What was sent after a reply: its results, and what the user said then."""
    found: list[Message] = []
    for content in contents:
        parts = [camel(part) for part in content["parts"]]
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if responses:
            results = [_result(call, told) for call, told in zip(reply.tool_calls, responses, strict=True)]
            found.append(tool_message(results))
        else:
            found.append(Message("user", tuple([_heard(part) for part in parts])))
    return found


def _result(call: ToolCall, told: Mapping[str, Any]) -> ToolResult:
    status = Status.ERROR if "error" in told["response"] else Status.OK
    return ToolResult(call.call_id, call.name, (Text(response_text(told["response"])),), status)


def _spoken(part: Mapping[str, Any], call_id: str) -> Text | ToolCall:
    signature = part.get("thoughtSignature", "")
    if "functionCall" in part:
        call = part["functionCall"]
        return ToolCall(call.get("id") or call_id, call["name"], json.dumps(call["args"]), signature)
    return Text(part["text"], signature)


def _heard(part: Mapping[str, Any]) -> Text | Image | Any:
    if "text" in part:
        return Text(part["text"])
    if "fileData" in part:
        return Image(url=part["fileData"]["fileUri"], media_type=part["fileData"]["mimeType"])
    blob = part["inlineData"]
    kind = Image if blob["mimeType"].startswith("image/") else Document
    return kind(base64.b64decode(blob["data"].replace("-", "+").replace("_", "/")), media_type=blob["mimeType"])


# -- what a conversation means, whatever it is written like ------------------------------------------------------------


def camel(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part, each field by the first of its two names; arguments and results are left as they are."""
    told = {re.sub(r"_(\w)", lambda found: found[1].upper(), key): value for key, value in part.items()}
    inside = {"inlineData", "fileData"} & told.keys()
    return {key: camel(value) if key in inside else value for key, value in told.items()}


def standard(text: str) -> str:
    """Base64 as it is usually written, and not as in addresses."""
    return text.replace("-", "+").replace("_", "/")


def meaning(contents: Sequence[Mapping[str, Any]]) -> list[Any]:
    """A conversation without ids, readable thoughts, and signatures that the provider does not ask for."""
    return [
        (content.get("role", "user"), [told for part in content["parts"] if (told := _meant(camel(part))) is not None])
        for content in contents
    ]


def _meant(part: Mapping[str, Any]) -> Any:
    signature = part.get("thoughtSignature", "")
    if part.get("thought") or part.get("text") == "":
        return None
    if "functionCall" in part:
        call = part["functionCall"]
        return "call", call["name"], call.get("args"), "" if signature == PLACEHOLDER_SIGNATURE else standard(signature)
    if "functionResponse" in part:
        return "response", part["functionResponse"]["name"], response_text(part["functionResponse"]["response"])
    if "inlineData" in part:
        return "media", part["inlineData"]["mimeType"], standard(part["inlineData"]["data"])
    return ("file", part["fileData"]["fileUri"]) if "fileData" in part else ("text", part["text"])


def response_text(response: Any) -> str:
    """A result, which every recorder wraps in another way."""
    while isinstance(response, dict) and (key := next((key for key in WRAPPINGS if key in response), None)):
        response = response[key]
    return response if isinstance(response, str) else json.dumps(response)
