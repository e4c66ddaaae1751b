"""Sources of a Gemini reply as citations, and what it says about itself."""

from typing import Any

import pytest

from perdure import Citation, Text
from perdure._models.wires.gemini.reply import list_citations
from tests.models.gemini.test_decode import PROFILE, chunk, message_of
from tests.models.gemini.test_recordings import chunks_of, decoded, profile_of
from tests.wire.recordings import Exchange, each_exchange

WEB = {"web": {"uri": "https://a", "title": "A"}}
FILE = {"retrievedContext": {"uri": "gs://b", "title": "B", "text": "Rain."}}
TEXT = "Grüße: es regnet."


def grounding(segment: Any, *places: Any) -> Any:
    return {
        "groundingChunks": [WEB, FILE],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [*places]}],
    }


@pytest.mark.parametrize(
    ("segment", "passage"),
    [
        ({"endIndex": 7}, "Grüße"),
        ({"startIndex": 9, "endIndex": 18, "text": "es regnet"}, "es regnet"),
        ({"startIndex": 2, "endIndex": 3, "text": "es regnet"}, "es regnet"),
        ({"startIndex": 2, "endIndex": 11, "text": "elsewhere"}, None),
        ({"startIndex": 9, "endIndex": 9}, None),
        ({}, None),
    ],
)
def test_a_passage_is_found_by_its_bytes_or_by_its_text(segment: Any, passage: str | None) -> None:
    citation = list_citations(grounding(segment, 0), {}, TEXT)[0]
    found = None if citation.end is None else TEXT[citation.start : citation.end]
    assert found == passage


def test_a_source_that_supports_no_passage_is_a_citation_too() -> None:
    first, second = list_citations(grounding({"endIndex": 7}, 1, 7, "x"), {}, TEXT)
    assert first == Citation("gs://b", "B", "Rain.", 0, 5, FILE)
    assert second == Citation("https://a", "A", details=WEB)


def test_strange_grounding_cites_nothing() -> None:
    strange = {"groundingChunks": None, "groundingSupports": [{"groundingChunkIndices": 7}, "x"]}
    assert list_citations(strange, {"citationSources": "x"}, TEXT) == []


@pytest.mark.parametrize("name", ["citationSources", "citations"])
def test_a_recited_passage_is_a_citation(name: str) -> None:
    told = {"startIndex": 9, "endIndex": 18, "uri": "https://a", "license": "mit"}
    assert list_citations({}, {name: [told]}, TEXT) == [Citation("https://a", "", "", 7, 16, told)]


@pytest.mark.parametrize("signature", ["", "sig"])
def test_the_reply_has_its_sources_at_its_end(signature: str) -> None:
    signed = {"thoughtSignature": signature} if signature else {}
    end = chunk({"text": TEXT, **signed}, finish="STOP")
    end["candidates"][0]["groundingMetadata"] = grounding({"endIndex": 7}, 0)
    message = message_of(end)
    assert message.parts[0] == Text(TEXT, signature)
    assert [each.source for each in message.citations] == ["https://a", "gs://b"]
    assert message.metadata["grounding"] == grounding({"endIndex": 7}, 0)


def test_what_a_response_says_about_itself_is_metadata() -> None:
    end = chunk({"text": "Yes"}, finish="STOP", modelVersion="gemini-3-flash-002")
    end["usageMetadata"] = {"promptTokenCount": 1, "candidatesTokenCount": 1, "trafficType": "ON_DEMAND"}
    ratings = [{"category": "HATE", "probability": "HIGH", "blocked": True}]
    chosen = {"chosenCandidates": [{"token": "Yes", "logProbability": -0.5}]}
    end["candidates"][0] |= {"avgLogprobs": -0.5, "logprobsResult": chosen, "safetyRatings": ratings}
    assert message_of(end).metadata == {
        "served_model": "gemini-3-flash-002",
        "service_tier": "ON_DEMAND",
        "logprobs": {"average": -0.5, **chosen},
        "guardrail_trace": ratings,
    }


def test_further_candidates_are_metadata() -> None:
    call = {"functionCall": {"name": "look", "args": {"a": 1}}}
    other: Any = {"content": {"parts": [{"text": "Hm", "thought": True}, {"text": "No"}, call]}, "index": 1}
    last = {"finishReason": "STOP", "index": 1}
    first = {"content": {"parts": [{"text": "Yes"}]}, "index": 0}
    message = message_of({"candidates": [first, other]}, {"candidates": [last]}, chunk(finish="STOP"))
    assert (message.text, PROFILE.provider) == ("Yes", "google")
    told = {"text": "No", "tool_calls": [{"name": "look", "arguments": '{"a":1}'}], "finish_reason": "STOP"}
    assert message.metadata["candidates"] == [told]


@pytest.mark.wire
@each_exchange("gemini", where=lambda each: each.ok and b"groundingSupports" in each.data)
def test_recorded_grounding_is_cited(exchange: Exchange) -> None:
    message = decoded(profile_of(exchange), [exchange.data])
    told = chunks_of(exchange)[-1]["candidates"][0]["groundingMetadata"]
    passages = [support["segment"]["text"] for support in told["groundingSupports"]]
    assert [message.text[each.start : each.end] for each in message.citations] == passages


@pytest.mark.wire
@each_exchange("gemini", where=lambda each: each.ok and b"avgLogprobs" in each.data)
def test_recorded_log_probabilities_are_kept(exchange: Exchange) -> None:
    assert decoded(profile_of(exchange), [exchange.data]).metadata["logprobs"]["average"] < 0
