"""A draft and its revised answer follow each other in a conversation, and every provider is sent valid messages."""

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from perdure import Agent, Message, Text, Thinking, ToolCall, ToolResult, assistant, tool, user
from perdure._models.wires.openai_responses import WIRE as RESPONSES
from perdure.models import EncodingMemo, Request
from perdure.testing import ScriptedModel, call
from tests.models.authors import AUTHORS
from tests.models.histories import TOOLS

POOR = '{"score": 3, "issues": ["no figure"], "suggestion": "look it up", "needs_revision": true}'
GOOD = '{"score": 9, "needs_revision": false}'
ASSISTANT = {"assistant", "model"}
PARTING = [each for each in AUTHORS if each.wire is not RESPONSES]
"""Those that are sent turns: in the Responses API, a reply is no turn."""
TEXTS = {"a", "one", "two", "b", "Continue."}


@tool(effect="read")
async def depth(harbour: str) -> str:
    """The depth of a harbour."""
    return f"{harbour}: 14 m"


async def revise() -> list[Request]:
    """Return what a model is sent while answers are revised, with a call and without, and in the run after that."""
    revisions = ("It is deep.", POOR, call("depth", harbour="Oslo"), "Oslo is 14 m deep.", GOOD)
    model = ScriptedModel(*revisions, "Hull too.", POOR, "Hull is 9 m deep.", GOOD, "You are welcome.", GOOD)
    session = Agent(model, tools=[depth], engine="reflect").session("pilot")
    for prompt in ("How deep is Oslo?", "And Hull?", "Thank you."):
        assert (await session.run(prompt)).status == "done"
    assert ("assistant", "assistant") in pairwise([message.role for message in model.requests[-2].messages])
    return model.requests


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return asyncio.run(revise())


@pytest.mark.parametrize("author", AUTHORS, ids=lambda author: author.label)
def test_a_revised_conversation_is_valid_for_every_wire(author, requests):
    memo, sent = EncodingMemo(), b""
    for request in requests:
        sent = author.wire.encode(request, author.profile, memo).body
        body = json.loads(sent)
        assert list(author.wire.lint(body, author.profile)) == []
        assert sent == author.wire.encode(request, author.profile, EncodingMemo()).body
        if (items := body.get("messages") or body.get("contents")) is not None:  # elsewhere, replies are no turns
            roles: list[Any] = [each["role"] for each in items]
            assert not [pair for pair in pairwise(roles) if pair[0] == pair[1] and pair[0] in ASSISTANT]
    for text in ("It is deep.", "Oslo is 14 m deep.", "Hull too.", "Hull is 9 m deep."):
        assert sent.decode().count(text) == 1


@pytest.mark.parametrize("author", PARTING, ids=lambda author: author.label)
def test_the_message_between_two_replies_comes_and_goes_with_them(author):
    whole = [user("a"), assistant("one"), assistant("two"), user("b")]
    memo, sent = EncodingMemo(), b""
    for messages in (whole, whole[:1], whole, [*whole[:2], whole[3]], whole):
        request = Request(messages=messages, session_id="s")
        sent = author.wire.encode(request, author.profile, memo).body
        assert sent == author.wire.encode(request, author.profile, EncodingMemo()).body
    assert [text for text in list_texts(json.loads(sent)) if text in TEXTS] == ["a", "one", "Continue.", "two", "b"]


def test_replies_that_are_not_sent_do_not_count():
    author = next(each for each in AUTHORS if each.label == "chat")
    empty = Message("assistant", (Thinking("hm"), Text(" ")))
    request = Request(messages=[empty, user("a"), empty, assistant("one"), empty, assistant("two"), empty, user("b")])
    sent = json.loads(author.wire.encode(request, author.profile, EncodingMemo()).body)
    assert [item["content"] for item in sent["messages"]] == ["a", "one", "Continue.", "two", "b"]
    request = Request(messages=[empty, assistant("one"), user("b")])
    sent = json.loads(author.wire.encode(request, author.profile, EncodingMemo()).body)
    assert [item["content"] for item in sent["messages"]] == ["one", "b"]


def test_the_cache_marker_is_on_the_message_of_the_user_and_not_on_the_one_between_two_replies():
    author = next(each for each in AUTHORS if each.label == "chat_openrouter")
    reply = assistant([ToolCall("c1", "now", "{}")])
    for prompt in ("a", "Continue."):
        messages = [user(prompt), assistant("one"), reply, Message("tool", (ToolResult("c1", "now", (Text("r"),)),))]
        request = Request(messages=messages, tools=TOOLS)
        sent = json.loads(author.wire.encode(request, author.profile, EncodingMemo()).body)["messages"]
        assert [item["role"] for item in sent] == ["user", "assistant", "user", "assistant", "tool"]
        (marked,) = [item for item in sent if isinstance(item.get("content"), list)]
        assert marked["content"] == [{"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}]


def list_texts(value: Any) -> Iterator[str]:
    """Every text in a body, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from list_texts(each)
