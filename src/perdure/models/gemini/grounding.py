"""Parse the sources that a Gemini reply names (search results and recitations) as citations. No I/O.

Google counts the offsets of a passage in bytes of UTF-8, from the start of a part. The text of the passage, where it is
given, decides: the parts of a stream are not those of the reply.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from perdure.core.message import Citation
from perdure.models.mistyped_json_fields import as_count, as_dict, as_dicts, as_list, as_text

_KINDS = ("web", "retrievedContext", "maps", "image")
"""Kinds of sources; each chunk has one."""


def list_citations(grounding: Mapping[str, Any], recitations: Mapping[str, Any], text: str) -> list[Citation]:
    """Return the citations of a reply with this text, from its grounding and citation metadata."""
    return [*_list_grounded(grounding, text), *_list_recited(recitations, text)]


def _list_grounded(grounding: Mapping[str, Any], text: str) -> Iterator[Citation]:
    """Yield a citation for each source of each supported passage, then one for each source without a passage."""
    chunks = as_dicts(grounding.get("groundingChunks"))
    used: set[int] = set()
    for support in as_dicts(grounding.get("groundingSupports")):
        span = _locate_passage(as_dict(support.get("segment")), text)
        for place in as_list(support.get("groundingChunkIndices")):
            if type(place) is int and 0 <= place < len(chunks):
                used.add(place)
                yield _build_citation(chunks[place], span)
    for place, chunk in enumerate(chunks):
        if place not in used:
            yield _build_citation(chunk, None)


def _list_recited(recitations: Mapping[str, Any], text: str) -> Iterator[Citation]:
    """Yield a citation for each passage that the model has recited from a source."""
    listed = as_dicts(recitations.get("citationSources")) or as_dicts(recitations.get("citations"))
    for each in listed:
        start, end = _locate_passage(each, text) or (None, None)
        title = as_text(each.get("title"))
        yield Citation(as_text(each.get("uri")) or title, title, "", start, end, each)


def _build_citation(chunk: dict[str, Any], span: tuple[int, int] | None) -> Citation:
    told = next((found for kind in _KINDS if (found := as_dict(chunk.get(kind)))), chunk)
    title = as_text(told.get("title"))
    source = as_text(told.get("uri")) or as_text(told.get("sourceUri")) or title
    start, end = span or (None, None)
    return Citation(source, title, as_text(told.get("text")), start, end, chunk)


def _locate_passage(segment: Mapping[str, Any], text: str) -> tuple[int, int] | None:
    """Return the start and end of a passage in characters of the reply's text; None if it is not in there."""
    data = text.encode("utf-8", "surrogatepass")
    first, last = as_count(segment.get("startIndex")), as_count(segment.get("endIndex"))
    start = len(data[:first].decode("utf-8", "ignore"))
    end = start + len(data[first:last].decode("utf-8", "ignore"))
    passage = as_text(segment.get("text"))
    if passage and text[start:end] != passage:
        start = text.find(passage)
        end = start + len(passage)
    return (start, end) if 0 <= start < end <= len(text) else None
