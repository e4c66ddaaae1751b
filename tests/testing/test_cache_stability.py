"""`assert_cache_stable`: an agent that spoils its provider's prompt cache fails, and is told where."""

import itertools
from collections.abc import Sequence

import pytest

from perdure import Agent, ConfigError, Message, ToolContext, tool, user
from perdure.testing import ScriptedModel, ScriptEnded, assert_cache_stable, call


@tool
async def look() -> str:
    """Looks."""
    return "seen"


async def test_an_agent_whose_requests_only_grow_passes() -> None:
    await assert_cache_stable(Agent(ScriptedModel(call("look"), "a", "b"), tools=[look]), "one", "two")


async def test_a_model_that_is_not_scripted_is_never_asked() -> None:
    await assert_cache_stable(Agent("demo", instructions="Be brief.", tools=[look]))


async def test_the_model_to_be_asked_instead_can_be_given() -> None:
    await assert_cache_stable(Agent("demo", tools=[look]), "one", model=ScriptedModel(call("look"), "a"))


async def test_a_clock_in_front_of_the_conversation_is_found_and_shown() -> None:
    minutes = itertools.count()

    def shape(messages: Sequence[Message]) -> Sequence[Message]:
        return [user(f"It is 10:0{next(minutes)}."), *messages]

    with pytest.raises(AssertionError, match=r"request 2 .* messages\[0\] has changed") as caught:
        await assert_cache_stable(Agent("demo", history_processor=shape))
    assert "10:00" in str(caught.value)
    assert "10:01" in str(caught.value)


async def test_a_tool_that_comes_later_is_found() -> None:
    agent = Agent(ScriptedModel(call("more"), "a"), tools=[adding(look)])
    with pytest.raises(AssertionError, match="tools has changed"):
        await assert_cache_stable(agent, "one")


def adding(added):
    @tool
    async def more(context: ToolContext) -> str:
        """Adds a tool."""
        context.add_tools(added)
        return "added"

    return more


async def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(ConfigError, match="give an Agent"):
        await assert_cache_stable("agent")  # type: ignore[arg-type]


async def test_the_message_that_has_changed_is_shown_and_no_other() -> None:
    minutes = itertools.count()

    def shape(messages: Sequence[Message]) -> Sequence[Message]:
        return [user("Hello."), user(f"It is 10:0{next(minutes)}."), user("Go on."), *messages]

    with pytest.raises(AssertionError) as caught:
        await assert_cache_stable(Agent("demo", history_processor=shape), "one", "two")
    told, *lines = str(caught.value).splitlines()
    assert told == (
        "request 2 does not begin with the one before it: messages[1] has changed, so 3 messages are read again at "
        "full price. Append what changes, at the end, instead."
    )
    assert [line for line in lines if line.startswith(("-", "+"))] == [
        "--- before",
        "+++ after",
        '-        "text": "It is 10:00."',
        '+        "text": "It is 10:01."',
    ]
    assert "Go on." not in str(caught.value)


async def test_a_run_that_fails_is_told() -> None:
    with pytest.raises(ScriptEnded):
        await assert_cache_stable(Agent(ScriptedModel("one")), "one", "two")
