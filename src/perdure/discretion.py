"""The secrets of a family of agents, put together. Above: `driver.py`, `subagents`. Below: credentials, core.

An agent with a vault has a redactor of its own, which knows what was handed out. A family has one that knows what all
of theirs know: those who can be handed the conversation, those who work for them, here or in the background.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .core.error import ConfigError
from .core.fold import State
from .core.message import Message, ToolCall
from .core.secrecy import Secrecy

if TYPE_CHECKING:
    from .agent import Agent
    from .credentials import Vault


async def introduce(agent: "Agent[Any]", state: State, secrecy: Secrecy) -> None:
    """Let a family hide what this agent is given, and those that it can hand the conversation over to.

    Whoever is new to it remembers what was handed out before, perhaps by a process that is gone: the log says which
    names were asked for.
    """
    discreet = [each for each in agent.reachable if each.redactor is not None]
    if not discreet:
        return
    from .credentials import FamilyRedactor  # at first use: most agents have no vault

    family = secrecy.redactor
    if not isinstance(family, FamilyRedactor):
        family = secrecy.redactor = FamilyRedactor()
    for each in discreet:
        if each.redactor is not None and each.vault is not None and each.redactor not in family:
            family.add(each.redactor)
            wordy = {tool.name for tool in each.toolbox if not tool.credentials}
            await each.redactor.recall(each.vault, dict.fromkeys((*_asked_for(state, wordy), *_listed(each.vault))))


def _listed(vault: "Vault") -> list[str]:
    from .credentials import listed

    with suppress(ConfigError):  # whoever needs a value of it is told what is wrong
        return listed(vault)
    return []


def _asked_for(state: State, wordy: Collection[str]) -> list[str]:
    """The names in the calls of a session, its children's included. What is told to a `wordy` tool asks for nothing."""
    from .credentials import names_in

    while state.parent is not None:
        state = state.parent
    every = [call for each in (state, *state.children.values()) for call in _calls(each)]
    return names_in([call.arguments for call in every if call.name not in wordy])


def _calls(state: State) -> Iterator[ToolCall]:
    messages: Iterable[Message] = state.messages if state.reply is None else (*state.messages, state.reply)
    for message in messages:
        yield from message.tool_calls
