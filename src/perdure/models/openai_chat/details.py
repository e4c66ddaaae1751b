"""Blocks of reasoning, `reasoning_details`, put together from a stream. Above: `decode.py`. Below: nothing.

Some blocks are signed or encrypted, so they go back to their author exactly as they came, and in their order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

DETAILS = "reasoning_details"
"""The field of the blocks, on the wire and in `Thinking.details`."""

_TEXT = "reasoning.text"
_BODIES = ("text", "summary", "data")
"""The fields that come in pieces. Of any other the latest value counts."""


class Details:
    """The blocks of one reply."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._places: list[int] = []
        """Of each block: the index under which it came."""
        self._bodies: list[dict[str, list[str]]] = []
        """Of each block: the pieces of its fields, joined at the end. Joined one by one, they would be copied over and
        over.
        """

    def add(self, pieces: Sequence[Mapping[str, Any]]) -> str:
        """More pieces: what of them can be shown. Encrypted ones cannot."""
        return "".join([self._add(place, piece) for place, piece in enumerate(pieces)])

    def keep(self, blocks: Sequence[Mapping[str, Any]]) -> str:
        """Whole blocks, as an answer that is not streamed has them: what of them can be shown."""
        self._blocks += [dict(block) for block in blocks]
        self._places += range(len(blocks))
        self._bodies += [{} for _ in blocks]
        return "".join([_shown(block) for block in blocks])

    def blocks(self) -> list[dict[str, Any]]:
        """All of them, by their index and then as they came."""
        order = sorted(range(len(self._blocks)), key=self._places.__getitem__)
        return [
            {**self._blocks[number], **{field: "".join(body) for field, body in self._bodies[number].items()}}
            for number in order
        ]

    def _add(self, place: int, piece: Mapping[str, Any]) -> str:
        index = piece.get("index")
        place = index if isinstance(index, int) else place
        number = self._going_on(place, piece)
        if number is None:
            self._blocks.append({**piece, "type": piece.get("type") or _TEXT})
            self._places.append(place)
            self._bodies.append({})
        else:
            _extend(self._blocks[number], self._bodies[number], piece)
        return _shown(piece)

    def _going_on(self, place: int, piece: Mapping[str, Any]) -> int | None:
        """The number of the block that a piece continues. One index may name several: a summary, say, and the same
        encrypted.
        """
        kind, name = piece.get("type"), piece.get("id")
        for number in range(len(self._blocks) - 1, -1, -1):
            block = self._blocks[number]
            if self._places[number] == place and kind in (None, "", block["type"]):
                return number if name in (None, "", block.get("id")) or not block.get("id") else None
        return None


def _extend(block: dict[str, Any], bodies: dict[str, list[str]], piece: Mapping[str, Any]) -> None:
    for field, value in piece.items():
        if field in _BODIES and isinstance(value, str) and isinstance(block.get(field), str):
            bodies.setdefault(field, [block[field]]).append(value)
        elif field not in block or value not in (None, ""):
            block[field] = value


def _shown(piece: Mapping[str, Any]) -> str:
    shown = piece.get("text") or piece.get("summary")
    return shown if isinstance(shown, str) else ""
