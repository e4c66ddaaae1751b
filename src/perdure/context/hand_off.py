"""The message that stands for the beginning of a conversation. Above: `compaction.py`. Below: `file_ledger.py`, `core`.

Beside the snapshot that a model has written it holds what no model should have to remember: the request that is being
worked on, word for word; open tasks; what the agent waits for; the skills it has loaded; the files it has changed and
read. Each has its share of the room, and what is not needed goes to the snapshot. What the next summary must know is in
the message's metadata.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from perdure.core.message import Message, user
from perdure.core.plain import clean, to_text
from perdure.core.run import Run

from .file_ledger import FileLedger, ledger_of
from .tokens import SUMMARY, cut_to, text_tokens

SAID_BY_PEOPLE = frozenset({"", "steering", "follow_up"})
"""Origins of messages that a person has written."""
SKILL = "skill"
"""Origin of the text of a skill, and the name of the tool that loads one."""
LISTS = ("tasks", "todos")
"""Names under which tools keep lists of what is to be done."""
SETTLED = frozenset({"completed", "done", "cancelled"})
"""States of a task that nobody has to remember."""

_framed = re.compile(r'<skill name="([^"]{1,100})">').match
"""How the tool `skill` begins what it tells."""

SUMMED_UP = "Earlier messages of this conversation were summed up to make room; this is what matters of them."
LEFT_OUT = "Earlier messages of this conversation were left out to make room, and could not be summed up."
GO_ON = "Go on from here: do not begin again, and do not repeat what is done."
SEARCHABLE = "The messages themselves are kept: `search_history` and `read_history` find them."
END = "[End of the summary. The conversation goes on from here.]"


class Carried(Struct, frozen=True):
    """What one summary hands to the next, in the metadata of its message."""

    snapshot: str = ""
    files: FileLedger = FileLedger()
    skills: dict[str, str] = {}
    """The texts of the skills that were loaded, by name."""
    left_out: int = 0
    """How many messages are in no snapshot."""


def carried_by(messages: Sequence[Message]) -> Carried:
    """What an earlier summary at the beginning of these messages has handed on."""
    first = messages[0] if messages else None
    if first is None or first.origin != SUMMARY:
        return Carried()
    noted: Any = first.metadata.get(SUMMARY)
    try:
        return msgspec.convert(noted, Carried)
    except msgspec.ValidationError:  # of a strategy of somebody's own
        return Carried(first.text)


def is_summary(message: Message) -> bool:
    """Whether a message stands for others."""
    return message.origin == SUMMARY


def hand_off(run: Run, replaced: Sequence[Message], upto: int, room: int, snapshot: str | None) -> Message:
    """The message for what is replaced, of about `room` tokens at most. Without a snapshot it says what is missing."""
    before = carried_by(replaced)
    fresh = replaced[1:] if replaced and is_summary(replaced[0]) else replaced
    left_out = before.left_out if snapshot is not None else before.left_out + len(fresh)
    carried = Carried(
        before.snapshot if snapshot is None else clean(snapshot),
        before.files.followed_by(ledger_of(fresh)),
        before.skills | skills_in(fresh),
        left_out,
    )
    sections = [
        ("The request that is being worked on, word for word", _request(run, upto, room // 5)),
        ("Open tasks", cut_to(_tasks(run.state.kept), room // 12)),
        ("Still waiting for", cut_to(_inbox(run), room // 12)),
        ("Skills in use", _skills(carried.skills, run.state.skills, room // 6)),
        ("Files modified", _files(carried.files.modified, room // 12)),
        ("Files read", _files(carried.files.read, room // 16)),
    ]
    beside = [f"## {title}\n{text}" for title, text in sections if text]
    opening = _opening(run, LEFT_OUT if snapshot is None else SUMMED_UP, left_out)
    taken = sum([text_tokens(each) for each in (opening, *beside, END)])
    words = cut_to(carried.snapshot, max(room - taken, room // 4))
    text = "\n\n".join([each for each in (opening, *beside[:1], words, *beside[1:], END) if each])
    kept = msgspec.structs.replace(carried, snapshot=words, skills=_bounded(carried.skills, room // 6))
    return user(text, origin=SUMMARY, metadata={SUMMARY: msgspec.to_builtins(kept)})


def _opening(run: Run, first: str, left_out: int) -> str:
    told = [first]
    if left_out:
        told.append(f"{left_out} of them are in no summary.")
    if "search_history" in run.toolbox:
        told.append(SEARCHABLE)
    return f"[{' '.join([*told, GO_ON])}]"


def _request(run: Run, upto: int, room: int) -> str:
    """What people have said in this run, when the model will not see it any more: how it began, and the last of it."""
    state = run.state
    if not state.interrupted:
        return ""
    said = [
        each for each in state.messages[state.first : upto] if each.role == "user" and each.origin in SAID_BY_PEOPLE
    ]
    texts = [each.text.strip() for each in said]
    first = cut_to(texts[0], room // 2 if len(texts) > 1 else room) if texts else ""
    room -= text_tokens(first)
    later: list[str] = []
    for text in reversed(texts[1:]):
        fitting = cut_to(text, room)
        room -= text_tokens(fitting)
        if not fitting:
            break
        later.append(fitting)
    return "\n\n".join([each for each in (first, *reversed(later)) if each])


def _tasks(kept: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for name in LISTS:
        value: Any = kept.get(name)
        tasks = cast("list[object]", value if isinstance(value, list) else [value] if value else [])
        lines += [line for each in tasks if (line := _task(each))]
    return "\n".join(lines)


def _task(task: object) -> str:
    if not isinstance(task, Mapping):
        return f"- {to_text(task)}"
    fields = cast("Mapping[str, Any]", task)
    status = to_text(fields.get("status") or "")
    if status in SETTLED:
        return ""
    words = next((fields[name] for name in ("content", "title", "text", "task") if fields.get(name)), fields)
    return f"- [{status}] {to_text(words)}" if status else f"- {to_text(words)}"


def _inbox(run: Run) -> str:
    return "\n".join([f"- [{item.tag}] {item.request}" for item in run.state.inbox.values()])


def skills_in(messages: Iterable[Message]) -> dict[str, str]:
    """The texts of the skills that were loaded in these messages, by name."""
    found: dict[str, str] = {}
    for message in messages:
        if message.origin == SKILL:
            found[str(message.metadata.get(SKILL) or f"skill {len(found) + 1}")] = message.text
        for result in message.tool_results:
            frame = _framed(result.text) if result.name == SKILL and not result.is_error else None
            if frame is not None:  # and not the answer that it is there already
                found[frame[1]] = result.text
    return found


def _bounded(texts: Mapping[str, str], room: int) -> dict[str, str]:
    """As many as there is room for, the last ones first; of the others there is only the name."""
    kept: dict[str, str] = {}
    for name, text in reversed(list(texts.items())):
        size = text_tokens(text) + text_tokens(name)
        kept[name] = text if size <= room else ""
        room -= size if size <= room else 0
    return dict(reversed(list(kept.items())))


def _skills(texts: Mapping[str, str], loaded: Mapping[str, Any], room: int) -> str:
    names = [name for name in loaded if name not in texts]
    bodies = [
        f"### {name}\n{text}" if text else f"### {name}\n(Loaded earlier; load it again when you need its text.)"
        for name, text in _bounded({**dict.fromkeys(names, ""), **texts}, room).items()
    ]
    return cut_to("\n".join(bodies), room + room // 2)


def _files(paths: Sequence[str], room: int) -> str:
    """The names that there is room for, those that were touched last."""
    lines: list[str] = []
    for path in reversed(paths):
        room -= text_tokens(path) + 1
        if room < 0:
            lines.append(f"(and {len(paths) - len(lines)} that were touched earlier)")
            break
        lines.append(f"- {path}")
    return "\n".join(lines)
