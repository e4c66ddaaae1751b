"""Kinds of display slots: content that a tool shows, questions that it asks, and the types of their answers."""

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, overload

from msgspec import Struct

from perdure._core.schema.parameters import check_value, convert_value, json_schema_for_type
from perdure._core.schema.problems import Invalid
from perdure._core.tools.slots import Askable, Showable
from perdure._core.values import checks
from perdure._core.values.error import ToolError
from perdure._core.values.jsonable import to_jsonable

LARGEST_PICTURE: Final = 8 * 2**20
"""The largest picture, in bytes, that is stored in the log; give a larger one by its URL."""


class PlainText(Showable, frozen=True):
    """Plain text that a tool shows to people."""

    renderer = "text"

    text: str

    def __post_init__(self) -> None:
        checks.require_text("PlainText", "text", self.text)


class Markdown(Showable, frozen=True):
    """Markdown text that a tool shows to people."""

    renderer = "markdown"

    text: str

    def __post_init__(self) -> None:
        checks.require_text("Markdown", "text", self.text)


class Table(Showable, frozen=True):
    """A table with named columns that a tool shows to people."""

    renderer = "table"

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]] = ()
    """As many JSON values in each as there are columns."""

    def __post_init__(self) -> None:
        if not _is_list(self.columns) or not self.columns or not all(isinstance(each, str) for each in self.columns):
            checks.raise_config_error("Table", "columns", self.columns, "give a list of names")
        if not _is_list(self.rows):
            checks.raise_config_error("Table", "rows", self.rows, "give a list of rows")
        for number, row in enumerate(self.rows):
            if not _is_list(row) or len(row) != len(self.columns):
                checks.raise_config_error("Table", f"rows[{number}]", row, f"give a list of {len(self.columns)} values")


class Picture(Showable, frozen=True):
    """An image that a tool shows to people: its bytes, or the URL where it can be fetched."""

    renderer = "image"

    data: bytes = b""
    url: str = ""
    alt: str = ""
    """A description of the image, for people who cannot see it."""
    media_type: str = "image/png"

    def __post_init__(self) -> None:
        if not isinstance(self.data, bytes):
            checks.raise_config_error("Picture", "data", self.data, "give bytes")
        for name in ("url", "alt", "media_type"):
            checks.require_text("Picture", name, getattr(self, name), non_empty=name == "media_type")
        if bool(self.data) == bool(self.url):
            checks.raise_config_error("Picture", "url", self.url, "give either its data or its url")
        if len(self.data) > LARGEST_PICTURE:
            checks.raise_config_error(
                "Picture", "data", self.data[:8], f"more than {LARGEST_PICTURE:,} bytes: give its url instead"
            )

    @property
    def input(self) -> Any:
        """The fields as data for the screen, with the bytes of the image as Base64."""
        fields = {"url": self.url, "alt": self.alt, "media_type": self.media_type}
        return {"data": base64.b64encode(self.data).decode(), **cast("dict[str, Any]", to_jsonable(fields))}


class Progress(Showable, frozen=True):
    """A progress bar that a tool shows to people; `display.update` moves it."""

    renderer = "progress"

    label: str
    done: float = 0
    total: float | None = None
    """The value of `done` at the end; `None` when it is unknown."""

    def __post_init__(self) -> None:
        checks.require_text("Progress", "label", self.label)
        checks.require_number("Progress", "done", self.done)
        if self.total is not None:
            checks.require_number("Progress", "total", self.total)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


S = TypeVar("S")
T = TypeVar("T")


class Confirm(Askable[bool], frozen=True):
    """A yes-or-no question that a tool asks people."""

    renderer = "confirm"

    question: str
    yes: str = "Yes"
    """The label of the button for yes."""
    no: str = "No"

    def __post_init__(self) -> None:
        for name in ("question", "yes", "no"):
            checks.require_text("Confirm", name, getattr(self, name), non_empty=True)

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def output(self) -> Mapping[str, Any]:
        """The schema of the answer: a boolean."""
        return {"type": "boolean"}


class Option(Struct, frozen=True):
    """An option of a `Choice` or `MultiSelect` question, from which people choose."""

    value: str
    """The value that the tool receives."""
    label: str = ""
    """The label that people read; the value when empty."""
    description: str = ""
    """An explanation for people."""

    def __post_init__(self) -> None:
        checks.require_text("Option", "value", self.value)
        checks.require_text("Option", "label", self.label)
        checks.require_text("Option", "description", self.description)


class Choice(Askable[str], frozen=True):
    """A question whose answer is exactly one of several options."""

    renderer = "choice"

    question: str
    options: Sequence[str | Option]
    other: bool = False
    """True if another answer may be given, as text."""

    def __post_init__(self) -> None:
        _check_options("Choice", self.question, self.options)
        checks.require_bool("Choice", "other", self.other)

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def input(self) -> Any:
        """The question, with each option and its label."""
        return {"question": self.question, "options": _options_to_json(self.options), "other": self.other}

    @property
    def output(self) -> Mapping[str, Any]:
        """The schema of the answer: the value of an option."""
        return {"type": "string"} if self.other else {"type": "string", "enum": _option_values(self.options)}


class MultiSelect(Askable[list[str]], frozen=True):
    """A question whose answer is a list of any number of the offered options."""

    renderer = "choices"

    question: str
    options: Sequence[str | Option]
    least: int = 0
    """The smallest number of options to choose."""
    most: int | None = None
    """The largest number of options to choose; `None` for all."""

    def __post_init__(self) -> None:
        _check_options("MultiSelect", self.question, self.options)
        checks.require_int("MultiSelect", "least", self.least)
        if self.most is not None:
            checks.require_int("MultiSelect", "most", self.most, max(self.least, 1))
        if self.least > len(self.options):
            checks.raise_config_error("MultiSelect", "least", self.least, f"there are {len(self.options)} options")

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def input(self) -> Any:
        """The question, with each option and its label."""
        options = _options_to_json(self.options)
        return {"question": self.question, "options": options, "least": self.least, "most": self.most}

    @property
    def output(self) -> Mapping[str, Any]:
        """The schema of the answer: a list of option values."""
        items = {"type": "string", "enum": _option_values(self.options)}
        bounds = {"minItems": self.least, "maxItems": len(self.options) if self.most is None else self.most}
        return {"type": "array", "items": items, "uniqueItems": True, **bounds}


class Form(Askable[T], frozen=True):
    """A form that people fill in: the fields of a class, whose instance is the answer, or of a JSON Schema (a dict)."""

    renderer = "form"

    question: str
    fields: Any
    """A dataclass, a `msgspec.Struct`, a `TypedDict`, a pydantic model; or a JSON Schema."""
    initial: Any = None
    """The initial values of the fields: a dict, or a value of the class."""

    if TYPE_CHECKING:

        @overload
        def __init__(self: "Form[S]", question: str, fields: type[S], initial: Any = None) -> None: ...
        @overload
        def __init__(
            self: "Form[dict[str, Any]]", question: str, fields: Mapping[str, Any], initial: Any = None
        ) -> None: ...
        def __init__(self, question: str, fields: Any, initial: Any = None) -> None: ...

    def __post_init__(self) -> None:
        checks.require_text("Form", "question", self.question, non_empty=True)
        schema = self.output
        if schema.get("type") != "object":
            checks.raise_config_error(
                "Form", "fields", self.fields, 'give a class with fields, or a JSON Schema of "type": "object"'
            )
        if isinstance(self.fields, Mapping):
            _check_schema(schema)
        self._check_initial(schema)

    def _check_initial(self, schema: Mapping[str, Any]) -> None:
        """Raise `ConfigError` for initial values of fields that the form does not have.

        Not all fields need an initial value.
        """
        known = cast("Mapping[str, Any]", schema.get("properties", {}))
        values = to_jsonable(self.initial)
        if values is not None and (not isinstance(values, dict) or (known and cast("Any", values).keys() - known)):
            checks.raise_config_error(
                "Form", "initial", self.initial, f"give a dict with some of {', '.join(map(repr, known))}"
            )

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def input(self) -> Any:
        """The schema of the fields, and their initial values."""
        return {"question": self.question, "schema": self.output, "initial": to_jsonable(self.initial)}

    @property
    def output(self) -> Mapping[str, Any]:
        """The schema of the answer: an object with these fields."""
        fields: object = self.fields
        return (
            cast("Mapping[str, Any]", to_jsonable(fields))
            if isinstance(fields, Mapping)
            else json_schema_for_type(fields)
        )

    def read(self, answer: Any) -> T:
        """Convert the answer to an instance of the class. Raises `ToolError` if the class's validation rejects it."""
        if isinstance(self.fields, Mapping):
            return cast("T", answer)
        try:
            return cast("T", convert_value(answer, self.fields))
        except Invalid as problem:
            raise ToolError(f"the answer to {self.question!r} cannot be used: {problem}") from None


class CustomSlot(Askable[Any], frozen=True):
    """A question, or content to display, of a kind that your program defines and shows with its own renderer."""

    kind: str
    """The name by which your screen knows it."""
    data: Any = None
    """The data to display: any JSON value."""
    question: str = ""
    """The question, for screens that do not know this kind."""
    answer: Mapping[str, Any] | None = None
    """The JSON Schema of an answer; `None` when any answer is valid."""

    def __post_init__(self) -> None:
        checks.require_text("CustomSlot", "kind", self.kind, non_empty=True)
        checks.require_text("CustomSlot", "question", self.question)
        if self.answer is not None:
            if not isinstance(self.answer, Mapping):
                checks.raise_config_error("CustomSlot", "answer", self.answer, "give a JSON Schema, or None")
            _check_schema(self.answer)

    @property
    def shown_as(self) -> str:
        """The name of the renderer with which the user interface displays it."""
        return self.kind

    @property
    def text(self) -> str:
        """The question as text."""
        return self.question

    @property
    def input(self) -> Any:
        """The data for the renderer, as JSON values."""
        return to_jsonable(self.data)

    @property
    def output(self) -> Mapping[str, Any] | None:
        """The JSON Schema of an answer; `None` when any value is accepted."""
        return None if self.answer is None else cast("Mapping[str, Any]", to_jsonable(self.answer))


def _check_options(call: str, question: object, options: Any) -> None:
    checks.require_text(call, "question", question, non_empty=True)
    if not isinstance(options, Sequence) or isinstance(options, str) or not options:
        checks.raise_config_error(call, "options", cast("object", options), "give a list of options")
    for each in cast("Sequence[object]", options):
        if not isinstance(each, (str, Option)):
            checks.raise_config_error(call, "options", each, "give texts, or Option(…)")
    values = _option_values(cast("Sequence[str | Option]", options))
    if len(set(values)) != len(values):
        checks.raise_config_error(call, "options", values, "give each value once")


def _options_to_json(options: Sequence[str | Option]) -> list[Any]:
    made = [each if isinstance(each, Option) else Option(each) for each in options]
    return [{"value": each.value, "label": each.label or each.value, "description": each.description} for each in made]


def _option_values(options: Sequence[str | Option]) -> list[str]:
    return [each.value if isinstance(each, Option) else each for each in options]


def _check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `ConfigError` unless this is a JSON Schema. It may be one that no value satisfies."""
    try:
        check_value(None, dict(schema))
    except Invalid:
        return
