"""A code review as Markdown, in which no text of a model can imitate or hide other parts."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from .review import SEVERITIES, Review, ReviewedFinding

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_JOINERS: Final = frozenset({"\u200c", "\u200d"})
"""Characters that emoji and some scripts need."""
_FENCE: Final = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_MARKERS: Final = r"\s*(?:(?:[-*+>]|\d{1,9}[.)])\s*)*"
"""The beginning of a line in lists and quotes."""
_HEADING: Final = re.compile(rf"({_MARKERS})(#{{1,6}}(?:\s|$))")
_RULE: Final = re.compile(r"([\s>]*)([-=_*][-=_*\s]*)$")
"""A line below which, or with which, text becomes a heading, or a rule across the page."""
_INNER_FENCE: Final = re.compile(rf"({_MARKERS})(`{{3,}}(?=[^`]*$)|~{{3,}})")
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_MARKUP: Final = re.compile(r"(\\*)(<(?=[A-Za-z/!?]))|(?<=!)\[")
"""The beginning of HTML or of an image, with the backslashes before it."""


def show_controls(text: str) -> str:
    """Replace characters that a reader does not see, or that turn the reading direction, by their codes."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return lines if lines.isascii() and lines.isprintable() else "".join([_show_character(each) for each in lines])


def escape_line(text: str) -> str:
    """Return text as one line of Markdown without code, HTML and images."""
    return _escape_markup(show_controls(" ".join(text.split()))).replace("`", "'")


def escape_blocks(text: str) -> str:
    """Return text as paragraphs, lists and code blocks of Markdown, without headings, rules, HTML and images."""
    lines: list[str] = []
    fence = ""
    has_open_code = False
    for line in show_controls(text).strip().split("\n"):
        if fence:
            fence = "" if _closes(line, fence) else fence
            lines.append(line)
        elif found := _FENCE.match(line):
            fence, has_open_code = found[1] or found[2], False
            lines.append(line)
        else:
            has_open_code = bool(line.strip()) and (has_open_code or _has_open_code(line))
            lines.append(_escape_block_start(_escape_markup(line, keeps_code=not has_open_code)))
    return "\n".join([*lines, *([fence] if fence else [])])


def begins_with_code(text: str) -> bool:
    """Return True if escaped text begins with a fence, which has to be the first on its line."""
    return _FENCE.match(text.partition("\n")[0]) is not None


def _closes(line: str, fence: str) -> bool:
    inner = line.strip()
    is_indented = len(line) - len(line.lstrip(" ")) > 3  # noqa: PLR2004 - then it is code
    return not is_indented and len(inner) >= len(fence) and not inner.strip(fence[0])


def _has_open_code(line: str) -> bool:
    """Return True if a line has backticks that are not those of code on the same line: then others may be neither."""
    return "`" in _CODE.sub("", line) or "\\`" in line


def _escape_markup(line: str, *, keeps_code: bool = False) -> str:
    """Put a backslash before the beginning of HTML and images, but not in code between backticks if it is kept."""
    if not keeps_code:
        return _MARKUP.sub(_escape_found, line)
    parts: list[str] = []
    end = 0
    for code in _CODE.finditer(line):
        parts += [_MARKUP.sub(_escape_found, line[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _MARKUP.sub(_escape_found, line[end:])])


def _escape_found(found: "re.Match[str]") -> str:
    """Put a backslash before markup, unless one that counts is there: two stand for a backslash."""
    before = found[1] or ""
    return found[0] if len(before) % 2 else f"{before}\\{found[0][len(before) :]}"


def _escape_block_start(line: str) -> str:
    if found := _RULE.match(line):
        return f"{found[1]}\\{found[2]}"
    if found := _HEADING.match(line) or _INNER_FENCE.match(line):
        return f"{found[1]}\\{line[found.end(1) :]}"
    return line


def _show_character(character: str) -> str:
    if character in "\n\t" or character in _JOINERS or unicodedata.category(character) not in _INVISIBLE:
        return character
    return character.encode("unicode_escape").decode()


def render_review(review: Review) -> str:
    """Return a review of a git branch as Markdown."""
    return "\n".join([*_render_head(review), *_render_findings(review), *_render_rest(review)]).rstrip() + "\n"


def _render_head(review: Review) -> Iterator[str]:
    yield f"# Review of {review.commit[:12]} against {review.base}"
    yield ""
    counts = [(each, len([one for one in review.findings if one.finding.severity == each])) for each in SEVERITIES]
    found = ", ".join([f"{count} {severity}" for severity, count in counts if count])
    yield f"{found or 'No findings'}. Reviewed by {', '.join(review.models) or 'no model'}."
    for summary in review.summaries:
        yield ""
        yield _quote(summary)


def _render_findings(review: Review) -> Iterator[str]:
    for number, each in enumerate(review.findings, 1):
        finding = each.finding
        yield ""
        yield f"## {number}. {finding.severity}: {escape_line(finding.title)}"
        yield ""
        yield f"`{_escape_code(format_location(each))}`{_describe_agreement(review, each)}"
        yield ""
        yield escape_blocks(finding.problem)
        yield ""
        yield _label("**Fix.**", finding.fix)
        if finding.done_when.strip():
            yield ""
            yield _label("**Done when**", finding.done_when)


def _render_rest(review: Review) -> Iterator[str]:
    if review.left_out:
        yield ""
        yield "## Left out"
        yield ""
        yield "Too few models report these, or their files do not exist:"
        yield ""
        for each in review.left_out:
            yield f"- {each.finding.severity} `{_escape_code(format_location(each))}` {escape_line(each.finding.title)}"
    if review.failed:
        yield ""
        yield "## Models without a review"
        yield ""
        for failed in review.failed:
            yield f"- {failed.model}: {escape_line(failed.problem)}"


def format_location(found: ReviewedFinding) -> str:
    """Return the location of a finding as `file:line`, or `file` if it has no line."""
    finding = found.finding
    return finding.file if finding.line is None else f"{finding.file}:{finding.line}"


def _describe_agreement(review: Review, each: ReviewedFinding) -> str:
    notes = [f"{len(each.models)} of {len(review.models)} models"] if len(review.models) > 1 else []
    if not each.is_changed_file:
        notes.append("not changed by this branch")
    return f" ({', '.join(notes)})" if notes else ""


def _label(label: str, text: str) -> str:
    escaped = escape_blocks(text)
    return f"{label}\n\n{escaped}" if begins_with_code(escaped) else f"{label} {escaped}"


def _escape_code(text: str) -> str:
    """Return text as one line for code between backticks."""
    return show_controls(" ".join(text.split())).replace("`", "'")


def _quote(text: str) -> str:
    return "\n".join([f"> {line}".rstrip() for line in escape_blocks(text).split("\n")])
