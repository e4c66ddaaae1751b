"""Handoffs: the model passes the conversation to another agent, which then answers in its place.

    front_desk = Agent(model, name="front desk", handoffs=[billing, repairs])

The model hands over with a tool call, which fails if the other agent could not continue here. Once its result is in the
log, and before the next request, the session is configured with the new agent, and the run continues with its
instructions, tools and model. A crash in between loses nothing: the log has the result, and the same happens again.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, cast

from msgspec.structs import replace

from perdure._core.run.calling_run import get_run_of_call
from perdure._core.run.run import Run
from perdure._core.run.spec import BetweenTurns, RunSpec
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool, ToolOutput, tool
from perdure._core.values.error import ToolError
from perdure._core.values.event import MessageAdded, SessionConfigured
from perdure._core.values.jsonable import error_message
from perdure._core.values.message import ToolResult, user

ACTIVE_AGENT = "agent"
"""The setting of a session that names its active agent; empty for the one that it was begun with."""
HANDED_BY_SETTING = "handed_by"
"""The setting that names the previous agent, to which the conversation can be handed back."""
HANDOFF_CALL_SETTING = "handed_in"
"""The setting with the id of the last handoff call that was processed, with success or without."""
HANDOFF_TOOL_PREFIX = "hand_over_to_"
"""The prefix of the names of handoff tools."""
HANDOFF_TRIAL_KEY = "perdure.handoff.trial"
"""The key in a run's scratch of a function that builds the next agent's spec, or fails if it could not continue."""
_HANDED_TO_KEY = "handed_over_to"
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def sanitize_agent_name(name: str) -> str:
    """Return an agent's name in a form that is valid in paths and tool names: other characters become `_`."""
    return "".join([letter if letter in _NAME_CHARACTERS else "_" for letter in name])


def make_handoff_tool(name: str, description: str) -> Tool[..., Any]:
    """Return the tool that hands the conversation over to the agent of that name."""
    about = f" It is for: {description}" if description else ""

    async def hand_over(
        context: ToolContext[Any], message: Annotated[str, "What it should know that has not been said."] = ""
    ) -> ToolOutput:
        try:
            context.state[HANDOFF_TRIAL_KEY](get_run_of_call(context), name)
        except Exception as error:
            raise ToolError(_describe_handoff_failure(name, context.run.agent_name, error)) from error
        note = f" You were told: {message}" if message.strip() else ""
        content = f"The conversation was handed over: you are {name!r} from here on.{note}"
        return ToolOutput(content, render={_HANDED_TO_KEY: name})

    made = tool(
        hand_over,
        name=build_handoff_tool_name(name),
        description=f"Hand this conversation over to {name!r}, who goes on with it in your place.{about}",
        effect="read",
        parallel=False,
        credentials=False,
    )
    return replace(made, is_of_the_runtime=True)


def build_handoff_tool_name(agent_name: str) -> str:
    """Return the name of the tool that hands over to this agent."""
    return f"{HANDOFF_TOOL_PREFIX}{sanitize_agent_name(agent_name)}"[:64]


def make_handoff_step(build_spec: Callable[[Run, str], RunSpec]) -> BetweenTurns:
    """Return a between-turns function that carries out a handoff: the agent that the model named takes over.

    `build_spec` builds the run settings for that agent.

    If the spec cannot be built any more, such as after a restart with other agents, the model gets a message that says
    so, and continues.
    """

    async def hand_over(run: Run) -> None:
        name, call_id = find_handoff(run.state.latest_results)
        if not name or name == run.agent_name or call_id == run.state.settings.get(HANDOFF_CALL_SETTING):
            return
        try:
            spec = build_spec(run, name)
        except Exception as error:  # noqa: BLE001 - the model gets the error, of any kind
            run.report_error(error, f"handing the conversation over to {name!r}")
            message = user(_describe_handoff_failure(name, run.agent_name, error), origin="feedback")
            events = SessionConfigured({HANDOFF_CALL_SETTING: call_id}), MessageAdded(message)
            await run.emit(*map(run.stamp_event, events), sync=True)
            return
        changes = {ACTIVE_AGENT: name, HANDED_BY_SETTING: run.agent_name, HANDOFF_CALL_SETTING: call_id}
        await run.emit(run.stamp_event(SessionConfigured(changes)), sync=True)
        run.switch_spec(spec)

    return hand_over


def find_handoff(results: Sequence[ToolResult]) -> tuple[str, str]:
    """Return the agent name and call id of the last handoff among these tool results; empty strings if none."""
    for result in reversed(results):
        if result.name.startswith(HANDOFF_TOOL_PREFIX) and not result.is_error and isinstance(result.render, dict):
            return str(cast("dict[str, Any]", result.render).get(_HANDED_TO_KEY, "")), result.call_id
    return "", ""


def _describe_handoff_failure(name: str, current_agent: str, error: Exception) -> str:
    """Return the text for the model about a handoff that failed."""
    reason = error_message(error)
    return f"The conversation could not be handed over to {name!r}: {reason}. You are still {current_agent!r}: go on."
