"""`perdure sessions show`: a conversation as text, and what it waits for. Above: `sessions.py`. Below: the log."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from .home import how_to_answer, no_session, store_option, use_store
from .screen import Screen, json_line, one_line

if TYPE_CHECKING:
    from perdure.core.event import Entry
    from perdure.core.fold import State
    from perdure.core.inbox import InboxItem
    from perdure.core.message import Message
    from perdure.core.store import Post, Store


@click.command()
@click.argument("session_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Write each entry of the log as a line of JSON.")
@store_option
def show(session_id: str, *, as_json: bool, store: str | None) -> None:
    """Show what was said and done in session ID, and what it waits for."""
    from perdure.core.codec import encode_entry

    async def read(store: "Store") -> "tuple[list[Entry], list[Post]]":
        return await store.read(session_id), await store.posts(session_id)

    entries, posts = use_store(store, read)
    if not entries:
        raise no_session(session_id)
    screen = Screen()
    if as_json:
        for entry in entries:
            screen.say(json_line(encode_entry(entry)) + "\n")
    else:
        _tell(screen, session_id, entries, posts)


def _tell(screen: Screen, session_id: str, entries: "Sequence[Entry]", posts: "Sequence[Post]") -> None:
    from perdure.core.fold import fold
    from perdure.core.inbox import items_of

    state = fold(entries)
    answered = {post.body["ask_id"] for post in posts if post.kind == "answer"}
    for line in (*_transcript(state), *_questions(state, answered), *_inbox(items_of(entries, posts))):
        screen.say(line + "\n")
    for question in state.questions:
        if question.ask_id not in answered:
            screen.note(one_line(how_to_answer(session_id, question)))
    if state.interrupted and not state.waiting:
        screen.note(one_line(f"the last run was cut off; finish it with: perdure resume {session_id}"))
    elif answered:
        screen.note(one_line(f"the last run can go on; perdure resume {session_id}"))


def _transcript(state: "State") -> Iterator[str]:
    """What was said and done, line by line, calls that have no result yet included."""
    for message in state.messages:
        yield from _told(message)
    if state.reply is not None:
        yield from _told(state.reply)
        for result in state.results.values():
            yield f"  {result.name} {result.status}: {_indented(result.text)}"


def _told(message: "Message") -> Iterator[str]:
    from perdure.core.message import Text, Thinking, ToolCall, ToolResult, flatten

    if message.role != "tool":
        yield f"{message.role}{_in_brackets(message.origin or message.model)}:"
    for part in message.parts:
        match part:
            case Text(text=text):
                yield f"  {_indented(text)}"
            case Thinking(text=text):
                yield f"  [thinking] {_indented(text)}"
            case ToolCall(name=name, arguments=arguments):
                yield f"  call {name} {one_line(arguments)}"
            case ToolResult(name=name, status=status):
                yield f"  {name} {status}: {_indented(part.text)}"
            case _:
                yield f"  {flatten((part,))}"


def _questions(state: "State", answered: Collection[str]) -> Iterator[str]:
    """What somebody has to answer, or has answered while nobody drove the session."""
    for question in state.questions:
        mark = "answered, and not taken up yet" if question.ask_id in answered else "open"
        yield f"question {one_line(question.ask_id)} ({mark}): {one_line(question.text)}"


def _inbox(items: "Sequence[InboxItem]") -> Iterator[str]:
    """What it waits for from outside, and what has come that the model was not told yet."""
    for item in items:
        if item.status != "consumed":
            yield inbox_row(item)


def inbox_row(item: "InboxItem") -> str:
    """An item of an inbox on a line."""
    from perdure.core.plain import to_text

    response = "" if item.status == "pending" else f" -> {to_text(item.response)}"
    return one_line(f"inbox {item.item_id} ({item.status}) [{item.tag}] {item.request}{response}")


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n  ")
