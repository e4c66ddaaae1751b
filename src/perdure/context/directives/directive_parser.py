"""Find directives (`/name` and `@path`) in the text of a user's message."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from .code_spans import CodeSpans

NAME_PATTERN: Final = r"[A-Za-z][\w-]*"
"""Pattern of a name after the slash."""
MAX_TOKENS: Final = 50
"""Maximum number of tokens in one text. More are left unchanged."""

_TOKEN: Final = re.compile(rf"(?<!\S)/({NAME_PATTERN})(?!\S)")
_BEFORE: Final = r"(?<![^\s(\[{<\"'“‘])"  # noqa: RUF001 - people type them
_MENTION: Final = re.compile(
    _BEFORE + r"(?P<escape>@(?=@[^\s@]))?@(?:\"(?P<quoted>[^\"\n]+)\"|(?P<bare>[^\s\"`@][^\s\"`]*))"
)
_TRAILING: Final = ".,;:!?…)]}>'’”"  # noqa: RUF001 - as above


class SlashToken(NamedTuple):
    """A `/name` found in a text, with the rest of its line as arguments."""

    name: str
    arguments: str
    """Rest of its line."""


def mark_slash_names(text: str, is_bound: Callable[[str], bool]) -> tuple[str, list[SlashToken]]:
    """Mark each `/name` of a known command or skill in a text as `[/name]`; return the new text and the names.

    Each name is returned with its arguments.

    The mark shows the model, and later readers, what was requested, and is not a token itself.
    """
    tokens: list[SlashToken] = []
    if "/" not in text:
        return text, tokens
    code = CodeSpans(text)

    def mark_match(found: re.Match[str]) -> str:
        if len(tokens) == MAX_TOKENS or found.start() in code or not is_bound(found[1]):
            return found[0]
        tokens.append(SlashToken(found[1], _get_rest_of_line(text, found.end())))
        return f"[{found[0]}]"

    return _TOKEN.sub(mark_match, text), tokens


def _get_rest_of_line(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[place : None if end < 0 else end].strip()


def parse_mentions(text: str) -> tuple[str, list[str]]:
    """Return the text with `@@name` unescaped, and the paths that it mentions as `@path`, without duplicates.

    `@@name` becomes `@name`.

    A mention starts where a word does, so an e-mail address is not one; it ends with the word, or is quoted. The files
    are not checked here.
    """
    if "@" not in text:
        return text, []
    code = CodeSpans(text)
    paths: dict[str, None] = {}

    def collect_match(found: re.Match[str]) -> str:
        if found.start() in code:
            return found[0]
        if found["escape"]:
            return found[0][1:]
        if path := found["quoted"] or found["bare"].rstrip(_TRAILING):
            paths[path] = None
        return found[0]

    return _MENTION.sub(collect_match, text), list(paths)
