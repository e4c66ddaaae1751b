"""Split the text of a reply into passages, each with the citations that belong to it.

It is for providers whose citations belong to a text block.

No I/O. In a message, the text is in one piece and citations locate their passages in it. A provider that wrote each
cited passage as a block of its own gets the same blocks back.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from perdure.core.message import Citation, Part, Text


class CitedPassage(Struct, frozen=True):
    """A passage of a reply's text, with the citations that belong to it."""

    text: str
    citations: tuple[Citation, ...]


def split_cited_text(parts: Sequence[Part]) -> Iterator[Part | CitedPassage]:
    """Yield a message's parts, its texts split into passages with and without citations; citation parts are left out.

    Citations without a span, and those of another provider, which have no details, are left out.
    """
    cited = [part for part in parts if isinstance(part, Citation) and part.details and part.end]
    offset = 0
    for part in parts:
        if isinstance(part, Text):
            end = offset + len(part.text)
            inside = [each for each in cited if offset <= (each.start or 0) < (each.end or 0) <= end]
            if inside:
                yield from _divide_text(part.text, offset, inside)
            else:
                yield part
            offset = end
        elif not isinstance(part, Citation):
            yield part


def _divide_text(text: str, offset: int, cited: list[Citation]) -> Iterator[Part | CitedPassage]:
    """Split a text into cited and other passages; overlapping ones are shortened, blank ones joined to a neighbour."""
    passages: list[tuple[str, list[Citation]]] = []
    position = 0
    for citation in sorted(cited, key=lambda each: (each.start or 0, each.end or 0)):
        start, end = max((citation.start or 0) - offset, position), (citation.end or 0) - offset
        if end <= position:
            passages[-1][1].append(citation)
            continue
        if start > position:
            _append_passage(passages, text[position:start], [])
        _append_passage(passages, text[start:end], [citation])
        position = end
    _append_passage(passages, text[position:], [])
    for passage, citations in passages:
        yield CitedPassage(passage, tuple(citations)) if citations else Text(passage)


def _append_passage(passages: list[tuple[str, list[Citation]]], text: str, citations: list[Citation]) -> None:
    if passages and not (text.strip() and passages[-1][0].strip()):
        before, cited = passages[-1]
        passages[-1] = (before + text, [*cited, *citations])
    elif text:
        passages.append((text, citations))
