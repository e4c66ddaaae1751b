"""Bundles of what an agent can be given, and how a run is put together from them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure import (
    Agent,
    ConfigError,
    Extension,
    Limits,
    Message,
    Permissions,
    Retry,
    Tool,
    ToolContext,
    allow,
    deny,
    tool,
    user,
)
from perdure.context import Role
from perdure.engines import Accepted, Run, Step, max_turns
from perdure.events import ModelRequested, RunEnded, ToolsChanged, ViewChanged
from perdure.models import observed
from perdure.permissions import allow_all, deny_all
from perdure.stores import MemoryStore
from perdure.testing import Recorder, ScriptedModel, call
from perdure.tools import after, post_to_inbox, truncated
from tests.doubles import log_of, of

pytestmark = pytest.mark.resumed


@tool(effect="read", prompt="Look before you leap.")
async def look() -> str:
    """Looks."""
    return "there is a lot to see"


@tool(effect="read")
async def listen() -> str:
    """Listens."""
    return "silence"


async def sent(*replies: Any, **options: Any) -> list[Any]:
    """The requests of one run."""
    model = ScriptedModel(*replies)
    outcome = await Agent(model, **options).run("Go")
    assert outcome.status == "done", outcome
    return model.requests


async def test_tools_and_instructions_are_added_in_the_order_of_listing():
    (request,) = await sent(
        "Done.",
        instructions="Be brief.",
        tools=[look],
        extensions=[
            Extension(name="ears", tools=[listen], instructions="You can hear."),
            Extension(name="manners", instructions="Be polite."),
        ],
    )
    assert request.instructions == "Be brief.\n\nYou can hear.\n\nBe polite.\n\nLook before you leap."
    assert [each.name for each in request.tools] == ["look", "listen"]


async def test_an_agent_that_is_replaced_has_the_tools_of_its_extensions_once():
    agent = Agent(ScriptedModel("Done."), tools=[look], extensions=[Extension(name="ears", tools=[listen])])
    again = agent.replace(instructions="Hush.")
    assert [each.name for each in again.tools] == ["look", "listen"]


async def test_a_tool_of_an_extension_can_be_the_only_one_that_is_allowed():
    (request,) = await sent(
        "Done.",
        tools=[look],
        extensions=[Extension(name="ears", tools=[listen])],
        limits=Limits(allowed_tools=("listen",)),
    )
    assert [each.name for each in request.tools] == ["listen"]


@pytest.mark.in_memory("tools are code")
async def test_a_wrapper_is_put_around_every_tool_also_those_that_come_later_or_for_one_run():
    @tool
    async def more(context: ToolContext[Any]) -> str:
        """Adds one."""
        context.add_tools(listen)
        return "added"

    def shouted(each: Tool[..., Any]) -> Tool[..., Any]:
        return truncated(each, 4)

    model = ScriptedModel(call("more"), call("listen"), "Done.", call("look"), "Done.")
    agent = Agent(model, tools=[more], extensions=[Extension(name="short", wrap_tool=shouted)])
    session = agent.session("s")
    outcome = await session.run("Go")
    assert [result.text[:2] for each in outcome.new_messages for result in each.tool_results] == ["ad", "si"]
    outcome = await session.run("Again", tools=[look])
    (result,) = outcome.new_messages[2].tool_results
    assert "characters left out" in result.text


async def test_what_is_done_between_turns_may_be_a_plain_function():
    turns: list[int] = []
    extension = Extension(name="count", between_turns=[lambda run: turns.append(run.state.turns)])
    await sent("Done.", extensions=[extension])
    assert turns == [0]


async def test_a_wrapper_of_the_model_sees_every_answer():
    heard: list[str] = []
    extension = Extension(
        name="ear", wrap_model=lambda model: observed(model, lambda _, event: heard.append(type(event).__name__))
    )
    await sent("Done.", extensions=[extension])
    assert heard == ["TextDelta", "ReplyFinished"]


async def test_reminders_stand_at_the_end_of_each_request_and_are_never_kept():
    store = MemoryStore()
    agent_options: dict[str, Any] = {
        "tools": [look],
        "store": store,
        "extensions": [
            Extension(name="clock", reminders=[lambda run: f"It is turn {run.state.turns + 1}.", lambda _: None])
        ],
    }
    model = ScriptedModel(call("look"), "Done.")
    session = Agent(model, **agent_options).session("s")
    outcome = await session.run("Go")
    assert [each.messages[-1].text for each in model.requests] == ["It is turn 1.", "It is turn 2."]
    assert [each.messages[-1].origin for each in model.requests] == ["reminder", "reminder"]
    assert "turn" not in " ".join(each.text for each in await session.messages())
    assert outcome.cache.first_changed == ""
    assert not of(await log_of(store, "s"), ViewChanged)


async def test_upkeep_is_done_before_each_request_and_before_calls():
    seen: list[tuple[int, bool]] = []

    async def upkeep(run: Run) -> None:
        seen.append((run.state.turns, run.state.unsettled_reply is not None))

    await sent(call("look"), "Done.", tools=[look], extensions=[Extension(name="tidy", between_turns=[upkeep])])
    assert seen == [(0, False), (1, True), (1, False)]


@pytest.mark.in_memory("what a guardrail has seen")
async def test_acceptance_stop_conditions_guardrails_and_watchers_are_those_of_all():
    recorder = Recorder()
    tries: list[str] = []
    steps: list[int] = []

    def twice(_run: Run, reply: Message) -> Accepted | Retry:
        tries.append(reply.text)
        return Accepted() if len(tries) == 2 else Retry("Once more.")

    def guardrail() -> Any:
        def look_at(step: Step) -> None:
            steps.append(step.turn)

        return look_at

    extension = Extension(name="strict", output_validators=[twice], guardrails=[guardrail], watchers=[recorder])
    await sent(call("look"), "One.", "Two.", tools=[look], extensions=[extension])
    assert (tries, steps, len(recorder.of(RunEnded))) == (["One.", "Two."], [1], 1)
    for own in (None, max_turns(5)):
        model = ScriptedModel(call("look"), call("look"), "Done.")
        stopping = Agent(model, tools=[look], stop=own, extensions=[Extension(name="stop", stop=[max_turns(2)])])
        assert (await stopping.run("Go")).reason == "stop_condition"


# -- what an extension needs -------------------------------------------------------------------------------------------


def living(opened: list[str], name: str) -> Extension:
    @asynccontextmanager
    async def lifespan(agent: Agent[Any]) -> AsyncIterator[None]:
        opened.append(f"{name} of {agent.name} opens")
        try:
            yield
        finally:
            opened.append(f"{name} closes")

    return Extension(name=name, lifespan=lifespan)


async def test_a_lifespan_is_as_long_as_the_block_or_else_as_each_run():
    opened: list[str] = []
    agent = Agent(ScriptedModel("Done.", repeat_last=True), extensions=[living(opened, "a"), living(opened, "b")])
    await agent.run("Go")
    assert opened == ["a of agent opens", "b of agent opens", "b closes", "a closes"]
    opened.clear()
    async with agent:
        assert agent.is_open
        await agent.run("Go")
        await agent.run("Go")
        assert opened == ["a of agent opens", "b of agent opens"]
    assert not agent.is_open
    assert opened[2:] == ["b closes", "a closes"]


async def test_a_lifespan_that_cannot_be_opened_closes_those_before_it_and_nothing_runs():
    opened: list[str] = []

    @asynccontextmanager
    async def broken(_agent: Agent[Any]) -> AsyncIterator[None]:
        raise OSError("no such socket")
        yield

    extensions = [living(opened, "a"), Extension(name="broken", lifespan=broken)]
    agent = Agent(ScriptedModel("Done."), extensions=extensions)
    with pytest.raises(OSError, match="no such socket"):
        await agent.run("Go")
    with pytest.raises(OSError, match="no such socket"):
        async with agent:
            pass
    assert opened == ["a of agent opens", "a closes"] * 2
    assert not agent.is_open


# -- roles, and what a session is told ---------------------------------------------------------------------------------

CRITIC = Role("critic", "Find what is wrong.")
POET = Role("poet", "Answer in verse.", model="demo:words")


async def test_a_role_is_told_after_everything_else_and_that_of_a_run_wins_over_the_sessions_and_the_agents():
    model = ScriptedModel("One.", "Two.", "Three.")
    agent = Agent(model, instructions="Be brief.", roles=[CRITIC, Role("host", "Be kind.")], role="host")
    await agent.session("a").run("Go")
    session = agent.session("b", role="critic")
    await session.run("Go")
    await session.run("Go", role="host")
    first, second, third = [each.instructions for each in model.requests]
    assert first == third
    assert first.startswith("Be brief.")
    assert first.endswith("Be kind.")
    assert second.endswith("Find what is wrong.")


async def test_a_role_may_come_with_an_extension_and_name_a_model_of_its_own():
    agent = Agent(
        ScriptedModel("never asked"), extensions=[Extension(name="poetry", roles=[POET])], store=MemoryStore()
    )
    await agent.session("s").run("Hello", role="poet")
    (requested,) = of(await log_of(agent.store, "s"), ModelRequested)
    assert requested.provider == "demo"


async def test_an_unknown_role_is_refused_before_anything_is_stored():
    agent = Agent(ScriptedModel("Done."), roles=[CRITIC], store=MemoryStore())
    with pytest.raises(ConfigError, match="critic"):
        await agent.session("s").run("Go", role="clown")
    with pytest.raises(ConfigError, match="critic"):
        agent.session("s", role="clown")
    with pytest.raises(ConfigError, match="critic"):
        agent.replace(role="clown")
    assert await agent.session("s").info() is None


async def test_what_a_session_is_told_holds_from_its_next_run_on_in_every_process():
    store = MemoryStore()
    model = ScriptedModel("One.", "Two.", "Three.")
    agent = Agent(model, instructions="Be brief.", roles=[CRITIC], store=store)
    session = agent.session("s")
    await session.configure(instructions="Be long.", role="critic")
    await session.run("Go")
    await agent.session("s").run("Go")
    await session.configure(instructions="", role="")
    await session.configure()
    await session.run("Go")
    first, second, third = [each.instructions for each in model.requests]
    assert first == second
    assert first.startswith("Be long.")
    assert first.endswith("Find what is wrong.")
    assert third == "Be brief."
    changes = [each.cause for each in of(await log_of(store, "s"), ViewChanged)]
    assert changes == ["instructions"]


async def test_a_session_can_be_told_another_model():
    agent = Agent(ScriptedModel("never asked"), store=MemoryStore())
    session = agent.session("s")
    await session.configure(model="demo:words")
    await session.run("Hello")
    (requested,) = of(await log_of(agent.store, "s"), ModelRequested)
    assert requested.provider == "demo"
    with pytest.raises(ConfigError, match="nobody"):
        await session.configure(model="nobody:nothing")


# -- what changes in front of a request --------------------------------------------------------------------------------


async def changes(agent: Agent[Any], *, again: Agent[Any] | None = None, **overrides: Any) -> list[str]:
    """Why the second of two runs began its request differently, as the log tells it."""
    await agent.session("s").run("Go")
    await (again or agent).session("s").run("Go on", **overrides)
    return [each.cause for each in of(await log_of(agent.store, "s"), ViewChanged)]


async def test_the_log_tells_what_of_a_requests_beginning_has_changed_also_in_another_process():
    def agent(**options: Any) -> Agent[Any]:
        return Agent(ScriptedModel("Done.", repeat_last=True), store=store, **options)

    for expected, options in (
        ([], {}),
        (["instructions"], {"instructions": "Be brief."}),
        (["tools"], {"tools": [listen]}),
    ):
        store = MemoryStore()
        assert await changes(agent(), again=agent(**options)) == expected
    store = MemoryStore()
    assert await changes(agent(), model="demo:words") == ["model"]


async def test_a_shape_that_rewrites_what_was_sent_is_told_too():
    def only_the_last(messages: Sequence[Message]) -> list[Message]:
        return [user(messages[-1].text)]

    agent = Agent(ScriptedModel("Done.", repeat_last=True), history_processor=only_the_last, store=MemoryStore())
    session = agent.session("s")
    await session.run("Go")
    await session.run("Go on")
    assert [each.cause for each in of(await log_of(agent.store, "s"), ViewChanged)] == ["messages"]


@pytest.mark.in_memory("tools are code")
async def test_tools_that_come_while_a_run_goes_on_change_the_view_once():
    @tool
    async def more(context: ToolContext[Any]) -> str:
        """Adds one."""
        context.add_tools(after(listen, lambda _, result: result), scope="process")
        return "added"

    agent = Agent(ScriptedModel(call("more"), "Done."), tools=[more], store=MemoryStore())
    await agent.session("s").run("Go")
    log = await log_of(agent.store, "s")
    assert ([each.added for each in of(log, ToolsChanged)], [each.cause for each in of(log, ViewChanged)]) == (
        [("listen",)],
        ["tools"],
    )


def test_two_extensions_that_give_the_same_name_to_something_are_refused():
    with pytest.raises(ConfigError, match="two extensions are called 'ears'"):
        Agent("demo", extensions=[Extension(name="ears"), Extension(name="ears")])
    with pytest.raises(ConfigError, match="two roles of extensions are called 'critic'"):
        Agent("demo", extensions=[Extension(name=name, roles=[CRITIC]) for name in ("one", "two")])
    agent = Agent("demo", roles=[CRITIC], extensions=[Extension(name="one", roles=[Role("critic", "Another.")])])
    assert agent.find_role("critic") is CRITIC


def test_a_reminder_that_would_have_to_be_waited_for_is_refused():
    async def slow(_run: Run) -> str:
        return "x"

    with pytest.raises(ConfigError, match=r"Extension\(reminders=.*in 'time': a reminder is a plain function"):
        Extension(name="time", reminders=[slow])  # type: ignore[list-item]


# -- what may be done --------------------------------------------------------------------------------------------------


@tool(permission=True)
async def fire() -> str:
    """Fires the cannon."""
    return "boom"


@pytest.mark.parametrize(
    ("gate", "rules", "fired"),
    [
        (None, [allow("fire")], True),
        (Permissions(), [allow("fire")], True),
        (Permissions(allow("*")), [deny("fire")], False),
        (Permissions(deny("fire")), [allow("fire")], False),
        (allow_all, [deny("fire")], False),
        (allow_all, [allow("fire")], True),
        (deny_all, [allow("fire")], False),
    ],
)
async def test_rules_are_added_to_those_of_the_agent_and_explained_alike(gate, rules, fired):
    model = ScriptedModel(call("fire"), "Done.")
    agent = Agent(model, tools=[fire], permission=gate, extensions=[Extension(name="rules", rules=rules)])
    session = agent.session("s")
    explained = await session.explain("fire", {})
    outcome = await session.run("Go")
    (result,) = outcome.new_messages[2].tool_results
    assert ((result.text == "boom"), explained.verdict == "allow") == (fired, fired)


class _Background:
    """Work in the background, with nothing to do."""

    def has_unfinished_tasks(self, *_given: Any) -> bool:
        return False

    def resume_tasks(self, _run: Any) -> None:
        """Do nothing."""

    def list_tasks(self, _place: Any) -> tuple[Any, ...]:
        return ()

    async def report_ended_tasks(self, *_given: Any) -> None:
        """Do nothing."""


async def _answer_later(*_given: Any) -> None:
    """An async function."""


def _answer_at_once(*_given: Any) -> None:
    """A plain function."""


@pytest.mark.parametrize(
    ("method", "wrong"),
    [
        *[
            (name, wrong)
            for name in ("has_unfinished_tasks", "resume_tasks", "list_tasks")
            for wrong in (None, _answer_later)
        ],
        *[("report_ended_tasks", wrong) for wrong in (None, _answer_at_once)],
    ],
)
def test_background_work_whose_methods_are_not_what_they_have_to_be_is_refused(method: str, wrong: Any) -> None:
    background = _Background()
    assert Extension(name="e", background=background).background is background
    setattr(background, method, wrong)
    with pytest.raises(ConfigError, match=f"background.{method}"):
        Extension(name="e", background=background)


@pytest.mark.parametrize("background", [None, _Background()])
async def test_a_session_is_not_continued_for_extensions_without_unfinished_work(
    background: _Background | None,
) -> None:
    model = ScriptedModel(call("post_to_inbox", tag="mail", request="Ask them."), "waiting")
    extensions = [Extension(name="e", background=background)]
    session = Agent(model, tools=[post_to_inbox], extensions=extensions, store=MemoryStore()).session("s")
    await session.run("Go")
    length = len(await log_of(session.store, "s"))
    assert await session.attend_once() is None
    assert len(await log_of(session.store, "s")) == length
