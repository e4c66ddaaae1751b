"""Messages as lines of text, for whoever sums them up or looks for something in them. Above: `snapshot.py`,
`history.py`. Below: `core`.

Each line begins with the number that the message has in the transcript, from 1, and who speaks. Thinking is left out:
it belongs to the model that thought it.
"""

from collections.abc import Iterable

from perdure.core.message import Message, Part, Text, Thinking, ToolCall, ToolResult, flatten
from perdure.core.wrap import shortened

from .tokens import cut_to, text_tokens

TEXT_CHARACTERS = 6000
"""Of what a person or a model has said in one message."""
CALL_CHARACTERS = 1000
"""Of the arguments of a call."""
RESULT_CHARACTERS = 2000
"""Of a result. Whoever needs more of it can look it up."""


def line_of(message: Message, number: int) -> str:
    """A message with its number, its long parts shortened."""
    said = "\n".join([text for part in message.parts if (text := _shown(part))])
    return f"[{number}] {message.role}{f' ({message.origin})' if message.origin else ''}: {said}"


def _shown(part: Part) -> str:
    match part:
        case Text(text=text):
            return shortened(text, TEXT_CHARACTERS)
        case ToolCall(name=name, arguments=arguments):
            return f"[call {name} {shortened(arguments, CALL_CHARACTERS)}]"
        case ToolResult(name=name):
            how = f" ({part.status})" if part.is_error else ""
            return f"[result of {name}{how}: {shortened(part.text, RESULT_CHARACTERS)}]"
        case Thinking():
            return ""
        case _:
            return flatten((part,))


def words_in(message: Message) -> str:
    """Everything that can be found in a message, whole."""
    return "\n".join([text for part in message.parts if (text := flatten((part,)))])


def chunks(lines: Iterable[str], tokens: int) -> list[str]:
    """The lines in as few texts as possible, each of about so many tokens at most."""
    found: list[list[str]] = []
    room = 0
    for line in lines:
        fitting = cut_to(line, tokens)
        size = text_tokens(fitting) + 1
        if size > room:
            found.append([])
            room = tokens
        found[-1].append(fitting)
        room -= size
    return ["\n".join(each) for each in found]
