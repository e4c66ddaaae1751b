"""What every store says about sessions in the same way: their ids, their titles, a page of them. Above: the stores."""

from collections.abc import Sequence
from typing import Final

from windlass.core.error import ConfigError
from windlass.core.event import Entry, MessageAdded

TITLE_LENGTH: Final = 80
_LARGEST: Final = 2**63 - 1


def check_session_id(session_id: str, *, what: str = "a session id") -> None:
    """Refuse ids that not every store could keep: they would be lost when a session is moved."""
    if not isinstance(session_id, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise ConfigError(f"{what} must be a string, and {session_id!r} is not")
    if not session_id and what == "a session id":
        raise ConfigError("a session id must not be empty: leave it out to get a new one, or pass a name")
    if "\0" in session_id or any("\ud800" <= character <= "\udfff" for character in session_id):
        raise ConfigError(f"{what} must be text that UTF-8 can hold, without NUL, and {session_id!r} is not")


def check_page(prefix: str, limit: int, offset: int) -> None:
    """Refuse what no page of a list can be."""
    check_session_id(prefix, what="a prefix")
    check_count("limit", limit)
    check_count("offset", offset)


def check_count(name: str, value: int) -> None:
    """Refuse what counts nothing."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ConfigError(f"{name}={value!r} is not possible: pass a whole number from 0")


def title_of(entries: Sequence[Entry]) -> str:
    """The beginning of the first message of a person, on one line and fit for a screen; empty if there is none."""
    for entry in entries:
        event = entry.event
        if type(event) is MessageAdded and event.message.role == "user":
            beginning = event.message.text[: TITLE_LENGTH * 4]
            shown = "".join([character if character.isprintable() else " " for character in beginning])
            if title := " ".join(shown.split())[:TITLE_LENGTH].rstrip():
                return title
    return ""
