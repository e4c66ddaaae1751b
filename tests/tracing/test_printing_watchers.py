"""Two small watchers: the words as they come, and one log line for each call."""

import io
import logging

import pytest

from perdure import Agent, ConfigError, ToolResult, tool, user
from perdure.events import (
    Entry,
    MessageAdded,
    RunEnded,
    SessionOpened,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from perdure.testing import Reply, ScriptedModel, call, thinking
from perdure.tracing import log_tool_calls, mirror_text, mirror_tool_calls


@tool
async def look() -> str:
    """Looks."""
    raise ValueError("dark")


async def test_the_words_of_the_model_are_mirrored_and_nothing_else():
    writer = io.StringIO()
    model = ScriptedModel(thinking("Hmm.", "I look. ", call("look")), "Nothing there.", chunk=4)
    await Agent(model, tools=[look], watchers=[mirror_text(writer)]).run("Look")
    assert writer.getvalue() == "I look. Nothing there."


def test_each_piece_is_flushed_where_the_writer_can():
    done: list[str] = []

    class Writer:
        def write(self, text: str) -> None:
            done.append(text)

        def flush(self) -> None:
            done.append("flushed")

    watch = mirror_text(Writer())
    watch(Entry(0, 0.0, TextDelta("a")))
    watch(Entry(1, 0.0, MessageAdded(user("b"))))
    assert done == ["a", "flushed"]


def test_a_writer_need_not_be_able_to_flush():
    done: list[str] = []

    class Writer:
        def write(self, text: str) -> None:
            done.append(text)

    mirror_text(Writer())(Entry(0, 0.0, TextDelta("a")))
    assert done == ["a"]


async def test_a_line_is_written_for_each_call_that_begins_below_the_agent_only_on_request():
    own, all_calls = io.StringIO(), io.StringIO()
    scout = Agent(ScriptedModel(call("look"), "Dark."), name="scout", description="Looks.", tools=[look])
    model = ScriptedModel(call("ask_scout", task="Look"), "Nothing.")
    watchers = [mirror_tool_calls(own), mirror_tool_calls(all_calls, subagents=True)]
    await Agent(model, tools=[scout.as_tool(name="ask_scout")], watchers=watchers).run("Look")
    assert own.getvalue() == "[tool] ask_scout\n"
    assert all_calls.getvalue() == "[tool] ask_scout\n[tool] look\n"


async def test_each_call_is_logged_as_it_begins_and_as_it_ends_with_the_ids(caplog):
    caplog.set_level(logging.INFO, "perdure.tools")
    agent = Agent(ScriptedModel(call("look"), "Done."), tools=[look], watchers=[log_tool_calls()])
    outcome = await agent.session("s").run("Look")
    records = [each for each in caplog.records if each.name == "perdure.tools"]
    assert [(each.session_id, each.run_id) for each in records] == [("s", outcome.run_id)] * 2
    begins, ends = [each.getMessage() for each in records]
    assert begins == "look begins (call_1)"
    assert ends.startswith("look error after 0.0")
    assert ends.endswith(" s (call_1)")


def test_what_cannot_be_written_or_logged_to_is_refused():
    with pytest.raises(ConfigError, match="give something with write"):
        mirror_text(5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give a logger"):
        log_tool_calls("tools")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give a number"):
        log_tool_calls(level="high")  # type: ignore[arg-type]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_the_logger_and_the_level_may_be_chosen(level, caplog):
    caplog.set_level(logging.DEBUG)
    watch = log_tool_calls(logging.getLogger("mine"), level)
    watch(Entry(1, 0.0, ToolStarted("c1", "look", "read", "", "key", run_id="r")))
    watch(Entry(2, 0.0, ToolFinished("c1", "look", ToolResult("c1", "look"), 1.25, run_id="r")))
    assert [(each.name, each.levelno) for each in caplog.records] == [("mine", level)] * 2
    assert caplog.records[1].getMessage() == "look ok after 1.250 s (c1)"


def test_the_session_of_a_run_that_is_over_is_forgotten(caplog):
    caplog.set_level(logging.INFO)
    watch = log_tool_calls(logging.getLogger("mine"))
    started = Entry(1, 0.0, ToolStarted("c1", "look", "read", "", "key", run_id="r"))
    watch(Entry(0, 0.0, SessionOpened("s", 0, run_id="r")))
    watch(started)
    watch(Entry(2, 0.0, RunEnded("done", run_id="r")))
    watch(started)
    assert [each.session_id for each in caplog.records] == ["s", ""]


@pytest.mark.parametrize(("options", "text"), [({}, "I ask. So it is."), ({"subagents": True}, "I ask. Aye.So it is.")])
async def test_the_words_of_subagents_are_mirrored_on_request_only(options, text):
    writer = io.StringIO()
    helper = Agent(ScriptedModel("Aye."), name="helper").as_tool()
    model = ScriptedModel(Reply("I ask. ", calls=(call("helper", task="Go."),)), "So it is.")
    await Agent(model, tools=[helper], watchers=[mirror_text(writer, **options)]).run("Look")
    assert writer.getvalue() == text


def test_whether_subagents_are_mirrored_is_yes_or_no():
    with pytest.raises(ConfigError, match="subagents='all'"):
        mirror_text(io.StringIO(), subagents="all")  # type: ignore[arg-type]


async def test_calls_of_subagents_are_logged_with_the_session_too(caplog):
    caplog.set_level(logging.INFO, "perdure.tools")
    helper = Agent(ScriptedModel(call("look"), "Aye."), name="helper", tools=[look]).as_tool()
    agent = Agent(ScriptedModel(call("helper", task="Go."), "Done."), tools=[helper], watchers=[log_tool_calls()])
    await agent.session("s").run("Look")
    records = [each for each in caplog.records if each.name == "perdure.tools"]
    assert {each.session_id for each in records} == {"s"}
    assert [each.getMessage().split()[0] for each in records] == ["look", "look", "helper"]
