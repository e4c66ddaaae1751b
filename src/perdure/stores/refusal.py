"""What every store refuses in the same way: posts and forks that make no sense. Above: the stores."""

from perdure.core.error import ConfigError
from perdure.core.store import Post

from .listing import check_session_id


def check_post(post: Post) -> None:
    """Refuse a post that not every store could keep, or that no entry could take."""
    check_session_id(post.id, what="the id of a post")
    check_session_id(post.kind, what="the kind of a post")
    if not post.id:
        raise ConfigError("a post must have an id, so that it counts once: pass one, such as new_id()")


def check_fork(session_id: str, at: int | None, head: int) -> None:
    """Refuse a fork that would share nothing, or more entries than the session has."""
    if at is not None and (type(at) is not int or not 0 < at <= head):
        raise ConfigError(
            f"session {session_id!r} cannot be forked at={at!r}: pass a number from 1 to {head}, or leave it out"
        )
