"""Tools that run an agent on a task: an existing agent, or one that a factory function builds for each task.

editor = Agent(model, tools=[researcher.as_tool()])
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.schema.parameters import convert_value, json_schema_for_type
from perdure._core.schema.problems import Invalid
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Arguments, Tool, ToolOutput, tool, tool_from_schema
from perdure._core.values import checks
from perdure._core.values.error import ConfigError, ToolError
from perdure._core.values.event import SubagentStarted
from perdure._core.values.jsonable import to_jsonable, to_text
from perdure._runtime.agent.handoff import sanitize_agent_name
from perdure._runtime.agent.output import to_output
from perdure._runtime.agent.spec import AgentSpec

from .child import MAX_DEPTH, SubagentTask, check_depth, get_child_run_path, record_failed_task, run_subagent

TASK_DESCRIPTION = "The task, as text. The agent does not see this conversation: include all that it needs to know."


class SubagentContext(Struct, frozen=True, kw_only=True, eq=False):
    """Context for the factory function of `subagent`: the task for which it builds an agent."""

    name: str
    """The name of the tool, and of the agent in events."""
    task: str
    """The prompt that the agent will get."""
    input: Any = None
    """The task as a value, if the tool has an input type."""
    session_id: str
    """The session of the calling agent."""
    call_id: str
    """The tool call that the agent carries out."""
    deps: Any = None
    """The `deps` of the calling agent."""


AgentFactory: TypeAlias = Callable[[SubagentContext], AgentSpec[Any] | Awaitable[AgentSpec[Any]]]
"""Builds the agent for one task. Called again when the task is resumed after a crash: it should build the same one."""


def build_agent_tool(
    agent: AgentSpec[Any],
    *,
    name: str = "",
    description: str = "",
    input: Any = None,  # noqa: A002 - the plain name for users
    output: Any = None,
    durable: bool = False,
    max_depth: int = MAX_DEPTH,
    narrow_permission: bool = True,
) -> Tool[..., Any]:
    """Build a tool that gives tasks to an agent. See `Agent.as_tool`."""
    given = subagent(
        name or sanitize_agent_name(agent.name),
        description or agent.description or f"Give a task to {agent.name!r}, another agent, and get its answer.",
        lambda _: agent,
        input=input,
        output=output,
        durable=durable,
        max_depth=max_depth,
        narrow_permission=narrow_permission,
    )
    return replace(given, agents=(agent,))


def subagent(
    name: str,
    description: str,
    factory: AgentFactory,
    *,
    input: Any = None,  # noqa: A002 - the plain name for users
    output: Any = None,
    durable: bool = False,
    max_depth: int = MAX_DEPTH,
    narrow_permission: bool = True,
) -> Tool[..., Any]:
    """Build a tool that creates an agent for each task, and has it carry out the task.

    Args:
        name: The name of the tool, and of the agent in events.
        description: The description of the tool for the model.
        factory: Builds the agent, plain or async; see `SubagentContext`.
        input: A type whose fields are the parameters of the tool, and whose value, as JSON, is the agent's prompt; by
            default there is one parameter, `task`, a text.
        output: A type that the agent has to produce a value of; the result is that value as JSON.
        durable: True to continue one conversation from call to call; otherwise each task starts a new one.
        max_depth: The most agents in a row between the session and this agent, itself included.
        narrow_permission: False if the agent's own `permission` decides alone; otherwise its calls need the consent
            of that of the calling agent, too.
    """
    checks.require_callable("subagent", "factory", factory)
    checks.require_bool("subagent", "durable", durable)
    checks.require_int("subagent", "max_depth", max_depth, 1)
    checks.require_bool("subagent", "narrow_permission", narrow_permission)
    wanted = to_output(output)

    async def carry_out_task(task: str, value: Any, context: ToolContext[Any]) -> ToolOutput:
        run = get_run_of_call(context)
        check_depth(run, name, max_depth)
        assignment = SubagentContext(
            name=name, task=task, input=value, session_id=context.session_id, call_id=context.call_id, deps=context.deps
        )
        segment = name if durable else f"{name}-{context.call_id}"
        path = get_child_run_path(run, context.call_id, segment)
        try:
            made = await call_factory(factory, assignment)
        except (Exception, asyncio.CancelledError) as error:
            await record_failed_task(run, SubagentStarted(context.call_id, name, task, path), error)
            raise
        given = SubagentTask(name, made, context.call_id, task, path, wanted, narrow_permission)
        return await run_subagent(given, run)

    return (
        _build_text_tool(name, description, carry_out_task)
        if input is None
        else _build_typed_tool(name, description, input, carry_out_task)
    )


_TaskFunction: TypeAlias = Callable[[str, Any, ToolContext[Any]], Awaitable[ToolOutput]]


def _build_text_tool(name: str, description: str, carry_out_task: _TaskFunction) -> Tool[..., Any]:
    """Build the subagent tool whose only parameter is the task as text."""

    async def give(task: Annotated[str, TASK_DESCRIPTION], context: ToolContext[Any]) -> ToolOutput:
        if not task.strip():
            raise ToolError("the task is empty: describe the task")
        return await carry_out_task(task, None, context)

    return tool(give, name=name, description=description, effect="idempotent", asks_first=True, credentials=False)


def _build_typed_tool(name: str, description: str, type_: Any, carry_out_task: _TaskFunction) -> Tool[..., Any]:
    """Build the subagent tool whose parameters are the fields of a type."""
    schema = json_schema_for_type(type_)
    if schema.get("type") != "object":
        raise ConfigError(f"input={type_!r} has no fields to use as parameters: give a dataclass or a similar type")

    async def give(arguments: Arguments, context: ToolContext[Any]) -> ToolOutput:
        try:
            value = convert_value(arguments, type_)
        except Invalid as problem:
            raise ToolError(f"invalid arguments for {name!r}: {problem}") from None
        return await carry_out_task(to_text(to_jsonable(value)), value, context)

    return tool_from_schema(name, description, schema, give, effect="idempotent", asks_first=True, credentials=False)


async def call_factory(factory: AgentFactory, assignment: SubagentContext) -> AgentSpec[Any]:
    """Call the factory function that builds a subagent for a task, and return the agent."""
    made = factory(assignment)
    agent = cast("Any", await made if inspect.isawaitable(made) else made)
    checks.require_return_type("factory", factory, agent, AgentSpec, "an Agent")
    return cast("AgentSpec[Any]", agent)
