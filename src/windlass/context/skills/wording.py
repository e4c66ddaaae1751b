"""Texts from files that anybody may have written: what nobody sees is taken out. Above: `loading.py`. Below: nothing.

Escape sequences act on terminals, overrides turn the reading direction, and tag characters say things to a model that
no person who reviews the file can see.
"""

import re
from typing import Final

LONGEST_NAME: Final = 64

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])")
_UNSEEN: Final = re.compile(  # but not NUL, which makes a file none of text, nor the joiners that some scripts need
    "[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9]+")


def seen(text: str) -> str:
    """The text without escape sequences and without characters that nobody sees. Lines stay as they are."""
    return _UNSEEN.sub("", _ESCAPES.sub("", text))


def one_line(text: str, most: int) -> str:
    """The text as one line, cut to that many characters."""
    line = " ".join(seen(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def is_name(text: str) -> bool:
    """Whether a skill may be called that: a-z, 0-9 and single hyphens inside, 64 at most."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def name_from(text: str) -> str:
    """A name that is as much like the text as a name can be; empty when nothing of it can be in one."""
    return _NOT_IN_A_NAME.sub("-", text.lower()).strip("-")[:LONGEST_NAME].strip("-")
