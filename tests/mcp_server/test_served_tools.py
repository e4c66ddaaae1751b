"""Calls of clients without the protocol: sessions, limits, structured results."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from perdure import Agent, ConfigError, Extension, Permissions, ToolContext, ToolOutput, UsageError, allow, ask, tool
from perdure._mcp.server import agents
from perdure._mcp.server import tools as served_tools
from perdure._mcp.server.agents import list_served_agents
from perdure._mcp.server.clients import TooManyCalls
from perdure._mcp.server.sdk_server import build_call_result
from perdure._mcp.server.tools import ServedTools, derive_output_schema
from perdure.events import QuestionAsked
from perdure.mcp import ClientLimits, ServedAgent
from perdure.people import Confirm
from perdure.permissions import allow_all, later
from perdure.testing import FakeClock, ScriptedModel, call
from perdure.tools import tool_from_schema
from tests.mcp_server.served_tools import Sum, add, helper, shout


@tool(labels=["untrusted"], effect="read")
def read_page() -> str:
    """Read a page of somebody else."""
    return "text"


@tool
def where(context: ToolContext) -> str:
    """Return the session."""
    return context.session_id


async def test_a_long_log_is_followed_by_another(monkeypatch):
    monkeypatch.setattr(served_tools, "CALLS_PER_SESSION", 2)
    server = ServedTools(list_served_agents([where]))
    ids = [(await server.call("ann", "where", {})).result.text for _ in range(4)]
    assert ids[0] == ids[1] != ids[2] == ids[3]


@tool(permission=True)
def send() -> str:
    """Send it."""
    return "sent"


class NotingGate:
    """Allows everything, and notes the labels of each call."""

    def __init__(self):
        self.seen: list[tuple[str, ...]] = []

    async def __call__(self, requests):
        self.seen += [request.labels for request in requests]
        return await Permissions(allow("*"))(requests)


async def test_labels_of_one_call_reach_the_gate_of_the_next_and_of_those_in_the_next_log(monkeypatch):
    monkeypatch.setattr(served_tools, "CALLS_PER_SESSION", 1)
    gate = NotingGate()
    server = ServedTools(list_served_agents([read_page, send], permission=gate))
    await server.call("ann", "read_page", {})
    for client in ("ann", "ann", "bob"):
        await server.call(client, "send", {})
    assert gate.seen == [(), ("untrusted",), ("untrusted",), ()]


async def test_labels_follow_a_client_from_agent_to_agent_and_from_conversation_to_conversation():
    gate, labelled = NotingGate(), ("untrusted",)
    reader = Agent(ScriptedModel(call("read_page"), "It says x."), name="reader", tools=[read_page], permission=gate)
    model = ScriptedModel(call("send"), "sent", call("send"), "sent")
    sender = Agent(model, name="sender", tools=[send], permission=gate)
    server = ServedTools([ServedAgent(agent=reader), ServedAgent(agent=sender, offer="both")])
    assert (await server.call("ann", "reader", {"task": "read"})).result.labels == labelled
    await server.call("ann", "send", {})  # a tool of another agent
    await server.call("ann", "sender", {"task": "send x"})
    await server.call("bob", "sender", {"task": "send y"})
    assert gate.seen == [(), labelled, labelled, ()]


class Asking:
    """A tool that has begun when it asks, so that only this process can go on with it."""

    def __init__(self):
        self.bookings = 0

    @tool
    async def book(self, context: ToolContext) -> str:
        """Book a table."""
        self.bookings += 1
        return "booked" if await context.ask(Confirm("Book it?")) else "not booked"


@pytest.fixture
def short_wait(monkeypatch):
    monkeypatch.setattr(agents, "ANSWER_SECONDS", 0.05)


def waiter(*replies, **options):
    asking = Asking()
    agent = Agent(ScriptedModel(*replies), name="waiter", tools=[asking.book], permission=allow_all, **options)
    return asking, agent


async def test_a_tool_that_asks_in_the_middle_does_not_keep_the_client_waiting(short_wait, monkeypatch):
    asking, agent = waiter(call("book"), "All done.", "Hello.")
    server = ServedTools([ServedAgent(agent=agent)])
    async with server.open():
        first = await server.call("ann", "waiter", {"task": "book a table"})
        assert first.result.is_error
        assert "Book it?" in first.result.text
        assert "Call it again without a task" in first.result.text
        other = (await server.call("ann", "waiter", {"task": "another"})).result
        assert "waits for an answer" in other.text
        assert "Book it?" in (await server.call("ann", "waiter", {})).result.text
        assert "nothing to continue" in (await server.call("bob", "waiter", {})).result.text
        monkeypatch.setattr(agents, "ANSWER_SECONDS", 30)
        session = agent.session(first.session_id)
        assert await session.answer((await session.questions())[0].ask_id, answer=True)
        assert (await server.call("ann", "waiter", {})).result.text == "All done."
        assert (await server.call("ann", "waiter", {"task": "hello"})).result.text == "Hello."
    assert asking.bookings == 1


@pytest.mark.parametrize("way", ["closed", "revoked"])
async def test_a_run_that_waits_ends_with_the_server_and_with_the_token(way, short_wait):
    _, agent = waiter(call("book"), "never")
    server = ServedTools([ServedAgent(agent=agent)])
    async with server.open():
        first = await server.call("ann", "waiter", {"task": "book a table"})
        if way == "revoked":
            server.cancel_waiting("ann")
            server.cancel_waiting("bob")
            assert (await server.call("ann", "waiter", {})).result.is_error
    assert not (await agent.session(first.session_id).read_state()).is_interrupted


async def test_as_many_runs_wait_as_calls_are_allowed_at_once(short_wait):
    _, agent = waiter(call("book"), call("book"), "never")
    server = ServedTools([ServedAgent(agent=agent)], limits=ClientLimits(calls_at_once=1))
    async with server.open():
        await server.call("ann", "waiter", {"task": "x", "conversation": "one"})
        refused = await server.call("ann", "waiter", {"task": "x", "conversation": "two"})
        assert "1 conversations of this client wait" in refused.result.text
        assert not (await agent.session(refused.session_id).read_state()).is_interrupted


async def test_a_tool_that_is_not_there_is_an_error():
    with pytest.raises(UsageError, match="no tool 'x'; available: add"):
        await ServedTools(list_served_agents([add])).call("ann", "x", {})


class Row(TypedDict):
    name: str


class Box(msgspec.Struct):
    size: int


@dataclass
class Empty:
    pass


@pytest.mark.parametrize(
    ("returned", "has_schema"),
    [(Sum, True), (Row, True), (Box, True), (str, False), (list[Sum], False), (ToolOutput, False), (Empty, False),
     (dict, False), ("Missing", False), (None, False), (object, False)],
)  # fmt: skip
def test_only_a_type_with_fields_is_an_output_schema(returned, has_schema):
    def give():
        """Give."""

    give.__annotations__["return"] = returned
    assert (derive_output_schema(tool(give)) is not None) is has_schema


def test_a_tool_from_a_schema_has_no_output_schema():
    made = tool_from_schema("x", "X.", {"type": "object"}, lambda arguments: arguments)
    assert derive_output_schema(made) is None


async def test_a_result_that_does_not_fit_its_schema_is_an_error():
    @tool
    def lie() -> Sum:
        """Return something else."""
        return "no sum"  # type: ignore[return-value]

    server = ServedTools(list_served_agents([lie]))
    result: Any = build_call_result(await server.call("ann", "lie", {}), server.tools["lie"])
    assert result.is_error
    assert "does not fit the output schema" in result.content[0].text


def test_an_agent_can_offer_itself_its_tools_or_both():
    agent = Agent(ScriptedModel(), name="box", tools=[add, shout])
    names = {
        offer: list(ServedTools([ServedAgent(agent=agent, offer=offer)]).tools) for offer in ("agent", "tools", "both")
    }
    assert names == {"agent": ["box"], "tools": ["add", "shout"], "both": ["box", "add", "shout"]}
    assert list(ServedTools([ServedAgent(agent=agent, name="it")]).tools) == ["it"]


@pytest.mark.parametrize(
    ("options", "said"),
    [({"offer": "all"}, "offer"), ({"name": "a b"}, "letters"), ({"name": 3}, "name"), ({"agent": 3}, "Agent")],
)
def test_an_agent_cannot_be_served_in_other_ways(options, said):
    with pytest.raises(ConfigError, match=said):
        ServedAgent(**{"agent": helper(), **options})


async def test_an_agent_without_a_model_cannot_be_asked():
    host = list_served_agents([add])[0].agent
    assert (await host.run("hello")).status == "failed"


@pytest.mark.parametrize(("seconds", "more"), [(0.05, ['{"n":1}']), (0.04, [])])
async def test_progress_is_reported_as_text_and_not_more_often_than_people_can_read(seconds, more):
    clock, told = FakeClock(), []

    @tool
    async def work(context: ToolContext) -> str:
        """Work."""
        context.emit("half way")
        context.emit("too soon")
        for _ in range(20):
            await asyncio.sleep(0)  # until both were seen
        await clock.advance(seconds)
        context.emit({"n": 1})
        return "done"

    async def report(text):
        told.append(text)

    server = ServedTools(list_served_agents([work]), clock=clock)
    assert (await server.call("ann", "work", {}, report)).result.text == "done"
    assert [each.replace(" ", "") for each in told if "started" not in each] == ["halfway", *more]
    assert all(isinstance(each, str) for each in told)


@pytest.mark.parametrize(
    ("arguments", "said", "conversation"),
    [
        ({"zoo": 1, "job": "x"}, "unknown argument 'job': use task and conversation", ""),
        ({"task": 3}, "task: give text", ""),
        ({"task": "x", "conversation": 3}, "conversation: use 1 to 64 letters, digits, '.', '_' and '-'", ""),
        ({"task": "x", "conversation": "a" * 65}, "conversation: use 1 to 64 letters, digits, '.', '_' and '-'", ""),
        (
            {"task": " \n"},
            "this conversation has nothing to continue: give a task, or call again when there is an answer",
            "default",
        ),
    ],
)
async def test_a_task_that_cannot_be_given_is_told_as_the_result(
    arguments: dict[str, Any], said: str, conversation: str
) -> None:
    outcome = await ServedTools([ServedAgent(agent=helper("never"))]).call("ann", "helper", arguments)
    assert (outcome.result.status, outcome.result.text) == ("error", said)
    assert (outcome.result.name, outcome.session_id) == ("helper", f"mcp/ann/helper/{conversation}")


async def test_a_conversation_without_a_name_lasts_as_long_as_it_should() -> None:
    ids = []
    for keeps in (True, False, False):
        server = ServedTools([ServedAgent(agent=helper("one", "two"))], keeps_conversations=keeps)
        first, second = [await server.call("ann", "helper", {"task": "x"}) for _ in range(2)]
        assert first.session_id == second.session_id
        assert (first.result.status, first.result.text) == ("ok", "one")
        ids.append(first.session_id)
    assert ids[0] == "mcp/ann/helper/default"
    assert len(set(ids)) == 3
    longest = await ServedTools([ServedAgent(agent=helper("one"))]).call(
        "ann", "helper", {"task": "x", "conversation": "a" * 64}
    )
    assert (longest.session_id, longest.result.text) == ("mcp/ann/helper/" + "a" * 64, "one")


async def test_a_run_that_waits_says_for_what_and_how_to_go_on(short_wait: None) -> None:
    _, agent = waiter(call("book"), "never")
    server = ServedTools([ServedAgent(agent=agent)])
    async with server.open():
        result = (await server.call("ann", "waiter", {"task": "book a table"})).result
    assert result.status == "error"
    assert result.text == (
        "waiter waits for a person, on the machine of this server, to answer:\n- Book it? (book)\n"
        "Call it again without a task, for the same conversation, when that is done."
    )


@pytest.mark.parametrize(
    ("text", "tools", "line"),
    [
        ("May I?", ["send", "wipe"], "May I? (send, wipe)"),
        ("May I?", [], "May I?"),
        ("", ["send", "wipe"], "may these run: send, wipe"),
    ],
)
def test_a_question_is_described_by_its_text_and_its_tools(text: str, tools: list[str], line: str) -> None:
    question = QuestionAsked("ask", "slot", text, tuple({"tool": each} for each in tools))
    assert served_tools._describe_question(question) == line


async def test_a_call_that_fails_when_it_is_cancelled_is_waited_for_and_nothing_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def fail_late() -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await may_end.wait()
            raise ValueError("too late") from None

    caller = asyncio.ensure_future(served_tools._run_until_stored(fail_late()))
    async with asyncio.timeout(30):
        await begun.wait()
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
    del caller
    gc.collect()
    assert [each for each in caplog.messages if "never retrieved" in each] == []


async def test_an_agent_that_is_served_twice_is_opened_once() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_agent: object) -> AsyncIterator[None]:
        events.append("opened")
        yield
        events.append("closed")

    agent = Agent(ScriptedModel(), name="box", tools=[add], extensions=[Extension(name="x", lifespan=lifespan)])
    server = ServedTools([ServedAgent(agent=agent), ServedAgent(agent=agent, offer="tools")])
    assert list(server.tools) == ["box", "add"]
    async with server.open():
        assert events == ["opened"]
    assert events == ["opened", "closed"]


@pytest.mark.parametrize(
    ("options", "hints"),
    [
        ({"effect": "read"}, (True, True, False)),
        ({"effect": "idempotent"}, (False, True, False)),
        ({"effect": "at_most_once"}, (False, False, False)),
        ({"effect": "read", "sends": True}, (True, True, True)),
    ],
)
def test_what_a_client_is_told_of_a_tool(options: dict[str, Any], hints: tuple[bool, bool, bool]) -> None:
    @tool(**options)
    def act() -> str:
        """Act."""
        return ""

    (offered,) = ServedTools(list_served_agents([act])).tools.values()
    assert (offered.is_read_only, offered.is_idempotent, offered.is_open_world) == hints


def test_what_a_client_is_told_of_an_agent_and_of_its_tools() -> None:
    agent = Agent(ScriptedModel(), name="box", description="Keeps things.", tools=[add])
    whole, part = ServedTools([ServedAgent(agent=agent, offer="both", output=Sum)]).tools.values()
    assert (whole.name, whole.description, whole.tool) == ("box", "Keeps things.", None)
    assert (whole.input_schema, whole.served.agent) == (served_tools.TASK_SCHEMA, agent)
    assert (sorted(whole.input_schema["properties"]), whole.input_schema["additionalProperties"]) == (
        ["conversation", "task"],
        False,
    )
    assert whole.output_schema is not None
    assert whole.output_schema["properties"] == {"total": {"type": "integer"}}
    assert (whole.is_read_only, whole.is_idempotent, whole.is_open_world) == (False, False, True)
    (own,) = agent.toolbox
    assert (part.name, part.description, part.tool) == ("add", own.description, own)
    assert part.input_schema == own.parameters.json_schema
    assert part.output_schema == derive_output_schema(own)
    (plain,) = ServedTools([ServedAgent(agent=agent)]).tools.values()
    assert plain.output_schema is None


async def test_a_run_that_waits_in_its_log_is_continued_when_it_has_an_answer() -> None:
    gate = Permissions(ask("*"), handler=later)
    agent = Agent(ScriptedModel(call("send"), "It is sent."), name="sender", tools=[send], permission=gate)
    server = ServedTools([ServedAgent(agent=agent)])
    async with server.open():
        first = await server.call("ann", "sender", {"task": "send it"})
        assert first.result.status == "error"
        assert first.result.text.startswith("sender waits for a person, on the machine of this server, to answer:\n- ")
        again = (await server.call("ann", "sender", {})).result
        assert again.text == (
            "this conversation waits for an answer of a person: give a task, or call again when there is an answer"
        )
        session = agent.session(first.session_id)
        assert await session.answer((await session.questions())[0].ask_id, answer=True)
        last = (await server.call("ann", "sender", {})).result
    assert (last.status, last.text) == ("ok", "It is sent.")


async def test_an_agent_that_fails_is_an_error_for_its_client() -> None:
    server = ServedTools([ServedAgent(agent=Agent(ScriptedModel(), name="mute"))])
    result = (await server.call("ann", "mute", {"task": "speak"})).result
    assert (result.status, result.name) == ("error", "mute")


async def test_a_call_whose_arguments_are_wrong_or_that_is_denied_is_an_error_for_its_client() -> None:
    server = ServedTools(list_served_agents([add, send]))
    wrong = await server.call("ann", "add", {"a": "x"})
    denied = await server.call("ann", "send", {})
    assert [wrong.result.is_error, denied.result.is_error] == [True, True]
    assert wrong.session_id == denied.session_id
    assert wrong.session_id.startswith("mcp/ann/tools-tools-")
    assert (await server.call("bob", "add", {"a": 1, "b": 2})).session_id.startswith("mcp/bob/tools-tools-")


async def test_calls_of_one_client_are_limited_in_number_and_those_of_others_are_not() -> None:
    clock = FakeClock()
    server = ServedTools(list_served_agents([add]), limits=ClientLimits(calls_per_minute=1), clock=clock)
    assert not (await server.call("ann", "add", {"a": 1, "b": 2})).result.is_error
    with pytest.raises(TooManyCalls, match="this client makes too many calls"):
        await server.call("ann", "add", {"a": 1, "b": 2})
    assert not (await server.call("bob", "add", {"a": 1, "b": 2})).result.is_error
    await clock.advance(60)
    assert not (await server.call("ann", "add", {"a": 1, "b": 2})).result.is_error


async def test_a_client_is_told_which_tools_an_agent_begins() -> None:
    told: list[str] = []

    async def report(text: str) -> None:
        told.append(text)

    agent = Agent(ScriptedModel(call("add", a=1, b=2), "3"), name="box", tools=[add])
    await ServedTools([ServedAgent(agent=agent)]).call("ann", "box", {"task": "add"}, report)
    assert told == ["add started"]


async def test_a_run_that_waits_is_gone_once_the_token_of_its_client_is_revoked(short_wait: None) -> None:
    _, agent = waiter(call("book"), "never")
    server = ServedTools([ServedAgent(agent=agent)])
    async with server.open():
        await server.call("ann", "waiter", {"task": "book a table"})
        server.cancel_waiting("ann")
        after = (await server.call("ann", "waiter", {})).result
    assert (after.status, after.text) == ("error", "the run of this conversation was cancelled: give a task")
