"""What a tool asks, and the type of its answer. Above: tools, by `context.ask`. Below: `core.slot`, `core.schema`.

A question is checked where it is made. Its answer is held against a JSON Schema where it is given, in whatever process
that is, and read as a value of the type where the tool gets it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from msgspec import Struct

from perdure.core import check
from perdure.core.error import ToolError
from perdure.core.plain import to_jsonable
from perdure.core.schema import Invalid, check_value, convert, for_type
from perdure.core.slot import Askable

S = TypeVar("S")
T = TypeVar("T")


class Confirm(Askable[bool], frozen=True):
    """Yes or no."""

    renderer = "confirm"

    question: str
    yes: str = "Yes"
    """What the button says that means it."""
    no: str = "No"

    def __post_init__(self) -> None:
        for name in ("question", "yes", "no"):
            check.text("Confirm", name, getattr(self, name), filled=True)

    @property
    def text(self) -> str:
        """What is asked, in words."""
        return self.question

    @property
    def output(self) -> Mapping[str, Any]:
        """True or false."""
        return {"type": "boolean"}


class Option(Struct, frozen=True):
    """Something to choose."""

    value: str
    """What the tool gets."""
    label: str = ""
    """What people read; the value when empty."""
    description: str = ""
    """What they may want to know of it."""

    def __post_init__(self) -> None:
        check.text("Option", "value", self.value)
        check.text("Option", "label", self.label)
        check.text("Option", "description", self.description)


class Choice(Askable[str], frozen=True):
    """One of several."""

    renderer = "choice"

    question: str
    options: Sequence[str | Option]
    other: bool = False
    """Whether something else may be answered, in words."""

    def __post_init__(self) -> None:
        _check_options("Choice", self.question, self.options)
        check.flag("Choice", "other", self.other)

    @property
    def text(self) -> str:
        """What is asked, in words."""
        return self.question

    @property
    def input(self) -> Any:
        """Each option with its label."""
        return {"question": self.question, "options": _listed(self.options), "other": self.other}

    @property
    def output(self) -> Mapping[str, Any]:
        """The value of an option."""
        return {"type": "string"} if self.other else {"type": "string", "enum": _values(self.options)}


class Choices(Askable[list[str]], frozen=True):
    """Several of several, each at most once."""

    renderer = "choices"

    question: str
    options: Sequence[str | Option]
    least: int = 0
    """How many have to be chosen."""
    most: int | None = None
    """How many may be; `None` for all."""

    def __post_init__(self) -> None:
        _check_options("Choices", self.question, self.options)
        check.whole_number("Choices", "least", self.least)
        if self.most is not None:
            check.whole_number("Choices", "most", self.most, max(self.least, 1))
        if self.least > len(self.options):
            check.refuse("Choices", "least", self.least, f"there are {len(self.options)} options")

    @property
    def text(self) -> str:
        """What is asked, in words."""
        return self.question

    @property
    def input(self) -> Any:
        """Each option with its label."""
        options = _listed(self.options)
        return {"question": self.question, "options": options, "least": self.least, "most": self.most}

    @property
    def output(self) -> Mapping[str, Any]:
        """The values of the options."""
        items = {"type": "string", "enum": _values(self.options)}
        bounds = {"minItems": self.least, "maxItems": len(self.options) if self.most is None else self.most}
        return {"type": "array", "items": items, "uniqueItems": True, **bounds}


class Form(Askable[T], frozen=True):
    """Several fields, as a class has them, or as a JSON Schema says; then the answer is a dict."""

    renderer = "form"

    question: str
    fields: Any
    """A dataclass, a `msgspec.Struct`, a `TypedDict`, a pydantic model; or a JSON Schema."""
    initial: Any = None
    """What the fields hold at first: a dict, or a value of the class."""

    if TYPE_CHECKING:

        @overload
        def __init__(self: "Form[S]", question: str, fields: type[S], initial: Any = None) -> None: ...
        @overload
        def __init__(
            self: "Form[dict[str, Any]]", question: str, fields: Mapping[str, Any], initial: Any = None
        ) -> None: ...
        def __init__(self, question: str, fields: Any, initial: Any = None) -> None: ...

    def __post_init__(self) -> None:
        check.text("Form", "question", self.question, filled=True)
        schema = self.output
        if schema.get("type") != "object":
            check.refuse(
                "Form", "fields", self.fields, 'give a class with fields, or a JSON Schema of "type": "object"'
            )
        if isinstance(self.fields, Mapping):
            _check_schema(schema)
        self._check_initial(schema)

    def _check_initial(self, schema: Mapping[str, Any]) -> None:
        """Not all fields have to be there, and none that has no place."""
        known = cast("Mapping[str, Any]", schema.get("properties", {}))
        values = to_jsonable(self.initial)
        if values is not None and (not isinstance(values, dict) or (known and cast("Any", values).keys() - known)):
            check.refuse("Form", "initial", self.initial, f"give a dict with some of {', '.join(map(repr, known))}")

    @property
    def text(self) -> str:
        """What is asked, in words."""
        return self.question

    @property
    def input(self) -> Any:
        """The schema of the fields, and what they hold at first."""
        return {"question": self.question, "schema": self.output, "initial": to_jsonable(self.initial)}

    @property
    def output(self) -> Mapping[str, Any]:
        """An object with these fields."""
        fields: object = self.fields
        return cast("Mapping[str, Any]", to_jsonable(fields)) if isinstance(fields, Mapping) else for_type(fields)

    def read(self, answer: Any) -> T:
        """A value of the class. Its own validation may refuse what the schema allows: the model is told that."""
        if isinstance(self.fields, Mapping):
            return cast("T", answer)
        try:
            return cast("T", convert(answer, self.fields))
        except Invalid as problem:
            raise ToolError(f"the answer to {self.question!r} cannot be used: {problem}") from None


class Custom(Askable[Any], frozen=True):
    """Anything that a screen of yours knows how to show: to be shown, or to be asked."""

    kind: str
    """The name by which your screen knows it."""
    data: Any = None
    """What it shows: anything that JSON can hold."""
    question: str = ""
    """What is asked, for screens that do not know this kind."""
    answer: Mapping[str, Any] | None = None
    """The JSON Schema of an answer; `None` when anything may be answered."""

    def __post_init__(self) -> None:
        check.text("Custom", "kind", self.kind, filled=True)
        check.text("Custom", "question", self.question)
        if self.answer is not None:
            if not isinstance(self.answer, Mapping):
                check.refuse("Custom", "answer", self.answer, "give a JSON Schema, or None")
            _check_schema(self.answer)

    @property
    def shown_as(self) -> str:
        """Which renderer shows this one."""
        return self.kind

    @property
    def text(self) -> str:
        """What is asked, in words."""
        return self.question

    @property
    def input(self) -> Any:
        """The data."""
        return to_jsonable(self.data)

    @property
    def output(self) -> Mapping[str, Any] | None:
        """What was given as the schema of an answer."""
        return None if self.answer is None else cast("Mapping[str, Any]", to_jsonable(self.answer))


def _check_options(call: str, question: object, options: Any) -> None:
    check.text(call, "question", question, filled=True)
    if not isinstance(options, Sequence) or isinstance(options, str) or not options:
        check.refuse(call, "options", cast("object", options), "give a list of options")
    for each in cast("Sequence[object]", options):
        if not isinstance(each, (str, Option)):
            check.refuse(call, "options", each, "give texts, or Option(…)")
    values = _values(cast("Sequence[str | Option]", options))
    if len(set(values)) != len(values):
        check.refuse(call, "options", values, "give each value once")


def _listed(options: Sequence[str | Option]) -> list[Any]:
    made = [each if isinstance(each, Option) else Option(each) for each in options]
    return [{"value": each.value, "label": each.label or each.value, "description": each.description} for each in made]


def _values(options: Sequence[str | Option]) -> list[str]:
    return [each.value if isinstance(each, Option) else each for each in options]


def _check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse what is no JSON Schema. Whether nothing at all satisfies it does not matter here."""
    try:
        check_value(None, dict(schema))
    except Invalid:
        return
