"""An agent, or a factory of agents, as a tool. Above: `Agent.as_tool`, callers. Below: `attached.py`.

editor = Agent(model, tools=[researcher.as_tool()])
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from msgspec import Struct

from perdure.core import check
from perdure.core.error import ConfigError, ToolError
from perdure.core.plain import to_jsonable, to_text
from perdure.core.problem import Invalid
from perdure.core.schema import convert, for_type
from perdure.core.tool import Arguments, Tool, ToolContext, ToolOutput, tool, tool_from_schema
from perdure.output import output_of

from .attached import MAX_DEPTH, Errand, carry_out, check_depth, place_of

if TYPE_CHECKING:
    from perdure.agent import Agent

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

ABOUT_TASK = "What is to be done, in words. It knows nothing of this conversation: say all that it needs to know."


class Assignment(Struct, frozen=True, kw_only=True, eq=False):
    """What a factory is told about the agent that it has to make."""

    name: str
    """What the agent is called by whoever calls it."""
    task: str
    """What the agent will be told."""
    input: Any = None
    """The same as a value, when the tool has a type for it."""
    session_id: str
    """The session in which this happens."""
    call_id: str
    """The call that the agent carries out."""
    deps: Any = None
    """What the agent that calls has been given as `deps`."""


Factory: TypeAlias = Callable[[Assignment], "Agent[Any] | Awaitable[Agent[Any]]"]
"""Makes the agent for one task. It is asked again when the task goes on after a crash, and should make the same one."""


def agent_tool(
    agent: "Agent[Any]",
    *,
    name: str = "",
    description: str = "",
    input: Any = None,  # noqa: A002 - what it is
    output: Any = None,
    durable: bool = False,
    max_depth: int = MAX_DEPTH,
) -> Tool[..., Any]:
    """See `Agent.as_tool`."""
    return subagent(
        name or segment_of(agent.name),
        description or agent.description or f"Give a task to {agent.name!r}, another agent, and get its answer.",
        lambda _: agent,
        input=input,
        output=output,
        durable=durable,
        max_depth=max_depth,
    )


def subagent(
    name: str,
    description: str,
    factory: Factory,
    *,
    input: Any = None,  # noqa: A002 - what it is
    output: Any = None,
    durable: bool = False,
    max_depth: int = MAX_DEPTH,
) -> Tool[..., Any]:
    """A tool that makes an agent for each task, and lets it carry the task out.

    Args:
        name: What the tool is called, and the agent in events.
        description: What the model is told.
        factory: Makes the agent, plain or async; see `Assignment`.
        input: A type whose fields are the parameters of the tool; without one there is `task`, in words.
        output: A type of which the agent has to make a value; the result is that value as JSON.
        durable: Whether the conversation goes on from call to call; otherwise each task is all that it knows.
        max_depth: How many agents may stand between it and the session, itself included.
    """
    check.function("subagent", "factory", factory)
    check.flag("subagent", "durable", durable)
    check.whole_number("subagent", "max_depth", max_depth, 1)
    wanted = output_of(output)

    async def carry_out_task(task: str, value: Any, context: ToolContext[Any]) -> ToolOutput:
        check_depth(context.run, name, max_depth)
        assignment = Assignment(
            name=name, task=task, input=value, session_id=context.session_id, call_id=context.call_id, deps=context.deps
        )
        made = await made_by(factory, assignment)
        segment = name if durable else f"{name}-{context.call_id}"
        path = place_of(context.run, context.call_id, segment)
        return await carry_out(Errand(name, made, context.call_id, task, path, wanted), context.run)

    return (
        _in_words(name, description, carry_out_task)
        if input is None
        else _typed(name, description, input, carry_out_task)
    )


_CarryOut: TypeAlias = Callable[[str, Any, ToolContext[Any]], Awaitable[ToolOutput]]


def _in_words(name: str, description: str, carry_out_task: _CarryOut) -> Tool[..., Any]:
    async def give(task: Annotated[str, ABOUT_TASK], context: ToolContext[Any]) -> ToolOutput:
        if not task.strip():
            raise ToolError("the task is empty: say what is to be done")
        return await carry_out_task(task, None, context)

    return tool(give, name=name, description=description, effect="idempotent", asks_first=True, credentials=False)


def _typed(name: str, description: str, type_: Any, carry_out_task: _CarryOut) -> Tool[..., Any]:
    schema = for_type(type_)
    if schema.get("type") != "object":
        raise ConfigError(f"input={type_!r} has no fields that could be parameters: give a dataclass or the like")

    async def give(arguments: Arguments, context: ToolContext[Any]) -> ToolOutput:
        try:
            value = convert(arguments, type_)
        except Invalid as problem:
            raise ToolError(f"invalid arguments for {name!r}: {problem}") from None
        return await carry_out_task(to_text(to_jsonable(value)), value, context)

    return tool_from_schema(name, description, schema, give, effect="idempotent", asks_first=True, credentials=False)


async def made_by(factory: Factory, assignment: Assignment) -> "Agent[Any]":
    """The agent of this assignment."""
    from perdure.agent import Agent  # which stands above this

    made = factory(assignment)
    agent = cast("Any", await made if inspect.isawaitable(made) else made)
    check.returned("factory", factory, agent, Agent, "an Agent")
    return cast("Agent[Any]", agent)


def segment_of(name: str) -> str:
    """A name as part of a path, and as the name of a tool."""
    return "".join([letter if letter in _LETTERS else "_" for letter in name])
