"""Reads the names out of AgentLIB's reference: a page of types, each with a listing of its properties.

A listing has a line for the name of a property, one for its type, perhaps the word `required`, and perhaps a sentence.
"""

import re
from collections.abc import Iterator

NO_NAMES = {
    "AbortSignal": "of JavaScript",
    "AsyncIterable": "of JavaScript",
    "TypeScript": "a language",
    "ReAct": "the name of an idea, in prose",
    "rCtx": "a parameter of a function type",
    "mCtx": "a parameter of a function type",
}
"""Words that look like names, and why they are none."""

_TITLE = re.compile(r"[A-Z][A-Za-z]+")
_PROPERTY = re.compile(r"[a-z]\w*")
_LITERAL = re.compile(r"'([\w:]+)'")


def names(text: str) -> Iterator[str]:
    """Every type, every property, and every string that a type allows."""
    lines = text.splitlines()
    owner, at = "", 0
    while at < len(lines):
        line = lines[at]
        if _TITLE.fullmatch(line) and line != "Overview" and at + 1 < len(lines) and not lines[at + 1]:
            owner = line
            yield owner
        elif owner and _PROPERTY.fullmatch(line) and line != "required":
            at += 1
            yield f"{owner}.{line}"
            yield from (f'{owner}."{literal}"' for literal in _LITERAL.findall(lines[at]))
        elif line.startswith("type "):
            yield from union(line, lines[at + 1 :])
        elif line.startswith("interface "):
            at += lines[at:].index("}")
        at += 1


def union(line: str, below: list[str]) -> Iterator[str]:
    """The strings of `type Name = 'a' | 'b'`, which may go on in the lines below."""
    name = line.split()[1]
    for each in [line, *below]:
        if each is not line and not each.lstrip().startswith("|"):
            return
        yield from (f'{name}."{literal}"' for literal in _LITERAL.findall(each))


def prose(text: str) -> str:
    """Where else names may stand: all of it."""
    return text
