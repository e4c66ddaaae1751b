"""Format a tool call for the user who is asked to approve it: agent, tool, target and all arguments.

The question at the terminal and `perdure questions` show the same rows.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from perdure._core.values.jsonable import to_text

from .frame import UntrustedTextFrame, quote_text

_MAX_DEPTH: Final = 8
"""Levels of arguments that get rows of their own; what is nested more deeply is one value, as JSON."""
_MAX_REPEATED: Final = 200
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,60}")


def add_call_rows(frame: UntrustedTextFrame, call: Mapping[str, Any], path: str = "") -> None:
    """Add the rows that show a tool call to a frame: agent, tool, action, target and all arguments."""
    frame.add_label(f"agent: {quote_text(path) if path else 'the agent of the session'}")
    frame.add_value("tool", str(call.get("tool", "")))
    if "action" in call:
        frame.add_value("action", str(call["action"]))
    if labels := call.get("labels"):
        said = f"{', '.join(map(str, labels))} ({', '.join(map(str, call.get('sources', ())))})"
        frame.add_value("it follows text that is labelled", said)
    target = cast("Mapping[str, Any]", call.get("typed_target") or {})
    if note := target.get("note"):
        frame.add_value("note", str(note))
    arguments = _decode_arguments(call.get("arguments"))
    if "target" in call:
        _add_target(frame, str(call["target"]), arguments)
    if not arguments:
        frame.add_label("arguments: none")
        return
    start = "argument " if isinstance(arguments, Mapping) else "arguments"
    for label, value in _list_arguments(start, arguments, 0):
        if isinstance(value, str):
            frame.add_value(label, value)
        else:
            frame.add_value(f"{label} (JSON)", to_text(value))


def _add_target(frame: UntrustedTextFrame, target: str, arguments: Any) -> None:
    """Add the target of a call; a long one that is also an argument is only shown as the argument."""
    if target == to_text(arguments):
        frame.add_label("target: the arguments")
        return
    given = cast("Mapping[str, Any]", arguments if isinstance(arguments, Mapping) else {})
    same = [key for key, value in given.items() if value == target and len(target) > _MAX_REPEATED]
    if same:
        frame.add_label(f"target: the argument {_format_key(str(same[0]))}")
    else:
        frame.add_value("target", target)


def _decode_arguments(arguments: Any) -> Any:
    """Return the arguments of a call as JSON values; arguments that were cut off are returned as text."""
    if not isinstance(arguments, str):
        return arguments
    import msgspec

    try:
        return msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        return arguments


def _list_arguments(label: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield each text, number and empty list in the arguments, with its path."""
    if depth < _MAX_DEPTH and isinstance(value, Mapping) and value:
        for key, each in cast("Mapping[str, Any]", value).items():
            yield from _list_arguments(f"{label}{'.' if depth else ''}{_format_key(str(key))}", each, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and value:
        for place, each in enumerate(cast("Sequence[str]", value), 1):
            yield from _list_arguments(f"{label}[{place}]", each, depth + 1)
    else:
        yield label, value


def _format_key(key: str) -> str:
    return key if _NAME.fullmatch(key) else quote_text(key)
