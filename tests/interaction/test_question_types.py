"""What tools ask: checked where it is made; answers held against a schema, and read as values of the type."""

import dataclasses
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from perdure import ConfigError, Invalid, ToolError
from perdure.people import Choice, Confirm, CustomSlot, Form, MultiSelect, Option
from perdure.tools import check_value


@dataclasses.dataclass
class Address:
    street: str
    number: int
    country: str = "SE"


class Parcel(msgspec.Struct):
    weight: float
    fragile: bool = False


class Named(TypedDict):
    name: str


class Positive(pydantic.BaseModel):
    amount: int

    @pydantic.field_validator("amount")
    @classmethod
    def _is_positive(cls, amount: int) -> int:
        if amount <= 0:
            raise ValueError("must be above zero")
        return amount


SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}


@pytest.mark.parametrize(
    ("asked", "renderer", "data", "given", "read"),
    [
        (Confirm("Really?", no="Never"), "confirm", {"question": "Really?", "yes": "Yes", "no": "Never"}, True, True),
        (
            Choice("Which?", ["a", Option("b", "The b", "second")]),
            "choice",
            {
                "question": "Which?",
                "options": [
                    {"value": "a", "label": "a", "description": ""},
                    {"value": "b", "label": "The b", "description": "second"},
                ],
                "other": False,
            },
            "b",
            "b",
        ),
        (
            MultiSelect("Which?", ["a", "b"], least=1),
            "choices",
            {
                "question": "Which?",
                "options": [{"value": each, "label": each, "description": ""} for each in "ab"],
                "least": 1,
                "most": None,
            },
            ["b", "a"],
            ["b", "a"],
        ),
        (
            Form("Age?", SCHEMA, {"age": 5}),
            "form",
            {"question": "Age?", "schema": SCHEMA, "initial": {"age": 5}},
            {"age": 6},
            {"age": 6},
        ),
        (CustomSlot("map", {"at": (1, 2)}, "Where?", {"type": "array"}), "map", {"at": [1, 2]}, [3], [3]),
        (CustomSlot("map"), "map", None, {"any": 1}, {"any": 1}),
    ],
)
def test_a_question_goes_out_as_json_and_its_answer_comes_back(asked, renderer, data, given, read):
    assert (asked.shown_as, asked.input) == (renderer, data)
    if asked.output is not None:
        check_value(given, dict(asked.output))
    assert asked.read(given) == read


def test_the_question_of_a_slot_of_ones_own_is_its_text():
    assert CustomSlot("map", {"at": [1, 2]}, "Where?").text == "Where?"


@pytest.mark.parametrize(
    "asked",
    [Confirm("Really?"), Choice("Really?", ["a"]), MultiSelect("Really?", ["a"]), Form("Really?", Address)],
)
def test_a_question_is_its_own_text(asked):
    assert asked.text == "Really?"


def test_the_schema_of_an_answer_says_what_may_be_chosen():
    assert Confirm("Really?").output == {"type": "boolean"}
    assert Choice("Which?", ["a", Option("b")]).output == {"type": "string", "enum": ["a", "b"]}
    assert Choice("Which?", ["a"], other=True).output == {"type": "string"}
    several = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "uniqueItems": True}
    assert MultiSelect("Which?", ["a", "b"]).output == {**several, "minItems": 0, "maxItems": 2}
    assert MultiSelect("Which?", ["a", "b"], 2, 2).output == {**several, "minItems": 2, "maxItems": 2}
    assert MultiSelect("Which?", ["a", "b"], most=1).output == {**several, "minItems": 0, "maxItems": 1}
    assert CustomSlot("map").output is None
    assert CustomSlot("map", answer={"type": "array"}).output == {"type": "array"}


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        (Address, {"street": "Hamngatan", "number": 3}, Address("Hamngatan", 3)),
        (Parcel, {"weight": 2}, Parcel(2.0)),
        (Named, {"name": "Fram"}, {"name": "Fram"}),
        (Positive, {"amount": 3}, Positive(amount=3)),
    ],
)
def test_a_form_of_a_class_is_answered_with_one(kind, given, read):
    form: Form[Any] = Form("Details", kind)
    assert form.text == "Details"
    check_value(given, dict(form.output))
    value = form.read(given)
    assert value == read
    assert kind is Named or type(value) is kind


def test_a_value_of_the_class_can_be_what_a_form_holds_at_first():
    form = Form("Details", Address, Address("Hamngatan", 3))
    assert form.input["initial"] == {"street": "Hamngatan", "number": 3, "country": "SE"}


def test_what_only_the_class_can_refuse_is_told_as_an_error_of_the_tool():
    with pytest.raises(ToolError, match=r"the answer to 'How much\?' cannot be used: amount: .*must be above zero"):
        Form("How much?", Positive).read({"amount": 0})


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (Confirm("Really?"), "yes"),
        (Choice("Which?", ["a", "b"]), "c"),
        (Choice("Which?", ["a", "b"], other=True), 5),
        (MultiSelect("Which?", ["a", "b"]), ["a", "a"]),
        (MultiSelect("Which?", ["a", "b"]), ["c"]),
        (MultiSelect("Which?", ["a", "b"], least=1), []),
        (MultiSelect("Which?", ["a", "b"], most=1), ["a", "b"]),
        (Form("Details", Address), {"street": "x"}),
        (Form("Age?", SCHEMA), {"age": -1}),
        (CustomSlot("map", None, "Where?", {"type": "array"}), "here"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_by_the_schema(asked, given):
    with pytest.raises(Invalid):
        check_value(given, dict(asked.output))


def test_a_choice_may_leave_room_for_something_else():
    check_value("z", dict(Choice("Which?", ["a"], other=True).output))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Confirm(""), "Confirm(question=''): give non-empty text"),
        (lambda: Confirm("x", yes=1), "Confirm(yes=1): give non-empty text"),  # type: ignore[arg-type]
        (lambda: Choice("x", "abc"), "Choice(options='abc'): give a list of options"),
        (lambda: Choice("x", []), "Choice(options=[]): give a list of options"),
        (lambda: Choice("x", [5]), "Choice(options=5): give texts, or Option(…)"),  # type: ignore[list-item]
        (lambda: Choice("x", ["a", Option("a")]), "Choice(options=['a', 'a']): give each value once"),
        (lambda: Choice("x", ["a"], other="yes"), "Choice(other='yes'): give True or False"),  # type: ignore[arg-type]
        (lambda: MultiSelect("x", ["a"], least=2), "MultiSelect(least=2): there are 1 options"),
        (lambda: MultiSelect("x", ["a", "b"], 2, 1), "MultiSelect(most=1): give a whole number, 2 or more"),
        (lambda: Option("a", 5), "Option(label=5): give text"),  # type: ignore[arg-type]
        (lambda: Option("a", "", 5), "Option(description=5): give text"),  # type: ignore[arg-type]
        (lambda: Choice("", ["a"]), "Choice(question=''): give non-empty text"),
        (lambda: Choice("x", 5), "Choice(options=5): give a list of options"),  # type: ignore[arg-type]
        (lambda: MultiSelect("", ["a"]), "MultiSelect(question=''): give non-empty text"),
        (lambda: MultiSelect("x", ["a", "a"]), "MultiSelect(options=['a', 'a']): give each value once"),
        (lambda: MultiSelect("x", ["a"], least=-1), "MultiSelect(least=-1): give a whole number, 0 or more"),
        (lambda: MultiSelect("x", ["a"], most=0), "MultiSelect(most=0): give a whole number, 1 or more"),
        (lambda: CustomSlot("map", question=5), "CustomSlot(question=5): give text"),  # type: ignore[arg-type]
        (lambda: Confirm("x", no=""), "Confirm(no=''): give non-empty text"),
        (lambda: Option(5), "Option(value=5): give text"),  # type: ignore[arg-type]
        (lambda: Form("x", int), "give a class with fields"),
        (lambda: Form("", Address), "Form(question=''): give non-empty text"),
        (lambda: Form("x", {"type": "array"}), 'or a JSON Schema of "type": "object"'),
        (lambda: Form("x", {"type": "object", "properties": 5}), "JSON Schema"),
        (lambda: Form("x", Address, {"city": "x"}), "give a dict with some of 'street', 'number', 'country'"),
        (lambda: Form("x", Address, [1]), "Form(initial=[1])"),
        (lambda: CustomSlot(""), "CustomSlot(kind=''): give non-empty text"),
        (lambda: CustomSlot("map", answer=5), "CustomSlot(answer=5): give a JSON Schema, or None"),  # type: ignore[arg-type]
        (lambda: CustomSlot("map", answer={"type": "no such type"}), "JSON Schema"),
    ],
)
def test_what_cannot_be_asked_is_refused_where_it_is_made(make, told):
    with pytest.raises(ConfigError) as refused:
        make()
    assert told in str(refused.value)
