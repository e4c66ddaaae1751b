"""Where a conversation may be cut: what comes before is summed up, what comes after stays word for word.

Above: `compaction.py`. Below: `tokens.py`. A call is never parted from its results, and what nobody has answered yet is
never summed up.
"""

from collections.abc import Sequence

from perdure.core.message import Message

from .hand_off import is_summary
from .tokens import message_tokens


def unanswered_from(view: Sequence[Message]) -> int:
    """Where the messages begin that no reply has followed."""
    place = len(view)
    while place and view[place - 1].role not in {"assistant", "tool"} and not is_summary(view[place - 1]):
        place -= 1
    return place


def boundary(view: Sequence[Message], keep_tokens: int, keep_messages: int | None) -> int:
    """Where the part begins that stays: what is unanswered, and before it as much as there is room for."""
    end = best = unanswered_from(view)
    tokens = 0
    for place in range(end - 1, -1, -1):
        tokens += message_tokens(view[place])
        if (
            tokens > keep_tokens
            or (keep_messages is not None and end - place > keep_messages)
            or is_summary(view[place])
        ):
            break
        if view[place].role != "tool":  # a result stays with its call, which is in the message before it
            best = place
    return best
