"""Subcommands to interact with a session: `questions`, `answer`, `inbox`, `resolve`, `steer`, `cancel`.

What is sent is stored when the command ends. A run in another process receives it within a second; if the session has
no run, it waits for the next one, or until the last one is resumed.
"""

from typing import TYPE_CHECKING, Any

import click

from perdure._cli.home import run_with_session, store_option
from perdure._cli.terminal.frame import make_frame, quote_text, quote_unless_plain
from perdure._cli.terminal.output import TerminalOutput, to_ascii_json, to_one_line
from perdure._core.values.error import UsageError

from .choice import session_argument
from .show import format_inbox_item

if TYPE_CHECKING:
    from perdure._core.values.event_class import QuestionAsked
    from perdure._people.view import SlotView
    from perdure._runtime.session.session import Session

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as a line of JSON.")


@click.command()
@session_argument("SESSION", can_be_last=False)
@click.argument("words", metavar="[ASK_ID] yes|no|TEXT|JSON", nargs=-1)
@click.option("--reject", metavar="REASON", help="Decline to answer, with a reason.")
@json_option
@store_option
def answer(session_id: str, words: tuple[str, ...], *, reject: str | None, as_json: bool, store: str | None) -> None:
    """Answer an open question of SESSION. ASK_ID is needed only if several are open.

    Permission for tool calls: yes or no for all calls of the question; or JSON, with a verdict for all or for each by
    its id, such as '{"call-1": true, "call-2": {"allow": false, "reason": "too dear"}}'. A call that a crash cut off:
    retry, skip, or its result as text. A question of a tool: yes or no, one of the options, text, or JSON for a form.
    `perdure questions SESSION` shows the open questions, and all of each call.
    """
    given = words if reject is None else (*words, reject)
    if not given:
        raise click.UsageError(f"missing argument: give an answer; perdure questions {session_id} lists the questions")
    *before, said = given
    if len(before) > 1:
        raise click.UsageError("an answer is one argument; put it in quotes")

    async def give(session: "Session") -> dict[str, Any]:
        from .resume_check import format_resume_hint

        open_questions = await session.questions() or (await session.read_state()).open_questions  # perhaps answered
        question = _select_question(session_id, open_questions, before[0] if before else None)
        if not await _send_answer(session, question, said, rejected=reject is not None):
            raise UsageError(f"question {question.ask_id!r} was already answered, and the first answer counts")
        state = await session.read_state()
        is_of_task = question.ask_id not in state.questions_by_id  # a background agent asks
        hints.append(await format_resume_hint(session.store, session_id, state, store, is_of_task=is_of_task))
        return {"session_id": session_id, "ask_id": question.ask_id, "answer" if reject is None else "rejected": said}

    hints: list[str] = []
    done = run_with_session(store, session_id, give)
    _print_result(done, f"question {done['ask_id']} is answered; if no process runs it, {hints[0]}", as_json=as_json)


def _select_question(session_id: str, questions: "list[QuestionAsked]", ask_id: str | None) -> "QuestionAsked":
    """Return the question with this id, or the only open one. Raises `UsageError` otherwise."""
    found = [each for each in questions if ask_id in {None, each.ask_id}]
    if len(found) == 1:
        return found[0]
    if not questions:
        raise UsageError(f"session {session_id!r} has no open question")
    known = ", ".join([each.ask_id for each in questions])
    if ask_id is None:
        raise UsageError(f"session {session_id!r} has several open questions: name one of {known}")
    raise UsageError(f"session {session_id!r} has no open question {ask_id!r}: open are {known}")


async def _send_answer(session: "Session", question: "QuestionAsked", said: str, *, rejected: bool) -> bool:
    if rejected:
        return await session.display.reject(question.ask_id, said)
    return await session.answer(question.ask_id, _parse_answer(question, said))


def _parse_answer(question: "QuestionAsked", text: str) -> Any:
    """Parse the answer to a question. Raises `UsageError` if it does not fit."""
    from perdure._cli.terminal.questions import YES_NO, parse_typed_answer
    from perdure._core.schema.problems import Invalid

    if question.about != "permission":
        try:
            return parse_typed_answer(text, question.output)
        except Invalid as problem:
            raise UsageError(f"{text!r} does not answer {question.text!r}: {problem}") from None
    verdict = YES_NO.get(text.strip().lower())
    return _parse_verdicts(question, text) if verdict is None else verdict


def _parse_verdicts(question: "QuestionAsked", text: str) -> Any:
    """Parse an answer about permission that is JSON: true, false, a verdict, or one of these for each call by its id.

    Raises `UsageError` if it is none of them, or does not fit the question.
    """
    import msgspec

    from perdure._core.run.tool_calls.questions import validate_answer
    from perdure._core.values.error import ConfigError

    name = question.calls[0]["call_id"]
    examples = f"""'{{"allow": true, "scope": "session"}}' or '{{"{name}": true}}'"""
    try:
        given = msgspec.json.decode(text)
        validate_answer(question, given)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise UsageError(
            f"{text!r} is neither yes nor no: answer yes to allow the calls, no to deny them, or with JSON, a verdict "
            f"for all of them or for each by its id, such as {examples}"
        ) from None
    except ConfigError as problem:
        raise UsageError(f"{problem}; here, as JSON, such as {examples}") from None
    return given


@click.command()
@session_argument("SESSION")
@click.option("--json", "as_json", is_flag=True, help="Print each question as a line of JSON.")
@store_option
def questions(session_id: str, *, as_json: bool, store: str | None) -> None:
    """List the open questions of SESSION. They are questions of tools, and requests for permission."""
    import msgspec

    async def list_open(session: "Session") -> "list[SlotView]":
        return [each for each in await session.display.slots() if each.waits]

    screen = TerminalOutput()
    found = run_with_session(store, session_id, list_open)
    for each in found:
        screen.write((to_ascii_json(msgspec.json.encode(each)) if as_json else _describe_question(each)) + "\n")
    if not found and not as_json:
        screen.note(to_one_line(f"session {session_id} has no open question"))


def _describe_question(view: "SlotView") -> str:
    """Describe a question: its text, what is displayed with it, and the schema of its answer."""
    from perdure._cli.terminal.slots import render_slot
    from perdure._core.values.jsonable import to_text

    if view.renderer in {"permission", "settlement"}:
        return _describe_calls(view)
    head = f"{view.slot_id}  {view.renderer}: {quote_text(view.text)}"
    wanted = "" if view.output is None else f"\n| answer: {to_one_line(to_text(view.output), 1000)}"
    shown = "" if view.renderer in {"line", "confirm"} else f"\n{render_slot(view.renderer, view.input)}"
    return f"{head}{shown}{wanted}"


def _describe_calls(view: "SlotView") -> str:
    """Describe the calls that a question is about, in full, and the rules that a lasting approval would create."""
    import sys

    from perdure._cli.terminal.approval import add_call_rows

    calls = view.input["calls"]
    rows: list[str] = [f"{view.slot_id}  {view.renderer}, about {len(calls)} call{'s' if len(calls) > 1 else ''}:"]
    for number, call in enumerate(calls, 1):
        frame = make_frame(sys.stdout)
        add_call_rows(frame, call, view.path)
        for offer in call.get("offers", ()):
            frame.add_value(f"approval that covers {quote_unless_plain(offer['covers'])}", offer["rule"])
        rows += [
            f"call {number} of {len(calls)} ({len(frame.rows):,} rows), {quote_unless_plain(call['call_id'])}:",
            *frame.rows,
        ]
    if view.renderer == "settlement":
        rows.append("the runtime stopped while it ran; answer: retry, skip, or its result as text")
    return "\n".join(rows)


@click.command()
@session_argument("SESSION")
@click.option("--json", "as_json", is_flag=True, help="Print each item as a line of JSON.")
@store_option
def inbox(session_id: str, *, as_json: bool, store: str | None) -> None:
    """List the inbox of SESSION. Its items are results that the session waits for from outside, or has received."""
    import msgspec

    items = run_with_session(store, session_id, lambda session: session.inbox())
    screen = TerminalOutput()
    for item in items:
        screen.write((to_ascii_json(msgspec.json.encode(item)) if as_json else format_inbox_item(item)) + "\n")
    if not items and not as_json:
        screen.note(to_one_line(f"the inbox of session {session_id} is empty"))


@click.command()
@session_argument("SESSION", can_be_last=False)
@click.argument("item_id", metavar="ITEM")
@click.argument("text")
@click.option("--trusted", is_flag=True, help="TEXT is yours: it is not labelled as written by others.")
@json_option
@store_option
def resolve(session_id: str, item_id: str, text: str, *, trusted: bool, as_json: bool, store: str | None) -> None:
    """Resolve ITEM in the inbox of SESSION with TEXT as the answer."""

    async def give(session: "Session") -> None:
        if not await session.resolve(item_id, text, labels=() if trusted else None):
            raise UsageError(f"item {item_id!r} was already resolved, and the first answer counts")

    run_with_session(store, session_id, give)
    done = {"session_id": session_id, "item_id": item_id, "response": text}
    _print_result(done, f"item {item_id} is resolved; the model receives it in its next turn", as_json=as_json)


@click.command()
@session_argument("SESSION", can_be_last=False)
@click.argument("text")
@json_option
@store_option
def steer(session_id: str, text: str, *, as_json: bool, store: str | None) -> None:
    """Send a message to the model of SESSION. It arrives between two turns, or at the start of the next run."""
    run_with_session(store, session_id, lambda session: session.steer(text))
    done = {"session_id": session_id, "text": text}
    _print_result(done, f"session {session_id} receives it between two turns, or in its next run", as_json=as_json)


@click.command()
@session_argument("SESSION")
@click.option(
    "--mode",
    type=click.Choice(["now", "after_tools", "after_turn"]),
    default="now",
    help="At once, after the running calls, or after the turn.  [default: now]",
)
@json_option
@store_option
@click.pass_context
def cancel(context: click.Context, /, session_id: str, *, mode: Any, as_json: bool, store: str | None) -> None:
    """Cancel the run of SESSION, in whatever process it is. Finished work is kept. Exit code 1 if there is no run."""
    asked = run_with_session(store, session_id, lambda session: session.cancel(mode))
    text = "is being cancelled" if asked else "has no active run"
    _print_result(
        {"session_id": session_id, "mode": mode, "cancelled": asked}, f"session {session_id} {text}", as_json=as_json
    )
    context.exit(int(not asked))


def _print_result(done: dict[str, Any], text: str, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        TerminalOutput().write(to_ascii_json(msgspec.json.encode(done)) + "\n")
    else:
        TerminalOutput().note(to_one_line(text))
