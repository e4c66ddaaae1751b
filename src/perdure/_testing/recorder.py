"""A watcher that collects the events of runs, and draws them as a tree."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from perdure._core.values.error import ConfigError
from perdure._core.values.event import (
    Entry,
    MessageAdded,
    ModelRequested,
    PermissionDecided,
    RunEnded,
    RunStarted,
    SubagentStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageReported,
)
from perdure._core.values.event_class import Event, QuestionAsked
from perdure._core.values.jsonable import replace_surrogates, to_jsonable
from perdure._core.values.message import Message

_WIDTH = 72
"""Characters shown of a text."""
_ERROR_WIDTH = 400
"""Characters shown of the error that ended a run."""

_UNSTABLE = ("_id", "_hash", "_key")
"""Suffixes of field names whose values differ from run to run."""


def draw_tree(entries: Iterable[Entry], *, counts: bool = False, durations: bool = False) -> str:
    """Draw log entries as an indented tree of runs, turns and calls; deltas of one kind in a row share a line."""
    tree = _Tree(durations=durations)
    for entry in entries:
        tree.add(entry.event)
    return "\n".join(tree.root.render(counts=counts, depth=-1))


class _Line:
    """A line of the tree, and the lines indented below it."""

    __slots__ = ("below", "count", "detail", "head", "is_turn", "key", "text")

    def __init__(self, head: str, detail: str = "", *, key: tuple[str, int] | None = None) -> None:
        self.head = head
        self.detail = detail
        self.below: list[_Line] = []
        self.is_turn = False
        self.key = key
        """Key that further deltas must have to be merged into this line; `None` if it shows no deltas."""
        self.text = ""
        """Merged text of the deltas."""
        self.count = 1

    def render(self, *, counts: bool, depth: int) -> Iterator[str]:
        if depth >= 0:
            times = f" x{self.count}" if counts and self.count > 1 else ""
            detail = f": {self.detail}" if self.detail else ""
            yield f"{'  ' * depth}{self.head}{times}{detail}"
        for line in self.below:
            yield from line.render(counts=counts, depth=depth + 1)


class _Tree:
    """Builds the tree: puts each event under its call, turn, run, or subagent."""

    def __init__(self, *, durations: bool) -> None:
        self.root = _Line("")
        self._durations = durations
        self._open: dict[str, list[_Line]] = {"": [self.root]}
        """Open lines for each path, the innermost last."""
        self._calls: dict[tuple[str, str], _Line] = {}
        self._homes: dict[str, _Line] = {}
        """Line of the call that started each agent last, by the agent's name."""

    def add(self, event: Event) -> None:
        match event:
            case RunStarted() | RunEnded() | TurnStarted() | TurnEnded():
                self._add_structure(event)
            case TextDelta() | ThinkingDelta() | ToolCallDelta() | ToolProgress():
                self._add_delta(event)
            case ToolStarted() | ToolFinished():
                self._add_tool(event)
            case MessageAdded(message=message):
                self._add_message(event.path, message)
            case ModelRequested(attempt=1) | UsageReported():
                pass  # shown by the turn, and by its end
            case _:
                self._add_other(event)

    def _add_structure(self, event: RunStarted | RunEnded | TurnStarted | TurnEnded) -> None:
        scope = self._open_lines(event.path)
        match event:
            case RunStarted():
                if not event.path:
                    scope[1:] = [self._append(self.root, _Line(f"run {event.agent}".rstrip()))]
                scope[-1].detail = "still going"
            case RunEnded():
                run = scope[0] if event.path or len(scope) == 1 else scope[1]
                if run is self.root:  # its beginning was not seen
                    run = self._append(self.root, _Line("run"))
                run.detail = _describe_end(event)
                self._close_path(event.path)
            case TurnStarted():
                self._end_turn(scope)
                turn = self._append(scope[-1], _Line(f"turn {event.turn}"))
                turn.is_turn = True
                scope.append(turn)
            case TurnEnded():
                self._end_turn(scope)

    def _add_delta(self, event: TextDelta | ThinkingDelta | ToolCallDelta | ToolProgress) -> None:
        match event:
            case TextDelta():
                line = self._delta_line(self._innermost_line(event), "text", 0, event.text)
                line.detail = _quote(line.text)
            case ThinkingDelta():
                line = self._delta_line(self._innermost_line(event), "thinking", event.index, event.text)
                line.detail = _quote(line.text)
            case ToolCallDelta():
                line = self._delta_line(self._open_lines(event.path)[-1], "call", event.index, event.arguments)
                if event.name:
                    line.head = f"call {event.name}"
                line.detail = _shorten(line.text)
            case ToolProgress():
                line = self._delta_line(self._innermost_line(event), "progress", 0, "")
                line.detail = _to_json(event.data)

    def _add_tool(self, event: ToolStarted | ToolFinished) -> None:
        line = self._calls.get((event.path, event.call_id))
        if line is None:
            line = self._append(self._open_lines(event.path)[-1], _Line(f"tool {event.name}", "no result"))
            self._calls[event.path, event.call_id] = line
        if isinstance(event, ToolFinished):
            text = event.result.text
            took = f" ({event.duration_seconds:.3f} s)" if self._durations else ""
            line.detail = f"{event.result.status}{' ' if text else ''}{_quote(text) if text else ''}{took}"

    def _add_message(self, path: str, message: Message) -> None:
        line = self._open_lines(path)[-1]
        if message.role != "assistant":
            origin = f" ({message.origin})" if message.origin else ""
            self._append(line, _Line(f"{message.role}{origin}", _quote(message.text)))
        elif not any(child.key for child in line.below):  # its deltas were not seen
            if message.text:
                self._append(line, _Line("text", _quote(message.text)))
            for each in message.tool_calls:
                self._append(line, _Line(f"call {each.name}", _shorten(each.arguments)))

    def _add_other(self, event: Event) -> None:
        line = self._innermost_line(event)
        match event:
            case ModelRequested():
                self._append(line, _Line(f"asked again, attempt {event.attempt}"))
            case QuestionAsked():
                tools = ", ".join(str(each.get("tool")) for each in event.calls)
                self._append(line, _Line(f"{event.about} asked", tools))
            case PermissionDecided():
                verdict = "allowed" if event.allow else "denied"
                self._append(line, _Line(f"permission {event.tool}", f"{verdict} {event.reason}".rstrip()))
            case SubagentStarted():
                self._homes[event.child or event.name] = line
                self._append(line, _Line(f"subagent {event.name}", _quote(event.prompt)))
            case _:
                self._append(
                    line, _Line(str(event.__struct_config__.tag), _describe_fields(event, durations=self._durations))
                )

    # -- where a line belongs ------------------------------------------------------------------------------------------

    def _open_lines(self, path: str) -> list[_Line]:
        """Return the open lines of a path; a new agent gets a line under the call that started it."""
        if path not in self._open:
            above, _, name = path.rpartition("/")
            home = self._homes.get(path) or self._homes.get(name) or self._open_lines(above)[-1]
            self._open[path] = [self._append(home, _Line(f"agent {name}"))]
        return self._open[path]

    def _innermost_line(self, event: Event) -> _Line:
        return self._calls.get((event.path, getattr(event, "call_id", ""))) or self._open_lines(event.path)[-1]

    def _close_path(self, path: str) -> None:
        if path:
            del self._open[path]  # the next run at this path is another one
        else:
            del self._open[""][1:]

    @staticmethod
    def _end_turn(scope: list[_Line]) -> None:
        if scope[-1].is_turn:
            scope.pop()

    @staticmethod
    def _delta_line(place: _Line, kind: str, index: int, text: str) -> _Line:
        """Return the line of the preceding deltas of this kind, or a new one."""
        last = place.below[-1] if place.below else None
        if last is not None and last.key == (kind, index):
            last.count += 1
        else:
            last = _Tree._append(place, _Line(kind, key=(kind, index)))
        last.text += text
        return last

    @staticmethod
    def _append(place: _Line, line: _Line) -> _Line:
        place.below.append(line)
        return line


def _describe_end(event: RunEnded) -> str:
    why = f", {event.reason}" if event.reason else ""
    return f"{event.status}{why}{f' {_quote(event.error, _ERROR_WIDTH)}' if event.error else ''}"


def _describe_fields(event: Event, *, durations: bool) -> str:
    shown: list[str] = []
    for name in event.__struct_fields__:
        value = getattr(event, name)
        hidden = name == "path" or name.endswith(_UNSTABLE) or (name.endswith("_seconds") and not durations)
        hidden = hidden or (name == "aside" and not value)  # as nearly all are
        if not hidden and value not in ("", None, ()) and not isinstance(value, msgspec.Struct):
            shown.append(f"{name}={_to_json(value)}")
    return " ".join(shown)


def _to_json(value: Any) -> str:
    return _shorten(msgspec.json.encode(to_jsonable(value)).decode())


def _quote(text: str, width: int = _WIDTH) -> str:
    """Quote the beginning of a text on one line."""
    return msgspec.json.encode(replace_surrogates(_shorten(text, width))).decode()


def _shorten(text: str, width: int = _WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


E = TypeVar("E", bound=Event)


class Recorder:
    """Watcher (a callback for events) that collects every entry of an agent's runs, for assertions in tests."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        """All recorded entries, in order."""

    def __call__(self, entry: Entry) -> None:
        """Record an entry."""
        given: Any = entry
        if not isinstance(given, Entry):
            raise ConfigError(f"a Recorder is called with an Entry, not with {given!r}")
        self.entries.append(entry)

    def __str__(self) -> str:
        return self.tree()

    def __repr__(self) -> str:
        return f"<Recorder: {len(self.entries)} entries>"

    @property
    def events(self) -> list[Event]:
        """The events of the recorded entries."""
        return [entry.event for entry in self.entries]

    @property
    def kinds(self) -> list[str]:
        """Name of each recorded event, as in the log: `["run_started", "turn_started", ...]`."""
        return [str(entry.event.__struct_config__.tag) for entry in self.entries]

    @property
    def text(self) -> str:
        """Streamed text of the session's own agent, without that of subagents."""
        return "".join([event.text for event in self.of(TextDelta) if not event.path])

    def of(self, kind: type[E]) -> list[E]:
        """Return the events of one type: `recorder.of(ToolFinished)`."""
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]

    def tree(self, *, counts: bool = False, durations: bool = False) -> str:
        """Draw the recorded events as an indented tree that is stable between equal runs.

        Durations depend on the machine, and counts of deltas on how quickly a watcher follows (a slow one gets several
        merged into one), so both are left out by default.
        """
        return draw_tree(self.entries, counts=counts, durations=durations)

    def clear(self) -> None:
        """Forget all recorded entries."""
        self.entries.clear()
