"""`perdure sessions show`: print the conversation of a session, its open questions and its inbox."""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from perdure._cli.home import MAX_QUESTION, format_answer_commands, run_with_session, store_option
from perdure._cli.terminal.frame import quote_text, quote_unless_plain
from perdure._cli.terminal.output import TerminalOutput, to_ascii_json, to_one_line

from .choice import session_argument

if TYPE_CHECKING:
    from perdure._core.log.fold import State
    from perdure._core.log.store import Post
    from perdure._core.people.inbox import InboxItem
    from perdure._core.permission.grants import Grant
    from perdure._core.values.event import Entry
    from perdure._core.values.event_class import QuestionAsked
    from perdure._core.values.message import Message
    from perdure._runtime.session.session import Session


@click.command()
@session_argument()
@click.option("--json", "as_json", is_flag=True, help="Print each entry of the log as a line of JSON.")
@store_option
def show(session_id: str, *, as_json: bool, store: str | None) -> None:
    """Print the conversation of session ID with how its runs ended, its grants, its open questions and its inbox."""
    from perdure._core.log.codec import encode_entry

    found = run_with_session(store, session_id, lambda session: _read_session(session, store))
    screen = TerminalOutput()
    if as_json:
        for entry in found.entries:
            screen.write(to_ascii_json(_add_sources(entry, encode_entry(entry))) + "\n")
    else:
        _print_session(screen, session_id, found, store)


class _ShownSession(NamedTuple):
    """A session as it was read from its store."""

    entries: "Sequence[Entry]"
    posts: "Sequence[Post]"
    state: "State"
    questions_of_tasks: "Sequence[QuestionAsked]"
    """Open questions of the agents that work for it in the background."""
    resume_hint: str
    """How to continue its last run."""
    grants: "Sequence[Grant]"
    """Permissions that were granted for longer than one call, and not revoked."""


async def _read_session(session: "Session", store: str | None) -> _ShownSession:
    from perdure._core.log.fold import fold_entries

    from .resume_check import format_resume_hint

    entries, posts = await session.store.read(session.session_id), await session.store.posts(session.session_id)
    state = fold_entries(entries)
    below = [each for each in await session.questions() if each.ask_id not in state.questions_by_id]
    hint = await format_resume_hint(session.store, session.session_id, state, store)
    return _ShownSession(entries, posts, state, below, hint, _list_grants(session, state))


def _print_session(screen: TerminalOutput, session_id: str, found: _ShownSession, store: str | None) -> None:
    from perdure._core.people.inbox import list_inbox_items
    from perdure._core.values.clock import SYSTEM_CLOCK
    from perdure._runtime.resume.reasons import list_expired_questions

    state = found.state
    answered = {post.body["ask_id"] for post in found.posts if post.kind == "answer"}
    expired = list_expired_questions(state, SYSTEM_CLOCK.now())
    for line in (
        *_import_lines(state),
        *_transcript_lines(state, found.entries),
        *[to_one_line(f"grant {each.grant_id} ({each.scope}): {each.rule}") for each in found.grants],
        *_question_lines(state, answered, expired),
        *[_format_question(each, f"open, of {quote_unless_plain(each.path)}") for each in found.questions_of_tasks],
        *_inbox_lines(list_inbox_items(found.entries, found.posts)),
    ):
        screen.write(line + "\n")
    for question in (*state.open_questions, *found.questions_of_tasks):
        if question.ask_id not in (*answered, *expired):
            screen.note(to_one_line(format_answer_commands(session_id, question, store)))
    if state.is_interrupted and not (state.is_waiting and state.open_questions):
        screen.note(to_one_line(f"the last run was cut off; {found.resume_hint}"))
    elif state.is_parked:
        screen.note(to_one_line(f"the last run was parked; {found.resume_hint}"))
    elif answered or expired:
        screen.note(to_one_line(f"the last run can continue; {found.resume_hint}"))


def _add_sources(entry: "Entry", encoded: bytes) -> bytes:
    """Add the sources of an entry (who wrote it) to its encoded JSON."""
    import msgspec

    from perdure._core.values.provenance import list_event_sources

    return msgspec.json.encode({**msgspec.json.decode(encoded), "sources": list_event_sources(entry.event)})


def _import_lines(state: "State") -> Iterator[str]:
    """Yield a line about each import that the session began with."""
    for each in state.imports:
        by = f" by {each.by}" if each.by else ""
        how = "whole" if each.trusted else "without grants, settings, questions and jobs"
        yield to_one_line(f"imported{by} from session {each.session_id}, {how}: sha256 {each.digest}")


def _list_grants(session: "Session", state: "State") -> "list[Grant]":
    """Return the permissions in a session's log that count, and were not revoked."""
    if not state.remembered_decisions:
        return []
    from perdure._core.permission.grants import grants_from_log
    from perdure._runtime.session.seals import list_trusted_session_keys, select_sealed_decisions

    keys = list_trusted_session_keys(session.session_id, state, session.store)
    remembered = select_sealed_decisions(state.remembered_decisions, session.store)
    found = grants_from_log(remembered, session.session_id, keys, level=None)
    return [grant for grant, is_active in found.items() if is_active]


def _transcript_lines(state: "State", entries: "Sequence[Entry]") -> Iterator[str]:
    """Yield the conversation line by line, including ends of runs, and calls that have no result yet."""
    ends = _list_ends(entries)
    for index, message in enumerate(state.messages):
        yield from ends.get(index, ())
        yield from _message_lines(message)
    yield from ends.get(len(state.messages), ())
    if state.unsettled_reply is not None:
        yield from _message_lines(state.unsettled_reply)
        for result in state.results.values():
            yield f"  {quote_unless_plain(result.name)} {result.status}: {_indent(result.text)}"


def _list_ends(entries: "Sequence[Entry]") -> dict[int, list[str]]:
    """Return a line for each run that did not simply end as done, by the number of messages before its end."""
    from perdure._core.log.fold import State
    from perdure._core.log.status import mark_lost_entries
    from perdure._core.values.event import RunEnded

    state, ends = State(), dict[int, list[str]]()
    for event in mark_lost_entries(list(entries)):
        state.apply(event)
        if isinstance(event, RunEnded) and not event.path and (event.status != "done" or event.reason):
            reason = _parenthesise(event.reason if event.reason != event.status else "")
            error = f": {event.error}" if event.error else ""
            line = to_one_line(f"run ended: {event.status}{reason}{error}")
            ends.setdefault(len(state.messages), []).append(line)
    return ends


def _message_lines(message: "Message") -> Iterator[str]:
    from perdure._core.values.message import Text, Thinking, ToolCall, ToolResult, parts_to_text

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
        yield _format_question(question, mark)


def _format_question(question: "QuestionAsked", mark: str) -> str:
    return f"question {to_one_line(question.ask_id)} ({mark}): {quote_text(question.text, MAX_QUESTION)}"


def _inbox_lines(items: "Sequence[InboxItem]") -> Iterator[str]:
    """Yield a line per inbox item that the model has not received yet."""
    for item in items:
        if item.status != "consumed":
            yield format_inbox_item(item)


def format_inbox_item(item: "InboxItem") -> str:
    """Return one line about an inbox item: a result that the session waits for from outside, or has received."""
    from perdure._core.values.jsonable import to_text

    response = "" if item.status == "pending" else f" -> {to_text(item.response)}"
    return to_one_line(f"inbox {item.item_id} ({item.status}) [{item.tag}] {item.request}{response}")


def _parenthesise(text: str) -> str:
    return f" ({quote_unless_plain(text)})" if text else ""


def _indent(text: str) -> str:
    return text.strip().replace("\n", "\n  ")
