"""Session ids that the runtime reserves for sessions of its own, such as the journals of schedules.

Whoever could open one would read what others have triggered, or keep a schedule from being served. So each way in that
takes a session id refuses them, in every spelling that a person could take for them.
"""

import re
import unicodedata
from typing import Final
from urllib.parse import unquote

from perdure._core.values.error import ConfigError

from .store import Store, get_namespaced_session_id

SCHEDULES_SESSION: Final = "schedules"
"""The session with the schedules of a store; those with their journals lie below it."""
EVALUATION_PREFIX: Final = "evaluation-"
"""Prefix of the sessions with the records of evaluations."""

_MOST_DECODED: Final = 3
"""How often percent signs are decoded: names are often encoded twice on their way through URLs."""
_SEPARATORS: Final = re.compile(r"[/\\]")
_REASONS: Final = {
    SCHEDULES_SESSION: "use `perdure schedule`, or a Scheduler, to read and trigger schedules; for a session of yours, "
    "choose another id",
    EVALUATION_PREFIX: "use `perdure eval`, or an Evaluation, to read evaluations; for a session of yours, choose "
    "another id",
}


class RuntimeSessionId(str):
    """The id of a session that the runtime opens for itself: the only kind of id that may be a reserved one."""

    __slots__ = ()


def is_schedule_session(session_id: str) -> bool:
    """Return True if a session is internal to schedules: it stores the schedules themselves, or the firings of one.

    The sessions of a part of a store have its name before their own, so the last two parts of an id decide.
    """
    *_, before, last = ("", *session_id.split("/"))
    return SCHEDULES_SESSION in {before, last}


def find_reserved_name(session_id: str) -> str:
    """Return the reserved name that an id has, in any spelling; empty if there is none."""
    if session_id.isascii() and session_id.isprintable() and "%" not in session_id:
        folded = session_id.casefold()
        if SCHEDULES_SESSION not in folded and EVALUATION_PREFIX not in folded:  # nearly always, and quick
            return ""
    parts = _split_normalized(session_id)
    if SCHEDULES_SESSION in parts[-2:]:
        return SCHEDULES_SESSION
    return EVALUATION_PREFIX if parts and parts[-1].startswith(EVALUATION_PREFIX) else ""


def _split_normalized(session_id: str) -> list[str]:
    """Return the parts of an id as they look: without case, width, encoding, invisible characters and empty parts."""
    text = session_id
    for _ in range(_MOST_DECODED):
        text = unquote(text)
    folded = unicodedata.normalize("NFKC", text).casefold()
    seen = "".join([each for each in folded if unicodedata.category(each) not in {"Cc", "Cf"}])
    parts: list[str] = []
    for part in map(str.strip, _SEPARATORS.split(seen)):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return parts


def check_not_reserved(session_id: str, store: Store | None = None) -> str:
    """Return an id as a plain string. Raises `ConfigError` if the runtime reserves it, in this store or part of one.

    An id that the runtime itself has made passes.
    """
    if isinstance(session_id, RuntimeSessionId):
        return str(session_id)
    found = find_reserved_name(session_id if store is None else get_namespaced_session_id(store, session_id))
    if found:
        raise ConfigError(f"session {session_id!r} is reserved for the runtime: {_REASONS[found]}")
    return session_id


def check_part_not_reserved(name: str, what: str = "a part of a store") -> None:
    """Raise `ConfigError` for a name below which sessions would be those of the runtime, such as that of a tenant."""
    if SCHEDULES_SESSION in _split_normalized(name):
        raise ConfigError(
            f"{what} cannot be called {name!r}: the runtime has its own sessions there; choose another name"
        )


def is_listed(store: Store, session_id: str) -> bool:
    """Return True if a session appears in lists of sessions: not if it is one of the runtime's own."""
    return not find_reserved_name(get_namespaced_session_id(store, session_id))
