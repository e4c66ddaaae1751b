"""`/name` in a text: found, marked, and taken with the rest of its line. Above: `directed.py`. Below: `code.py`."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from .code import Code

NAME: Final = r"[A-Za-z][\w-]*"
"""What may follow the slash."""
MOST_TOKENS: Final = 50
"""Of one text. More of them stay as they are: nobody types so many."""

_TOKEN: Final = re.compile(rf"(?<!\S)/({NAME})(?!\S)")


class Token(NamedTuple):
    """A `/name` that somebody wrote."""

    name: str
    arguments: str
    """The rest of its line."""


def mark(text: str, is_bound: Callable[[str], bool]) -> tuple[str, list[Token]]:
    """The text with a mark, `[/name]`, in place of each token whose name is bound to something, and those tokens.

    The mark tells the model, and whoever reads the conversation later, what was asked for, and is no token itself.
    """
    tokens: list[Token] = []
    if "/" not in text:
        return text, tokens
    code = Code(text)

    def marked(found: re.Match[str]) -> str:
        if len(tokens) == MOST_TOKENS or found.start() in code or not is_bound(found[1]):
            return found[0]
        tokens.append(Token(found[1], _rest_of_line(text, found.end())))
        return f"[{found[0]}]"

    return _TOKEN.sub(marked, text), tokens


def _rest_of_line(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[place : None if end < 0 else end].strip()
