"""The identity that an approval is bound to: which tool, of which agent, in which store, project and session."""

import os
import weakref
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .clock import new_id

if TYPE_CHECKING:
    from .fold import State
    from .run import Run
    from .tool import Tool


class Binding(Struct, frozen=True, omit_defaults=True):
    """The identity that a remembered approval is bound to. It holds where all of this is the same."""

    tool: str = ""
    """The identity of the tool: a hash of its name, source, description and parameters."""
    agent: str = ""
    """The names of the agents from the session's own down to the one that makes the call, separated by slashes."""
    store: str = ""
    """The identity of the store, with the tenant in it."""
    project: str = ""
    """The root of the project; without one, the working folder of the process."""
    session: str = ""
    """The session: its id, and the id of its first run, so that a later session of the same id is another one."""

    def is_same_place(self, other: "Binding") -> bool:
        """Return True if store and project are the same."""
        return (self.store, self.project) == (other.store, other.project)

    def is_above(self, other: "Binding") -> bool:
        """Return True if the other agent is this one, or works for it."""
        return other.agent == self.agent or other.agent.startswith(f"{self.agent}/")


NO_BINDING = Binding()
KEEPS_GRANTS_OF = "keeps_grants_of"
"""The setting in which a fork stores the sessions whose grants it keeps."""


def identify_tool(tool: "Tool[..., Any]") -> str:
    """Return the identity of a tool: a hash of its name, source, description and parameters."""
    from hashlib import blake2b  # at first use: only calls that need permission have an identity

    parts = [tool.name, tool.source, tool.description, tool.parameters.json_schema]
    return blake2b(msgspec.json.encode(parts, order="sorted", enc_hook=repr), digest_size=16).hexdigest()


_KNOWN_TOOLS = "identities of tools"
"""The name under which a run keeps the identities of its tools."""
_tokens: "MutableMapping[Any, str]" = weakref.WeakKeyDictionary()
_held_tokens: dict[
    int, tuple[Any, str]
] = {}  # of stores that cannot be referenced weakly: kept, so that ids stay unique


def identify_store(store: Any) -> str:
    """Return the identity of a store: its own `identity` if it has one, else one for this object."""
    identity = getattr(store, "identity", None)
    if isinstance(identity, str):
        return identity
    try:
        found = _tokens.get(store)
        return found or _tokens.setdefault(store, f"{type(store).__name__}:{new_id()}")
    except TypeError:
        return _held_tokens.setdefault(id(store), (store, f"{type(store).__name__}:{new_id()}"))[1]


def session_key(session_id: str, state: "State") -> str:
    """Return the session as bindings name it: a later session of the same id is another one."""
    return f"{session_id}@{state.first_run_id}"


def session_keys(session_id: str, state: "State") -> list[str]:
    """Return the sessions, as bindings name them, whose grants apply: this one, and those whose grants a fork keeps."""
    root = state
    while root.parent is not None:
        root = root.parent
    return [session_key(session_id, root), *root.settings.get(KEEPS_GRANTS_OF, ())]


def agent_chain(run: "Run") -> str:
    """Return the names of the agents from the session's own down to that of a run, separated by slashes."""
    return run.agent_name if run.parent is None else f"{agent_chain(run.parent)}/{run.agent_name}"


def bind_call(run: "Run", tool: "Tool[..., Any]") -> Binding:
    """Return the identity that an approval of a call in this run is bound to."""
    known: dict[int, tuple[Tool[..., Any], str]] = run.scratch.setdefault(_KNOWN_TOOLS, {})
    found = known.get(id(tool))
    if found is None:  # the tool is kept beside its identity, so that no other can get its `id`
        found = known[id(tool)] = (tool, identify_tool(tool))
    session = session_key(run.session_id, run.state)
    return _build(found[1], agent_chain(run), run.log.store, run.spec.project, session)


def build_binding(tool: "Tool[..., Any]", *, agent: str, store: Any, project: str, session: str) -> Binding:
    """Return the identity of a tool, agent, store, project and session; without a project, the current folder."""
    return _build(identify_tool(tool), agent, store, project, session)


def _build(tool: str, agent: str, store: Any, project: str, session: str) -> Binding:
    return Binding(tool, agent, identify_store(store), project or os.getcwd(), session)  # noqa: PTH109 - pathlib is slow
