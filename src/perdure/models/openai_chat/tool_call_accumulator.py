"""Assemble the tool calls of one chat completions reply from their streamed pieces.

By the rule, pieces of a call share an index, and the first piece has the id and the name. In practice there are servers
that send no index, no id, a new id with every piece, the name with every piece, or one index for all calls of a reply.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from perdure.core.event import ToolCallDelta

from .chunk_structs import FunctionPiece, ToolCallPiece

_NO_FUNCTION = FunctionPiece()


class _PendingCall:
    __slots__ = ("arguments", "id", "name", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        """Position of the call in the reply, counted by us."""
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []


class ToolCallAccumulator:
    """Accumulator of the tool calls of one chat completions reply, which arrive in streamed pieces."""

    __slots__ = ("_calls", "_latest")

    def __init__(self) -> None:
        self._calls: list[_PendingCall] = []
        self._latest: dict[int | None, _PendingCall] = {}
        """The latest call with each index of the provider, and the latest of all under `None`."""

    def __len__(self) -> int:
        return len(self._calls)

    def add_pieces(self, pieces: Sequence[ToolCallPiece]) -> list[ToolCallDelta]:
        """Add streamed pieces of tool calls, and return a delta event for each piece that adds something."""
        deltas: list[ToolCallDelta] = []
        for piece in pieces:
            function = piece.function or _NO_FUNCTION
            if not (piece.id or function.name or piece.extra_content) and function.arguments:
                call = self._latest.get(piece.index)
                if call is not None and call.arguments:  # nearly every piece: more of the arguments
                    call.arguments.append(function.arguments)
                    deltas.append(ToolCallDelta("", "", function.arguments, index=call.place))
                    continue
            delta = self._add_piece(piece.index, piece.id or "", function.name or "", function.arguments or "")
            if piece.extra_content is not None and piece.signature:
                call = self._latest.get(piece.index)
                if call is not None:
                    delta = replace(delta or ToolCallDelta(index=call.place), signature=piece.signature)
            if delta is not None:
                deltas.append(delta)
        return deltas

    @property
    def has_complete_arguments(self) -> bool:
        """True if the arguments of every call are complete JSON, or empty."""
        return all(_has_json_arguments(call) or not "".join(call.arguments).strip() for call in self._calls)

    def _add_piece(self, index: int | None, call_id: str, name: str, arguments: str) -> ToolCallDelta | None:
        call = self._find_continued_call(index, call_id, name, arguments)
        if call is None:
            if not (call_id or name or arguments):
                return None
            call = _PendingCall(len(self._calls))
            self._calls.append(call)
            self._latest[index] = self._latest[None] = call
        if arguments == "null" and not call.arguments:  # some servers start with it, and send the arguments next
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

    def _find_continued_call(self, index: int | None, call_id: str, name: str, arguments: str) -> _PendingCall | None:
        """Return the call that a piece continues, or None if the piece starts another call."""
        call = self._latest.get(index)
        if call is None or (call_id and call_id == call.id) or not name:
            return call
        if call_id and call.id:
            return None  # another id and a name: another call, whatever its index
        if index is None and call.name:
            return None  # each piece is a whole call
        begins = bool(call.name) and arguments.lstrip().startswith("{") and _has_json_arguments(call)
        return None if begins else call


def _has_json_arguments(call: _PendingCall) -> bool:
    try:
        msgspec.json.decode("".join(call.arguments))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
