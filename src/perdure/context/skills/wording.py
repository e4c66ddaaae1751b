"""Texts from the files of skills, in the form that names and catalogues need. Above: `loading.py`.
Below: `text_file.py`.
"""

import re
from typing import Final

from perdure.context.text_file import seen

LONGEST_NAME: Final = 64

_NAME: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9]+")


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
