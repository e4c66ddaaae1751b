"""Thinking that is shown in the text as well."""

import pytest

from perdure import Agent, Citation, Message, Settings, Text, Thinking, ToolCall, Usage
from perdure._models.catalogue.entry import WireName
from perdure._models.endpoint.think_tags import (
    ThinkingToTagsConverter,
    add_think_tags,
    remove_think_tags,
    shift_citation,
)
from perdure._models.endpoint.wire import load_wire
from perdure.events import (
    CitationAdded,
    ModelEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
)
from perdure.models import EncodingMemo, Profile, Request, assemble_reply, with_think_tags
from perdure.testing import Reply, ScriptedModel


def shown(*events: ModelEvent) -> Message:
    """The message that these events tell, with tags."""
    tags = ThinkingToTagsConverter()
    told = [each for event in events for each in tags.convert_event(event)]
    assert isinstance(told[-1], ReplyFinished)
    return assemble_reply(told[:-1], told[-1])


def test_thinking_stands_before_the_text_and_stays_what_it_is() -> None:
    message = shown(ThinkingDelta("Let "), ThinkingDelta("me."), TextDelta("Yes"), TextDelta("."), ReplyFinished())
    assert message.parts == (Thinking("Let me."), Text("<think>Let me.</think>\n\nYes."))


def test_each_block_has_its_own_tags_wherever_it_ends() -> None:
    message = shown(
        ThinkingDelta("a", index=0),
        UsageReported(Usage(1, 1)),
        ThinkingDelta("b", index=1),
        ToolCallDelta("c1", "add", "{}"),
        ThinkingDelta("c", index=2),
        ReplyFinished(),
    )
    assert message.text == "<think>a</think>\n\n<think>b</think>\n\n<think>c</think>\n\n"
    assert [part.text for part in message.parts if isinstance(part, Thinking)] == ["a", "b", "c"]


def test_a_reply_without_thinking_is_left_alone() -> None:
    assert shown(TextDelta("Yes."), ReplyFinished()).parts == (Text("Yes."),)
    assert shown(ThinkingDelta("", signature="s"), TextDelta("Yes."), ReplyFinished()).text == "Yes."


def test_a_reply_that_is_told_whole_has_the_tags_as_well() -> None:
    parts = (Thinking("Hm.", details={"x": 1}), Text("Yes."), ToolCall("c1", "add"))
    message = shown(ThinkingDelta("Hm."), TextDelta("Yes."), ReplyFinished(message=Message("assistant", parts)))
    assert message.text == "<think>Hm.</think>\n\nYes."
    assert message.parts[0] == parts[0]


def test_the_tags_can_be_taken_away_again() -> None:
    silent = Message(
        "assistant", (Thinking("Hm."), Text("Yes.", "signed"), Thinking("Well."), ToolCall("1", "f", "{}"))
    )
    assert remove_think_tags(add_think_tags(silent)) == silent
    assert remove_think_tags(silent) is silent


def test_tags_that_are_not_ours_stay() -> None:
    theirs = Message("assistant", (Thinking("Hm."), Text("<think>of others</think>")))
    assert remove_think_tags(theirs) == theirs
    question = Message("user", (Text("<think>Hm.</think>\n\n"),))
    assert remove_think_tags(question) is question


@pytest.mark.parametrize("wire", ["anthropic", "bedrock", "gemini", "ollama", "openai_chat", "openai_responses"])
def test_no_model_gets_its_thinking_back_as_something_that_it_said(wire: WireName) -> None:
    reply = add_think_tags(Message("assistant", (Thinking("Hm."), Text("Yes."))))
    request = Request(messages=[Message("user", (Text("Well?"),)), reply, Message("user", (Text("Sure?"),))])
    body = load_wire(wire).encode(request, Profile(provider="other", model="m"), EncodingMemo()).body
    assert (b"Yes." in body, b"Hm." in body) == (True, False)


async def test_whoever_asks_for_it_is_shown_the_thinking_in_the_text() -> None:
    model = with_think_tags(ScriptedModel(Reply("Yes.", thinking="Hm."), Reply("No.", thinking="Hm.")))
    aloud = await Agent(model, settings=Settings(reasoning_in_text=True)).run("Well?")
    assert aloud.text == "<think>Hm.</think>\n\nYes."
    assert (await Agent(model).run("Well?")).text == "No."


def test_citations_move_with_the_text_and_back() -> None:
    cited = Citation("a", start=0, end=3)
    message = shown(ThinkingDelta("Hm."), TextDelta("Yes."), CitationAdded(cited), ReplyFinished())
    (moved,) = message.citations
    assert message.text[moved.start : moved.end] == "Yes"
    assert remove_think_tags(message).citations == (cited,)
    silent = Message("assistant", (Thinking("Hm."), Text("Yes."), cited, Citation("b")))
    told = add_think_tags(silent)
    assert told.text[told.citations[0].start : told.citations[0].end] == "Yes"
    assert remove_think_tags(told) == silent


def test_events_are_told_in_their_order_and_thinking_at_the_end_of_its_block() -> None:
    tags = ThinkingToTagsConverter()
    finished = ReplyFinished()
    usage = UsageReported(Usage(1, 1))
    events: list[ModelEvent] = [
        ThinkingDelta("a"),
        usage,
        ThinkingDelta("b"),
        ThinkingDelta("c", index=1),
        TextDelta("x"),
        finished,
    ]
    assert [tags.convert_event(event) for event in events] == [
        (ThinkingDelta("a"),),
        (usage,),
        (ThinkingDelta("b"),),
        (TextDelta("<think>ab</think>\n\n"), ThinkingDelta("c", index=1)),
        (TextDelta("<think>c</think>\n\n"), TextDelta("x")),
        (finished,),
    ]


@pytest.mark.parametrize(
    ("citation", "characters", "moved"),
    [
        (Citation("a", start=3, end=5), 2, Citation("a", start=5, end=7)),
        (Citation("a", start=3, end=5), -4, Citation("a", start=0, end=1)),
        (Citation("a", start=3, end=5), -9, Citation("a", start=0, end=0)),
        (Citation("a", start=3), 2, Citation("a", start=3)),
        (Citation("a"), 2, Citation("a")),
    ],
)
def test_a_citation_is_moved_and_never_before_the_beginning(
    citation: Citation, characters: int, moved: Citation
) -> None:
    assert shift_citation(citation, characters) == moved
    assert shift_citation(citation, 0) is citation


def test_a_thought_that_was_said_twice_is_taken_away_as_often_as_it_was_thought() -> None:
    said = Message("assistant", (Thinking("Hm."), Text("<think>Hm.</think>\n\n<think>Hm.</think>\n\nYes.")))
    assert remove_think_tags(said).text == "<think>Hm.</think>\n\nYes."
    only = Message("assistant", (Thinking("Hm."), Text("<think>Hm.</think>\n\n"), ToolCall("1", "f")))
    assert remove_think_tags(only).parts == (Thinking("Hm."), ToolCall("1", "f"))
