"""What every store says about sessions in the same way: their ids, their titles, a page of them. Above: the stores."""

from collections.abc import Sequence
from typing import Final

from perdure.core.error import ConfigError
from perdure.core.event import Entry, MessageAdded, SessionConfigured

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
        if type(event) is not MessageAdded or event.message.role != "user":
            continue
        if title := _on_one_line(event.message.text):
            return title
    return ""


def renamed_to(entries: Sequence[Entry]) -> str | None:
    """The title that these entries give the session, the last one if there are several; `None` when they give none.

    It is the text `title` in the changes of a `SessionConfigured`, and takes the place of what `title_of` has found.
    One with nothing to see in it is no title.
    """
    for entry in reversed(entries):
        event = entry.event
        if type(event) is SessionConfigured:
            title = event.changes.get("title")
            if isinstance(title, str) and (shown := _on_one_line(title)):
                return shown
    return None


def _on_one_line(text: str) -> str:
    """The beginning of a text, fit for a screen."""
    beginning = text[: TITLE_LENGTH * 4]
    if not beginning.isprintable():
        beginning = "".join([character if character.isprintable() else " " for character in beginning])
    return " ".join(beginning.split())[:TITLE_LENGTH].rstrip()
