"""Redaction shared by the agents of a session: a secret of one agent is removed from the output of every agent.

An agent with a vault has a redactor that knows the secrets its tools were given. Agents that share a session also share
one redactor that knows the secrets of all of them: of agents that can get the conversation by a handoff, and of those
that work for them, in the foreground or in the background. Agents that are known from the start are added before the
first event; one that a factory builds is added when it begins.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perdure._core.log.fold import State
from perdure._core.log.redaction import RelatedRunsRedaction
from perdure._core.tools.tool import Tool
from perdure._core.tools.toolbox import Toolbox
from perdure._core.values.error import ConfigError
from perdure._core.values.event import RunStarted, ValueKept
from perdure._core.values.message import Message, ToolCall

from .spec import AgentSpec

if TYPE_CHECKING:
    from perdure._credentials.vault import Vault


async def add_agent_redactors(
    agent: AgentSpec[Any], state: State, redaction: RelatedRunsRedaction, tools: Iterable[Tool[..., Any]] = ()
) -> None:
    """Add the secrets of an agent, and of agents it can hand over or give tasks to, to the redaction of the session.

    Each new redactor looks up the secrets that were given out before, perhaps by another process: the log shows which
    names were requested. `tools` are those that a run has besides the agent's own.
    """
    with_redactor = [each for each in list_related_agents(agent, tools) if each.vault is not None]
    if not with_redactor:
        return
    from perdure._credentials.redacted_model import CombinedRedactor  # at first use: most agents have no vault

    shared = redaction.redactor
    if not isinstance(shared, CombinedRedactor):
        shared = redaction.redactor = CombinedRedactor()
    for each in with_redactor:
        if each.redactor is not None and each.vault is not None and each.redactor not in shared:
            shared.add(each.redactor)
            without_credentials = {tool.name for tool in each.toolbox if not tool.credentials}
            names = (*_find_requested_names(state, without_credentials), *_list_vault_names(each.vault))
            await each.redactor.recall_values(each.vault, dict.fromkeys(names))


def is_redaction_complete(agent: AgentSpec[Any], redaction: RelatedRunsRedaction) -> bool:
    """Return True if the redaction of a session has the secrets of all agents that `add_agent_redactors` would add."""
    redactors = [each.redactor for each in list_related_agents(agent) if each.redactor is not None]
    if not redactors:
        return True
    from perdure._credentials.redacted_model import CombinedRedactor  # at first use, as above

    shared = redaction.redactor
    return isinstance(shared, CombinedRedactor) and all(each in shared for each in redactors)


def list_related_agents(agent: AgentSpec[Any], tools: Iterable[Tool[..., Any]] = ()) -> list[AgentSpec[Any]]:
    """Return the agent, and those that it can hand over or give tasks to, directly or through others."""
    found: list[AgentSpec[Any]] = []
    given = Toolbox(tools) if isinstance(tools, Sequence) else ()  # an iterator is left to the run
    waiting = [agent, *_list_agents_of_tools(given)]
    while waiting:
        each = waiting.pop(0)
        if each not in found:
            found.append(each)
            waiting += [*each.handoffs, *_list_agents_of_tools((*each.toolbox, *each.spare_tools))]
    return found


def _list_agents_of_tools(tools: Iterable[Tool[..., Any]]) -> list[AgentSpec[Any]]:
    return [agent for tool in tools for agent in tool.agents]


def check_id_for_secrets(session_id: str, redaction: RelatedRunsRedaction) -> None:
    """Raise `ConfigError` if a session id contains a secret, as the store would keep it in plain text."""
    if redaction.redact_event(ValueKept(session_id, None)).name != session_id:
        raise ConfigError("the id of this session contains a credential, and would be stored: choose another id")


def redact_input_id(input_id: str, redaction: RelatedRunsRedaction) -> str:
    """Redact secrets in the caller's `input_id`, so that it equals the stored id when the same input is sent again."""
    return redaction.redact_event(RunStarted("", input_id=input_id)).input_id


def _list_vault_names(vault: "Vault") -> list[str]:
    """Return the names of the secrets in a vault; none if it cannot be read."""
    from perdure._credentials.vault import list_local_secret_names

    with suppress(ConfigError):  # a tool that needs a value gets the error
        return list_local_secret_names(vault)
    return []


def _find_requested_names(state: State, tools_without_credentials: Collection[str]) -> list[str]:
    """Return the secret names that tool calls of a session and its children refer to.

    Calls of `tools_without_credentials` are skipped: their arguments are plain text, and get no secrets.
    """
    from perdure._credentials.secret import find_placeholder_names

    while state.parent is not None:
        state = state.parent
    every = [call for each in (state, *state.children.values()) for call in _iterate_calls(each)]
    return find_placeholder_names([call.arguments for call in every if call.name not in tools_without_credentials])


def _iterate_calls(state: State) -> Iterator[ToolCall]:
    """Yield every tool call of a session, including calls without a result."""
    messages: Iterable[Message] = (
        state.messages if state.unsettled_reply is None else (*state.messages, state.unsettled_reply)
    )
    for message in messages:
        yield from message.tool_calls
