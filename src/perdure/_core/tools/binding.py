"""The approval bindings of tool calls: the identities of tools, of sessions, and of the agents that call."""

import os
from typing import TYPE_CHECKING, Any

import msgspec

from perdure._core.log.fold import State
from perdure._core.values.binding import ApprovalBinding, identify_store

if TYPE_CHECKING:
    from .run_of_call import RunOfCall
    from .tool import Tool

KEEPS_GRANTS_OF = "keeps_grants_of"
"""The setting in which a fork stores the sessions whose grants it keeps."""
_KNOWN_TOOLS = "identities of tools"
"""The name under which a run keeps the identities of its tools."""


def identify_tool(tool: "Tool[..., Any]") -> str:
    """Return the identity of a tool: a hash of its name, source, description and parameters."""
    from hashlib import blake2b  # at first use: only calls that need permission have an identity

    parts = [tool.name, tool.source, tool.description, tool.parameters.json_schema]
    return blake2b(msgspec.json.encode(parts, order="sorted", enc_hook=repr), digest_size=16).hexdigest()


def build_unique_session_key(session_id: str, state: State) -> str:
    """Build the key that identifies a session in approval bindings, from its full id and its first run.

    A later session that reuses the id has another key.
    """
    return f"{session_id}@{state.first_run_id}"


def list_session_keys(session_id: str, state: State) -> list[str]:
    """Return the key of a session, and the keys of sessions that it was forked from and whose grants it kept.

    The grants of all these sessions apply to it.
    """
    root = state
    while root.parent is not None:
        root = root.parent
    return [build_unique_session_key(session_id, root), *root.settings.get(KEEPS_GRANTS_OF, ())]


def format_agent_chain(run: "RunOfCall") -> str:
    """Return the names of an agent and its parent agents, outermost first, separated by slashes."""
    return run.agent_name if run.parent is None else f"{format_agent_chain(run.parent)}/{run.agent_name}"


def build_call_binding(run: "RunOfCall", tool: "Tool[..., Any]") -> ApprovalBinding:
    """Build the binding for an approval of a tool call: its tool, and the agent, store, project and session of the
    run.
    """
    known: dict[int, tuple[Tool[..., Any], str]] = run.scratch.setdefault(_KNOWN_TOOLS, {})
    found = known.get(id(tool))
    if found is None:  # the tool is kept beside its identity, so that no other can get its `id`
        found = known[id(tool)] = (tool, identify_tool(tool))
    session = build_unique_session_key(run.full_session_id, run.state)
    return _build(found[1], format_agent_chain(run), run.log.store, run.spec.project, session)


def build_approval_binding(
    tool: "Tool[..., Any]", *, agent: str, store: Any, project: str, session: str
) -> ApprovalBinding:
    """Build the binding of an approval from tool, agent, store, project and session (default project: this folder)."""
    return _build(identify_tool(tool), agent, store, project, session)


def _build(tool: str, agent: str, store: Any, project: str, session: str) -> ApprovalBinding:
    return ApprovalBinding(tool, agent, identify_store(store), project or os.getcwd(), session)  # noqa: PTH109 - pathlib is slow
