"""What type checkers make of code that uses Perdure. Checked by mypy and basedpyright, strictly, and never run.

Each function here is what somebody might write; none of them needs a cast, an annotation on the left, or an ignore.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, assert_type

from perdure import (
    Agent,
    Limits,
    Message,
    Outcome,
    Output,
    Permissions,
    Retry,
    RunStream,
    Session,
    Text,
    Tool,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolResult,
    Usage,
    allow,
    ask,
    deny,
    tool,
    user,
)
from perdure._core.tools.wrappers import CallNext
from perdure.engines import Accepted, Run, Step, any_of, auto_continue, max_turns, react, when_tool_called
from perdure.events import Entry, Event, ModelEvent, ToolFinished
from perdure.models import Model, Request, failover, gated, observed, open_model, retried
from perdure.permissions import PermissionRequest, Verdict
from perdure.testing import ScriptedModel, call
from perdure.tools import Skip, after, around, before, timed, tool_from_schema, truncated


class Deps:
    """What the tools of an agent share."""

    unit: str = "degrees"


# -- tools keep the signature of their function ------------------------------------------------------------------------


@tool
async def weather(city: Annotated[str, "where"], days: int = 1) -> str:
    """Today's weather for a city."""
    return f"{city}: rain for {days} days"


@tool
def double(number: int) -> int:
    """Twice as much."""
    return 2 * number


@tool(name="half", effect="read", permission=lambda arguments: arguments["number"] > 1, target="number")
def halve(number: float) -> float:
    """Half as much."""
    return number / 2


@tool
async def measured(context: ToolContext[Deps], city: str) -> str:
    """A tool that asks for what its agent was given."""
    assert_type(context.deps, Deps)
    assert_type(context.deps.unit, str)
    assert_type(context.turn, int)
    assert_type(context.state, dict[str, Any])
    assert_type(context.run.usage, Usage)
    assert_type(context.run.state.turns, int)
    context.run.cancel("after_tools")
    context.emit({"half": "way"})
    context.add_tools(weather)
    return city


@tool
def bare(context: ToolContext, city: str) -> ToolOutput:
    """A context that does not say what its agent was given."""
    assert_type(context.deps, Any)
    return ToolOutput({"city": city}, summary=context.session_id)


async def tools_are_called_as_the_functions_they_were() -> None:
    assert_type(await weather("Oslo", days=2), str)
    assert_type(double(4), int)
    assert_type(halve(4), float)
    assert_type(weather.name, str)
    assert_type(tool(len, name="length")("four"), int)


class Shelf:
    """Methods of every kind that are tools."""

    @tool
    async def find(self, title: str) -> str:
        """Bound to its object."""
        return title

    @tool(effect="read")
    def count(self, context: ToolContext[Deps], title: str) -> int:
        """Bound to its object."""
        return len(title + context.deps.unit)

    @tool
    @classmethod
    def describe(cls, *, verbose: bool = False) -> str:
        """Bound to its class."""
        return str(verbose)

    @tool
    @staticmethod
    def add(a: int, b: int) -> int:
        """Bound to nothing."""
        return a + b

    def plain(self, title: str) -> str:
        """Not a tool yet."""
        return title

    @classmethod
    def plain_of_class(cls, title: str) -> str:
        """Not a tool yet."""
        return title


async def methods_are_bound_to_their_object() -> Sequence[Tool[..., object]]:
    shelf = Shelf()
    assert_type(await shelf.find("Emma"), str)
    assert_type(await shelf.find(title="Emma"), str)
    assert_type(await Shelf.find(shelf, "Emma"), str)
    assert_type(Shelf.add(1, 2), int)
    assert_type(tool(shelf.plain)("Emma"), str)
    assert_type(tool(Shelf.plain_of_class)("Emma"), str)
    return [shelf.find, shelf.count, shelf.describe, Shelf.describe, Shelf.add, tool(shelf.plain)]


# -- agents, sessions, outcomes ----------------------------------------------------------------------------------------


def look(entry: Entry) -> None:
    assert_type(entry.event, Event)
    if isinstance(entry.event, ToolFinished):
        assert_type(entry.event.result, ToolResult)


async def an_agent_answers() -> None:
    agent = Agent("demo", deps=Deps(), tools=[weather, double, halve, measured, bare], watchers=[look])
    assert_type(agent, Agent[Deps])
    assert_type(agent.run_sync("Hi"), Outcome[Any])
    assert_type(agent.session("trip"), Session[Deps])
    outcome = await agent.run("Hi", limits=Limits(max_turns=3), instructions="Be brief.")
    assert_type(outcome, Outcome[Any])
    assert_type(outcome.text, str)
    assert_type(outcome.usage, Usage)
    assert_type(outcome.cost_usd, float | None)
    assert_type(outcome.messages, Sequence[Message])
    assert_type(outcome.unwrap(), Outcome[Any])
    assert_type(await Agent("demo").run(["Look: ", Text("there")]), Outcome[Any])
    async with agent as entered:
        assert_type(entered, Agent[Deps])


async def show_run(stream: RunStream, output: Output) -> Outcome:
    assert_type(stream, RunStream[Any])
    assert_type(output, Output[Any])
    return await stream.outcome()


async def a_session_goes_on(session: Session) -> None:
    async for event in session.stream("Hi"):
        assert_type(event, Event)
    assert_type(await session.resume(), Outcome[Any])
    assert_type(session.resume_stream(), RunStream[Any])
    async for entry in session.resume_stream().entries():
        assert_type(entry, Entry)
    assert_type(await session.call("weather", {"city": "Oslo"}), ToolResult)
    assert_type(await session.cancel("after_turn"), bool)
    assert_type(await session.messages(), Sequence[Message])
    await session.steer(user("Faster"))
    async for entry in session.watch(after=3):
        assert_type(entry, Entry)


# -- what is wrapped around models and tools ---------------------------------------------------------------------------


async def wait_for_turn(request: Request) -> None:
    assert_type(request.messages, Sequence[Message])


def show(request: Request, event: ModelEvent) -> None:
    assert_type(event.run_id, str)


def models_can_be_wrapped() -> Agent[None]:
    model = observed(gated(retried(ScriptedModel(call("weather", city="Oslo"), "Rain.")), wait_for_turn), show)
    assert_type(model, Model)
    assert_type(failover(model, open_model("demo")), Model)
    return Agent(model)


def rewrite(call: ToolCall, arguments: dict[str, Any]) -> dict[str, Any] | Skip | None:
    return {**arguments, "by": call.name} if arguments else Skip("nothing to do")


async def censor(call: ToolCall, result: ToolResult) -> ToolResult | None:
    return ToolResult(call.call_id, call.name) if result.is_error else None


async def log(call_next: CallNext, arguments: dict[str, Any], context: ToolContext[Any]) -> object:
    context.emit(arguments)
    return await call_next()


def tools_can_be_wrapped() -> Sequence[Tool[..., object]]:
    raw = tool_from_schema("raw", "", {"type": "object"}, lambda arguments: arguments["path"], target="path")
    told = tool_from_schema("told", "", {"type": "object"}, lambda arguments, context: context.emit(arguments))
    return [around(after(before(weather, rewrite), censor), log), truncated(timed(double, 5), 100), raw, told]


# -- who decides, and when it ends -------------------------------------------------------------------------------------


async def ask_a_person(requests: Sequence[PermissionRequest]) -> list[Verdict]:
    return [Verdict(allow=request.tool != "shell", scope="session") for request in requests]


def at_midnight(step: Step) -> bool:
    return step.turn > len(step.results)


async def grade(run: Run, reply: Message) -> Accepted | Retry:
    return Accepted() if reply.text else Retry(f"Say something, {run.session_id}")


async def twice(run: Run) -> Outcome[Any]:
    await react(run)
    return await react(run)


def rules_conditions_and_engines_fit() -> Agent[Deps]:
    return Agent(
        "demo",
        permission=Permissions(allow("weather"), deny(target="rm *"), ask(), handler=ask_a_person),
        stop=any_of(max_turns(3), when_tool_called("finish"), at_midnight),
        output_validators=[auto_continue(), grade],
        engine=twice,
        deps=Deps(),
    )


# -- values instead of words -------------------------------------------------------------------------------------------


class Plan:
    def __init__(self, title: str) -> None:
        self.title = title


async def an_output_has_the_type_that_was_asked_for(agent: Agent[None], session: Session) -> None:
    outcome = await agent.run("Plan.", output=Plan)
    assert_type(outcome, Outcome[Plan])
    assert_type(outcome.value, Plan)
    assert_type(outcome.output, Plan | None)
    assert_type((await session.run("Plan.", output=Output(Plan, repairs=1))).value.title, str)
    assert_type((await session.resume(output=Plan)).value, Plan)
    assert_type((await session.resume_stream(output=Plan).outcome()).value, Plan)
    assert_type(await session.wake(output=Plan), Outcome[Plan] | None)
    assert_type(await session.wake(output=Plan | None), Outcome[Plan | None] | None)
    assert_type(await session.wake(), Outcome[Any] | None)
    async for attended in session.attend(output=Plan, seconds=2.0):
        assert_type(attended, Outcome[Plan])
    async for other in session.attend():
        assert_type(other, Outcome[Any])
    assert_type((await session.resume_stream(output=Plan | None).outcome()).value, Plan | None)
    assert_type(agent.run_sync("Plan.", output=list[int]).value, list[int])
    assert_type((await agent.run("Plan.", output=Plan | None)).value, Plan | None)
    assert_type(agent.run_sync("Plan.", output=int | str).value, int | str)
    assert_type((await agent.stream("Plan.", output=Plan | None).outcome()).value, Plan | None)
    assert_type((await session.run("Plan.", output=Plan | int)).value, Plan | int)
    assert_type((await session.resume(output=Plan | None)).value, Plan | None)
    assert_type((await session.stream("Plan.", output=Plan | None).outcome()).value, Plan | None)
    assert_type((await session.run("Plan.", output=Output(Plan | None, repairs=1))).value, Plan | None)
    assert_type((await session.run("Plan.", output=Literal["a", "b"])).value, Literal["a", "b"])
    stream = session.stream("Plan.", output=Plan)
    assert_type((await stream.outcome()).value, Plan)
    async for event in stream:
        assert_type(event, Event)


async def whoever_asks_for_no_type_gets_any(agent: Agent[None]) -> None:
    assert_type(await agent.run("Talk."), Outcome[Any])
    assert_type(await agent.run("Talk.", output=None), Outcome[Any])
    assert_type(await agent.run("Talk.", output={"type": "object"}), Outcome[Any])
    assert_type(await agent.run("Talk.", output=Output.from_schema({"type": "object"})), Outcome[Any])
