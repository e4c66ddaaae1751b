"""Expand a user's prompt: run its commands (`/name`), load its skills and attach its mentioned files (`@file`).

This happens before the session is opened and before anything is stored. So a command can do with the session whatever a
caller could, and a command that fails stores nothing.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure._core.log.fold import State
from perdure._core.run.outcome import Outcome
from perdure._core.values.error import UsageError
from perdure._core.values.event import SkillLoaded
from perdure._core.values.lock import hold_named_lock
from perdure._core.values.message import Message, user
from perdure._core.values.provenance import TRIGGER_ORIGIN, is_untrusted
from perdure._runtime.agent.active import get_active_agent
from perdure._runtime.agent.spec import AgentSpec

from .commands import RunPromptCommand
from .driver import SessionDriver

if TYPE_CHECKING:
    from .session import Session


async def expand_and_run(
    session: "Session[Any]", command: RunPromptCommand, driver: SessionDriver, check_id: Callable[[], Awaitable[None]]
) -> Outcome[Any]:
    """Expand `/name` and `@file` in the prompt of a `RunPromptCommand`, then run the agent on the result.

    A prompt with an `input_id` is expanded only once. `check_id` raises an error for an unsuitable session id.
    """
    await check_id()
    if not session.agent.can_expand_prompts:
        return await driver.perform_command(command)
    if not command.input_id:
        state = State() if not session.agent.handoffs else await session.read_state()
        return await driver.perform_command(await expand_prompt(session, command, state))
    async with hold_named_lock(driver.place, command.input_id):
        return await driver.perform_command(await expand_prompt(session, command, await session.read_state()))


async def expand_prompt(session: "Session[Any]", command: RunPromptCommand, state: State) -> RunPromptCommand:
    """Return a `RunPromptCommand` with `/name` and `@file` in its prompt expanded.

    A command whose `input_id` was run before is returned unchanged, and so is one with a prompt that others wrote.
    """
    from perdure._context.directives.apply import apply_directives

    if not command.messages or (command.input_id and command.input_id in state.runs_by_input_id):
        return command
    if command.messages[-1].origin == TRIGGER_ORIGIN or is_untrusted(command.messages[-1].labels):
        return command  # others must not attach files or run commands by what they write
    agent = get_active_agent(session.agent, state)

    skills = agent.all_skills()

    done = await apply_directives(
        command.messages[-1],
        commands=agent.all_commands(),
        skill_text=lambda name, arguments: _build_skill_text(agent, name, arguments),
        has_skill=lambda name: skills is not None and name in skills,
        mentions=agent.mentions,
        agents=_list_mentionable_agents(agent),
        controls=session,
    )
    return msgspec.structs.replace(command, messages=done.messages, events=done.events, answer=done.answer)


def _list_mentionable_agents(agent: AgentSpec[Any]) -> list[str]:
    """Return the names of the agents that `@name` in a prompt may refer to."""
    more = [name for each in agent.extensions for name in each.agents]
    return [*agent.toolbox.names, *[each.name for each in agent.handoffs], *more]


async def build_skill_message(
    agent: AgentSpec[Any],
    name: str,
    arguments: Any,
    source: Literal["user", "model", "code"],
    labels: tuple[str, ...] = (),
) -> tuple[Message, SkillLoaded]:
    """Build the message that begins a run with a skill, and the event that records the skill."""
    if agent.all_skills() is None:
        raise UsageError(f"this agent has no skills, so none is called {name!r}: give it some, as in Agent(skills=…)")
    message = user(
        await _build_skill_text(agent, name, arguments), origin="skill", metadata={"skill": name}, labels=labels
    )
    return message, SkillLoaded(name, source, "" if arguments is None else str(arguments))


async def _build_skill_text(agent: AgentSpec[Any], name: str, arguments: Any) -> str:
    """Return the prompt of a skill with its arguments. Raises `UsageError` if the agent has no skills."""
    from perdure._context.skills.skill import resolve_skill_prompt

    skills = agent.all_skills()
    if skills is None:
        raise UsageError(f"there is no skill {name!r}")
    return await resolve_skill_prompt(skills.get(name), arguments)
