"""Another agent takes the conversation over. Above: `agent.py`, `build.py`. Below: `core`.

    front_desk = Agent(model, name="front desk", handoffs=[billing, repairs])

The model hands over by a call. When its result is in the log, and before the model is asked again, the session is told
who speaks from here on, and the run goes on with that agent's words, tools and model. So whatever dies in between, the
log says who speaks, and the same happens again from there.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

from windlass.core.event import SessionConfigured
from windlass.core.message import ToolResult
from windlass.core.run import Run, Upkeep
from windlass.core.tool import Tool, ToolOutput, tool

from .as_tool import segment_of

if TYPE_CHECKING:
    from windlass.agent import Agent

SPEAKS = "agent"
"""Who speaks in a session, by name."""
HANDED_BY = "handed_by"
"""Who spoke before, and can be handed the conversation back."""
PREFIX = "hand_over_to_"
"""How the tools are called."""
_TO = "handed_over_to"


def handoff_tool(agent: "Agent[Any]") -> Tool[..., Any]:
    """The tool by which a model hands the conversation over to this agent. `Agent(handoffs=…)` makes one for each."""
    name = agent.name
    about = f" It is for: {agent.description}" if agent.description else ""

    async def hand_over(message: Annotated[str, "What it should know that has not been said."] = "") -> ToolOutput:
        told = f" You were told: {message}" if message.strip() else ""
        content = f"The conversation was handed over: you are {name!r} from here on.{told}"
        return ToolOutput(content, render={_TO: name})

    return tool(
        hand_over,
        name=f"{PREFIX}{segment_of(name)}"[:64],
        description=f"Hand this conversation over to {name!r}, who goes on with it in your place.{about}",
        effect="read",
        parallel=False,
    )


def handing_over(build: Callable[[Run], Run]) -> Upkeep:
    """What is done before each request: if the conversation was handed over, the run becomes what `build` makes."""

    async def hand_over(run: Run) -> None:
        name = handed_to(run.state.latest_results)
        if name and name != run.agent_name:
            changes = {SPEAKS: name, HANDED_BY: run.agent_name}
            await run.emit(run.stamped(SessionConfigured(changes)), sync=True)
            run.become(build(run))

    return hand_over


def handed_to(results: Sequence[ToolResult]) -> str:
    """Whom the last calls hand the conversation over to; empty when they do not."""
    for result in reversed(results):
        if result.name.startswith(PREFIX) and not result.is_error and isinstance(result.render, dict):
            return str(cast("dict[str, Any]", result.render).get(_TO, ""))
    return ""
