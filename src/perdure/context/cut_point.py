"""Find where to cut a conversation for compaction: messages before the cut are summarized, later ones stay unchanged.

A call is never separated from its results, and messages without a reply are never summarized.
"""

from collections.abc import Sequence

from perdure.core.message import Message

from .summary_message import is_summary
from .tokens import estimate_message_tokens


def find_first_message_without_reply(view: Sequence[Message]) -> int:
    """Return the index of the first message that the model has not replied to yet."""
    place = len(view)
    while place and view[place - 1].role not in {"assistant", "tool"} and not is_summary(view[place - 1]):
        place -= 1
    return place


def find_cut_point(view: Sequence[Message], keep_tokens: float, keep_messages: int | None) -> int:
    """Return the index of the first message that compaction keeps.

    It keeps the messages without a reply, and as many before them as fit `keep_tokens` and `keep_messages`.

    Of `keep_messages`, the first may be a result: then its call is kept too.
    """
    end = best = find_first_message_without_reply(view)
    first = 0 if keep_messages is None else max(end - keep_messages, 0)
    if first < end and view[first].role == "tool":
        first -= 1
    tokens = 0
    for place in range(end - 1, first - 1, -1):
        tokens += estimate_message_tokens(view[place])
        if tokens > keep_tokens or is_summary(view[place]):
            break
        if view[place].role != "tool":  # a result stays with its call, which is in the message before it
            best = place
    return best
