"""The signature of a tool's function: parameter names, defaults, descriptions, type hints for msgspec."""

import contextlib
import functools
import inspect
import itertools
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from perdure._core.values.error import ConfigError

from .docstring import Docstring, parse_clean_docstring, parse_docstring

NO_DEFAULT = inspect.Parameter.empty
"""The default of a parameter that has none."""


class Parameter(Struct, frozen=True):
    """A parameter of a tool's function that the model fills in."""

    name: str
    annotation: Any
    """Its type, with strings resolved; `Any` when there is no annotation."""
    default: Any = NO_DEFAULT
    """The value that Python uses when the argument is not given."""
    description: str = ""
    """Its description in the docstring."""


class Signature(Struct, frozen=True):
    """The signature of a tool's function: the parameters that the model fills in, and its context parameter."""

    name: str
    """The function's name, for messages."""
    parameters: tuple[Parameter, ...]
    """The parameters that the model fills in."""
    context: str | None
    """The name of the parameter that receives the context of the call, or `None`."""
    needed_deps: str
    """The type of `deps` that the context parameter is annotated with, such as `Shop`; empty if it can do without."""
    inner: Any
    """The function inside partials, wrappers and callable objects, which has the annotations."""
    docstring: Docstring
    """The docstring of the inner function."""


def read_signature(
    function: Callable[..., Any], *, skip: Collection[str] = (), context_type: type | None = None
) -> Signature:
    """Read the parameters of a tool's function, without those in `skip` and the one annotated with `context_type`."""
    name = getattr(function, "__qualname__", None) or repr(function)
    inner = _unwrap_function(function)
    docstring = parse_clean_docstring(inspect.getdoc(inner) or "")
    names = _AnnotationScope(inner, context_type)
    parameters: list[Parameter] = []
    contexts: list[str] = []
    needed_deps = ""
    for parameter in _inspect_parameters(function, name):
        if parameter.name in skip:
            continue
        where = f"parameter {parameter.name!r} of {name}"
        annotation = names.resolve(parameter.annotation, where)
        if context_type is not None and _is_context(annotation, context_type):
            contexts.append(parameter.name)
            needed_deps = _name_needed_deps(annotation, context_type)
            continue
        _check_parameter_kind(parameter, where)
        description = docstring.parameters.get(parameter.name, "")
        parameters.append(Parameter(parameter.name, annotation, parameter.default, description))
    if len(contexts) > 1:
        message = f"{name} has two context parameters, {' and '.join(map(repr, contexts))}: keep one of them"
        raise ConfigError(message)
    return Signature(name, tuple(parameters), contexts[0] if contexts else None, needed_deps, inner, docstring)


def _inspect_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        message = f"the parameters of {name} cannot be inspected ({error}): wrap it in your own function"
        raise ConfigError(message) from error


def _unwrap_function(function: Any) -> Any:
    """Return the function inside partials, wrappers and callable objects, which has the annotations and the
    docstring.
    """
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif not isinstance(function, types.FunctionType | type) and hasattr(type(function).__call__, "__code__"):
            function = type(function).__call__
        else:
            return function


_UNSUPPORTED_KINDS = {
    "VAR_POSITIONAL": "takes any number of values: use a list, such as `values: list[str]`",
    "VAR_KEYWORD": "takes any keyword: name each parameter, or take a `dict[str, Any]`",
    "POSITIONAL_ONLY": "is positional only, and tools are called by keyword: remove the `/`",
}
"""Kinds of parameters that a model cannot fill in, and the advice in the error."""


def _check_parameter_kind(parameter: inspect.Parameter, where: str) -> None:
    advice = _UNSUPPORTED_KINDS.get(parameter.kind.name)
    if advice:
        message = f"{where} {advice}"
        raise ConfigError(message)


class _AnnotationScope:
    """The global and local names with which string annotations of a function are evaluated."""

    def __init__(self, function: Any, context_type: type | None) -> None:
        self.context_type = context_type
        context = {} if context_type is None else {context_type.__name__: context_type}
        # The context type counts as imported: many import it under TYPE_CHECKING only.
        self.globals = {**context, **getattr(function, "__globals__", {})}
        self.locals = _collect_local_names(function)

    def resolve(self, annotation: Any, where: str) -> Any:
        """Return the annotation with its strings evaluated."""
        if annotation is NO_DEFAULT:
            return Any

        def probe() -> None: ...

        probe.__annotations__ = {"it": annotation}
        try:
            return typing.get_type_hints(probe, self.globals, self.locals, include_extras=True)["it"]
        except NameError as error:
            if self._names_context(annotation):
                return self.context_type
            message = (
                f"{where} is annotated {annotation!r}, in which the name {error.name!r} is not defined: "
                "import it at run time, not only under TYPE_CHECKING, or define it at the top of the module"
            )
        except Exception as error:  # noqa: BLE001 - whatever evaluating an annotation may raise
            message = f"{where} is annotated {annotation!r}, which cannot be evaluated: {error}"
        raise ConfigError(message)

    def _names_context(self, annotation: Any) -> bool:
        """Return True if the annotation is the text `ToolContext[Deps]` with a `Deps` that only type checkers know."""
        if self.context_type is None or not isinstance(annotation, str):
            return False
        name = rf"(?:\w+\.)*{self.context_type.__name__}(?:\[.*\])?(?: \| None)?"
        return re.fullmatch(name, annotation.strip("'\"")) is not None


def _collect_local_names(function: Any) -> dict[str, Any]:
    """Return the local names of the enclosing functions, as far as they can still be found."""
    names: dict[str, Any] = {}
    if not isinstance(function, types.FunctionType):
        return names
    code = function.__code__
    frame = sys._getframe().f_back  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - the only way to find where it is defined
    while frame is not None and "." in code.co_qualname:  # nothing encloses what is at the top of a module
        if any(map(operator.is_, frame.f_code.co_consts, itertools.repeat(code))):
            names = {**frame.f_locals, **names}
            code = frame.f_code
        frame = frame.f_back
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # of a name that has no value yet
            names[name] = cell.cell_contents
    return names


def _is_context(annotation: Any, context_type: type) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_context(get_args(annotation)[0], context_type)
    if origin in {Union, types.UnionType}:
        return any(_is_context(option, context_type) for option in get_args(annotation))
    return annotation is context_type or origin is context_type


def _name_needed_deps(annotation: Any, context_type: type) -> str:
    """Return the type in `ToolContext[Shop]`; empty if there is none, or if `None` is a value of it."""
    if get_origin(annotation) is not context_type:
        inner = [each for each in get_args(annotation) if _is_context(each, context_type)]
        return _name_needed_deps(inner[0], context_type) if inner else ""
    (needed,) = get_args(annotation)
    allowed = get_args(needed) if get_origin(needed) in {Union, types.UnionType} else (needed,)
    if isinstance(needed, TypeVar) or not {Any, object, None, types.NoneType}.isdisjoint(allowed):
        return ""
    return needed.__name__ if isinstance(needed, type) else str(needed)


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
