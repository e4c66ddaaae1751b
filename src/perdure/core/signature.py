"""What a function wants to be given: names, resolved annotations, defaults, descriptions. Above: `schema.py`.

Knows no validator. What cannot be offered to a model is a `ConfigError` that names the function and the parameter.
"""

import contextlib
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Collection
from typing import Annotated, Any, Union, get_args, get_origin

from msgspec import Struct

from .docstring import parse_docstring
from .error import ConfigError

NO_DEFAULT = inspect.Parameter.empty
"""The default of a parameter that has none."""


class Parameter(Struct, frozen=True):
    """One parameter that a model is to fill in."""

    name: str
    annotation: Any
    """Its type, with strings resolved; `Any` when there is no annotation."""
    default: Any = NO_DEFAULT
    """What Python fills in when it is not given."""
    description: str = ""
    """What the docstring says of it."""


class Signature(Struct, frozen=True):
    """What a function wants to be given."""

    name: str
    """The function, as messages call it."""
    parameters: tuple[Parameter, ...]
    """For the model to fill in."""
    context: str | None
    """The parameter that wants the context of the call, if one does."""


def read_signature(
    function: Callable[..., Any], *, skip: Collection[str] = (), context_type: type | None = None
) -> Signature:
    """Look at a function. `skip` are names to leave out, `context_type` marks the parameter that is not the model's."""
    name = getattr(function, "__qualname__", None) or repr(function)
    inner = _innermost(function)
    descriptions = parse_docstring(inspect.getdoc(inner)).parameters
    names = _Names(inner, context_type)
    parameters: list[Parameter] = []
    contexts: list[str] = []
    for parameter in _own_parameters(function, name):
        if parameter.name in skip:
            continue
        where = f"parameter {parameter.name!r} of {name}"
        annotation = names.resolve(parameter.annotation, where)
        if context_type is not None and _is_context(annotation, context_type):
            contexts.append(parameter.name)
            continue
        _check_kind(parameter, where)
        description = descriptions.get(parameter.name, "")
        parameters.append(Parameter(parameter.name, annotation, parameter.default, description))
    if len(contexts) > 1:
        message = f"{name} asks for its context twice, as {' and '.join(map(repr, contexts))}: keep one of them"
        raise ConfigError(message)
    return Signature(name, tuple(parameters), contexts[0] if contexts else None)


def _own_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        message = f"the parameters of {name} cannot be found out ({error}): wrap it in a function of your own"
        raise ConfigError(message) from error


def _innermost(function: Any) -> Any:
    """The function whose annotations, docstring and names count, below partials, wrappers and callable objects."""
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


_REFUSED = {
    "VAR_POSITIONAL": "takes any number of values: use a list, such as `values: list[str]`",
    "VAR_KEYWORD": "takes any keyword: name each parameter, or take a `dict[str, Any]`",
    "POSITIONAL_ONLY": "is positional only, and tools are called by keyword: remove the `/`",
}
"""Kinds of parameters that a model cannot fill in, and what to do instead."""


def _check_kind(parameter: inspect.Parameter, where: str) -> None:
    advice = _REFUSED.get(parameter.kind.name)
    if advice:
        message = f"{where} {advice}"
        raise ConfigError(message)


class _Names:
    """The names that the annotations of a function may use."""

    def __init__(self, function: Any, context_type: type | None) -> None:
        self.context_type = context_type
        context = {} if context_type is None else {context_type.__name__: context_type}
        # The context type counts as imported: people import it for the type checker alone.
        self.globals = {**context, **getattr(function, "__globals__", {})}
        self.locals = _local_names(function)

    def resolve(self, annotation: Any, where: str) -> Any:
        """The annotation without strings in it."""
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
                f"{where} is annotated {annotation!r}, in which the name {error.name!r} cannot be found: "
                "import it for real, not only for the type checker, or define it at the top of the module"
            )
        except Exception as error:  # noqa: BLE001 - whatever evaluating an annotation may raise
            message = f"{where} is annotated {annotation!r}, which cannot be evaluated: {error}"
        raise ConfigError(message)

    def _names_context(self, annotation: Any) -> bool:
        """Whether it is `ToolContext[Deps]` as a string, with a `Deps` that only the type checker knows."""
        if self.context_type is None or not isinstance(annotation, str):
            return False
        name = rf"(?:\w+\.)*{self.context_type.__name__}(?:\[.*\])?(?: \| None)?"
        return re.fullmatch(name, annotation.strip("'\"")) is not None


def _local_names(function: Any) -> dict[str, Any]:
    """Names of the functions that this one is defined in, as far as they are running or it holds on to them."""
    names: dict[str, Any] = {}
    if not isinstance(function, types.FunctionType):
        return names
    code = function.__code__
    frame = sys._getframe().f_back  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no other way to see where it is defined
    while frame is not None:
        if any(constant is code for constant in frame.f_code.co_consts):
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
