"""Asks the person at the terminal what tools want to know. Above: `drive.py`. Below: `keyboard.py`, `meaning.py`.

Each kind of question is asked in its own way: yes or no, a number from a list, a form field by field. An answer that
does not fit is told why and asked for again; the end of the input (Ctrl-D) declines.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from perdure.core.event import Event, QuestionAnswered, QuestionAsked, QuestionWithdrawn, RunResumed, ToolStarted
from perdure.core.plain import to_text
from perdure.core.problem import Invalid, missing
from perdure.core.schema import check_value
from perdure.display import SessionDisplay
from perdure.interaction.view import SlotView, of_question

from .keyboard import Keyboard
from .meaning import meant
from .screen import Screen, one_line
from .slot_text import slot_text

DECLINED: Final = "the person at the terminal does not answer"
ABSENT: Final = "nobody is at a terminal to answer"

Ask: TypeAlias = Callable[[str], Awaitable[str]]
"""Shows a prompt, and returns the line that is typed. Raises `EOFError` at the end of the input."""


class Attended:
    """Somebody is at the terminal: each question of a tool is put to them, one after the other."""

    def __init__(self, display: SessionDisplay, keyboard: Keyboard, screen: Screen) -> None:
        self._display = display
        self._keyboard = keyboard
        self._screen = screen
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._waiting: list[asyncio.Task[None]] = []

    def __call__(self, event: Event) -> None:
        """Take note of what happens in the run."""
        match event:
            case QuestionAsked(about="slot" | "settlement"):
                self._begin(of_question(event))
            case QuestionAnswered(ask_id=ask_id) | QuestionWithdrawn(ask_id=ask_id) if ask_id in self._asking:
                self._asking.pop(ask_id).cancel()
                self._screen.note("\nthat question is settled, and not by you")
            case RunResumed():
                self._waiting.append(asyncio.ensure_future(self._ask_again()))
            case _:
                pass

    def leave(self) -> None:
        """Ask nothing any more."""
        for task in (*self._asking.values(), *self._waiting):
            task.cancel()

    async def _ask_again(self) -> None:
        """Put the questions that an earlier run has left open."""
        for view in await self._display.slots():
            if view.waits and view.renderer != "permission":
                self._begin(view)

    def _begin(self, view: SlotView) -> None:
        if view.slot_id not in self._asking:
            self._asking[view.slot_id] = asyncio.ensure_future(self._ask(view))

    async def _ask(self, view: SlotView) -> None:
        async with self._keyboard.alone:
            self._keyboard.forget_typed()
            try:
                value = await answer_at_terminal(view, self._line)
                settle = self._display.resolve(view.slot_id, value)
            except EOFError:
                settle = self._display.reject(view.slot_id, DECLINED)
        self._waiting.append(self._asking.pop(view.slot_id))  # from here on it is settled by us
        await settle

    async def _line(self, prompt: str) -> str:
        self._screen.ask(prompt)
        line = await self._keyboard.line()
        if line is None:
            raise EOFError
        return line


class Unattended:
    """Nobody is at a terminal. A run that can wait ends as waiting; of one that cannot, the question is declined."""

    def __init__(self, display: SessionDisplay, tell: Callable[[QuestionAsked], None] | None) -> None:
        """`tell` is given a question that is left open, for somebody elsewhere; without it, none is."""
        self._display = display
        self._tell = tell
        self._begun: set[str] = set()
        self._declining: list[asyncio.Future[bool]] = []

    def __call__(self, event: Event) -> None:
        """Take note of what happens in the run."""
        match event:
            case ToolStarted(call_id=call_id):
                self._begun.add(call_id)
            case QuestionAsked(about="slot") if event.calls[0]["call_id"] in self._begun:
                if self._tell is not None:
                    self._tell(event)
                else:
                    self._declining.append(asyncio.ensure_future(self._display.reject(event.ask_id, ABSENT)))
            case _:
                pass

    def leave(self) -> None:
        """Decline nothing any more."""
        for each in self._declining:
            each.cancel()


# -- one question ------------------------------------------------------------------------------------------------------


async def answer_at_terminal(view: SlotView, ask: Ask) -> Any:
    """What the person answers, as a value that fits. Raises `EOFError` when they decline."""
    given: object = view.input
    data = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
    question = one_line(view.text)
    match view.renderer:
        case "confirm":
            yes, no = one_line(str(data.get("yes", "Yes"))), one_line(str(data.get("no", "No")))
            return await _valid(ask, f"{question} [y: {yes}, n: {no}] ", lambda text: meant(text, view.output))
        case "choice" | "choices":
            options = cast("Sequence[Mapping[str, str]]", data.get("options", ()))
            several = view.renderer == "choices"
            head = "\n".join([question, *_numbered(options)])
            hint = "numbers, parted by commas: " if several else "number, or in words: "
            return await _valid(
                ask, f"{head}\n{hint}", lambda text: _chosen(text, options, view.output, several=several)
            )
        case "form":
            return await _form(question, data, view.output or {}, ask)
        case "line" | "settlement":
            return await _valid(ask, f"{question} ", lambda text: meant(text, view.output))
        case _:  # a kind that this screen does not know
            head = f"{question}\n{slot_text(view.renderer, view.input)}\n"
            return await _valid(ask, f"{head}answer: ", lambda text: meant(text, view.output))


async def _valid(ask: Ask, prompt: str, read: Callable[[str], Any]) -> Any:
    """Ask until there is an answer that fits."""
    line = await ask(prompt)
    while True:
        try:
            return read(line)
        except Invalid as problem:
            line = await ask(f"{one_line(str(problem))}; once more: ")


def _numbered(options: Sequence[Mapping[str, str]]) -> list[str]:
    lines: list[str] = []
    for number, option in enumerate(options, 1):
        description = option.get("description", "")
        lines.append(f"  {number}. {one_line(option['label'])}{f': {one_line(description)}' if description else ''}")
    return lines


def _chosen(text: str, options: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None, *, several: bool) -> Any:
    """The values that are meant by numbers, labels or the values themselves."""
    words = [each.strip() for each in text.split(",")] if several else [text.strip()]
    names = {str(number): option["value"] for number, option in enumerate(options, 1)}
    names |= {option["label"]: option["value"] for option in options} | {
        each["value"]: each["value"] for each in options
    }
    values = [names.get(word, word) for word in words if word]
    value: Any = values if several else (values or [""])[0]
    check_value(value, dict(schema or {}))
    return value


# -- forms -------------------------------------------------------------------------------------------------------------


async def _form(question: str, data: Mapping[str, Any], schema: Mapping[str, Any], ask: Ask) -> Any:
    """Ask for field after field; and for all of them again when they do not go together."""
    initial = cast("Mapping[str, Any]", data.get("initial") or {})
    head = f"{question}\n"
    while True:
        value: dict[str, Any] = {}
        for name, field in cast("Mapping[str, Any]", schema.get("properties", {})).items():
            required = name in schema.get("required", ())
            whole = {**field, **{key: schema[key] for key in ("$defs", "definitions") if key in schema}}
            label = head + _label(name, field, initial, required=required)
            typed = await _field(ask, label, whole, optional=name in initial or not required)
            head = ""
            if typed is not _NOTHING:
                value[name] = typed
            elif name in initial:
                value[name] = initial[name]
        try:
            check_value(value, dict(schema))
        except Invalid as problem:
            head = f"{one_line(str(problem))}; once more:\n"
        else:
            return value


_NOTHING: Final = object()


async def _field(ask: Ask, prompt: str, schema: Mapping[str, Any], *, optional: bool) -> Any:
    """What is typed for a field; nothing when it is left empty, and may be."""

    def read(text: str) -> Any:
        if text.strip():
            return meant(text, schema)
        if optional:
            return _NOTHING
        raise Invalid([missing("")])

    return await _valid(ask, prompt, read)


def _label(name: str, field: Mapping[str, Any], initial: Mapping[str, Any], *, required: bool) -> str:
    """The name of a field, what it is, and what it is if nothing is typed."""
    kinds = field.get("enum") or [field.get("type", "")]
    about = [one_line(str(field.get("description", ""))), " | ".join([one_line(str(each)) for each in kinds if each])]
    told = ", ".join([each for each in (*about, "" if required else "may be left empty") if each])
    default = f" [{one_line(to_text(initial[name]))}]" if name in initial else ""
    return f"  {one_line(name)}{f' ({told})' if told else ''}{default}: "
