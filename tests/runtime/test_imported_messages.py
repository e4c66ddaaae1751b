"""A conversation that a host brings along: valid in the log, in one piece, and continued like any other."""

import asyncio
from typing import Any

import pytest

from perdure import (
    Agent,
    Audio,
    ConfigError,
    Message,
    Permissions,
    Session,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UsageError,
    assistant,
    tool,
    tool_message,
    user,
)
from perdure._core.model import size_limit
from perdure.events import MessageAdded, RunStarted
from perdure.permissions import later
from perdure.stores import MemoryStore, open_store
from perdure.testing import ScriptedModel, call, replay
from tests.doubles import Held, crashed, log_of, of
from tests.transcript import assert_valid

pytestmark = pytest.mark.resumed


@tool(effect="read")
async def look() -> str:
    """Looks."""
    return "there"


def result_of(call_id: str, text: str = "rain") -> ToolResult:
    return ToolResult(call_id, "weather", (Text(text),))


CONVERSATION = [
    user("Weather in Oslo and Bergen?"),
    assistant([Thinking("hm"), ToolCall("a", "weather", '{"city": "Oslo"}'), ToolCall("b", "weather", "{}")]),
    tool_message([result_of("b", "wind"), result_of("a")]),
    assistant("Rain and wind."),
]


def session_of(*replies: Any, store: Any = None, **options: Any) -> Session:
    return Agent(ScriptedModel(*replies), tools=[look], store=store or MemoryStore(), **options).session("s")


def requests_of(session: Session) -> Any:
    model: Any = session.agent.model
    return model.requests


# -- import_messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "file", "sqlite"])
async def test_an_imported_conversation_is_durable_and_is_continued(kind, tmp_path):
    address = {"memory": "memory:", "file": f"file:{tmp_path}", "sqlite": f"sqlite:{tmp_path}/s.db"}[kind]
    store = open_store(address)
    assert await session_of(store=store).import_messages(CONVERSATION) == 4
    session = session_of("As I said.", store=store)
    outcome = await session.run("Again?")
    sent = requests_of(session)[0].messages
    assert [message.role for message in sent] == ["user", "assistant", "tool", "assistant", "user"]
    assert [result.text for result in sent[2].tool_results] == ["rain", "wind"]  # in the order of the calls
    assert_valid(sent)
    assert [message.text for message in outcome.new_messages] == ["Again?", "As I said."]
    info = await session.info()
    assert info is not None
    assert info.title == "Weather in Oslo and Bergen?"
    await store.aclose()


async def test_results_in_a_message_each_become_one_message():
    session = session_of("Yes.")
    apart = [*CONVERSATION[:2], tool_message([result_of("a")]), tool_message([result_of("b")])]
    assert await session.import_messages(apart) == 3
    assert_valid(await session.messages())


async def test_call_ids_that_were_used_before_are_replaced_in_calls_and_results():
    session = session_of()
    await session.import_messages(CONVERSATION)
    await session.import_messages(CONVERSATION)
    messages = await session.messages()
    assert_valid(messages)
    second = messages[5].tool_calls
    assert [each.provider_call_id for each in second] == ["a", "b"]
    assert [each.text for each in messages[6].tool_results] == ["rain", "wind"]


async def test_a_system_message_is_stored_as_words_and_usage_of_elsewhere_does_not_count():
    session = session_of()
    await session.import_messages([Message("system", (Text("Be brief."),)), assistant("Ok.", usage=Usage(500, 500))])
    first, second = await session.messages()
    assert (first.role, first.origin, first.text) == ("user", "system", "Be brief.")
    assert second.usage is None
    assert (await session.usage()).usage == Usage()


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("Hello", "is no conversation: give a list of messages"),
        ([], "is no conversation"),
        (["Hello"], "message 0 of the conversation is 'Hello': give messages"),
        (CONVERSATION[:2], r"message 1 .* has calls without results \('a', 'b'\): add tool_message"),
        ([*CONVERSATION[:2], user("And?")], "message 1 .* has calls without results"),
        ([*CONVERSATION[:2], tool_message([result_of("a")])], r"without results \('b'\)"),
        (
            [*CONVERSATION[:2], tool_message([result_of("a"), result_of("b"), result_of("c")])],
            "has 2 calls, and 3 results follow it",
        ),
        ([user("Hi"), tool_message([result_of("a")])], "message 0 .* has 0 calls, and 1 results follow it"),
        ([tool_message([result_of("a")])], "message 0 .* has results of no calls"),
        ([CONVERSATION[1], Message("tool", (Text("x"),))], r"make it with tool_message\(\[ToolResult"),
        ([assistant([ToolCall("a", "x"), ToolCall("a", "x")])], "has two calls with one id"),
        ([assistant([])], "has to consist of text, thinking"),
        ([assistant([result_of("a")])], "has to consist of text, thinking"),
        ([user("")], "message 0 .* cannot be stored: the prompt is empty"),
        ([Message("assistant", (Text(5),))], "cannot be stored"),  # type: ignore[arg-type]
        ([CONVERSATION[1], tool_message([ToolResult("a", "x", (5,)), result_of("b")])], "has a result with 5"),  # type: ignore[arg-type]
        ([CONVERSATION[1], tool_message([ToolResult("a", "x", (), "fine"), result_of("b")])], "the status 'fine'"),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_conversation_is_refused_and_nothing_is_stored(messages, told):
    session = session_of()
    with pytest.raises(ConfigError, match=told):
        await session.import_messages(messages)
    assert await session.info() is None


async def test_nothing_is_imported_into_a_run_that_is_not_over():
    store = MemoryStore()
    await crashed(store, "s", RunStarted(run_id="r"), MessageAdded(user("Hi"), run_id="r"))
    session = session_of("Done.", store=store)
    with pytest.raises(UsageError, match=r"has a run that is not over: resume\(\) it first"):
        await session.import_messages(CONVERSATION)
    await session.resume()
    assert await session.import_messages(CONVERSATION) == 4


async def test_a_session_with_an_imported_beginning_can_be_replayed():
    store = MemoryStore()
    session = session_of("One.", call("look"), "Two.", store=store)
    await session.import_messages(CONVERSATION)
    await session.run("First?")
    await session.import_messages([user("By mail: yes."), assistant("Noted.")])
    await session.run("Second?")
    replayed = await replay(session.agent, "s")
    assert replayed.agrees
    assert replayed.turns == 3


# -- run([messages]) ---------------------------------------------------------------------------------------------------


async def test_a_run_answers_the_last_message_of_a_conversation():
    model = ScriptedModel("As I said.")
    outcome = await Agent(model).run([*CONVERSATION, user("Again?")])
    sent = [message.role for message in model.requests[0].messages]
    assert sent == ["user", "assistant", "tool", "assistant", "user"]
    assert [message.text for message in outcome.new_messages] == ["Again?", "As I said."]
    assert_valid(outcome.messages)


async def test_a_run_answers_results_that_a_conversation_ends_with():
    session = session_of("Rain and wind.")
    outcome = await session.run(CONVERSATION[:3])
    assert outcome.text == "Rain and wind."
    assert [message.role for message in outcome.new_messages] == ["assistant"]
    assert_valid(await session.messages())


async def test_the_messages_of_an_outcome_begin_another_conversation():
    first = await session_of(call("look"), "There.").run("Where?")
    other = session_of("Indeed.")
    stream = other.stream([*first.messages, user("Sure?")])
    _ = [event async for event in stream]
    assert [message.text for message in (await other.messages())] == ["Where?", "", "", "There.", "Sure?", "Indeed."]
    assert (await session_of("So.").run([user("One."), user("Two.")])).text == "So."


async def test_a_conversation_with_an_input_id_is_added_once():
    session = session_of("As I said.", "never said")
    conversation = [*CONVERSATION, user("Again?")]
    await session.run(conversation, input_id="one")
    again = await session.run(conversation, input_id="one")
    assert again.text == "As I said."
    assert len(await session.messages()) == 6


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_a_conversation_that_ends_with_the_assistant_has_nothing_to_answer(way):
    session = session_of()
    with pytest.raises(ConfigError, match="ends with the assistant's words: add a user's message"):
        _ = await session.run(CONVERSATION) if way == "run" else session.stream(CONVERSATION)
    with pytest.raises(ConfigError, match="message 0 of the conversation is 'Hi'"):
        await session.run(["Hi", user("there")])


# -- words of the assistant --------------------------------------------------------------------------------------------


async def test_words_of_the_assistant_can_be_sent_while_it_works():
    held = Held("look")
    session = Agent(ScriptedModel(call("look"), "Done."), tools=[held.tool]).session("s")
    running = asyncio.ensure_future(session.run("Look."))
    await held.started.wait()
    assert await session.steer(assistant("I am looking now."), post_id="p")
    held.released.set()
    outcome = await running
    assert outcome.text == "Done."
    assert outcome.turns == 2
    said = [(message.role, message.origin, message.text) for message in outcome.messages if message.text]
    assert ("assistant", "steering", "I am looking now.") in said
    assert requests_of(session)[1].messages[-1].role == "user"  # a reminder, never stored
    assert [step.turn for step in outcome.steps] == [1, 2]


async def test_words_of_the_assistant_are_no_answer_after_a_crash():
    store = MemoryStore()
    await crashed(
        store,
        "s",
        RunStarted(run_id="r"),
        MessageAdded(user("Hi"), run_id="r"),
        MessageAdded(Message("assistant", (Text("Welcome."),), origin="steering"), run_id="r"),
    )
    outcome = await session_of("How can I help?", store=store).resume()
    assert (outcome.text, outcome.turns) == ("How can I help?", 1)


async def test_words_of_the_assistant_are_replayed_as_they_were():
    session = session_of("One.", "Two.")
    await session.run("First?")
    await session.follow_up(assistant("A word more."))
    await session.wake()
    assert (await replay(session.agent, "s")).agrees
    (spoken,) = [each.message for each in of(await log_of(session.store, "s"), MessageAdded) if each.message.origin]
    assert (spoken.role, spoken.origin) == ("assistant", "follow_up")


@pytest.mark.parametrize("way", ["steer", "follow_up"])
@pytest.mark.parametrize("parts", [[ToolCall("a", "look")], [Audio(b"x")], [Text(" ")], []])
async def test_only_words_can_be_put_into_the_mouth_of_a_running_assistant(way, parts):
    with pytest.raises(ConfigError, match=r"session\.import_messages takes calls and results"):
        await getattr(session_of(), way)(assistant(parts))


async def test_an_import_waits_for_no_question():
    @tool(permission=True)
    async def pay() -> str:
        """Pays."""
        return "paid"

    agent = Agent(ScriptedModel(call("pay")), tools=[pay], permission=Permissions(handler=later))
    session = agent.session("s")
    assert (await session.run("Pay.")).status == "waiting"
    with pytest.raises(UsageError, match="has a run that is not over"):
        await session.import_messages(CONVERSATION)


async def test_a_call_id_that_a_conversation_uses_twice_is_replaced_the_second_time() -> None:
    session = session_of("Done.")
    await session.import_messages([*CONVERSATION, *CONVERSATION])
    messages = await session.messages()
    assert_valid(messages)
    ids = [each.call_id for message in messages for each in message.tool_calls]
    assert ids[:2] == ["a", "b"]
    assert len(set(ids)) == 4
    assert [each.call_id for message in messages for each in message.tool_results] == ids


async def test_an_imported_result_that_ended_its_run_does_not_end_the_next_one() -> None:
    session = session_of("As I said.")
    ending = ToolResult("a", "weather", (Text("rain"),), terminate=True)
    asked = assistant([ToolCall("a", "weather", "{}")])
    outcome = await session.run([user("Weather?"), asked, tool_message([ending])])
    assert (outcome.status, outcome.text) == ("done", "As I said.")
    assert [each.terminate for message in outcome.messages for each in message.tool_results] == [False]


@pytest.mark.parametrize("place", ["the reply", "a result"])
async def test_a_conversation_with_more_in_one_message_than_can_be_stored_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size_limit, "MAX_CONTENT_CHARACTERS", 100)
    session = session_of()
    words, result = ("x" * 101, "rain") if place == "the reply" else ("Hm.", "x" * 101)
    reply = assistant([Text(words), ToolCall("a", "weather", "{}")])
    with pytest.raises(ConfigError, match="message 1"):
        await session.import_messages([user("Weather?"), reply, tool_message([result_of("a", result)])])
    assert await session.messages() == []
