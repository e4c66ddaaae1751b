"""Type hints are looked into, as far as they go."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NotRequired,
    Optional,
    Required,
    TypedDict,
    TypeVar,
    Union,
)

import msgspec
import pydantic
import pytest
from annotated_types import Ge

from perdure._core.schema.signature import FieldClassFinder, split_description, translate_for_msgspec

T = TypeVar("T")


@pytest.mark.parametrize(
    ("annotation", "rest", "text"),
    [
        (int, int, ""),
        (Annotated[int, "how many"], int, "how many"),
        (Annotated[int, "how", "many"], int, "how many"),
        (Annotated[int, Ge(1), "how many"], Annotated[int, Ge(1)], "how many"),
        (Annotated[int, Ge(1)], Annotated[int, Ge(1)], ""),
    ],
)
def test_a_description_is_taken_out_of_an_annotation(annotation, rest, text):
    assert split_description(annotation) == (rest, text)


MOMENT = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]


class Box(msgspec.Struct, Generic[T]):
    """A box.

    Attributes:
        content: What is in it.
    """

    content: T
    next: "Box[T] | None" = None


OPEN_BOX: Any = Box[T]  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, int),
        (Any, Any),
        (object, Any),
        (datetime, MOMENT),
        (date, date),
        (list[datetime], list[MOMENT]),
        (datetime | None, Optional[MOMENT]),  # noqa: UP045 - as it is made
        (Annotated[int, "how many"], Annotated[int, msgspec.Meta(description="how many")]),
        (dict[str, Annotated[int, "n", Ge(1)]], dict[str, Annotated[int, msgspec.Meta(description="n"), Ge(1)]]),
        (Iterable[object], list[Any]),
        (Sequence[int], Sequence[int]),
        (Literal["a"], Literal["a"]),
        (int | str, Union[int, str]),  # noqa: UP007 - as it is made
        (tuple[int, ...], tuple[int, ...]),
        (Box[datetime], Box[MOMENT]),
    ],
)
def test_an_annotation_is_put_into_words_for_msgspec(annotation, expected):
    assert translate_for_msgspec(annotation) == expected


class Renamed(msgspec.Struct, rename="camel"):
    first_name: Annotated[str, "Given."]
    last_name: str


class Keys(TypedDict):
    a: Required[Annotated[int, "One."]]
    b: NotRequired[Annotated[Box[int], "Two."]]


@dataclasses.dataclass
class Node:
    """A node.

    Args:
        value: What it holds.
        children: Below it.
    """

    value: Annotated[int, "Its value."]
    children: list["Node"]


def described(annotation) -> dict:
    return {each.annotation: each.fields for each in FieldClassFinder(annotation).class_descriptions}


def test_fields_of_classes_are_described_by_annotations_and_docstrings():
    assert described(list[Renamed] | None) == {Renamed: {"firstName": "Given."}}
    assert described(dict[str, Node]) == {Node: {"value": "Its value.", "children": "Below it."}}
    assert described(Keys) == {
        Keys: {"a": "One.", "b": "Two."},
        Box[int]: {"content": "What is in it."},
        OPEN_BOX: {"content": "What is in it."},
    }
    assert described(int | Literal["a"] | None) == {}
    assert described(Callable[[int], str]) == {}


class WithClassVariable(msgspec.Struct):
    shared: ClassVar[Node]
    own: int


def test_variables_of_a_class_are_no_fields():
    assert described(WithClassVariable) == {WithClassVariable: {}}


def test_a_class_whose_names_cannot_be_found_is_described_by_its_docstring():
    class Lost(msgspec.Struct):
        """Lost.

        Attributes:
            x: Where.
        """

        x: "Nowhere"  # type: ignore[name-defined] # noqa: F821 - that is the point

    assert described(Lost) == {Lost: {"x": "Where."}}


def test_a_description_is_added_where_there_is_none():
    (node,) = FieldClassFinder(Node).class_descriptions
    schema = {
        "description": "A node.\n\n    Args: …",
        "properties": {"value": {"description": "Kept."}, "children": {}, "more": {}},
    }
    node.add_to_schema(schema)
    assert schema == {
        "description": "A node.",
        "properties": {"value": {"description": "Kept."}, "children": {"description": "Below it."}, "more": {}},
    }
    without: dict = {"type": "array"}
    node.add_to_schema(without)
    assert without == {"type": "array"}


class Model(pydantic.BaseModel):
    x: int


@pydantic.dataclasses.dataclass
class Data:
    x: int


class Holder(TypedDict):
    data: list[Data]


@pytest.mark.parametrize(
    "annotation",
    [
        Model,
        list[Model],
        Data | None,
        Holder,
        Annotated[int, pydantic.Field(ge=1)],
        dict[str, Annotated[int, Ge(1)]],
        pydantic.PositiveInt,
    ],
)
def test_what_is_made_with_pydantic_is_recognised(annotation):
    assert FieldClassFinder(annotation).needs_pydantic


@pytest.mark.parametrize("annotation", [int, Node, Keys, Annotated[int, msgspec.Meta(ge=1), "n"], Any, None, list[Any]])
def test_what_is_not_made_with_pydantic_does_not_need_it(annotation):
    assert not FieldClassFinder(annotation).needs_pydantic
