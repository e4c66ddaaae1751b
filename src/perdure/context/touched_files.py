"""List the files that an agent has changed and read, found in the arguments of its tool calls.

The list outlives the messages that it was made from: each summary carries it on, so after many of them it still names
the first file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.core.message import UNCERTAIN_STATUSES, Message, Status, ToolCall, ToolResult

MAX_FILES = 500
"""Maximum number of files in each list; the oldest are dropped."""
MAX_PATH_LENGTH = 300
"""Maximum length of a path; a longer argument is not one."""

WRITE_VERBS = ("write", "edit", "patch", "create", "delete", "remove", "move", "rename", "replace", "append", "save")
READ_VERBS = ("read", "open", "view")
PATH_ARGUMENTS = frozenset(
    {"path", "paths", "file", "files", "file_path", "filepath", "file_paths", "filename", "file_name", "notebook_path"}
    | {"source", "destination", "old_path", "new_path", "target_file"}
)
"""Names of arguments that are paths."""

_split_words = re.compile(r"[A-Z]?[a-z]+|[A-Z]+").findall


class TouchedFiles(Struct, frozen=True):
    """Paths of the files that an agent has changed, and of those it has read, in the order of their last use."""

    modified: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    """Files that were only read."""

    def merge_later(self, later: "TouchedFiles") -> "TouchedFiles":
        """Return these files merged with those of later calls; a file that was changed is not listed as read."""
        modified = _keep_newest((*self.modified, *later.modified))
        changed = frozenset(modified)
        return TouchedFiles(modified, _keep_newest([each for each in (*self.read, *later.read) if each not in changed]))


def collect_touched_files(messages: Iterable[Message]) -> TouchedFiles:
    """Collect the file paths in the tool calls of these messages, without calls that failed or never started."""
    modified: list[str] = []
    read: list[str] = []
    calls: Sequence[ToolCall] = ()
    for message in messages:
        if message.role == "assistant":
            calls = message.tool_calls
        elif message.role == "tool":
            results = {each.call_id: each for each in message.tool_results}
            for call in calls:
                place = _choose_list(call, results.get(call.call_id), modified, read)
                if place is not None:
                    place += get_call_paths(call)
    return TouchedFiles().merge_later(TouchedFiles(tuple(modified), tuple(read)))


def _choose_list(call: ToolCall, result: ToolResult | None, modified: list[str], read: list[str]) -> list[str] | None:
    """Return the list, `modified` or `read`, to which the files of a tool call are added; None for neither."""
    if result is None or not (result.status is Status.OK or result.status in UNCERTAIN_STATUSES):
        return None
    words = [word.lower() for word in _split_words(call.name)]
    if any(word.startswith(WRITE_VERBS) for word in words):
        return modified
    return read if any(word.startswith(READ_VERBS) for word in words) else None


def get_call_paths(call: ToolCall) -> list[str]:
    """Return the file paths in the arguments of a tool call."""
    try:
        arguments: Any = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        return []
    if not isinstance(arguments, dict):
        return []
    named = cast("dict[str, Any]", arguments)
    return [path for name, value in named.items() if name.lower() in PATH_ARGUMENTS for path in _iterate_paths(value)]


def _iterate_paths(value: Any) -> Iterator[str]:
    for each in cast("list[object]", value if isinstance(value, list) else [value]):
        if isinstance(each, str) and 0 < len(each) <= MAX_PATH_LENGTH and each.isprintable():
            yield each


def _keep_newest(paths: Iterable[str]) -> tuple[str, ...]:
    """Remove all but the last occurrence of each path, and drop the oldest beyond the limit."""
    last = dict.fromkeys(reversed(list(paths)))
    return tuple(reversed(list(last)[:MAX_FILES]))
