"""`perdure sessions show`: print the conversation of a session, its open questions and its inbox."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from .perdure_home import MAX_QUESTION, build_session_not_found, format_answer_commands, run_with_store, store_option
from .session_choice import session_argument
from .terminal_output import TerminalOutput, to_ascii_json, to_one_line
from .untrusted_text_frame import quote_text, quote_unless_plain

if TYPE_CHECKING:
    from perdure.core.event import Entry
    from perdure.core.fold import State
    from perdure.core.inbox import InboxItem
    from perdure.core.message import Message
    from perdure.core.store import Post, Store


@click.command()
@session_argument()
@click.option("--json", "as_json", is_flag=True, help="Print each entry of the log as a line of JSON.")
@store_option
def show(session_id: str, *, as_json: bool, store: str | None) -> None:
    """Print the conversation of session ID, where it comes from, its grants, its open questions and its inbox."""
    from perdure.core.codec import encode_entry

    async def read(store: "Store") -> "tuple[list[Entry], list[Post]]":
        return await store.read(session_id), await store.posts(session_id)

    entries, posts = run_with_store(store, read)
    if not entries:
        raise build_session_not_found(session_id)
    screen = TerminalOutput()
    if as_json:
        for entry in entries:
            screen.write(to_ascii_json(_add_sources(entry, encode_entry(entry))) + "\n")
    else:
        _print_session(screen, session_id, entries, posts, store)


def _print_session(
    screen: TerminalOutput, session_id: str, entries: "Sequence[Entry]", posts: "Sequence[Post]", store: str | None
) -> None:
    from perdure.core.clock import SYSTEM_CLOCK
    from perdure.core.fold import fold_entries
    from perdure.core.inbox import list_inbox_items
    from perdure.runtime.resume_reasons import list_expired_questions

    from .resume_check import format_resume_hint

    state = fold_entries(entries)
    answered = {post.body["ask_id"] for post in posts if post.kind == "answer"}
    expired = list_expired_questions(state, SYSTEM_CLOCK.now())
    for line in (
        *_import_lines(state),
        *_transcript_lines(state),
        *_grant_lines(state, session_id),
        *_question_lines(state, answered, expired),
        *_inbox_lines(list_inbox_items(entries, posts)),
    ):
        screen.write(line + "\n")
    for question in state.open_questions:
        if question.ask_id not in (*answered, *expired):
            screen.note(to_one_line(format_answer_commands(session_id, question, store)))
    if state.is_interrupted and not (state.is_waiting and state.open_questions):
        screen.note(to_one_line(f"the last run was cut off; {format_resume_hint(session_id, state, store)}"))
    elif state.is_parked:
        screen.note(to_one_line(f"the last run was parked; {format_resume_hint(session_id, state, store, '--unpark')}"))
    elif answered or expired:
        screen.note(to_one_line(f"the last run can continue; {format_resume_hint(session_id, state, store)}"))


def _add_sources(entry: "Entry", encoded: bytes) -> bytes:
    """Add the sources of an entry (who wrote it) to its encoded JSON."""
    import msgspec

    from perdure.core.provenance import list_event_sources

    return msgspec.json.encode({**msgspec.json.decode(encoded), "sources": list_event_sources(entry.event)})


def _import_lines(state: "State") -> Iterator[str]:
    """Yield a line about each import that the session began with."""
    for each in state.imports:
        by = f" by {each.by}" if each.by else ""
        how = "whole" if each.trusted else "without grants, settings, questions and jobs"
        yield to_one_line(f"imported{by} from session {each.session_id}, {how}: sha256 {each.digest}")


def _grant_lines(state: "State", session_id: str) -> Iterator[str]:
    """Yield a line per permission that was granted for longer than one call, and not revoked."""
    from perdure.core.approval_binding import list_session_keys
    from perdure.core.permission import grants_from_log

    keys = list_session_keys(session_id, state)
    for grant, is_active in grants_from_log(state.remembered_decisions, session_id, keys, level=None).items():
        if is_active:
            yield to_one_line(f"grant {grant.grant_id} ({grant.scope}): {grant.rule}")


def _transcript_lines(state: "State") -> Iterator[str]:
    """Yield the conversation line by line, including calls that have no result yet."""
    for message in state.messages:
        yield from _message_lines(message)
    if state.unsettled_reply is not None:
        yield from _message_lines(state.unsettled_reply)
        for result in state.results.values():
            yield f"  {quote_unless_plain(result.name)} {result.status}: {_indent(result.text)}"


def _message_lines(message: "Message") -> Iterator[str]:
    from perdure.core.message import Text, Thinking, ToolCall, ToolResult, parts_to_text

    if message.role != "tool":
        yield to_one_line(f"{message.role}{_parenthesise(_describe_message(message))}:")
    for part in message.parts:
        match part:
            case Text(text=text):
                yield f"  {_indent(text)}"
            case Thinking(text=text):
                yield f"  [thinking] {_indent(text)}"
            case ToolCall(name=name, arguments=arguments):
                yield f"  call {quote_unless_plain(name)} {to_one_line(arguments)}"
            case ToolResult(name=name, status=status):
                yield f"  {quote_unless_plain(name)} {status}: {_indent(part.text)}"
            case _:
                yield f"  {parts_to_text((part,))}"


def _describe_message(message: "Message") -> str:
    """Return the origin, author, labels and sources of a message, as far as there are any."""
    labels = f"labels: {', '.join(message.labels)}" if message.labels else ""
    sources = f"from {', '.join(message.sources)}" if message.sources else ""
    return "; ".join(filter(None, (message.origin or message.model or message.author, labels, sources)))


def _question_lines(state: "State", answered: Collection[str], expired: Collection[str]) -> Iterator[str]:
    """Yield a line per open question, including those answered, or expired, but not yet resumed."""
    for question in state.open_questions:
        mark = "expired, not resumed yet" if question.ask_id in expired else "open"
        mark = "answered, not resumed yet" if question.ask_id in answered else mark
        yield f"question {to_one_line(question.ask_id)} ({mark}): {quote_text(question.text, MAX_QUESTION)}"


def _inbox_lines(items: "Sequence[InboxItem]") -> Iterator[str]:
    """Yield a line per inbox item that the model has not received yet."""
    for item in items:
        if item.status != "consumed":
            yield format_inbox_item(item)


def format_inbox_item(item: "InboxItem") -> str:
    """Return one line about an inbox item: what the session waits for from outside, or has received."""
    from perdure.core.jsonable import to_text

    response = "" if item.status == "pending" else f" -> {to_text(item.response)}"
    return to_one_line(f"inbox {item.item_id} ({item.status}) [{item.tag}] {item.request}{response}")


def _parenthesise(text: str) -> str:
    return f" ({quote_unless_plain(text)})" if text else ""


def _indent(text: str) -> str:
    return text.strip().replace("\n", "\n  ")
