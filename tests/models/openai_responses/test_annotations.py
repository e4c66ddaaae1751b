"""Annotations of this wire as citations, and what a response says about itself."""

from typing import Any

import pytest

from perdure import Citation, Message, Text, user
from perdure.events import CitationAdded
from perdure.models import Profile
from tests.models.openai_responses.reading import API, Oracle, message_of, told
from tests.models.openai_responses.speaking import completed, event, heard, items, reply, stream
from tests.wire.recordings import Exchange, each_exchange

URL = {"type": "url_citation", "url": "https://a", "title": "A", "start_index": 3, "end_index": 8}
FILE = {"type": "file_citation", "file_id": "file-1", "filename": "a.txt", "index": 4}


def text_item(text: str, *annotations: Any, **more: Any) -> Any:
    part = {"type": "output_text", "text": text, "annotations": [*annotations], **more}
    return {"type": "message", "role": "assistant", "content": [part]}


def test_the_annotations_of_a_streamed_text_are_citations() -> None:
    item = text_item("It rains.", URL, FILE)
    data = stream(event("output_text.delta", delta="It rains."), event("output_item.done", item=item), completed())
    cited = [each.citation for each in heard(data) if isinstance(each, CitationAdded)]
    assert cited == [Citation("https://a", "A", "", 3, 8, URL), Citation("file-1", "a.txt", details=FILE)]
    assert reply(data).parts == (Text("It rains."), *cited)


def test_spans_count_from_the_start_of_the_whole_reply() -> None:
    search = {"type": "web_search_call", "id": "ws"}
    message = reply(stream(completed(text_item("Wait. "), search, text_item("It rains.", URL))))
    (citation,) = message.citations
    assert message.text[citation.start : citation.end] == "rains"
    assert type(message.parts[-1]) is Citation


def test_annotations_go_back_to_their_provider_with_the_text_that_they_belong_to() -> None:
    message = reply(stream(completed(text_item("Wait. "), text_item("It rains.", URL, FILE))))
    first, second = items([user("?"), message, user("Sure?")])[1:3]
    assert "annotations" not in first["content"][0]
    assert second["content"] == [{"type": "output_text", "text": "It rains.", "annotations": [URL, FILE]}]
    other = Profile(provider="elsewhere", model="gpt-9")
    assert "annotations" not in items([user("?"), message, user("Sure?")], other)[2]["content"][0]


def test_a_citation_that_follows_no_text_is_not_sent() -> None:
    lone = Message("assistant", (Citation("a", details=URL), Text("It rains.")), provider="openai", model="gpt-9")
    assert items([user("?"), lone, user("Sure?")])[1]["content"] == [{"type": "output_text", "text": "It rains."}]


def test_what_a_response_says_about_itself_is_metadata() -> None:
    tokens = [{"token": "It", "logprob": -0.5}]
    facts: Any = {
        "model": "gpt-9-2030",
        "service_tier": "flex",
        "content_filters": [{"content_filter_results": {"hate": {"filtered": True}}}],
        "usage": {"input_tokens": 9, "output_tokens": 4, "cost": 0.25},
    }
    message = reply(stream(completed(text_item("It", logprobs=tokens), **facts)))
    assert message.metadata == {
        "served_model": "gpt-9-2030",
        "service_tier": "flex",
        "logprobs": {"content": tokens},
        "guardrail_trace": facts["content_filters"],
    }
    assert message.usage is not None
    assert message.usage.reported_usd == 0.25


@pytest.mark.wire
@each_exchange(API, where=lambda each: each.ok and b"_citation" in each.data)
def test_recorded_annotations_are_citations(exchange: Exchange) -> None:
    message, expected = message_of(told(exchange, exchange.chunks)), Oracle(exchange).annotations
    assert [each.details for each in message.citations] == expected
    for citation in message.citations:
        assert citation.end is None or citation.end <= len(message.text)
