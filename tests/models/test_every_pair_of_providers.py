"""A session moves between any two providers of the catalogue: what one wrote, the other accepts, by the rules of each.

The rules are those of `lint`, and those that providers state in their refusals, written here once more.

PERDURE_SEARCH=long    every pair with all settings; in the short form each pair has one of them
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import msgspec
import pytest

from perdure import Document, Image, Message, Settings, Text, ToolResult, user
from perdure._core.model.protocol import sanitize_reply
from perdure._models import builder
from perdure._models.catalogue.entry import Provider
from perdure._models.catalogue.providers import PROVIDERS
from perdure._models.endpoint.wire import load_wire
from perdure._models.wires.openai_chat.dialect import get_dialect
from perdure.models import EncodingMemo, Request, Wire
from tests.models import authors
from tests.models.authors import Author, Json, Reply
from tests.models.histories import PNG, TOOLS

OTHER_MODELS: Mapping[str, Sequence[str]] = {
    "openai": ["gpt-4.1", "gpt-5", "gpt-5.2", "gpt-5.4", "gpt-5.5"],
    "openai-chat": ["gpt-4.1", "gpt-5", "gpt-5.2", "gpt-5.4", "gpt-5.6-terra"],
    "azure": ["gpt-5.6", "Kimi-K2.5", "DeepSeek-V4"],
    "azure-responses": ["gpt-5.6"],
    "openrouter": ["deepseek/deepseek-v4-pro", "moonshotai/kimi-k2.6", "xiaomi/mimo-v2.5-pro", "openai/gpt-5.6"],
    "bedrock": ["amazon.nova-2-pro", "openai.gpt-oss-120b"],
    "vertex": ["claude-sonnet-5-5"],
    "kimi": ["kimi-k2.6", "kimi-k2-thinking"],
    "anthropic": ["claude-sonnet-4-5", "claude-opus-4-8"],
    "gemini": ["gemini-2.5-pro"],
    "huggingface": ["deepseek-ai/DeepSeek-V4-Flash"],
    "minimax": ["deepseek-v4-pro", "kimi-k2.6"],  # on Anthropic's wire, as their makers serve them too
}
SAMPLED = Settings(temperature=0.5, top_p=0.9, reasoning_effort="high")
ALL_SETTINGS = (Settings(), SAMPLED, Settings(echo_reasoning=False))
LONG = os.environ.get("PERDURE_SEARCH") == "long"


CHAT_WRITERS: Mapping[str, Callable[[Reply], Json]] = {
    "openrouter": authors._with_details,
    "minimax": authors._with_details,
    "gemini": authors._with_signed_calls,
    "mistral": authors._with_content,
}
WRITERS: Mapping[str, Callable[[Reply], Json]] = {
    "openai_responses": authors._responses_body,
    "codex": authors._responses_body,
    "anthropic": authors._anthropic_body,
    "gemini": authors._gemini_body,
    "vertex": authors._gemini_body,
    "bedrock": authors._bedrock_body,
    "ollama": authors._ollama_body,
}


def write_for(provider: Provider, model: str) -> Callable[[Reply], Json]:
    """How this provider writes its replies."""
    if provider.wire == "openai_chat":
        field = get_dialect(provider.dialect).echo or "reasoning_content"
        return CHAT_WRITERS.get(provider.dialect) or authors._with_field(field)
    is_claude = provider.wire == "vertex" and "claude" in model
    return WRITERS["anthropic" if is_claude else provider.wire]


def list_authors() -> Iterator[Author]:
    """Every provider that is reached over HTTP, with its default model and others whose rules differ."""
    for provider in PROVIDERS:
        if provider.wire in {"local", "demo"}:
            continue
        wire: Wire = load_wire(provider.wire)
        for model in [provider.default_model or provider.example_model, *OTHER_MODELS.get(provider.name, ())]:
            adapted = builder._adapt_to_model(provider, model)
            profile = builder._build_profile(adapted, model, provider.base_url, {})
            yield Author(f"{provider.name}:{model}", wire, profile, write_for(provider, model))


AUTHORS = list(list_authors())
KINDS: Mapping[str, Reply] = {
    "text": Reply(1, text="It rains."),
    "tool turn": Reply(1, calls=(("call_1", "weather", '{"city":"Rome"}'),)),
    "thinking": Reply(1, thoughts=2, text="Let me look.", calls=(("call_1", "weather", '{"city":"Rome"}'),)),
    "images": Reply(1, thoughts=1, calls=(("call_1", "weather", '{"city":"Rome"}'),)),
    "parallel calls": Reply(
        1, thoughts=1, calls=(("call_1", "weather", '{"city":"Rome"}'), ("functions.now:1", "now", ""))
    ),
    "cut-off reply": Reply(1, thoughts=1, text="It rai", is_cut=True),
}


@cache
def history(place: int, kind: str) -> Sequence[Message]:
    """A conversation of the author at this place: a question, a reply, its results, an answer, another question."""
    author = AUTHORS[place]
    pictures = (Image(PNG, media_type="image/png"), Document(b"%PDF-1.7", media_type="application/pdf", name="a.pdf"))
    seen = pictures if kind == "images" else ()
    reply = sanitize_reply(author.read(author.write(KINDS[kind])), set())
    messages = [Message("user", (Text("How is it in Rome?"), *seen)), reply]
    if reply.tool_calls:
        results = [ToolResult(call.call_id, call.name, (Text("Rain."), *seen[:1])) for call in reply.tool_calls]
        answer = sanitize_reply(author.read(author.write(Reply(2, text="It rains."))), set())
        messages += [Message("tool", tuple(results)), answer]
    return [*messages, user("And now?")]


def encode(author: Author, messages: Sequence[Message], settings: Settings) -> Any:
    request = Request(messages=messages, instructions="Be kind.", tools=TOOLS, settings=settings)
    return msgspec.json.decode(author.wire.encode(request, author.profile, EncodingMemo()).body)


def find_refusals(author: Author, body: Json) -> list[str]:
    """What the makers say that they refuse, whatever `lint` says."""
    name = author.profile.model.lower()
    found = [*find_missing_thinking(author, body)] if MAKERS_CHECK(name) else []
    if "claude" in name:
        found += find_thinkless_start(body)
    is_openai = author.profile.provider != "openrouter"  # which adapts the settings itself
    if is_openai and NEWEST(name) and {"temperature", "top_p"} & body.keys():
        found.append("Unsupported parameter: 'temperature' is not supported with this model.")
    is_asked_to_think = body.get("reasoning_effort", "high" if NEWEST(name) else "none") != "none"
    if author.wire.name == "openai_chat" and is_openai and NO_TOOLS(name) and is_asked_to_think:
        found.append("Function tools with reasoning_effort are not supported in /v1/chat/completions.")
    return found


MAKERS_CHECK = re.compile("deepseek-v4|kimi-k|mimo").search
NEWEST = re.compile(r"gpt-5\.[56]|gpt-6").search
NO_TOOLS = re.compile(r"gpt-5\.[4-6]|gpt-6").search
FIELDS = ("reasoning_content", "reasoning_details", "reasoning")


def find_thinkless_start(body: Json) -> Iterator[str]:
    """The reply whose results come last, if it has to begin with thinking and does not; at Anthropic and AWS."""
    thinking = body.get("thinking") or body.get("additionalModelRequestFields", {}).get("thinking") or {}
    is_on = thinking.get("type") in {"enabled", "adaptive"}
    last = body["messages"][-1]["content"]
    if is_on and any("toolResult" in block or block.get("type") == "tool_result" for block in last):
        first = body["messages"][-2]["content"][0]
        if "reasoningContent" not in first and first.get("type") not in {"thinking", "redacted_thinking"}:
            yield "Expected `thinking` or `redacted_thinking`, but found `tool_use`."


def find_missing_thinking(author: Author, body: Json) -> Iterator[str]:
    """The replies in a body that DeepSeek, Kimi and MiMo refuse, on the wires on which they are served."""
    for reply in [each for each in body.get("messages", ()) if each.get("role") == "assistant"]:
        if author.wire.name == "openai_chat" and reply.get("tool_calls") and not any(map(reply.get, FIELDS)):
            yield "thinking is enabled but reasoning_content is missing in assistant tool call message"
        if author.wire.name == "anthropic" and not any(block.get("thinking") for block in reply["content"]):
            yield "The `content[].thinking` in the thinking mode must be passed back to the API."


@pytest.mark.faults
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("second", AUTHORS, ids=repr)
def test_a_session_of_any_provider_goes_on_with_any_other(second: Author, kind: str):
    for place, first in enumerate(AUTHORS):
        whole = history(place, kind)
        stages = [whole, whole[:3]] if whole[2].role == "tool" else [whole]  # also in the middle of a turn
        chosen = ALL_SETTINGS if LONG else [ALL_SETTINGS[place % len(ALL_SETTINGS)]]
        for messages, settings in product(stages, chosen):
            body = encode(second, messages, settings)
            assert list(second.wire.lint(body, second.profile)) == [], first
            assert find_refusals(second, body) == [], first
            if not second.profile.is_author(first.profile.provider, first.profile.model):
                assert "SECRET" not in json.dumps(body), first
                assert "THOUGHT" not in json.dumps(body), first


@pytest.mark.parametrize("author", AUTHORS, ids=repr)
def test_the_models_of_every_provider_can_be_asked_with_tools_and_any_settings(author: Author):
    for settings in (Settings(), SAMPLED, Settings(temperature=0.0), Settings(reasoning_effort="low", top_p=0.5)):
        body = encode(author, [user("Hi!")], settings)
        assert list(author.wire.lint(body, author.profile)) == []
        assert find_refusals(author, body) == []
        assert "weather" in json.dumps(body)


def test_lint_names_the_turn_that_a_maker_would_refuse():
    deepseek = next(each for each in AUTHORS if each.profile.model == "deepseek-v4-flash")
    body = encode(deepseek, history(0, "tool turn"), Settings())
    assert body["messages"][2]["reasoning_content"] == " "
    del body["messages"][2]["reasoning_content"]
    (problem,) = deepseek.wire.lint(body, deepseek.profile)
    assert problem == "messages[2] has calls and no 'reasoning_content', which 'deepseek-v4-flash' needs"
    assert find_refusals(deepseek, body)
    assert list(deepseek.wire.lint({**body, "thinking": {"type": "disabled"}}, deepseek.profile)) == []


def test_a_model_that_needs_its_thinking_gets_it_on_turns_without_calls_too():
    for name in ("deepseek-v4-flash", "deepseek/deepseek-v4-pro", "kimi-k3.1-pro", "mimo-v2.5"):
        author = next(each for each in AUTHORS if each.profile.model == name)
        reply = author.read(author.write(Reply(1, thoughts=1, text="It rains.")))
        body = encode(author, [user("How is it?"), reply, user("And now?")], Settings())
        assert "THOUGHT0001" in body["messages"][2]["reasoning_content"]
