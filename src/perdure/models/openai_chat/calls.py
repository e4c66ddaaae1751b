"""The calls of one reply, told apart as their pieces come. Above: `decode.py`. Below: `core/event.py`, `chunk.py`.

Pieces of a call share an index, and the first has its id and its name. That is the rule; there are servers that give
no index, no id, a new id with every piece, the name with every piece, or one index to all calls of a reply.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from perdure.core.event import ToolCallDelta

from .chunk import CallPiece, Function

_NO_FUNCTION = Function()


class _Call:
    __slots__ = ("arguments", "id", "index", "name", "place")

    def __init__(self, place: int, index: int | None) -> None:
        self.place = place
        """Which call of the reply it is, by our count."""
        self.index = index
        """Which it is by theirs."""
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class Calls:
    """The calls of one reply."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, pieces: Sequence[CallPiece]) -> list[ToolCallDelta]:
        """What these pieces say that is new."""
        deltas: list[ToolCallDelta] = []
        for piece in pieces:
            function = piece.function or _NO_FUNCTION
            delta = self._add(piece.index, piece.id or "", function.name or "", function.arguments or "")
            if piece.extra_content is not None and piece.signature:
                place = self._calls[-1].place if delta is None else delta.index
                delta = replace(delta or ToolCallDelta(index=place), signature=piece.signature)
            if delta is not None:
                deltas.append(delta)
        return deltas

    @property
    def whole(self) -> bool:
        """Whether the arguments of every call are whole, as far as one can see."""
        return all(_is_json(call) or not "".join(call.arguments).strip() for call in self._calls)

    def _add(self, index: int | None, call_id: str, name: str, arguments: str) -> ToolCallDelta | None:
        call = self._going_on(index, call_id, name, arguments)
        if call is None:
            if not (call_id or name or arguments):
                return None
            call = _Call(len(self._calls), index)
            self._calls.append(call)
        if arguments == "null" and not call.arguments:  # as some begin: what follows, if anything, is the whole
            arguments = ""
        new_id = "" if call.id else call_id
        new_name = "" if call.name else name
        if new_id:
            call.id = new_id
        if new_name:
            call.name = new_name
        if arguments:
            call.arguments.append(arguments)
        elif not (new_id or new_name):
            return None
        return ToolCallDelta(new_id, new_name, arguments, index=call.place)

    def _going_on(self, index: int | None, call_id: str, name: str, arguments: str) -> _Call | None:
        """The call that a piece continues; nothing when it begins another."""
        call = self._latest(index)
        if call is None or (call_id and call_id == call.id) or not name:
            return call
        if call_id and call.id:
            return None  # another id and a name: another call, whatever its index
        if index is None and call.name:
            return None  # each piece is a whole call
        begins = bool(call.name) and arguments.lstrip().startswith("{") and _is_json(call)
        return None if begins else call

    def _latest(self, index: int | None) -> _Call | None:
        for call in reversed(self._calls):
            if index is None or call.index == index:
                return call
        return None


def _is_json(call: _Call) -> bool:
    try:
        msgspec.json.decode("".join(call.arguments))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
