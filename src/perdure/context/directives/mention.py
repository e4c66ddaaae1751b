"""`@path` in a text: found, and `@@` unescaped. Above: `attachment.py`. Below: `code.py`.

A mention begins where a word does, so an e-mail address is none; it ends with its word, or is quoted. Whether there is
such a file is asked elsewhere.
"""

import re
from typing import Final

from .code import Code

_BEFORE: Final = r"(?<![^\s(\[{<\"'“‘])"  # noqa: RUF001 - people type them
_MENTION: Final = re.compile(
    _BEFORE + r"(?P<escape>@(?=@[^\s@]))?@(?:\"(?P<quoted>[^\"\n]+)\"|(?P<bare>[^\s\"`@][^\s\"`]*))"
)
_TRAILING: Final = ".,;:!?…)]}>'’”"  # noqa: RUF001 - as above


def mentions_in(text: str) -> tuple[str, list[str]]:
    """The text with `@@name` as `@name`, and the paths that it mentions, each once, in order."""
    if "@" not in text:
        return text, []
    code = Code(text)
    paths: dict[str, None] = {}

    def look(found: re.Match[str]) -> str:
        if found.start() in code:
            return found[0]
        if found["escape"]:
            return found[0][1:]
        if path := found["quoted"] or found["bare"].rstrip(_TRAILING):
            paths[path] = None
        return found[0]

    return _MENTION.sub(look, text), list(paths)
