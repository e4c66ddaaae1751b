"""Citations on this wire: asked for, kept with their passages, sent back; and what guardrails have found."""

from typing import Any

import msgspec
import pytest

from perdure import Citation, ConfigError, Document, Message, OutputSpec, Settings, Text, ToolCall, ToolResult, user
from perdure._models.wires.bedrock import WIRE
from perdure.models import EncodingMemo, Profile, Request
from tests.models.bedrock.reading import PROFILE, decoded, frame
from tests.wire.recordings import Exchange, each_exchange

API = "bedrock-converse"
CITED = {
    "title": "my-pdf",
    "sourceContent": [{"text": "Dummy "}, {"text": "PDF"}],
    "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}},
}
WEB = {"title": "A", "location": {"web": {"url": "https://a", "domain": "a"}}}
FACTS = Document(data=b"%PDF-1.4", media_type="application/pdf", name="facts")


def delta(index: int, **what: Any) -> bytes:
    return frame("contentBlockDelta", {"contentBlockIndex": index, "delta": what})


def stop(index: int) -> bytes:
    return frame("contentBlockStop", {"contentBlockIndex": index})


STREAM = b"".join(
    [
        delta(0, text="It is "),
        stop(0),
        delta(1, text="a "),
        delta(1, citation=CITED),
        delta(1, text="dummy"),
        delta(1, citation=WEB),
        stop(1),
        delta(2, text="."),
        stop(2),
        frame("messageStop", {"stopReason": "end_turn"}),
    ]
)
WHOLE = msgspec.json.encode(
    {
        "output": {
            "message": {
                "content": [
                    {"text": "It is "},
                    {"citationsContent": {"content": [{"text": "a dummy"}], "citations": [CITED, WEB]}},
                    {"text": "."},
                ]
            }
        },
        "stopReason": "end_turn",
    }
)


@pytest.mark.parametrize("data", [STREAM, WHOLE], ids=["stream", "whole"])
def test_a_citation_knows_its_source_and_its_passage(data: bytes) -> None:
    message = decoded([data])
    assert message.parts == (
        Text("It is a dummy."),
        Citation("my-pdf", "my-pdf", "Dummy PDF", 6, 13, CITED),
        Citation("https://a", "A", "", 6, 13, WEB),
    )


def test_a_citation_without_a_text_is_left_out() -> None:
    data = delta(0, citation=CITED) + stop(0) + frame("messageStop", {"stopReason": "end_turn"})
    assert decoded([data]).parts == ()


def encoded(*messages: Message, profile: Profile = PROFILE, **settings: Any) -> Any:
    request = Request(messages=messages, settings=Settings(**settings), session_id="s")
    body = msgspec.json.decode(WIRE.encode(request, profile, EncodingMemo()).body)
    assert WIRE.lint(body, profile) == []
    return body["messages"]


def test_a_model_gets_its_citations_back() -> None:
    assert encoded(user("?"), decoded([STREAM]), user("Sure?"))[1]["content"] == [
        {"text": "It is "},
        {"citationsContent": {"content": [{"text": "a dummy"}], "citations": [CITED, WEB]}},
        {"text": "."},
    ]
    other = Profile(provider="elsewhere", model=PROFILE.model, cache="none")
    assert encoded(user("?"), decoded([STREAM]), user("Sure?"), profile=other)[1]["content"] == [
        {"text": "It is a dummy."}
    ]


def test_every_document_is_cited_if_citations_are_asked_for_and_the_model_can() -> None:
    call = Message("assistant", (ToolCall("c", "look"),), provider="bedrock", model=PROFILE.model)
    told = [user(["?", FACTS]), call, Message("tool", (ToolResult("c", "look", (FACTS,)),))]
    first, _, second = encoded(*told, citations=True)
    assert first["content"][1]["document"]["citations"] == {"enabled": True}
    assert second["content"][0]["toolResult"]["content"][0]["document"]["citations"] == {"enabled": True}
    nova = Profile(provider="bedrock", model="amazon.nova-pro-v1:0", documents=True, cache="none")
    assert "citations" not in encoded(*told, profile=nova, citations=True)[0]["content"][1]["document"]
    assert "citations" not in encoded(*told)[0]["content"][1]["document"]


def test_citations_and_a_schema_are_refused_before_they_are_sent() -> None:
    schema = OutputSpec("a", {"type": "object"})
    request = Request(messages=[user("?")], settings=Settings(citations=True), output=schema)
    with pytest.raises(ConfigError, match="citations=True"):
        WIRE.encode(request, PROFILE, EncodingMemo())


def test_the_trace_of_a_guardrail_the_tier_and_the_chosen_model_are_metadata() -> None:
    told = {
        "usage": {"inputTokens": 1, "outputTokens": 1},
        "serviceTier": {"type": "priority"},
        "trace": {"guardrail": {"modelOutput": ["x"]}, "promptRouter": {"invokedModelId": "arn:aws:x/nova-lite"}},
    }
    data = delta(0, text="a") + frame("messageStop", {"stopReason": "end_turn"}) + frame("metadata", told)
    assert decoded([data]).metadata == {
        "guardrail_trace": {"modelOutput": ["x"]},
        "service_tier": "priority",
        "served_model": "arn:aws:x/nova-lite",
    }


@pytest.mark.wire
@each_exchange(API, where=lambda each: each.ok and b"citationsContent" in each.data)
def test_recorded_citations_are_kept(exchange: Exchange) -> None:
    (citation,) = (message := decoded([exchange.data])).citations
    assert message.text[citation.start : citation.end] == f'"{citation.quote}"' == '"Dummy PDF file"'


@pytest.mark.wire
@each_exchange(API, where=lambda each: each.ok and b'"trace"' in each.data)
def test_a_recorded_trace_is_kept(exchange: Exchange) -> None:
    assert decoded([exchange.data]).metadata["guardrail_trace"] == exchange.json["trace"]["guardrail"]
