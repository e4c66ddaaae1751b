"""Parse what a chat completions reply has beside its text: citations, and blocks of thinking. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure._core.values.message import Citation
from perdure._models.wires.lenient_json import as_dict, as_dicts, as_list, as_text

ANNOTATION_FIELD = "annotations"


def parse_annotation(annotation: Mapping[str, Any], offset: int = 0) -> Citation:
    """Parse one annotation of a chat completions reply as a `Citation`.

    `url_citation` and `file_citation` cite a source; `file` is a document that was read.

    `offset` is where the annotated text begins in the reply's text.
    """
    kind = as_text(annotation.get("type"))
    told = as_dict(annotation.get(kind)) or annotation
    title = as_text(told.get("title")) or as_text(told.get("filename")) or as_text(told.get("name"))
    source = as_text(told.get("url")) or as_text(told.get("file_id")) or as_text(told.get("hash")) or title
    quote = as_text(told.get("content")) or as_text(told.get("quote"))
    start, end = told.get("start_index"), told.get("end_index")
    if type(start) is int and type(end) is int and 0 <= start < end:
        return Citation(source, title, quote, offset + start, offset + end, dict(annotation))
    return Citation(source, title, quote, details=dict(annotation))


def parse_source_lists(urls: Any, results: Any) -> Iterator[Citation]:
    """Yield a citation for each URL in a response's list of sources and in its search results.

    Title and quote are those of the search result.
    """
    found = {url: each for each in as_dicts(results) if (url := as_text(each.get("url")))}
    listed = [each for each in as_list(urls) if isinstance(each, str)]
    for url in dict.fromkeys([*listed, *found]):
        told = found.get(url, {})
        yield Citation(url, as_text(told.get("title")), as_text(told.get("snippet")), details=told)


REASONING_DETAILS_FIELD = "reasoning_details"
"""Name of the field with the blocks, in the API and in `Thinking.details`."""

_TEXT = "reasoning.text"
_STREAMED_FIELDS = ("text", "summary", "data")
"""Fields that are streamed in pieces. For any other field the latest value counts."""


class ReasoningDetailsBuilder:
    """Builder of the `reasoning_details` (blocks of thinking) of a chat completions reply from streamed pieces."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._places: list[int] = []
        """For each block, its index in the stream."""
        self._bodies: list[dict[str, list[str]]] = []
        """For each block, the pieces of its fields. They are joined at the end: joining each piece would copy the text
        over and over.
        """

    def add_pieces(self, pieces: Sequence[Mapping[str, Any]]) -> str:
        """Add streamed pieces and return their readable text. Encrypted pieces have none."""
        return "".join([self._add_piece(place, piece) for place, piece in enumerate(pieces)])

    def add_blocks(self, blocks: Sequence[Mapping[str, Any]]) -> str:
        """Add complete blocks of a response that is not streamed and return their readable text."""
        self._blocks += [dict(block) for block in blocks]
        self._places += range(len(blocks))
        self._bodies += [{} for _ in blocks]
        return "".join([_get_readable_text(block) for block in blocks])

    def build_blocks(self) -> list[dict[str, Any]]:
        """Return all blocks, sorted by index and then by arrival."""
        order = sorted(range(len(self._blocks)), key=self._places.__getitem__)
        return [
            {**self._blocks[number], **{field: "".join(body) for field, body in self._bodies[number].items()}}
            for number in order
        ]

    def _add_piece(self, place: int, piece: Mapping[str, Any]) -> str:
        index = piece.get("index")
        place = index if isinstance(index, int) else place
        number = self._find_continued_block(place, piece)
        if number is None:
            self._blocks.append({**piece, "type": piece.get("type") or _TEXT})
            self._places.append(place)
            self._bodies.append({})
        else:
            _extend_block(self._blocks[number], self._bodies[number], piece)
        return _get_readable_text(piece)

    def _find_continued_block(self, place: int, piece: Mapping[str, Any]) -> int | None:
        """Return the index of the block that a piece continues, or None. Several blocks can share an index, such as a
        summary and its encrypted form.
        """
        kind, name = piece.get("type"), piece.get("id")
        for number in range(len(self._blocks) - 1, -1, -1):
            block = self._blocks[number]
            if self._places[number] == place and kind in (None, "", block["type"]):
                return number if name in (None, "", block.get("id")) or not block.get("id") else None
        return None


def _extend_block(block: dict[str, Any], bodies: dict[str, list[str]], piece: Mapping[str, Any]) -> None:
    for field, value in piece.items():
        if field in _STREAMED_FIELDS and isinstance(value, str) and isinstance(block.get(field), str):
            bodies.setdefault(field, [block[field]]).append(value)
        elif field not in block or value not in (None, ""):
            block[field] = value


def _get_readable_text(piece: Mapping[str, Any]) -> str:
    shown = piece.get("text") or piece.get("summary")
    return shown if isinstance(shown, str) else ""
