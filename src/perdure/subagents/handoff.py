"""Another agent takes the conversation over. Above: `agent.py`, `build.py`. Below: `core`.

    front_desk = Agent(model, name="front desk", handoffs=[billing, repairs])

The model hands over by a call, which fails when the other agent could not go on here. When its result is in the log,
and before the model is asked again, the session is told who speaks from here on, and the run goes on with that agent's
words, tools and model. So whatever dies in between, the log says who speaks, and the same happens again from there.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

from perdure.core.error import ToolError
from perdure.core.event import MessageAdded, SessionConfigured
from perdure.core.message import ToolResult, user
from perdure.core.plain import words_of
from perdure.core.run import Run, Upkeep
from perdure.core.tool import Tool, ToolContext, ToolOutput, tool
from perdure.speaking import HANDED_BY, HANDED_IN, SPEAKS

from .as_tool import segment_of

if TYPE_CHECKING:
    from perdure.agent import Agent

PREFIX = "hand_over_to_"
"""How the tools are called."""
TRIAL = "perdure.handoff.trial"
"""Where a run has the function that makes it another agent's; it fails when that agent could not go on here."""
_TO = "handed_over_to"


def handoff_tool(agent: "Agent[Any]") -> Tool[..., Any]:
    """The tool by which a model hands the conversation over to this agent. `Agent(handoffs=…)` makes one for each."""
    name = agent.name
    about = f" It is for: {agent.description}" if agent.description else ""

    async def hand_over(
        context: ToolContext[Any], message: Annotated[str, "What it should know that has not been said."] = ""
    ) -> ToolOutput:
        try:
            context.state[TRIAL](context.run, name)
        except Exception as error:
            raise ToolError(_stays(name, context.run.agent_name, error)) from error
        told = f" You were told: {message}" if message.strip() else ""
        content = f"The conversation was handed over: you are {name!r} from here on.{told}"
        return ToolOutput(content, render={_TO: name})

    return tool(
        hand_over,
        name=handoff_name(agent),
        description=f"Hand this conversation over to {name!r}, who goes on with it in your place.{about}",
        effect="read",
        parallel=False,
        credentials=False,
    )


def handoff_name(agent: "Agent[Any]") -> str:
    """How the tool is called by which a model hands over to this agent."""
    return f"{PREFIX}{segment_of(agent.name)}"[:64]


def handing_over(build: Callable[[Run, str], Run]) -> Upkeep:
    """What is done before each request: if the conversation was handed over, the run becomes what `build` makes.

    When that cannot be made any more, such as after a restart with other agents, whoever spoke is told, and goes on.
    """

    async def hand_over(run: Run) -> None:
        name, call_id = handed_to(run.state.latest_results)
        if not name or name == run.agent_name or call_id == run.state.configured.get(HANDED_IN):
            return
        try:
            other = build(run, name)
        except Exception as error:  # noqa: BLE001 - told to the model, whatever it is
            run.report(error, f"handing the conversation over to {name!r}")
            told = user(_stays(name, run.agent_name, error), origin="feedback")
            events = SessionConfigured({HANDED_IN: call_id}), MessageAdded(told)
            await run.emit(*map(run.stamped, events), sync=True)
            return
        changes = {SPEAKS: name, HANDED_BY: run.agent_name, HANDED_IN: call_id}
        await run.emit(run.stamped(SessionConfigured(changes)), sync=True)
        run.become(other)

    return hand_over


def handed_to(results: Sequence[ToolResult]) -> tuple[str, str]:
    """Whom the last calls hand the conversation over to, and by which call; empty when they do not."""
    for result in reversed(results):
        if result.name.startswith(PREFIX) and not result.is_error and isinstance(result.render, dict):
            return str(cast("dict[str, Any]", result.render).get(_TO, "")), result.call_id
    return "", ""


def _stays(name: str, who: str, error: Exception) -> str:
    return f"The conversation could not be handed over to {name!r}: {words_of(error)}. You are still {who!r}: go on."
