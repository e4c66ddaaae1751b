"""Glue's `Session`, its stored state and its line in a list of sessions, with our names."""

import asyncio

import msgspec
import pytest

from perdure import Agent, ConfigError, InvalidOutput, Output, SessionBusy, UsageError, tool
from perdure._core.log.codec import VERSION
from perdure.context import Skill, Skills
from perdure.engines import fold_entries
from perdure.events import RunEnded, RunStarted, TextDelta
from perdure.stores import (
    EntryTooNew,
    MemoryStore,
    decode_entry,
    encode_entry,
    export_session,
    import_session,
    open_store,
)
from perdure.testing import FakeClock, ScriptedModel, call, pause
from perdure.tools import task_tools
from tests.coming_from.shows import shows
from tests.doubles import SECONDS


@tool(effect="read")
def weather(city: str) -> str:
    """Today's weather for a city."""
    return f"Rain in {city}."


@shows("glue", "Session", "Session.ID", "Session.Messages", "Session.Prompt")
async def test_a_session_answers_one_prompt_at_a_time_and_keeps_the_transcript():
    wait = pause()
    first = [TextDelta("Rain"), wait, *reply_end()]
    model = ScriptedModel(first, "And wind.")
    agent = Agent(model)
    session = agent.session("oslo")
    assert session.session_id == "oslo"
    both = asyncio.gather(session.run("Rain?"), agent.session("oslo").run("Wind?"))
    async with asyncio.timeout(SECONDS):
        await wait.wait_reached()
        assert len(model.requests) == 1
        wait.release()
        outcomes = await both
    assert [each.text for each in outcomes] == ["Rain", "And wind."]
    assert [each.text for each in await session.messages()] == ["Rain?", "Rain", "Wind?", "And wind."]


def reply_end():
    from perdure.events import ReplyFinished

    return [ReplyFinished()]


@shows("glue", "Session.Prompt")
async def test_a_prompt_that_is_sent_again_under_its_id_is_answered_once():
    model = ScriptedModel("Rain.", "Never.")
    session = Agent(model).session("oslo")
    first = await session.run("Rain?", input_id="mail-7")
    again = await session.run("Rain?", input_id="mail-7")
    assert (first.text, again.text, model.remaining) == ("Rain.", "Rain.", 1)
    streamed = [event.text async for event in session.stream("Snow?") if isinstance(event, TextDelta)]
    assert streamed == ["Never."]


@shows("glue", "Session")
async def test_a_session_can_be_forked_steered_and_resumed(sqlite):
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.", "Snow.", "Hail.")
    agent = Agent(model, tools=[weather], store=sqlite())
    session = agent.session("oslo")
    await session.steer("In one word.")
    outcome = await session.run("Weather?")
    assert [each.text for each in model.requests[0].messages] == ["Weather?", "In one word."]
    fork = await session.fork("tomorrow")
    await fork.run("And tomorrow?")
    assert len(await fork.messages()) == len(outcome.messages) + 2
    assert len(await session.messages()) == len(outcome.messages)
    entries = await agent.store.read("oslo")
    cut_off = next(place for place, entry in enumerate(entries) if isinstance(entry.event, RunEnded))
    crashed = await session.fork("crashed", at=cut_off)
    assert (await crashed.resume()).text == "Rain."


class Forecast(msgspec.Struct):
    city: str
    rain: bool


@shows("glue", "Session.PromptJSON")
@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
async def test_an_answer_is_a_value_of_a_type_whatever_the_model_can(mode):
    text = '{"city": "Oslo", "rain": true}'
    wrong = '{"city": "Oslo", "rain": "perhaps"}'
    scripted = [call("final_answer", wrong), call("final_answer", text)] if mode == "tool" else [wrong, text]
    model = ScriptedModel(*scripted)
    outcome = await Agent(model).session("oslo").run("Rain?", output=Output(Forecast, mode=mode))
    assert outcome.value == Forecast("Oslo", rain=True)
    assert len(model.requests) == 2  # the wrong answer went back to the model
    first = model.requests[0]
    if mode == "prompted":
        assert "JSON" in first.instructions
    elif mode == "native":
        assert first.output is not None
        assert first.output.schema["required"] == ["city", "rain"]
    else:
        assert [each.name for each in first.tools] == ["final_answer"]


@shows("glue", "Session.PromptJSON")
async def test_an_answer_that_is_never_of_the_type_is_an_error():
    model = ScriptedModel('{"city": 1}', repeat_last=True)
    outcome = await Agent(model).session("oslo").run("Rain?", output=Output(Forecast, mode="native"))
    assert outcome.status == "failed"
    assert isinstance(outcome.error, InvalidOutput)
    with pytest.raises(InvalidOutput):
        _ = outcome.value
    calls = ScriptedModel(call("final_answer", '{"city": 1}'), repeat_last=True)
    outcome = await Agent(calls).session("oslo").run("Rain?", output=Output(Forecast, mode="tool"))
    with pytest.raises(UsageError):
        _ = outcome.value


@shows("glue", "Session.Search")
async def test_a_search_of_a_session_finds_nothing_of_others(sqlite):
    agent = Agent(ScriptedModel("Rain.", repeat_last=True), store=sqlite())
    for city in ("oslo", "bergen"):
        await agent.session(city).run("Weather?")
    assert {hit.session_id for hit in await agent.session("oslo").search("rain")} == {"oslo"}
    assert {hit.session_id for hit in await agent.session("oslo").search("rain", session_id="bergen")} == {"oslo"}


@shows("glue", "Session.Skill")
async def test_a_skill_is_rendered_with_its_arguments_as_json_and_run():
    model = ScriptedModel("Packed.")
    skills = Skills([Skill(name="pack", description="How to pack.", body="Pack the bag.")])
    outcome = await Agent(model, skills=skills).session("oslo").skill("pack", {"days": 3})
    text = model.requests[0].messages[-1].text
    assert "Pack the bag." in text
    assert '"days": 3' in text
    assert outcome.text == "Packed."
    with pytest.raises(ConfigError, match="no skill 'sail'"):
        await Agent(model, skills=skills).session("oslo").skill("sail")


@shows("glue", "Session.Subscribe")
async def test_a_subscriber_hears_every_run_of_a_session_until_it_is_removed():
    agent = Agent(ScriptedModel("One.", "Two.", "Three."))
    session, heard = agent.session("oslo"), []
    remove = session.add_watcher(lambda entry: heard.append(entry.event))
    subscription = session.subscribe()
    await session.run("First")
    await agent.session("oslo").run("Second")  # another object for the same session
    remove()
    await session.run("Third")
    subscription.close()
    iterated = [entry.event async for entry in subscription]
    assert [each.text for each in heard if isinstance(each, TextDelta)] == ["One.", "Two."]
    assert [each.text for each in iterated if isinstance(each, TextDelta)] == ["One.", "Two.", "Three."]
    assert len([each for each in heard if isinstance(each, RunStarted)]) == 2
    after = [entry.event async for entry in first_entries(session, 2)]
    assert isinstance(after[0], RunStarted)


async def first_entries(session, count):
    async with asyncio.timeout(SECONDS):
        async for entry in session.watch(after=0):
            yield entry
            count -= 1
            if not count:
                return


@shows(
    "glue",
    "Session.State",
    "SessionState",
    "SessionState.ID",
    "SessionState.Messages",
    "SessionState.CreatedAt",
    "SessionState.UpdatedAt",
    "SessionState.Version",
    "SessionStateVersion",
)
async def test_the_stored_state_of_a_session_is_its_log():
    clock = FakeClock(1_000_000.0)
    agent = Agent(ScriptedModel("Rain.", "Snow."), clock=clock, store=MemoryStore(clock=clock))
    session = agent.session("oslo")
    await session.run("Weather?")
    await clock.advance(60)
    await session.run("And now?")
    info = await session.info()
    assert info is not None
    assert (info.session_id, info.created_at, info.updated_at) == ("oslo", 1_000_000.0, 1_000_060.0)
    entries = await agent.store.read("oslo")
    state = fold_entries(entries)
    assert [each.text for each in state.messages] == ["Weather?", "Rain.", "And now?", "Snow."]
    assert list(state.messages) == list(await session.messages())
    document = await export_session(agent.store, "oslo")
    assert (document["version"], document["session_id"], len(document["entries"])) == (VERSION, "oslo", len(entries))
    copy = open_store("memory:")
    await import_session(copy, msgspec.json.encode(document), trusted=True)
    assert (await copy.read("oslo"))[: len(entries)] == entries
    raw = encode_entry(entries[0])
    assert decode_entry(raw) == entries[0]
    with pytest.raises(EntryTooNew):
        decode_entry(raw.replace(b'{"seq"', b'{"v":2,"seq"', 1))


@shows("glue", "SessionState.Metadata")
async def test_values_of_the_host_and_of_tools_are_kept_with_the_session(sqlite):
    model = ScriptedModel(call("update_tasks", tasks=[{"content": "Pack"}]), "Noted.")
    agent = Agent(model, tools=task_tools(), store=sqlite())
    session = agent.session("oslo")
    await session.keep("customer", {"id": 7})
    await session.run("Plan it.")
    again = Agent(ScriptedModel(), store=sqlite()).session("oslo")
    assert await again.kept("customer") == {"id": 7}
    assert set(await again.kept_values()) == {"customer", "tasks"}
    assert [each.content for each in await again.tasks()] == ["Pack"]


@shows(
    "glue",
    "SessionSummary",
    "SessionSummary.ID",
    "SessionSummary.CreatedAt",
    "SessionSummary.UpdatedAt",
    "SessionSummary.Messages",
    "SessionSummary.UserMessages",
    "SessionSummary.AssistantMessages",
)
async def test_sessions_are_listed_and_counted_without_a_provider():
    clock = FakeClock(1_000_000.0)
    store = MemoryStore(clock=clock)
    model = ScriptedModel(call("weather", city="Oslo"), "Rain.", "Snow.")
    agent = Agent(model, tools=[weather], clock=clock, store=store)
    await agent.session("oslo").run("Weather?")
    await clock.advance(60)
    await agent.session("bergen").run("Weather?")
    await agent.session("oslo").rename("Oslo's weather")
    listed = {each.session_id: each for each in await store.list()}
    assert (listed["oslo"].created_at, listed["bergen"].updated_at) == (1_000_000.0, 1_000_060.0)
    assert (listed["oslo"].title, listed["oslo"].parent) == ("Oslo's weather", "")
    assert listed["oslo"].entries == len(await store.read("oslo"))
    counts = await agent.session("oslo").count_messages()
    assert (counts.total, counts.user, counts.assistant, counts.tool) == (4, 1, 2, 1)


@shows("glue", "Session")
async def test_one_process_at_a_time_drives_a_session(sqlite):
    other = sqlite()
    lease = await other.acquire("oslo")
    session = Agent(ScriptedModel("Rain."), store=sqlite()).session("oslo")
    with pytest.raises(SessionBusy):
        await session.run("Rain?")
    assert (await session.run("Rain?", take_over=True)).text == "Rain."
    assert not await other.holds(lease)
