"""The signature of a tool's function: parameter names, resolved annotations, defaults and descriptions.

No validator is involved. A parameter that cannot be offered to a model is a `ConfigError` that names the function and
the parameter.
"""

import contextlib
import functools
import inspect
import itertools
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Collection
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from msgspec import Struct

from .docstring import Docstring, parse_clean_docstring
from .error import ConfigError

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
