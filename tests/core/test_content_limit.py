"""Content that is too long for any log: results, replies and prompts, through the front door."""

from typing import Any

import pytest

from perdure import (
    Agent,
    Citation,
    ConfigError,
    Image,
    Message,
    Status,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolOutput,
    ToolResult,
    assistant,
    tool,
    tool_message,
    user,
)
from perdure._core.model import size_limit
from perdure.engines import Run
from perdure.events import ModelReplied, ToolFinished
from perdure.testing import Reply, ScriptedModel, call, calls
from tests.doubles import log_of, of
from tests.transcript import assert_valid

MOST = 1000


@pytest.fixture(autouse=True)
def _low_limit(monkeypatch):
    monkeypatch.setattr(size_limit, "MAX_CONTENT_CHARACTERS", MOST)


def outputs() -> dict[str, Any]:
    return {
        "text": "x" * (MOST + 1),
        "parts": [Text("x" * 600), Text("y" * 600)],
        "media": Image(data=b"x" * (MOST + 1), media_type="image/png"),
        "render": ToolOutput("short", render={"rows": ["x" * 600, ["y" * 600]], "count": 2}),
        "most": "x" * MOST,
    }


@tool
async def give(what: str) -> Any:
    """Gives something."""
    if what == "error":
        raise ValueError("x" * MOST)
    return outputs()[what]


@pytest.mark.parametrize("what", ["text", "parts", "media", "render"])
async def test_a_result_that_is_too_long_is_an_error_that_says_what_happened_and_the_run_goes_on(what):
    agent = Agent(ScriptedModel(call("give", what=what), "Done."), tools=[give])
    outcome = await agent.session("s").run("Go")
    assert (outcome.status, outcome.text) == ("done", "Done.")
    (finished,) = of(await log_of(agent.store, "s"), ToolFinished)
    assert finished.result.status is Status.ERROR
    assert "The call ran to its end, and whatever it does has happened. Its result had " in finished.result.text
    assert "at most 1,000 can be stored" in finished.result.text
    assert_valid(outcome.messages)


async def test_a_result_of_exactly_the_limit_is_kept():
    outcome = await Agent(ScriptedModel(call("give", what="most"), "Done."), tools=[give]).run("Go")
    assert outcome.messages[2].tool_results[0].text == "x" * MOST


async def test_an_error_that_is_too_long_keeps_its_status():
    outcome = await Agent(ScriptedModel(call("give", what="error"), "Done."), tools=[give]).run("Go")
    result = outcome.messages[2].tool_results[0]
    assert (outcome.status, result.status) == ("done", Status.ERROR)
    assert result.text.startswith("The call ended as error, ")


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        ((Text("x" * 1200),), (Text("x" * MOST),)),
        ((Text("x" * 900), Thinking("y" * 200), Text("z")), (Text("x" * 900),)),
        ((Text("x" * 900), ToolCall("c", "give", "y" * 200)), (Text("x" * 900),)),
        ((Text("x" * MOST), Citation(source="a", quote="y" * 20)), (Text("x" * MOST),)),
    ],
)
async def test_a_reply_that_is_too_long_is_cut_as_if_the_model_had_reached_its_limit(parts, kept):
    model = ScriptedModel(Message("assistant", parts), "Again.")
    session = Agent(model, tools=[give]).session("s")
    outcome = await session.run("Go")
    assert (outcome.status, outcome.reason, outcome.messages[-1].parts) == ("stopped", "length", kept)
    assert outcome.messages[-1].stop is StopReason.LENGTH
    assert (await session.run("Go on")).text == "Again."


async def test_data_beside_a_reply_count_as_well():
    reply = Message("assistant", (Text("x"),), metadata={"log": ["y" * 600, "z" * 600]})
    outcome = await Agent(ScriptedModel(reply)).run("Go")
    assert (outcome.reason, outcome.messages[-1].parts, outcome.messages[-1].metadata) == ("length", (), {})
    outcome = await Agent(ScriptedModel(Message("assistant", metadata={"log": LONG}))).run("Go")
    assert (outcome.status, outcome.reason) == ("stopped", "length")


async def test_a_reply_beside_the_conversation_is_cut_too():
    async def engine(run: Run) -> Any:
        await run.ask_model(run.build_request(run.messages))
        return run.outcome("done")

    agent = Agent(ScriptedModel(Reply("x" * 2000)), engine=engine)
    assert (await agent.session("s").run("Go")).status == "done"
    (replied,) = of(await log_of(agent.store, "s"), ModelReplied)
    assert len(replied.message.text) == MOST


LONG = "x" * (MOST + 1)
RESULT = tool_message([ToolResult("c", "give", (Text(LONG),))])


@pytest.mark.parametrize(
    "prompt",
    [
        LONG,
        [Text("x" * 600), "y" * 600],
        user(LONG),
        Image(data=LONG.encode(), media_type="image/png"),
        [user("Hi"), assistant(LONG), user("And?")],
        [user("Hi"), assistant([ToolCall("c", "give", "{}")]), RESULT],
    ],
)
async def test_a_prompt_that_is_too_long_is_refused_and_nothing_is_stored(prompt):
    agent = Agent(ScriptedModel("Never."))
    with pytest.raises(ConfigError, match="at most 1,000 can be stored: give the name of a file"):
        await agent.session("s").run(prompt)
    assert await agent.store.read("s") == []


async def test_what_is_said_to_a_session_is_refused_too():
    session = Agent(ScriptedModel("Never.")).session("s")
    for say in (session.steer, session.follow_up):
        with pytest.raises(ConfigError, match="1,001 characters"):
            await say(LONG)


async def test_calls_beside_one_with_a_long_result_keep_theirs():
    model = ScriptedModel(calls(call("give", what="text"), call("give", what="most")), "Done.")
    outcome = await Agent(model, tools=[give]).run("Go")
    assert [result.is_error for result in outcome.messages[2].tool_results] == [True, False]


@pytest.mark.parametrize(
    ("part", "size"),
    [
        (Text("abc", signature="de"), 5),
        (ToolCall("c", "t", '{"a":1}', signature="x"), 8),
        (Thinking("abc", data="de", signature="f", details={"gh": ["i", "j"]}), 10),
        (Thinking("abc", details={"a": 1}), 12),
        (Citation(quote="abc", details={"de": "f"}), 6),
        (Image(data=b"abcd", url="ef"), 6),
        (ToolResult("c", "t", (Text("abc"),), summary="de", preview="f"), 6),
        (ToolResult("c", "t", (Text("abc"), Image(data=b"de", url="")), render={"fg": [1, "h"]}), 5 + 11),
        (ToolResult("c", "t", (Image(data=b"de", url=""),)), 2),
    ],
)
def test_the_size_of_a_part_is_its_text_with_its_data(part, size):
    assert size_limit.count_part_characters(part) == size


def test_a_reply_of_exactly_the_limit_is_kept_and_one_above_it_is_cut():
    most = assistant([Text("x" * 600), Text("y" * 400)])
    assert size_limit.truncate_oversized_reply(most) is most
    above = assistant([Text("x" * 600), Text("y" * 401), Text("zz")])
    assert size_limit.truncate_oversized_reply(above) == Message(
        "assistant", (Text("x" * 600), Text("y" * 400)), stop=StopReason.LENGTH
    )
    parts = assistant([Text("x" * 600), ToolCall("c", "t", "y" * 401), Text("z")])
    assert size_limit.truncate_oversized_reply(parts) == Message(
        "assistant", (Text("x" * 600),), stop=StopReason.LENGTH
    )
    size_limit.check_content_size(most.parts, "the prompt")
    with pytest.raises(ConfigError) as caught:
        size_limit.check_content_size(above.parts, "the prompt")
    assert str(caught.value) == (
        "the prompt has 1,003 characters, and at most 1,000 can be stored: give the name of a file, or a part of the "
        "text"
    )


def test_a_text_of_which_nothing_fits_is_left_out_of_a_reply_that_is_cut() -> None:
    full, more = Text("x" * MOST), Text("abc")
    cut = size_limit.truncate_oversized_reply(assistant([full, more]))
    assert (cut.parts, cut.stop) == ((full,), StopReason.LENGTH)
    part = size_limit.truncate_oversized_reply(assistant([Text("x" * (MOST - 1)), more, Text("d")]))
    assert part.parts == (Text("x" * (MOST - 1)), Text("a"))
