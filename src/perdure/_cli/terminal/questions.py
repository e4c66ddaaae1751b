"""Ask the user at the terminal the questions that tools ask, and parse what is typed."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast

import msgspec

from perdure._core.schema.parameters import check_value
from perdure._core.schema.problems import Invalid, missing_key_problem
from perdure._core.values.event import RunResumed, ToolStarted
from perdure._core.values.event_class import Event, QuestionAnswered, QuestionAsked, QuestionWithdrawn
from perdure._core.values.jsonable import to_text
from perdure._people.view import SlotView, slot_view_of_question
from perdure._runtime.session.slots import SessionDisplay

from .approval import add_call_rows
from .frame import make_frame, measure_text, quote_text, quote_unless_plain, wrap_text
from .input import LineReader
from .output import TerminalOutput, line_width, to_one_line
from .slots import render_slot

YES_NO: Final[Mapping[str, bool]] = {"yes": True, "y": True, "no": False, "n": False}


def parse_typed_answer(text: str, schema: Mapping[str, Any] | None) -> Any:
    """Convert typed text to a JSON value that fits `schema`. Raises `Invalid` with every problem if none fits."""
    if schema is None:
        return text
    *earlier, last = _list_readings(text)
    for value in earlier:
        with suppress(Invalid):
            check_value(value, dict(schema))
            return value
    check_value(last, dict(schema))
    return last


def _list_readings(text: str) -> Iterator[Any]:
    """Yield the JSON values that typed text could mean, the simplest first."""
    yield text
    word = text.strip()
    if word != text:
        yield word
    if "," in word and not word.startswith(("[", "{", '"')):
        yield [each.strip() for each in word.split(",") if each.strip()]
    if word.lower() in YES_NO:
        yield YES_NO[word.lower()]
    try:
        yield msgspec.json.decode(word)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        yield [word] if word else []
        yield text


DECLINED: Final = "the user declined to answer"
ABSENT: Final = "there is no terminal at which to answer"

MAX_PLAIN: Final = 60
"""Characters of a text of a tool that is shown without quotes and marks."""

QUESTION_MARK: Final = "? "
"""Begins the row with the question of a tool: the text is that of a tool or of a model."""
_CONTINUED: Final = "    "

Ask: TypeAlias = Callable[[str], Awaitable[str]]
"""Function that shows a prompt and returns the typed line. Raises `EOFError` at the end of the input."""


class TerminalQuestions:
    """Asks the user at the terminal the questions of tools, one after the other, and sends the answers."""

    def __init__(self, display: SessionDisplay, keyboard: LineReader, screen: TerminalOutput) -> None:
        self._display = display
        self._keyboard = keyboard
        self._screen = screen
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._waiting: list[asyncio.Task[None]] = []

    def __call__(self, event: Event) -> None:
        """Handle an event of the run: ask a new question, or drop one that was answered elsewhere."""
        match event:
            case QuestionAsked(about="slot" | "settlement"):
                self._start_asking(slot_view_of_question(event))
            case QuestionAnswered(ask_id=ask_id) | QuestionWithdrawn(ask_id=ask_id) if ask_id in self._asking:
                self._asking.pop(ask_id).cancel()
                self._screen.write_question("\n")
                self._screen.note("that question was answered elsewhere")
            case RunResumed():
                self._waiting.append(asyncio.ensure_future(self._ask_open_questions()))
            case _:
                pass

    def cancel_all(self) -> None:
        """Stop asking: cancel the question at the terminal and those that wait."""
        for task in (*self._asking.values(), *self._waiting):
            task.cancel()

    async def _ask_open_questions(self) -> None:
        """Ask the questions that an earlier run left open."""
        for view in await self._display.slots():
            if view.waits and view.renderer != "permission":
                self._start_asking(view)

    def _start_asking(self, view: SlotView) -> None:
        if view.slot_id not in self._asking:
            self._asking[view.slot_id] = asyncio.ensure_future(self._ask(view))

    async def _ask(self, view: SlotView) -> None:
        async with self._keyboard.lock:
            self._keyboard.discard_typed()
            try:
                value = await ask_question(view, self._read_line)
                settle = self._display.resolve(view.slot_id, value)
            except EOFError:
                settle = self._display.reject(view.slot_id, DECLINED)
        self._waiting.append(self._asking.pop(view.slot_id))  # from here on our answer settles it
        await settle

    async def _read_line(self, prompt: str) -> str:
        self._screen.write_question(prompt)
        line = await self._keyboard.read_line()
        if line is None:
            raise EOFError
        return line


class UnattendedQuestions:
    """Handles the questions of tools without a terminal: leaves them open for `perdure answer`, or declines them."""

    def __init__(self, display: SessionDisplay, on_open_question: Callable[[QuestionAsked], None] | None) -> None:
        """Create the handler; `on_open_question` receives each question left open; without it, they are declined."""
        self._display = display
        self._tell = on_open_question
        self._begun: set[str] = set()
        self._declining: list[asyncio.Future[bool]] = []

    def __call__(self, event: Event) -> None:
        """Handle an event of the run: decline a question that cannot wait, or leave it open."""
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

    def cancel_all(self) -> None:
        """Cancel pending declines."""
        for each in self._declining:
            each.cancel()


# -- one question ------------------------------------------------------------------------------------------------------


async def ask_question(view: SlotView, ask_line: Ask) -> Any:
    """Ask the user a tool's question until the answer is valid, and return it. Raises `EOFError` if declined."""

    async def ask(prompt: str) -> str:
        return await ask_line(_fit_rows(prompt))

    given: object = view.input
    data = cast("Mapping[str, Any]", given if isinstance(given, Mapping) else {})
    question = _show_question(view)
    match view.renderer:
        case "confirm":
            yes, no = _show_name(str(data.get("yes", "Yes"))), _show_name(str(data.get("no", "No")))
            return await _ask_until_valid(
                ask, f"{question} [y: {yes}, n: {no}] ", lambda text: parse_typed_answer(text, view.output)
            )
        case "choice" | "choices":
            options = cast("Sequence[Mapping[str, str]]", data.get("options", ()))
            several = view.renderer == "choices"
            head = "\n".join([question.rstrip(), *_format_options(options)])
            hint = "numbers, separated by commas: " if several else "number or text: "
            return await _ask_until_valid(
                ask, f"{head}\n{hint}", lambda text: _parse_choice(text, options, view.output, several=several)
            )
        case "form":
            return await _ask_form(question, data, view.output or {}, ask)
        case "line" | "settlement":
            return await _ask_until_valid(ask, f"{question} ", lambda text: parse_typed_answer(text, view.output))
        case _:  # a kind that this screen does not know
            head = f"{question.rstrip()}\n{render_slot(view.renderer, view.input)}\n"
            return await _ask_until_valid(ask, f"{head}answer: ", lambda text: parse_typed_answer(text, view.output))


def _show_question(view: SlotView) -> str:
    """Return the text of a question. A long one is framed, and so is a tool call that was cut off."""
    frame = make_frame(sys.stderr)
    if view.renderer == "settlement":
        for call in cast("Sequence[Mapping[str, Any]]", view.input["calls"]):
            add_call_rows(frame, call, view.path)
    elif _is_harmless(view.text):
        return f"{QUESTION_MARK}{view.text}"
    frame.add_value(f"{quote_unless_plain(view.tool)} asks" if view.tool else "question", view.text)
    return "\n".join([*frame.rows, ""])


def _fit_rows(prompt: str) -> str:
    """Wrap the rows of a prompt, so that the terminal does not: each but the first row of a line is indented.

    So nothing that a tool wrote can begin a row, where it could look like a question about permission.
    """
    width = line_width(sys.stderr)
    rows: list[str] = []
    for line in prompt.split("\n"):
        if width is None or measure_text(line) <= width:
            rows.append(line)
            continue
        first, *more = wrap_text(line, width, len(_CONTINUED))
        rows += [first, *[f"{_CONTINUED}{row}" for row in more]]
    return "\n".join(rows)


def _show_name(text: str, most: int = 200) -> str:
    """Return a name or description unchanged if it is short and plain, else in quotes."""
    return text if _is_harmless(text) else quote_text(text, most)


def _is_harmless(text: str) -> bool:
    """Return True if a text fits on a row and has no misleading characters."""
    return len(text) <= MAX_PLAIN and text.isprintable() and "   " not in text and quote_text(text)[1:-1] == text


async def _ask_until_valid(ask: Ask, prompt: str, read: Callable[[str], Any]) -> Any:
    """Ask until `read` accepts the line, and return the parsed value."""
    line = await ask(prompt)
    while True:
        try:
            return read(line)
        except Invalid as problem:
            line = await ask(f"{to_one_line(str(problem))}; try again: ")


def _format_options(options: Sequence[Mapping[str, str]]) -> list[str]:
    lines: list[str] = []
    for number, option in enumerate(options, 1):
        description = option.get("description", "")
        lines.append(
            f"  {number}. {_show_name(option['label'])}{f': {_show_name(description)}' if description else ''}"
        )
    return lines


def _parse_choice(
    text: str, options: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None, *, several: bool
) -> Any:
    """Parse a choice: numbers, labels or values."""
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


async def _ask_form(question: str, data: Mapping[str, Any], schema: Mapping[str, Any], ask: Ask) -> Any:
    """Ask for each field of a form, and again for all of them if together they are invalid."""
    initial = cast("Mapping[str, Any]", data.get("initial") or {})
    head = f"{question.rstrip()}\n"
    while True:
        value: dict[str, Any] = {}
        for name, field in cast("Mapping[str, Any]", schema.get("properties", {})).items():
            required = name in schema.get("required", ())
            whole = {**field, **{key: schema[key] for key in ("$defs", "definitions") if key in schema}}
            label = head + _format_field(name, field, initial, required=required)
            typed = await _ask_field(ask, label, whole, optional=name in initial or not required)
            head = ""
            if typed is not _NOTHING:
                value[name] = typed
            elif name in initial:
                value[name] = initial[name]
        try:
            check_value(value, dict(schema))
        except Invalid as problem:
            head = f"{to_one_line(str(problem))}; try again:\n"
        else:
            return value


_NOTHING: Final = object()


async def _ask_field(ask: Ask, prompt: str, schema: Mapping[str, Any], *, optional: bool) -> Any:
    """Ask for one field; return `_NOTHING` when it is optional and left empty."""

    def read(text: str) -> Any:
        if text.strip():
            return parse_typed_answer(text, schema)
        if optional:
            return _NOTHING
        raise Invalid([missing_key_problem("")])

    return await _ask_until_valid(ask, prompt, read)


def _format_field(name: str, field: Mapping[str, Any], initial: Mapping[str, Any], *, required: bool) -> str:
    """Return the prompt for a form field: name, description, type and default."""
    kinds = field.get("enum") or [field.get("type", "")]
    about = [
        _show_name(str(field.get("description", ""))),
        " | ".join([_show_name(str(each)) for each in kinds if each]),
    ]
    told = ", ".join([each for each in (*about, "" if required else "optional") if each])
    default = f" [{_show_name(to_text(initial[name]))}]" if name in initial else ""
    return f"  {_show_name(name)}{f' ({told})' if told else ''}{default}: "
