"""Argument checks shared by all stores: of session ids, pages, counts, posts (messages to a session) and forks."""

from typing import Final

from perdure.core.error import ConfigError
from perdure.core.store import Post

_LARGEST: Final = 2**63 - 1


def check_session_id(session_id: str, *, what: str = "a session id") -> None:
    """Raise `ConfigError` unless the session id is a text that every kind of store can keep.

    An id that only some stores accept would be lost when a session is moved to another store.
    """
    if not isinstance(session_id, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise ConfigError(f"{what} must be a string, and {session_id!r} is not")
    if not session_id and what == "a session id":
        raise ConfigError("a session id must not be empty: leave it out to get a new one, or pass a name")
    if "\0" in session_id or not (session_id.isascii() or _is_encodable(session_id)):
        raise ConfigError(f"{what} must be text that UTF-8 can encode, without NUL, and {session_id!r} is not")


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_page(prefix: str, limit: int, offset: int) -> None:
    """Raise `ConfigError` unless `prefix`, `limit` and `offset` are valid arguments for listing sessions."""
    check_session_id(prefix, what="a prefix")
    check_count("limit", limit)
    check_count("offset", offset)


def check_count(name: str, value: int) -> None:
    """Raise `ConfigError` unless the argument `name` is an integer from 0 to 2**63 - 1."""
    if type(value) is not int or not 0 <= value <= _LARGEST:
        raise ConfigError(f"{name}={value!r} is not possible: pass a whole number from 0")


def check_post(post: Post) -> None:
    """Raise `ConfigError` unless the id and kind of a post (a message to a session) are valid in every store.

    The id must also be valid for a log entry, and not be empty.
    """
    check_session_id(post.id, what="the id of a post")
    check_session_id(post.kind, what="the kind of a post")
    if not post.id:
        raise ConfigError("a post must have an id, so that it counts once: pass one, such as new_id()")


def check_fork(session_id: str, at: int | None, head: int) -> None:
    """Raise `ConfigError` unless a session of `head` entries can be forked after entry `at` (`None`: the last)."""
    if at is not None and (type(at) is not int or not 0 < at <= head):
        raise ConfigError(
            f"session {session_id!r} cannot be forked at={at!r}: pass a number from 1 to {head}, or leave it out"
        )
