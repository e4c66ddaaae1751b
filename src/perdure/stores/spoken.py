"""What can be searched for: the words of an entry, and who said them. Above: stores with a search. Below: events."""

from perdure.core.event import Event, MessageAdded, ToolFinished
from perdure.core.plain import clean


def spoken(event: Event) -> tuple[str, str] | None:
    """The role (`user`, `assistant` or `tool`) and the text, as any database can hold it; `None` when nothing was said.

    Thinking is not said, nor are the arguments of calls. A lone surrogate and a NUL become U+FFFD.
    """
    if type(event) is MessageAdded:
        role, text = str(event.message.role), event.message.text
        if role not in {"user", "assistant"}:
            return None
    elif type(event) is ToolFinished:
        role, text = "tool", event.result.text
    else:
        return None
    return (role, clean(text).replace("\0", "\ufffd")) if text else None
