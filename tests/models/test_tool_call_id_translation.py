"""Call ids: a provider gets its own ids back, and ours for the calls of others."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from perdure import Agent, Message, Text, ToolCall, ToolResult, tool, tool_message, user
from perdure._core.model.protocol import sanitize_reply
from perdure._models.endpoint.wire import load_wire
from perdure._models.wires.tools import CallIdTranslator
from perdure.models import EncodingMemo, Profile, Request
from perdure.testing import ScriptedModel

KIMI = Profile(provider="groq", model="kimi-k2")
KIMI_ID, OTHER_ID = "functions.weather:0", "functions.weather:1"
WIRES: dict[Any, Profile] = {
    "openai_chat": KIMI,
    "openai_responses": KIMI,
    "anthropic": KIMI,
    "gemini": KIMI,
    "ollama": KIMI,
    "bedrock": Profile(provider="groq", model="moonshotai.kimi-k2"),
}


def called(*ids: str, profile: Profile = KIMI, used: Sequence[str] = ()) -> list[Message]:
    """A reply with calls of these ids as the provider gave them, and their results, as a session has them."""
    calls = [ToolCall(each, "weather", '{"city":"Oslo"}') for each in ids]
    reply = Message("assistant", (Text("Let me look."), *calls), provider=profile.provider, model=profile.model)
    kept = sanitize_reply(reply, frozenset(used))
    return [kept, tool_message([ToolResult(each.call_id, each.name, (Text("Rain"),)) for each in kept.tool_calls])]


def encoder(messages: Sequence[Message], profile: Profile = KIMI, **rules: Any) -> CallIdTranslator:
    return CallIdTranslator(messages, profile, **rules)


def ids_sent(ids: CallIdTranslator, reply: Message, results: Message) -> list[tuple[str, str]]:
    ids.enter(reply)
    calls = [ids.encode_id(each.call_id) for each in reply.tool_calls]
    ids.enter(results)
    return list(zip(calls, [ids.encode_id(each.call_id) for each in results.tool_results], strict=True))


def test_a_model_gets_its_own_ids_back_with_calls_and_results() -> None:
    messages = called(KIMI_ID, OTHER_ID)
    assert [each.call_id for each in messages[0].tool_calls] == ["call_1", "call_2"]
    assert ids_sent(encoder(messages), *messages) == [(KIMI_ID, KIMI_ID), (OTHER_ID, OTHER_ID)]


def test_results_alone_get_the_ids_of_the_calls_that_were_encoded_before() -> None:
    messages = [user("Hi"), *called(KIMI_ID)]
    ids = encoder(messages)
    ids.enter(messages[-1])
    assert ids.encode_id("call_1") == KIMI_ID
    strange = tool_message([ToolResult("call_1", "weather")])
    other = encoder(messages)
    other.enter(strange)
    assert other.encode_id("call_1") == "call_1"


def test_another_model_gets_ours() -> None:
    messages = called(KIMI_ID)
    other = Profile(provider="openai", model="gpt-5")
    assert ids_sent(encoder(messages, other), *messages) == [("call_1", "call_1")]


def test_an_id_that_was_used_before_is_not_repeated() -> None:
    messages = called("call_0", used=["call_0"])
    assert messages[0].tool_calls[0].provider_call_id == "call_0"
    assert ids_sent(encoder(messages), *messages) == [("call_2", "call_2")]


@pytest.mark.parametrize("can_repeat", [True, False])
@pytest.mark.parametrize(("given", "first"), [("a:0", "a:0"), ("", "call_1")])
def test_two_calls_of_one_message_are_told_apart(given: str, first: str, can_repeat: bool) -> None:
    messages = called(given, given)
    sent = ids_sent(encoder(messages, can_repeat=can_repeat), *messages)
    assert sent == [(first, first), ("call_2", "call_2")]


@pytest.mark.parametrize(("can_repeat", "second"), [(True, KIMI_ID), (False, "call_2")])
def test_an_id_is_repeated_in_another_message_only_where_that_is_allowed(can_repeat: bool, second: str) -> None:
    messages = [*called(KIMI_ID), *called(KIMI_ID, used=["call_1"])]
    ids = encoder(messages, can_repeat=can_repeat)
    assert ids_sent(ids, *messages[:2]) == [(KIMI_ID, KIMI_ID)]
    assert ids_sent(ids, *messages[2:]) == [(second, second)]


def test_an_id_that_the_rules_refuse_is_converted() -> None:
    messages = called(KIMI_ID)
    ids = encoder(messages, is_valid=str.isalnum, convert=lambda call_id: call_id.replace("_", ""))
    assert ids_sent(ids, *messages) == [("call1", "call1")]


def test_a_message_of_the_user_ends_what_came_before() -> None:
    messages = called(KIMI_ID)
    ids = encoder(messages)
    ids.enter(messages[0])
    ids.enter(user("Hi"))
    assert ids.encode_id("call_1") == "call_1"


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("session_id", ["", "s"])
def test_every_wire_sends_the_ids_that_its_model_gave(name: Any, session_id: str) -> None:
    wire, profile, memo = load_wire(name), WIRES[name], EncodingMemo()
    messages: list[Message] = [user("How is the weather?")]
    for number in range(2):
        messages += called(f"functions.weather:{number}", profile=profile, used=[f"call_{number}"])
        body = wire.encode(Request(messages=messages, session_id=session_id), profile, memo).body
        assert list(wire.lint(msgspec.json.decode(body), profile)) == []
        assert body.count(b'"functions.weather:0"') == 2
        assert body.count(b'"functions.weather:1"') == 2 * number
        assert re.search(rb'"call_\d', body) is None


def test_anthropic_itself_refuses_such_ids_and_gets_ours() -> None:
    wire, profile = load_wire("anthropic"), Profile(provider="anthropic", model="claude-sonnet-4-5")
    messages = [user("Hi"), *called(KIMI_ID, profile=profile)]
    body = wire.encode(Request(messages=messages), profile, EncodingMemo()).body
    assert KIMI_ID.encode() not in body
    assert body.count(b'"call_1"') == 2


async def test_an_agent_keeps_the_ids_of_its_model() -> None:
    @tool
    async def weather(city: str) -> str:
        """Tells the weather."""
        return f"Rain in {city}"

    model = ScriptedModel(called(KIMI_ID)[0], "It rains.")
    outcome = await Agent(model, tools=[weather]).run("How is the weather?")
    body = load_wire("openai_chat").encode(Request(messages=outcome.messages), KIMI, EncodingMemo()).body
    reply, result = msgspec.json.decode(body)["messages"][1:3]
    assert (reply["tool_calls"][0]["id"], result["tool_call_id"]) == (KIMI_ID, KIMI_ID)


def test_a_reply_that_is_none_of_the_messages_keeps_its_ids() -> None:
    reply, results = called(KIMI_ID)
    assert ids_sent(encoder([user("Hi")]), reply, results) == [(KIMI_ID, KIMI_ID)]
