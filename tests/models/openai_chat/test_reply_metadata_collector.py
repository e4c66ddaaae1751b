"""What a response of this wire says about itself: sources, cost, tier, log probabilities, further choices."""

import re
from typing import Any

import msgspec
import pytest

from perdure import Agent, Citation, Message, Text, user
from perdure.models import Profile, Request, open_model
from perdure.stores import MemoryStore
from tests.models.canned import CannedResponse, CannedTransport
from tests.models.openai_chat.material import PROFILE, body_of, chunk, message_of, stream, whole
from tests.models.openai_chat.reading import profile_of
from tests.wire.recordings import Exchange, each_exchange

API = "openai-chat"
URL = {"type": "url_citation", "url_citation": {"url": "https://a", "title": "A", "start_index": 3, "end_index": 7}}
FILE = {"type": "file", "file": {"hash": "h", "name": "a.pdf", "content": [{"type": "text", "text": "Long."}]}}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4}


# -- citations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        stream(chunk({"content": "It rains."}), chunk({"annotations": [URL, FILE]}), chunk(finish="stop")),
        whole({"content": "It rains.", "annotations": [URL, FILE]}),
        whole({"content": ["It rains."], "annotations": [URL, "strange", FILE]}),
    ],
    ids=["stream", "whole", "lenient"],
)
def test_annotations_are_citations_that_follow_the_text(data: bytes) -> None:
    text, url, file = message_of(data).parts
    assert text == Text("It rains.")
    assert url == Citation("https://a", "A", "", 3, 7, URL)
    assert file == Citation("h", "a.pdf", "", details=FILE)


def test_an_annotation_without_a_usable_span_is_still_a_citation() -> None:
    broken = {"type": "url_citation", "url_citation": {"url": "https://a", "start_index": 7, "end_index": "x"}}
    assert message_of(whole({"content": "a", "annotations": [broken]})).citations[0].end is None


def test_listed_sources_are_citations_without_a_span_and_each_is_there_once() -> None:
    sources: Any = {
        "citations": ["https://a", "https://b", "https://b", 7],
        "search_results": [{"url": "https://b", "title": "B", "snippet": "b."}, {"url": "https://c"}],
    }
    lists = [chunk({"content": "It [1] rains [2]."}, **sources), chunk(finish="stop", **sources)]
    found = message_of(stream(*lists)).citations
    assert [(each.source, each.title, each.quote) for each in found] == [
        ("https://a", "", ""),
        ("https://b", "B", "b."),
        ("https://c", "", ""),
    ]
    annotated = whole({"content": "It rains.", "annotations": [URL]}, citations=["https://a", "https://d"])
    assert [each.source for each in message_of(annotated).citations] == ["https://a", "https://d"]


def test_openrouter_gets_the_files_that_it_has_read_back_and_others_get_nothing() -> None:
    reply = message_of(whole({"content": "It rains.", "annotations": [URL, FILE]}))
    request = Request(messages=[user("?"), reply, user("And now?")])
    assert body_of(request)["messages"][1] == {"role": "assistant", "content": "It rains."}
    gateway = Profile(provider="openrouter", model="m", dialect="openrouter")
    assert body_of(request, gateway)["messages"][1]["annotations"] == [FILE]


# -- cost --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "beside", "cost"),
    [
        ({"cost": 0.25}, {}, 0.25),
        ({"cost": 0}, {}, 0.0),
        ({"cost": None}, {}, None),
        ({"cost": -1}, {}, None),
        ({"cost": "much"}, {}, None),
        ({"cost": {"total_cost": 0.5, "request_cost": 0.25}}, {}, 0.5),
        ({"cost": {}}, {}, None),
        ({"cost": 0.25, "is_byok": True, "cost_details": {"upstream_inference_cost": 1.5}}, {}, 1.75),
        ({"cost": 0.25, "is_byok": True}, {}, 0.25),
        ({"cost": 0.25, "is_byok": False, "cost_details": {"upstream_inference_cost": 1.5}}, {}, 0.25),
        ({"cost_in_usd_ticks": 35404000}, {}, 0.0035404),
        ({"cost_in_usd_ticks": 0}, {}, None),
        ({}, {"cost": {"usd": 0.5}}, 0.5),
        ({}, {}, None),
    ],
)
def test_the_reported_cost_is_part_of_the_usage(usage: Any, beside: Any, cost: float | None) -> None:
    for data in (
        whole({"content": "a"}, usage={**USAGE, **usage}, **beside),
        stream(chunk({"content": "a"}), chunk(finish="stop"), {"choices": [], "usage": {**USAGE, **usage}, **beside}),
    ):
        told = message_of(data).usage
        assert told is not None
        assert told.reported_usd == cost


def test_vercel_reports_the_cost_and_the_company_with_the_message() -> None:
    gateway = {"gateway": {"cost": "0.25", "routing": {"finalProvider": "azure"}}}
    last = chunk({"provider_metadata": gateway}, finish="stop", usage=USAGE)
    message = message_of(stream(chunk({"content": "a"}), last))
    assert message.usage is not None
    assert (message.usage.reported_usd, message.metadata["served_by"]) == (0.25, "azure")


async def test_a_run_costs_what_the_provider_reports() -> None:
    answer = whole({"content": "It rains."}, usage={**USAGE, "cost": 0.25}, provider="Acme")
    transport = CannedTransport(CannedResponse(answer, "application/json"))
    model = open_model("openrouter:openai/gpt-4o", api_key="k", transport=transport)
    outcome = await Agent(model, store=MemoryStore()).run("Rain?")
    assert (outcome.cost_usd, outcome.is_cost_reported) == (0.25, True)
    assert outcome.message is not None
    assert outcome.message.metadata["served_by"] == "Acme"


# -- metadata ----------------------------------------------------------------------------------------------------------


def test_a_reply_that_says_nothing_about_itself_has_no_metadata() -> None:
    assert message_of(whole({"content": "a"}, model=PROFILE.model, service_tier=None, usage=USAGE)).metadata == {}


def test_who_answered_and_how_is_metadata() -> None:
    told: Any = {"model": "gpt-4.1-2025-04-14", "provider": "Azure", "service_tier": "flex"}
    expected = {"served_model": "gpt-4.1-2025-04-14", "served_by": "Azure", "service_tier": "flex"}
    assert message_of(whole({"content": "a"}, **told)).metadata == expected
    assert message_of(stream(chunk({"content": "a"}, **told), chunk(finish="stop", **told))).metadata == expected
    in_usage = whole({"content": "a"}, usage={**USAGE, "service_tier": "standard"})
    assert message_of(in_usage).metadata == {"service_tier": "standard"}


def test_metadata_is_read_from_the_chunks_with_the_finish_or_the_usage() -> None:
    tier: Any = {"service_tier": "flex"}
    text, finish = chunk({"content": "a"}), chunk(finish="stop")
    assert message_of(stream(text, chunk(finish="stop", **tier))).metadata == tier
    assert message_of(stream(text, finish, {"choices": [], "usage": USAGE, **tier})).metadata == tier
    assert message_of(stream(chunk({"content": "a"}, usage=USAGE, **tier), finish)).metadata == tier
    assert message_of(stream(chunk({"content": "a"}, service_tier="auto"), finish)).metadata == {}


def test_log_probabilities_of_all_pieces_are_joined() -> None:
    def piece(text: str) -> Any:
        tokens = {"content": [{"token": text, "logprob": -0.5}], "refusal": None}
        return {"choices": [{"index": 0, "delta": {"content": text}, "logprobs": tokens}]}

    message = message_of(stream(piece("It "), piece("rains."), chunk(finish="stop")))
    assert [each["token"] for each in message.metadata["logprobs"]["content"]] == ["It ", "rains."]


def test_further_choices_are_kept_whole() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"a":'}}
    rest = {"index": 0, "function": {"arguments": "1}"}}
    pieces: list[Any] = [
        chunk({"content": "Yes."}),
        {"choices": [{"index": 2, "delta": {"content": "Perhaps"}}]},
        {"choices": [{"index": 1, "delta": {"content": "No", "tool_calls": [call]}}]},
        {"choices": [{"index": 1, "delta": {"tool_calls": [rest]}, "finish_reason": "tool_calls"}]},
        chunk(finish="stop"),
    ]
    message = message_of(stream(*pieces))
    assert message.parts == (Text("Yes."),)
    assert message.metadata["candidates"] == [
        {"text": "No", "tool_calls": [{"name": "look", "arguments": '{"a":1}'}], "finish_reason": "tool_calls"},
        {"text": "Perhaps"},
    ]
    answer = {
        "choices": [
            {"index": 0, "message": {"content": "Yes."}, "finish_reason": "stop"},
            {"index": 1, "message": {"content": "No", "reasoning": "Hm"}, "finish_reason": "length"},
        ]
    }
    told = message_of(msgspec.json.encode(answer))
    assert (told.text, told.metadata["candidates"]) == ("Yes.", [{"text": "No", "finish_reason": "length"}])


@pytest.mark.parametrize(("found", "kept"), [(True, True), (False, False)])
def test_a_finding_of_a_filter_is_kept(found: bool, kept: bool) -> None:
    results = {"hate": {"filtered": found, "severity": "high"}}
    of_prompt: Any = {"choices": [], "prompt_filter_results": [{"content_filter_results": results}]}
    of_reply = {"choices": [{"index": 0, "delta": {"content": "a"}, "content_filter_results": results}]}
    metadata = message_of(stream(of_prompt, of_reply, chunk(finish="stop"))).metadata
    assert metadata == ({"guardrail_trace": [[{"content_filter_results": results}], results]} if kept else {})
    choice = {"index": 0, "message": {"content": "a"}, "finish_reason": "stop", "content_filter_results": results}
    answer = {"choices": [choice], "prompt_filter_results": [{"content_filter_results": results}]}
    metadata = message_of(msgspec.json.encode(answer)).metadata
    assert metadata == ({"guardrail_trace": [results, [{"content_filter_results": results}]]} if kept else {})


# -- recordings --------------------------------------------------------------------------------------------------------


def read(exchange: Exchange) -> Message:
    return message_of(exchange.data, profile_of(exchange))


@pytest.mark.wire
@each_exchange(
    API, where=lambda each: each.ok and re.search(rb'"(url_citation|citations)": ?[\[{"]', each.data) is not None
)
def test_recorded_sources_are_citations(exchange: Exchange) -> None:
    message = read(exchange)
    assert message.citations
    for citation in message.citations:
        assert citation.source.startswith("http")
        if citation.end is not None:
            assert citation.end <= len(message.text)


@pytest.mark.wire
@each_exchange(
    API, where=lambda each: each.ok and re.search(rb'"(cost|cost_in_usd_ticks)": ?["{\d]', each.data) is not None
)
def test_recorded_costs_are_reported(exchange: Exchange) -> None:
    if b'"code": 502' in exchange.data or b'"error":{"' in exchange.data:
        pytest.skip(f"{exchange.label}: ends in an error")
    usage = read(exchange).usage
    assert usage is not None
    ticks = re.findall(rb'"cost_in_usd_ticks": ?(\d+)', exchange.data)
    if ticks and ticks[-1] == b"0":
        assert usage.reported_usd is None
    else:
        assert usage.reported_usd is not None
        assert usage.reported_usd < 0.1


@pytest.mark.wire
@each_exchange(API, where=lambda each: each.ok and re.search(rb'"(logprob|provider)": ?[-"\d]', each.data) is not None)
def test_recorded_facts_are_metadata(exchange: Exchange) -> None:
    if b'"code": 502' in exchange.data or b'"error":{"' in exchange.data:
        pytest.skip(f"{exchange.label}: ends in an error")
    metadata = read(exchange).metadata
    assert "served_by" in metadata or "logprobs" in metadata
