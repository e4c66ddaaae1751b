"""Citations on this wire: asked for, kept with their passages, and sent back as the blocks that they came in."""

from typing import Any

import msgspec
import pytest

from perdure import Agent, Citation, ConfigError, Document, Message, OutputSpec, Settings, Text, ToolResult, user
from perdure._models.wires.anthropic import WIRE
from perdure.models import EncodingMemo, Profile, Request, open_model
from perdure.stores import MemoryStore
from tests.models.anthropic.reading import PROFILE, answered, decoded, joined
from tests.models.canned import CannedTransport
from tests.wire.recordings import Exchange, each_exchange

PLACE = {
    "type": "char_location",
    "cited_text": "Ruby is from 1993.",
    "document_index": 0,
    "document_title": "facts.txt",
    "start_char_index": 0,
    "end_char_index": 18,
}
PAGE = {
    "type": "web_search_result_location",
    "url": "https://a",
    "title": "A",
    "cited_text": "b",
    "encrypted_index": "E",
}


def block(index: int, *texts: str, citations: Any = ()) -> list[Any]:
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": "", "citations": []}},
        *[_delta(index, "citations_delta", citation=each) for each in citations],
        *[_delta(index, "text_delta", text=each) for each in texts],
        {"type": "content_block_stop", "index": index},
    ]


def _delta(index: int, kind: str, **what: Any) -> Any:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **what}}


def stream(*blocks: Any) -> bytes:
    events = [
        {"type": "message_start", "message": {"model": "a-model", "usage": {"input_tokens": 9}}},
        *[event for each in blocks for event in each],
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return b"".join([b"data: " + msgspec.json.encode(each) + b"\n\n" for each in events])


CITED = stream(block(0, "As told: "), block(1, "In ", "1993", citations=[PLACE, PAGE]), block(2, " "), block(3, "Yes."))


def test_a_citation_knows_its_source_and_its_passage() -> None:
    message = decoded([CITED])
    assert message.parts[0] == Text("As told: In 1993 Yes.")
    first, second = message.citations
    assert first == Citation("facts.txt", "facts.txt", "Ruby is from 1993.", 9, 16, PLACE)
    assert (second.source, second.title, second.quote) == ("https://a", "A", "b")
    assert message.text[first.start : first.end] == "In 1993"


def test_a_whole_answer_has_the_same_citations_as_a_stream() -> None:
    whole = {
        "content": [
            {"type": "text", "text": "As told: "},
            {"type": "text", "text": "In 1993", "citations": [PLACE, PAGE]},
            {"type": "text", "text": " ", "citations": None},
            {"type": "text", "text": "Yes."},
        ],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 9, "output_tokens": 5},
    }
    assert decoded([msgspec.json.encode(whole)]).parts == decoded([CITED]).parts


@pytest.mark.parametrize(
    ("told", "source"),
    [({"file_id": "file_1"}, "file_1"), ({"document_index": 2}, "document 3"), ({"source": "s"}, "s"), ({}, "")],
)
def test_a_source_without_a_title_is_named_by_what_there_is(told: Any, source: str) -> None:
    message = decoded([stream(block(0, "a", citations=[{"type": "page_location", **told}]))])
    assert message.citations[0].source == source


def encoded(*messages: Message, profile: Profile = PROFILE, **settings: Any) -> Any:
    request = Request(messages=messages, settings=Settings(**settings), session_id="s")
    return msgspec.json.decode(WIRE.encode(request, profile, EncodingMemo()).body)["messages"]


def test_a_model_gets_its_citations_back_on_the_passages_that_had_them() -> None:
    null_file = {**PLACE, "file_id": None}
    reply = decoded([stream(block(0, "As told: "), block(1, "In 1993", citations=[null_file]), block(2, " "))])
    content = encoded(user("When?"), reply, user("Sure?"))[1]["content"]
    assert content == [
        {"type": "text", "text": "As told: "},
        {"type": "text", "text": "In 1993 ", "citations": [PLACE]},
    ]


def test_another_provider_gets_the_text_alone() -> None:
    other = Profile(provider="elsewhere", model="a-model", cache="none")
    content = encoded(user("When?"), decoded([CITED]), user("Sure?"), profile=other)[1]["content"]
    assert content == [{"type": "text", "text": "As told: In 1993 Yes."}]


def test_every_document_is_cited_if_citations_are_asked_for() -> None:
    facts = Document(data=b"Ruby is from 1993.", media_type="text/plain", name="facts.txt")
    call = decoded(
        [
            stream(
                [
                    {
                        "type": "content_block_start",
                        "index": 0,
                        "content_block": {"type": "tool_use", "id": "c", "name": "n"},
                    }
                ]
            )
        ]
    )
    result = Message("tool", (ToolResult("c", "n", (facts,)),))
    first, _, second = encoded(user(["When?", facts]), call, result, citations=True)
    assert first["content"][1]["citations"] == {"enabled": True}
    assert second["content"][0]["content"][0]["citations"] == {"enabled": True}
    assert "citations" not in encoded(user(["When?", facts]))[0]["content"][1]


def test_citations_and_a_schema_are_refused_before_they_are_sent() -> None:
    request = Request(
        messages=[user("When?")], settings=Settings(citations=True), output=OutputSpec("a", {"type": "object"})
    )
    with pytest.raises(ConfigError, match="citations=True"):
        WIRE.encode(request, PROFILE, EncodingMemo())


async def test_an_agent_stores_citations_and_sends_them_back() -> None:
    transport = CannedTransport(CITED, stream(block(0, "Sure.")))
    model = open_model("anthropic:a-model", api_key="k", transport=transport, profile={"documents": True})
    facts = Document(data=b"Ruby is from 1993.", media_type="text/plain", name="facts.txt")
    store = MemoryStore()
    session = Agent(model, settings=Settings(citations=True), store=store).session("s")
    outcome = await session.run(["When?", facts])
    assert outcome.text == "As told: In 1993 Yes."
    assert outcome.message is not None
    assert [each.source for each in outcome.message.citations] == ["facts.txt", "https://a"]
    await Agent(model, settings=Settings(citations=True), store=store).session("s").run("Sure?")
    asked, again = transport.bodies
    assert asked["messages"][0]["content"][1]["citations"] == {"enabled": True}
    assert again["messages"][1]["content"][1] == {"type": "text", "text": "In 1993", "citations": [PLACE, PAGE]}


@pytest.mark.wire
@each_exchange("anthropic-messages", where=lambda each: answered(each) and b'"citation' in each.data)
def test_recorded_citations_are_kept_with_the_text_of_their_block(exchange: Exchange) -> None:
    message = decoded([exchange.data])
    found = [(message.text[each.start : each.end], each.details) for each in message.citations]
    assert found == recorded(exchange)


def recorded(exchange: Exchange) -> list[tuple[str, Any]]:
    """The citations of each block, with its text."""
    whole = joined(exchange.data) if exchange.streamed else exchange.json
    told = {index: each.get("citations") or [] for index, each in enumerate(whole["content"])}
    for line in exchange.data.decode().splitlines() if exchange.streamed else ():
        if line.startswith("data: {") and '"citations_delta"' in line:
            event = msgspec.json.decode(line[6:])
            told[event["index"]] = [*told[event["index"]], event["delta"]["citation"]]
    return [(each["text"], one) for index, each in enumerate(whole["content"]) for one in told[index]]
