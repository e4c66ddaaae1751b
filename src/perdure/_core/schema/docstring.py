"""Parser for docstrings (Google, NumPy, Sphinx style), for the descriptions of tools and of their parameters.

Google, NumPy and Sphinx styles are understood, also mixed. The descriptions of the parameters are removed, since they
go into the schema; everything else, sections on results and errors included, stays in the description.
"""

import inspect
import re

from msgspec import Struct


class Docstring(Struct, frozen=True):
    """A docstring split into summary, description, and the description of each parameter."""

    summary: str
    """The first paragraph, on one line."""
    description: str
    """The text without the descriptions of the parameters."""
    parameters: dict[str, str]
    """The description of each parameter, on one line; a parameter that is not described is absent."""


def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring into a description and parameter descriptions; in an unknown style, all is the description."""
    return parse_clean_docstring(inspect.cleandoc(text or ""))


def parse_clean_docstring(text: str) -> Docstring:
    """Parse a docstring without the indentation of the source, as `inspect.getdoc` returns it."""
    lines = text.splitlines()
    parameters: dict[str, str] = {}
    for mark, take_out in _STYLES:
        if mark not in text:
            continue
        lines, found = take_out(lines)
        for name, texts in found:
            description = " ".join(" ".join(texts).split())
            if description:
                parameters.setdefault(name, description)
    description = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()
    summary = " ".join(description.partition("\n\n")[0].split())
    return Docstring(summary, description, parameters)


_Lines = list[str]
_ParameterLines = list[tuple[str, list[str]]]
"""Names of parameters, each with the lines that describe it."""

# Patterns are compiled by `re` at first use, which is never when there are no tools.
_SECTION = r"(?:Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters|Attributes)"

_SPHINX_PARAMETER = (
    r":(?:param|parameter|arg|argument|key|keyword|attr|ivar|cvar|var)\s+(?:[^:]*?\s)?\\?\*{0,2}(\w+)\s*:(.*)"
)
_SPHINX_TYPE = r":(?:type|vartype|rtype)\b[^:]*:"


def _extract_sphinx(lines: _Lines) -> tuple[_Lines, _ParameterLines]:
    """Extract fields such as `:param int count: How many.`, each up to the next line that is not indented."""
    rest: _Lines = []
    found: _ParameterLines = []
    field: list[str] | None = None
    for line in lines:
        if parameter := re.fullmatch(_SPHINX_PARAMETER, line):
            field = [parameter[2]]
            found.append((parameter[1], field))
        elif re.match(_SPHINX_TYPE, line):
            field = []  # the annotation has the type already
        elif field is not None and line.startswith(" "):
            field.append(line)
        else:
            field = None
            rest.append(line)
    return rest, found


_NUMPY_SECTION = _SECTION + r"\s*"
_NUMPY_RULE = r"-{3,}\s*"
_NUMPY_ITEM = r"(\\?\*{0,2}\w+(?:\s*,\s*\\?\*{0,2}\w+)*)\s*(?::.*)?"


def _extract_numpy(lines: _Lines) -> tuple[_Lines, _ParameterLines]:
    """Extract underlined sections: names and types at the margin, descriptions indented below them."""
    rest: _Lines = []
    found: _ParameterLines = []
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


def _extract_google(lines: _Lines) -> tuple[_Lines, _ParameterLines]:
    """Extract sections such as `Args:`, with an item for each line at the indentation of the first one."""
    rest: _Lines = []
    found: _ParameterLines = []
    place = 0
    while place < len(lines):
        header = re.fullmatch(_GOOGLE_SECTION, lines[place])
        end = _end_of_block(lines, place + 1, len(header[1])) if header else place
        items = _parse_google_items(lines[place + 1 : end]) if header else []
        if items:
            found.extend(items)
            place = end
        else:
            rest.append(lines[place])
            place += 1
    return rest, found


def _end_of_block(lines: _Lines, start: int, margin: int) -> int:
    """Return the index after the lines that are blank or indented more than the margin."""
    for place in range(start, len(lines)):
        line = lines[place]
        if line.strip() and len(line) - len(line.lstrip()) <= margin:
            return place
    return len(lines)


def _parse_google_items(block: _Lines) -> _ParameterLines:
    found: _ParameterLines = []
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


_STYLES = ((":", _extract_sphinx), ("---", _extract_numpy), (":", _extract_google))
"""The styles in the order in which they are looked for, each with a text that is in every docstring of that style."""
