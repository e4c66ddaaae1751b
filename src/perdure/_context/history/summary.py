"""Build the summary message that replaces the start of a conversation, with the files that were touched."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure._core.run.run import Run
from perdure._core.values.jsonable import convert, replace_surrogates, to_text
from perdure._core.values.message import UNCERTAIN_STATUSES, Message, Status, ToolCall, ToolResult, user

from .tokens import SUMMARY_ORIGIN, cut_middle_to_tokens, estimate_text_tokens

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


HUMAN_ORIGINS = frozenset({"", "steering", "follow_up"})
"""Origins of messages that a person wrote."""
SKILL_ORIGIN = "skill"
"""Origin of a message with the text of a skill, and the name of the tool that loads one."""
TASK_LIST_NAMES = ("tasks", "todos")
"""Names under which tools store task lists."""
CLOSED_TASK_STATES = frozenset({"completed", "done", "cancelled"})
"""States of tasks that are left out."""

_match_skill_frame = re.compile(r'<skill name="([^"]{1,100})">').match
"""Match the start of a result of the tool `skill`."""

SUMMARIZED_NOTE = "Earlier messages of this conversation were summed up to make room; this is what matters of them."
LEFT_OUT_NOTE = "Earlier messages of this conversation were left out to make room, and could not be summed up."
CONTINUE_NOTE = "Go on from here: do not begin again, and do not repeat what is done."
SEARCHABLE_NOTE = "The messages themselves are kept: `search_history` and `read_history` find them."
END_NOTE = "[End of the summary. The conversation goes on from here.]"


class SummaryCarryOver(Struct, frozen=True):
    """Data in a summary message that the next summary takes over: summary text, touched files, skill texts.

    It is stored in the metadata of the message.
    """

    snapshot: str = ""
    files: TouchedFiles = TouchedFiles()
    skills: dict[str, str] = {}
    """Texts of the loaded skills, by name."""
    left_out: int = 0
    """Number of messages that no snapshot covers."""


def read_summary_data(messages: Sequence[Message]) -> SummaryCarryOver:
    """Return the data stored in the summary message at the start of these messages; empty without a summary."""
    first = messages[0] if messages else None
    if first is None or first.origin != SUMMARY_ORIGIN:
        return SummaryCarryOver()
    noted: Any = first.metadata.get(SUMMARY_ORIGIN)
    try:
        return convert(noted, SummaryCarryOver)
    except msgspec.ValidationError:  # written by a custom strategy
        return SummaryCarryOver(first.text)


def is_summary(message: Message) -> bool:
    """Return True if a message is a summary that compaction has put in place of earlier messages."""
    return message.origin == SUMMARY_ORIGIN


def build_summary_message(
    run: Run, replaced: Sequence[Message], replaced_count: int, room: int, snapshot: str | None
) -> Message:
    """Build the summary message that replaces the messages `replaced`; it has about `room` tokens at most.

    Without a `snapshot`, the text of the summary, it says how many messages are missing.
    """
    before = read_summary_data(replaced)
    fresh = replaced[1:] if replaced and is_summary(replaced[0]) else replaced
    left_out = before.left_out if snapshot is not None else before.left_out + len(fresh)
    carried = SummaryCarryOver(
        before.snapshot if snapshot is None else replace_surrogates(snapshot),
        before.files.merge_later(collect_touched_files(fresh)),
        before.skills | collect_skill_texts(fresh),
        left_out,
    )
    sections = [
        ("The request that is being worked on, word for word", _get_current_request(run, replaced_count, room // 5)),
        ("Open tasks", cut_middle_to_tokens(_list_open_tasks(run.state.kept_values), room // 12)),
        ("Still waiting for", cut_middle_to_tokens(_list_inbox_items(run), room // 12)),
        ("Skills in use", _format_skills(carried.skills, run.state.skills, room // 6)),
        ("Files modified", _format_files(carried.files.modified, room // 12)),
        ("Files read", _format_files(carried.files.read, room // 16)),
    ]
    beside = [f"## {title}\n{text}" for title, text in sections if text]
    opening = _build_opening(run, LEFT_OUT_NOTE if snapshot is None else SUMMARIZED_NOTE, left_out)
    taken = sum([estimate_text_tokens(each) for each in (opening, *beside, END_NOTE)])
    words = cut_middle_to_tokens(carried.snapshot, max(room - taken, room // 4))
    text = "\n\n".join([each for each in (opening, *beside[:1], words, *beside[1:], END_NOTE) if each])
    kept = msgspec.structs.replace(carried, snapshot=words, skills=_fit_texts(carried.skills, room // 6))
    return user(text, origin=SUMMARY_ORIGIN, metadata={SUMMARY_ORIGIN: msgspec.to_builtins(kept)})


def _build_opening(run: Run, first: str, left_out: int) -> str:
    told = [first]
    if left_out:
        told.append(f"{left_out} of them are in no summary.")
    if "search_history" in run.toolbox:
        told.append(SEARCHABLE_NOTE)
    return f"[{' '.join([*told, CONTINUE_NOTE])}]"


def _get_current_request(run: Run, upto: int, room: int) -> str:
    """Return the user messages of this run that are being replaced: the first one, and the latest that fit."""
    state = run.state
    if not state.is_interrupted:
        return ""
    said = [
        each
        for each in state.messages[state.first_message_index : upto]
        if each.role == "user" and each.origin in HUMAN_ORIGINS
    ]
    texts = [each.text.strip() for each in said]
    first = cut_middle_to_tokens(texts[0], room // 2 if len(texts) > 1 else room) if texts else ""
    room -= estimate_text_tokens(first)
    later: list[str] = []
    for text in reversed(texts[1:]):
        fitting = cut_middle_to_tokens(text, room)
        room -= estimate_text_tokens(fitting)
        if not fitting:
            break
        later.append(fitting)
    return "\n\n".join([each for each in (first, *reversed(later)) if each])


def _list_open_tasks(kept: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for name in TASK_LIST_NAMES:
        value: Any = kept.get(name)
        tasks = cast("list[object]", value if isinstance(value, list) else [value] if value else [])
        lines += [line for each in tasks if (line := _format_task(each))]
    return "\n".join(lines)


def _format_task(task: object) -> str:
    if not isinstance(task, Mapping):
        return f"- {to_text(task)}"
    fields = cast("Mapping[str, Any]", task)
    status = to_text(fields.get("status") or "")
    if status in CLOSED_TASK_STATES:
        return ""
    words = next((fields[name] for name in ("content", "title", "text", "task") if fields.get(name)), fields)
    return f"- [{status}] {to_text(words)}" if status else f"- {to_text(words)}"


def _list_inbox_items(run: Run) -> str:
    return "\n".join([f"- [{item.tag}] {item.request}" for item in run.state.inbox.values()])


def collect_skill_texts(messages: Iterable[Message]) -> dict[str, str]:
    """Return the texts of the skills that were loaded in these messages, by name."""
    found: dict[str, str] = {}
    for message in messages:
        if message.origin == SKILL_ORIGIN:
            found[str(message.metadata.get(SKILL_ORIGIN) or f"skill {len(found) + 1}")] = message.text
        for result in message.tool_results:
            frame = _match_skill_frame(result.text) if result.name == SKILL_ORIGIN and not result.is_error else None
            if frame is not None:  # and not the reply that it is loaded already
                found[frame[1]] = result.text
    return found


def _fit_texts(texts: Mapping[str, str], room: int) -> dict[str, str]:
    """Keep as many texts as fit into `room` tokens, the latest first; of the others only the name."""
    kept: dict[str, str] = {}
    for name, text in reversed(list(texts.items())):
        size = estimate_text_tokens(text) + estimate_text_tokens(name)
        kept[name] = text if size <= room else ""
        room -= size if size <= room else 0
    return dict(reversed(list(kept.items())))


def _format_skills(texts: Mapping[str, str], loaded: Mapping[str, Any], room: int) -> str:
    names = [name for name in loaded if name not in texts]
    bodies = [
        f"### {name}\n{text}" if text else f"### {name}\n(Loaded earlier; load it again when you need its text.)"
        for name, text in _fit_texts({**dict.fromkeys(names, ""), **texts}, room).items()
    ]
    return cut_middle_to_tokens("\n".join(bodies), room + room // 2)


def _format_files(paths: Sequence[str], room: int) -> str:
    """List the paths that fit, those used last first."""
    lines: list[str] = []
    for path in reversed(paths):
        room -= estimate_text_tokens(path) + 1
        if room < 0:
            lines.append(f"(and {len(paths) - len(lines)} that were touched earlier)")
            break
        lines.append(f"- {path}")
    return "\n".join(lines)
