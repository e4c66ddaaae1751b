"""Translation of type hints to a form that msgspec reads, and the descriptions of classes and fields in them.

msgspec reads `Annotated[int, Meta(description="how many")]`; people write `Annotated[int, "how many"]`, on parameters
and on the fields of their classes. This module converts the second form to the first.
"""

import types
import typing
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Required, Union, get_args, get_origin

import msgspec

from .docstring import parse_docstring

_DATE_TIME = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]


def split_description(annotation: Any) -> tuple[Any, str]:
    """Split `Annotated[int, "how many", …]` into `Annotated[int, …]` and the description."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    base, *notes = get_args(annotation)
    texts = [note for note in notes if isinstance(note, str)]
    rest = [note for note in notes if not isinstance(note, str)]
    return Annotated[(base, *rest)] if rest else base, " ".join(texts)


def translate_for_msgspec(annotation: Any) -> Any:
    """Return the type hint in the form that msgspec understands, including hints nested in it."""
    if annotation is object:
        return Any
    if annotation is datetime:
        return _DATE_TIME
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        base, *notes = arguments
        return Annotated[(translate_for_msgspec(base), *(_to_meta(note) for note in notes))]
    if origin is Literal or not arguments:
        return annotation
    inner = tuple(translate_for_msgspec(argument) for argument in arguments)
    if origin in {Union, types.UnionType}:
        return Union[inner]  # noqa: UP007 - it is a value here
    if origin is Iterable:
        return list.__class_getitem__(inner)
    return annotation if inner == arguments else origin[inner]


def _to_meta(note: Any) -> Any:
    return msgspec.Meta(description=note) if isinstance(note, str) else note


class ClassSchemaDescriptions(msgspec.Struct, frozen=True):
    """The docstring of a class and the descriptions of its fields, to be added to its JSON Schema."""

    annotation: Any
    description: str
    fields: dict[str, str]
    """The description of each field, by its name in JSON."""

    def add_to_schema(self, schema: dict[str, Any]) -> None:
        """Add the descriptions to the JSON Schema of the class, unless a field has one already."""
        if "description" in schema:  # the whole docstring, in which the fields may be described once more
            schema["description"] = self.description
        for name, field in schema.get("properties", {}).items():
            if name in self.fields:
                field.setdefault("description", self.fields[name])


class FieldClassFinder:
    """Finds the classes with fields (dataclasses, structs) in a type hint, at any depth, and whether pydantic is
    needed.
    """

    __slots__ = ("class_descriptions", "needs_pydantic")

    def __init__(self, annotation: Any) -> None:
        self.needs_pydantic = False
        """True if some part of it was made with pydantic, whose rules msgspec would silently ignore."""
        self.class_descriptions: list[ClassSchemaDescriptions] = []
        """The classes with fields."""
        self._visit(annotation)

    def _visit(self, annotation: Any) -> None:
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            self.needs_pydantic |= any(_is_pydantic_metadata(note) for note in arguments[1:])
            self._visit(arguments[0])
            return
        if origin is Literal or origin is ClassVar:
            return
        for argument in arguments:
            self._visit(argument)
        kind = origin or annotation
        if not isinstance(kind, type):
            return
        self.needs_pydantic |= hasattr(kind, "__pydantic_validator__")
        if _has_fields(kind) and not any(known.annotation == annotation for known in self.class_descriptions):
            self._visit_fields(annotation, kind)

    def _visit_fields(self, annotation: Any, kind: type) -> None:
        docstring = parse_docstring(kind.__doc__)
        texts = dict(docstring.parameters)
        self.class_descriptions.append(ClassSchemaDescriptions(annotation, docstring.description, texts))
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except Exception:  # noqa: BLE001 - a name that perhaps only msgspec can resolve
            return
        for name, hint in hints.items():
            while get_origin(hint) in {Required, NotRequired}:
                (hint,) = get_args(hint)  # noqa: PLW2901 - what is inside the mark
            if text := split_description(hint)[1]:
                texts[name] = text
            self._visit(hint)
        for name, encoded in zip(*_struct_names(kind), strict=True):
            if name in texts:
                texts[encoded] = texts.pop(name)


def _struct_names(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the fields of a msgspec struct, and their names in JSON."""
    return getattr(kind, "__struct_fields__", ()), getattr(kind, "__struct_encode_fields__", ())


def _is_pydantic_metadata(note: object) -> bool:
    return type(note).__module__.partition(".")[0] in {"annotated_types", "pydantic", "pydantic_core"}


def _has_fields(kind: type) -> bool:
    signs = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__")
    return typing.is_typeddict(kind) or any(hasattr(kind, sign) for sign in signs)
