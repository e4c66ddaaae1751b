"""Which files an agent has changed and read, from the arguments of its calls. Above: `hand_off.py`. Below: `core`.

The ledger outlives the messages that it was made from: each summary carries it on, so after many of them it still names
the first file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.core.message import UNCERTAIN, Message, Status, ToolCall, ToolResult

MOST_FILES = 500
"""Of each kind; the oldest are forgotten."""
LONGEST_PATH = 300
"""A longer argument is no name of a file."""

CHANGING = ("write", "edit", "patch", "create", "delete", "remove", "move", "rename", "replace", "append", "save")
READING = ("read", "open", "view")
PATHS = frozenset(
    {"path", "paths", "file", "files", "file_path", "filepath", "file_paths", "filename", "file_name", "notebook_path"}
    | {"source", "destination", "old_path", "new_path", "target_file"}
)
"""What arguments are called that name files."""

_words = re.compile(r"[A-Z]?[a-z]+|[A-Z]+").findall


class FileLedger(Struct, frozen=True):
    """Names of files in the order in which they were last touched."""

    modified: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    """Those that were only read."""

    def followed_by(self, later: "FileLedger") -> "FileLedger":
        """Both together, the later one last."""
        modified = _newest((*self.modified, *later.modified))
        changed = frozenset(modified)
        return FileLedger(modified, _newest([each for each in (*self.read, *later.read) if each not in changed]))


def ledger_of(messages: Iterable[Message]) -> FileLedger:
    """The files that the calls in these messages were about. A call that has failed, or never began, does not count."""
    modified: list[str] = []
    read: list[str] = []
    calls: Sequence[ToolCall] = ()
    for message in messages:
        if message.role == "assistant":
            calls = message.tool_calls
        elif message.role == "tool":
            results = {each.call_id: each for each in message.tool_results}
            for call in calls:
                place = _place(call, results.get(call.call_id), modified, read)
                if place is not None:
                    place += paths_of(call)
    return FileLedger().followed_by(FileLedger(tuple(modified), tuple(read)))


def _place(call: ToolCall, result: ToolResult | None, modified: list[str], read: list[str]) -> list[str] | None:
    """Where the files of a call are noted, if anywhere."""
    if result is None or not (result.status is Status.OK or result.status in UNCERTAIN):
        return None
    words = [word.lower() for word in _words(call.name)]
    if any(word.startswith(CHANGING) for word in words):
        return modified
    return read if any(word.startswith(READING) for word in words) else None


def paths_of(call: ToolCall) -> list[str]:
    """The files that a call names."""
    try:
        arguments: Any = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return []
    if not isinstance(arguments, dict):
        return []
    named = cast("dict[str, Any]", arguments)
    return [path for name, value in named.items() if name.lower() in PATHS for path in _named(value)]


def _named(value: Any) -> Iterator[str]:
    for each in cast("list[object]", value if isinstance(value, list) else [value]):
        if isinstance(each, str) and 0 < len(each) <= LONGEST_PATH and each.isprintable():
            yield each


def _newest(paths: Iterable[str]) -> tuple[str, ...]:
    """Each once, where it stands last, and not too many."""
    last = dict.fromkeys(reversed(list(paths)))
    return tuple(reversed(list(last)[:MOST_FILES]))
