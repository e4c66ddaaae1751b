"""From what a person typed to what the model is told: hooks, skills and files in a message. Above: `session.py`.
Below: `context`.

This happens before the session is taken and before anything is stored. So a hook can do with the session whatever a
caller could, and one that fails leaves nothing behind.
"""

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .core.error import UsageError
from .core.event import SkillLoaded
from .core.fold import State
from .core.message import Message, user
from .driver import Order
from .speaking import speaking

if TYPE_CHECKING:
    from .agent import Agent
    from .session import Session


async def directed_order(session: "Session", order: Order, state: State) -> Order:
    """The order, with what its message asks for done. One that was given before is not done again."""
    from .context.directives import directed

    if not order.messages or (order.input_id and order.input_id in state.inputs):
        return order
    agent = speaking(session.agent, state)

    def skill_text(name: str, arguments: str) -> str | None:
        skills = agent.all_skills()
        return None if skills is None or name not in skills else _text(agent, name, arguments)

    done = await directed(
        order.messages[-1],
        hooks=[*agent.hooks, *[hook for each in agent.extensions for hook in each.hooks]],
        skill_text=skill_text,
        mentions=agent.mentions,
        agents=_names(agent),
        controls=session,
    )
    return msgspec.structs.replace(order, messages=done.messages, beside=done.events, answer=done.answer)


def _names(agent: "Agent[Any]") -> list[str]:
    """What `@name` may mean besides a file: an agent that the model can reach."""
    more = [name for each in agent.extensions for name in each.agents]
    return [*agent.toolbox.names, *[each.name for each in agent.handoffs], *more]


def skill_message(
    agent: "Agent[Any]", name: str, arguments: Any, source: Literal["user", "model", "code"]
) -> tuple[Message, SkillLoaded]:
    """A skill as the beginning of a run, and the event that tells it."""
    if agent.all_skills() is None:
        raise UsageError(f"this agent has no skills, so none is called {name!r}: give it some, as in Agent(skills=…)")
    message = user(_text(agent, name, arguments), origin="skill", metadata={"skill": name})
    return message, SkillLoaded(name, source, "" if arguments is None else str(arguments))


def _text(agent: "Agent[Any]", name: str, arguments: Any) -> str:
    from .context.skills import prompt_of

    skills = agent.all_skills()
    if skills is None:
        raise UsageError(f"there is no skill {name!r}")
    return prompt_of(skills.get(name), arguments)
