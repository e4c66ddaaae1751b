"""Reads what a docstring says of a function and of its parameters. Above: `tool.py`, `schema.py`. Below: nothing.

Google, NumPy and Sphinx styles are understood, also mixed. What is said of the parameters is taken out, since it goes
into the schema; everything else, sections on results and errors included, stays in the description.
"""

import inspect
import re

from msgspec import Struct


class Docstring(Struct, frozen=True):
    """What a docstring says."""

    summary: str
    """The first paragraph, on one line."""
    description: str
    """All of the text but what it says of the parameters."""
    parameters: dict[str, str]
    """What it says of each parameter, on one line; a parameter of which it says nothing is not there."""


def parse_docstring(text: str | None) -> Docstring:
    """What the docstring says; of a text in no known style, the description is all of it."""
    lines = inspect.cleandoc(text or "").splitlines()
    parameters: dict[str, str] = {}
    for take_out in (_sphinx, _numpy, _google):
        lines, found = take_out(lines)
        for name, words in found:
            description = " ".join(" ".join(words).split())
            if description:
                parameters.setdefault(name, description)
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()
    summary = " ".join(description.partition("\n\n")[0].split())
    return Docstring(summary, description, parameters)


_Lines = list[str]
_Found = list[tuple[str, list[str]]]
"""Names of parameters, each with the lines that describe it."""

# Patterns are compiled by `re` when they are first used, which is never if nobody has a tool.
_SECTION = r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Attributes)"

_SPHINX_PARAMETER = (
    r":(?:param|parameter|arg|argument|key|keyword|attr|ivar|cvar|var)\s+(?:[^:]*?\s)?\\?\*{0,2}(\w+)\s*:(.*)"
)
_SPHINX_TYPE = r":(?:type|vartype|rtype)\b[^:]*:"


def _sphinx(lines: _Lines) -> tuple[_Lines, _Found]:
    """Fields such as `:param int count: How many.`, each up to the next line that is not indented."""
    rest: _Lines = []
    found: _Found = []
    field: list[str] | None = None
    for line in lines:
        if parameter := re.fullmatch(_SPHINX_PARAMETER, line):
            field = [parameter[2]]
            found.append((parameter[1], field))
        elif re.match(_SPHINX_TYPE, line):
            field = []  # the annotation says it already
        elif field is not None and line.startswith(" "):
            field.append(line)
        else:
            field = None
            rest.append(line)
    return rest, found


_NUMPY_SECTION = _SECTION + r"\s*"
_NUMPY_RULE = r"-{3,}\s*"
_NUMPY_ITEM = r"(\\?\*{0,2}\w+(?:\s*,\s*\\?\*{0,2}\w+)*)\s*(?::.*)?"


def _numpy(lines: _Lines) -> tuple[_Lines, _Found]:
    """Underlined sections: names and types at the margin, descriptions indented below them."""
    rest: _Lines = []
    found: _Found = []
    place = 0
    while place < len(lines):
        if not (_is_underlined(lines, place) and re.fullmatch(_NUMPY_SECTION, lines[place])):
            rest.append(lines[place])
            place += 1
            continue
        place += 2
        item: list[str] = []
        while place < len(lines) and not _is_underlined(lines, place):
            line = lines[place]
            if names := re.fullmatch(_NUMPY_ITEM, line):
                item = []
                found.extend((name.strip(" *\\"), item) for name in names[1].split(","))
            elif line and not line.startswith(" "):
                break
            else:
                item.append(line)
            place += 1
    return rest, found


def _is_underlined(lines: _Lines, place: int) -> bool:
    has_rule_below = place + 1 < len(lines) and re.fullmatch(_NUMPY_RULE, lines[place + 1])
    return bool(has_rule_below and lines[place].strip())


_GOOGLE_SECTION = r"( *)" + _SECTION + r"\s*:\s*"
_GOOGLE_ITEM = r"( *)\\?\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(.*)"


def _google(lines: _Lines) -> tuple[_Lines, _Found]:
    """Sections with a colon: all that is indented below one, an item wherever the indentation is that of the first."""
    rest: _Lines = []
    found: _Found = []
    place = 0
    while place < len(lines):
        header = re.fullmatch(_GOOGLE_SECTION, lines[place])
        end = _end_of_block(lines, place + 1, len(header[1])) if header else place
        items = _google_items(lines[place + 1 : end]) if header else []
        if items:
            found.extend(items)
            place = end
        else:
            rest.append(lines[place])
            place += 1
    return rest, found


def _end_of_block(lines: _Lines, start: int, margin: int) -> int:
    """Where the lines end that are blank or indented more than the margin."""
    for place in range(start, len(lines)):
        line = lines[place]
        if line.strip() and len(line) - len(line.lstrip()) <= margin:
            return place
    return len(lines)


def _google_items(block: _Lines) -> _Found:
    found: _Found = []
    margin = None
    for line in block:
        item = re.fullmatch(_GOOGLE_ITEM, line)
        if item and margin in {None, len(item[1])}:
            margin = len(item[1])
            found.append((item[2], [item[3]]))
        elif found:
            found[-1][1].append(line)
        elif line.strip():
            return []  # not a list of parameters after all
    return found
