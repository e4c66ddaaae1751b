"""Approval bindings: the tool, agent, store, project and session that a remembered approval is valid for."""

import weakref
from collections.abc import MutableMapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from .clock import new_id


class ApprovalBinding(Struct, frozen=True, omit_defaults=True):
    """The tool, agent, store, project and session for which a remembered approval is valid."""

    tool: str = ""
    """The identity of the tool: a hash of its name, source, description and parameters."""
    agent: str = ""
    """The names of the agents from the session's own down to the one that makes the call, separated by slashes."""
    store: str = ""
    """The identity of the store, with the tenant in it; that of a part of a store ends with a slash."""
    project: str = ""
    """The root of the project; without one, the working folder of the process."""
    session: str = ""
    """The session: its id in the innermost store, and the id of its first run, so that a later session of the same id
    is another one."""

    @property
    def session_id(self) -> str:
        """The id of the session in the innermost store."""
        return self.session.rpartition("@")[0]

    def is_same_session(self, other: "ApprovalBinding") -> bool:
        """Return True if session and project are the same, be it through the store or through a part of it."""
        if (self.session, self.project) != (other.session, other.project):
            return False
        return self.store == other.store or _is_part(self.store, other.store) or _is_part(other.store, self.store)

    def widen_to_tenant(self) -> "ApprovalBinding":
        """Return the binding for all sessions of the same tenant: those whose ids in the store begin alike.

        A session `acme/s` that is driven through the whole store is then bound to the part `acme`, as one that is
        driven through that part.
        """
        tenant = self.session_id.rpartition("/")[0]
        is_whole = tenant and not self.store.endswith("/")
        return msgspec.structs.replace(self, store=f"{self.store}/{tenant}/" if is_whole else self.store, session="")

    def has_in_store(self, other: "ApprovalBinding") -> bool:
        """Return True if the project is the same, and the session of the other is in this store or part of a store.

        Of a whole store, it has the sessions without a tenant alone.
        """
        if self.project != other.project:
            return False
        if _collapse(self.store) == _collapse(other.store):
            return self.store.endswith("/") or "/" not in other.session_id
        prefix = _collapse(self.store).removeprefix(f"{_collapse(other.store)}/")
        return _is_part(self.store, other.store) and other.session.startswith(prefix)

    def is_same_store(self, other: "ApprovalBinding") -> bool:
        """Return True if store and project are the same."""
        return (self.store, self.project) == (other.store, other.project)

    def is_above(self, other: "ApprovalBinding") -> bool:
        """Return True if the other binding names the same agent, or an agent that works for it."""
        return other.agent == self.agent or other.agent.startswith(f"{self.agent}/")


def _is_part(part: str, store: str) -> bool:
    """Return True if the first is the identity of a part of the second."""
    return part.endswith("/") and _collapse(part).startswith(f"{_collapse(store).removesuffix('/')}/")


def _collapse(store: str) -> str:
    """Return the identity of a store without the double slashes of a part in a part."""
    return store.replace("//", "/")


NO_BINDING = ApprovalBinding()


_PROCESS: Final = new_id()
"""Begins the identities of stores that end with this process."""
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
        return found or _tokens.setdefault(store, _make_token(store))
    except TypeError:
        return _held_tokens.setdefault(id(store), (store, _make_token(store)))[1]


def _make_token(store: Any) -> str:
    return f"{type(store).__name__}:{_PROCESS}-{new_id()}"


def is_identity_of_this_process(identity: str) -> bool:
    """Return True for the identity of a store, or a part of one, that ends with this process."""
    return identity.partition(":")[2].startswith(f"{_PROCESS}-")
