"""`perdure questions`, `answer`, `inbox`, `resolve`, `steer`, `cancel`: what reaches a session wherever it is driven.

Above: `main.py`. Below: sessions. What is posted is kept when the command ends. A run in another process finds it
within a second; where nobody drives the session, it waits for the next run, or for `perdure resume`.
"""

import shlex
from typing import TYPE_CHECKING, Any

import click

from perdure.core.error import UsageError

from .home import store_option, use_session
from .screen import Screen, json_line, one_line
from .sessions_show import inbox_row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.core.event import QuestionAsked
    from perdure.interaction.view import SlotView
    from perdure.session import Session

json_option = click.option("--json", "as_json", is_flag=True, help="Write what was done as a line of JSON.")


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("words", metavar="[ASK_ID] yes|no|TEXT|JSON", nargs=-1)
@click.option("--reject", metavar="REASON", help="Do not answer it, and say why.")
@json_option
@store_option
def answer(session_id: str, words: tuple[str, ...], *, reject: str | None, as_json: bool, store: str | None) -> None:
    """Answer a question of SESSION; which one need only be said when several are open.

    Whether calls may be made is answered with yes or no, for all the calls that it is about. What became of a call that
    a crash cut off is answered with retry, skip, or in words. What a tool asks is answered with what it wants: yes or
    no, one of the options, a text, or JSON for the fields of a form. `perdure questions SESSION` shows what is asked.
    """
    given = words if reject is None else (*words, reject)
    if not given:
        raise click.UsageError(f"missing argument: say what the answer is; perdure questions {session_id} shows them")
    *before, said = given
    if len(before) > 1:
        raise click.UsageError("an answer is one argument; put it in quotes")

    async def give(session: "Session") -> dict[str, Any]:
        question = _chosen(session_id, await session.questions(), before[0] if before else None)
        if not await _settle(session, question, said, rejected=reject is not None):
            raise UsageError(f"question {question.ask_id!r} has been answered before, and the first answer counts")
        return {"session_id": session_id, "ask_id": question.ask_id, "answer" if reject is None else "rejected": said}

    done = use_session(store, session_id, give)
    resume = f"perdure resume {shlex.quote(session_id)}"
    _tell(done, f"question {done['ask_id']} is answered; if nobody drives the session: {resume}", as_json=as_json)


def _chosen(session_id: str, questions: "list[QuestionAsked]", ask_id: str | None) -> "QuestionAsked":
    """The question that is meant."""
    found = [each for each in questions if ask_id in {None, each.ask_id}]
    if len(found) == 1:
        return found[0]
    if not questions:
        raise UsageError(f"session {session_id!r} has no open question: nothing has to be answered")
    known = ", ".join([each.ask_id for each in questions])
    if ask_id is None:
        raise UsageError(f"session {session_id!r} has several open questions: name one of {known}")
    raise UsageError(f"session {session_id!r} has no open question {ask_id!r}: open are {known}")


async def _settle(session: "Session", question: "QuestionAsked", said: str, *, rejected: bool) -> bool:
    if rejected:
        return await session.display.reject(question.ask_id, said)
    return await session.answer(question.ask_id, _meant(question, said))


def _meant(question: "QuestionAsked", text: str) -> Any:
    """What the words mean as an answer to this question."""
    from perdure.core.schema import Invalid

    from .meaning import YES_NO, meant

    if question.about != "permission":
        try:
            return meant(text, question.output)
        except Invalid as problem:
            raise UsageError(f"{text!r} does not answer {question.text!r}: {problem}") from None
    verdict = YES_NO.get(text.strip().lower())
    if verdict is None:
        raise UsageError(f"{text!r} does not say whether the calls may be made: answer yes or no")
    return verdict


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="Write each question as a line of JSON.")
@store_option
def questions(session_id: str, *, as_json: bool, store: str | None) -> None:
    """Show what SESSION waits for people to answer: what tools ask, and which calls they may make."""
    import msgspec

    async def waiting(session: "Session") -> "list[SlotView]":
        return [each for each in await session.display.slots() if each.waits]

    screen = Screen()
    found = use_session(store, session_id, waiting)
    for each in found:
        screen.say((json_line(msgspec.json.encode(each)) if as_json else _described(each)) + "\n")
    if not found and not as_json:
        screen.note(one_line(f"nobody has to answer anything in session {session_id}"))


def _described(view: "SlotView") -> str:
    """A question, what a screen would show with it, and what may be answered."""
    from perdure.core.plain import to_text

    from .slot_text import slot_text

    head = f"{view.slot_id}  {view.renderer}: {one_line(view.text)}"
    if view.renderer == "permission":
        calls = [f"{_rule(scope, call)}" for call in view.input["calls"] for scope in ("session", "forever")]
        return "\n".join([head, *calls])
    wanted = "" if view.output is None else f"\n| answer: {one_line(to_text(view.output), 1000)}"
    shown = "" if view.renderer in {"line", "confirm", "settlement"} else f"\n{slot_text(view.renderer, view.input)}"
    return f"{head}{shown}{wanted}"


def _rule(scope: str, call: "Mapping[str, Any]") -> str:
    return one_line(f"| a yes for {scope} would mean: {call['rules'][scope]}", 1000)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--json", "as_json", is_flag=True, help="Write each item as a line of JSON.")
@store_option
def inbox(session_id: str, *, as_json: bool, store: str | None) -> None:
    """Show what SESSION waits for, or has waited for, from outside."""
    import msgspec

    items = use_session(store, session_id, lambda session: session.inbox())
    screen = Screen()
    for item in items:
        screen.say((json_line(msgspec.json.encode(item)) if as_json else inbox_row(item)) + "\n")
    if not items and not as_json:
        screen.note(one_line(f"nothing is in the inbox of session {session_id}"))


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("item_id", metavar="ITEM")
@click.argument("text")
@json_option
@store_option
def resolve(session_id: str, item_id: str, text: str, *, as_json: bool, store: str | None) -> None:
    """Give SESSION what it waits for: TEXT is the answer to ITEM of its inbox."""

    async def give(session: "Session") -> None:
        if not await session.resolve(item_id, text):
            raise UsageError(f"item {item_id!r} has been resolved before, and the first answer counts")

    use_session(store, session_id, give)
    done = {"session_id": session_id, "item_id": item_id, "response": text}
    _tell(done, f"item {item_id} is resolved; the model is told in its next turn", as_json=as_json)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.argument("text")
@json_option
@store_option
def steer(session_id: str, text: str, *, as_json: bool, store: str | None) -> None:
    """Tell the model of SESSION something between two turns; without a run, at the beginning of the next one."""
    use_session(store, session_id, lambda session: session.steer(text))
    done = {"session_id": session_id, "text": text}
    _tell(done, f"session {session_id} is told between two turns, or in its next run", as_json=as_json)


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option(
    "--mode",
    type=click.Choice(["now", "after_tools", "after_turn"]),
    default="now",
    help="At once, or when the calls that run have ended, or when the turn has.  [default: now]",
)
@json_option
@store_option
@click.pass_context
def cancel(context: click.Context, /, session_id: str, *, mode: Any, as_json: bool, store: str | None) -> None:
    """Stop the run of SESSION, in whatever process it is. What was finished is kept. The exit code is 1 without one."""
    asked = use_session(store, session_id, lambda session: session.cancel(mode))
    text = "is asked to stop" if asked else "has no run that could be stopped"
    _tell({"session_id": session_id, "mode": mode, "cancelled": asked}, f"session {session_id} {text}", as_json=as_json)
    context.exit(int(not asked))


def _tell(done: dict[str, Any], text: str, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        Screen().say(json_line(msgspec.json.encode(done)) + "\n")
    else:
        Screen().note(one_line(text))
