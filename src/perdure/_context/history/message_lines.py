"""Format messages as numbered lines of text, as input for summaries and search.

Each line starts with the message's number in the transcript, from 1, and its role. Thinking is left out: it belongs to
the model that wrote it.
"""

from collections.abc import Iterable

from perdure._core.tools.wrappers import shorten_text
from perdure._core.values.message import Message, Part, Text, Thinking, ToolCall, ToolResult, parts_to_text

from .tokens import cut_middle_to_tokens, estimate_text_tokens

MAX_TEXT_CHARACTERS = 6000
"""Maximum length of the text of one message."""
MAX_CALL_CHARACTERS = 1000
"""Maximum length of the arguments of a call."""
MAX_RESULT_CHARACTERS = 2000
"""Maximum length of a result. The model can look up the rest."""


def format_message_line(message: Message, number: int) -> str:
    """Format a message as a line with its number and role; long parts are shortened."""
    said = "\n".join([text for part in message.parts if (text := _format_part(part))])
    return f"[{number}] {message.role}{f' ({message.origin})' if message.origin else ''}: {said}"


def _format_part(part: Part) -> str:
    match part:
        case Text(text=text):
            return shorten_text(text, MAX_TEXT_CHARACTERS)
        case ToolCall(name=name, arguments=arguments):
            return f"[call {name} {shorten_text(arguments, MAX_CALL_CHARACTERS)}]"
        case ToolResult(name=name):
            how = f" ({part.status})" if part.is_error else ""
            return f"[result of {name}{how}: {shorten_text(part.text, MAX_RESULT_CHARACTERS)}]"
        case Thinking():
            return ""
        case _:
            return parts_to_text((part,))


def get_searchable_text(message: Message) -> str:
    """Return the full text of a message that a search in the history looks at."""
    return "\n".join([text for part in message.parts if (text := parts_to_text((part,)))])


def pack_lines_into_texts(lines: Iterable[str], max_tokens: int) -> list[str]:
    """Join the lines into as few texts as possible, each of at most about `max_tokens` tokens."""
    found: list[list[str]] = []
    room = 0
    for line in lines:
        fitting = cut_middle_to_tokens(line, max_tokens)
        size = estimate_text_tokens(fitting) + 1
        if size > room:
            found.append([])
            room = max_tokens
        found[-1].append(fitting)
        room -= size
    return ["\n".join(each) for each in found]
