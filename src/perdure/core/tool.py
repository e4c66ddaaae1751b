"""What can be done: tools. Above: `toolbox.py` and the loop. Below: `schema.py`, `tool_context.py`.

A tool is a value: a description for the model, how to parse its arguments, and one async function to call. Wrappers
(`wrap.py`) make a new tool from an old one.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

import msgspec
from msgspec import Struct

from . import check, schema
from .docstring import parse_docstring
from .error import ConfigError
from .message import ToolCall, ToolResult
from .model import ToolSpec
from .thread import THREADS
from .tool_context import D, ToolContext

__all__ = [
    "Arguments",
    "D",
    "Effect",
    "Finish",
    "Prepare",
    "Skip",
    "Tool",
    "ToolContext",
    "ToolOptions",
    "ToolOutput",
    "tool",
    "tool_from_schema",
]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

Effect: TypeAlias = Literal["read", "idempotent", "at_most_once", "ask"]
"""What running a call twice would mean. `read`: nothing changes. `idempotent`: the receiver knows our key, and twice is
once. `at_most_once`: never run again, and after a crash the result is *unknown*. `ask`: as before, and a person settles
it."""

_EFFECTS = get_args(Effect)
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_LONGEST_NAME = 64  # which is what providers take


class ToolOutput(Struct, frozen=True):
    """What a tool returns when text alone will not do."""

    content: Any = ""
    """For the model: text, parts, or any value that JSON can hold."""
    render: Any = None
    """For a screen; the model never sees it."""
    summary: str = ""
    """A short form that may stand for the content in later turns."""
    terminate: bool = False
    """End the run after this turn, if every call of the turn says so."""
    is_error: bool = False
    """The call failed, and the content says how."""


class Skip(Struct, frozen=True):
    """Returned by a *prepare* hook: do not make this call, and tell the model this instead."""

    reason: str = "skipped by a hook"

    def __post_init__(self) -> None:
        check.text("Skip", "reason", self.reason)


Arguments: TypeAlias = dict[str, Any]
Prepare: TypeAlias = Callable[[ToolCall, Arguments], "Arguments | Skip | Awaitable[Arguments | Skip | None] | None"]
"""Sees a call before it is validated and gated. Returns other arguments, a `Skip`, or nothing to leave it as it is."""
Finish: TypeAlias = Callable[[ToolCall, ToolResult], "ToolResult | Awaitable[ToolResult | None] | None"]
"""Sees the result before it is stored. Returns another, or nothing to leave it as it is."""


class Tool(Struct, Generic[P, R_co], frozen=True, kw_only=True, eq=False):
    """Something that a model can ask for."""

    name: str
    """Letters, digits, `_` and `-`; at most 64."""
    description: str
    """What the model is told."""
    parameters: schema.Parameters
    """How arguments are described and validated."""
    call: Callable[[Arguments, ToolContext[Any]], Awaitable[Any]]
    """Carries it out, given validated arguments. The one function that wrappers wrap."""
    function: Callable[..., Any] | None = None
    """The function that it was made from."""
    effect: Effect = "at_most_once"
    """What running a call twice would mean."""
    permission: bool | Callable[[Arguments], bool] = False
    """Whether somebody has to agree first; or a function of the arguments that says so."""
    action: str = ""
    """What kind of thing it does, for permission rules; its name when empty."""
    target: Callable[[Arguments], str] | None = None
    """To what it does it, for permission rules; the arguments as JSON when `None`."""
    parallel: bool = True
    """`False`: nothing else runs while this does."""
    abortable: bool = True
    """`False`: once started, a cancel waits for it."""
    timeout_seconds: float | None = None
    """Give up waiting after this long."""
    retries: int = 0
    """Try again after an error. Only for tools that may run twice, or when the tool raises `NotStarted`."""
    terminate: bool = False
    """End the run after a turn in which only such tools ran, and well."""
    asks_first: bool = False
    """It has no effect before it says `await context.begin()`: up to there it may be run again, with the answers that
    it got, after a restart or when the answer comes days later."""
    credentials: bool = True
    """Whether `{{name}}` in its arguments may stand for a secret of the agent's vault; `False` for tools whose
    arguments are words: for another model, for the log, for a file."""
    summary: Callable[[ToolResult], str] | None = None
    """Makes the short form of a result."""
    prompt: str = ""
    """A line for the instructions on how to use it."""
    prepare: tuple[Prepare, ...] = ()
    """Hooks before validation, in order."""
    finish: tuple[Finish, ...] = ()
    """Hooks after the effect, in order."""
    context_parameter: str | None = None
    """The parameter of the function that wants the `ToolContext`."""
    receiver: str | None = None
    """The parameter of a method that stands for its object; `None` for functions, and for methods that are bound."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_options(self)

    @property
    def spec(self) -> ToolSpec:
        """What the model is told."""
        return ToolSpec(self.name, self.description, self.parameters.json_schema)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """The function itself, called as if it were not a tool."""
        if self.function is None:
            message = f"tool {self.name!r} was not made from a function: call it through an agent or `session.call`"
            raise ConfigError(message)
        return cast("R_co", self.function(*args, **kwargs))

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "Tool[P, R_co]": ...
    @overload
    def __get__(self: "Tool[Concatenate[S, Q], R_co]", instance: S, owner: type | None = None) -> "Tool[Q, R_co]": ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> "Tool[P, R_co]": ...
    def __get__(self, instance: object, owner: type | None = None) -> "Tool[..., R_co]":
        """A method marked with `@tool` becomes a tool bound to its object, or to the class if it is a class method."""
        receiver, function, inner = self.receiver, self.function, self.call
        bound_to = owner if receiver == "cls" else instance
        if receiver is None or function is None or bound_to is None:
            return self

        def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
            return inner({receiver: bound_to, **arguments}, context)

        return msgspec.structs.replace(self, function=functools.partial(function, bound_to), call=call, receiver=None)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


class ToolOptions(TypedDict, total=False):
    """What `@tool(...)` takes; each is a field of `Tool`."""

    effect: Effect
    permission: bool | Callable[[Arguments], bool]
    action: str
    target: Callable[[Arguments], str] | str | None
    parallel: bool
    abortable: bool
    timeout_seconds: float | None
    retries: int
    terminate: bool
    asks_first: bool
    credentials: bool
    summary: Callable[[ToolResult], str] | None
    prompt: str


@overload
def tool(
    function: Callable[P, R], /, *, name: str = "", description: str = "", **options: Unpack[ToolOptions]
) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str = "", description: str = "", **options: Unpack[ToolOptions]
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None, /, *, name: str = "", description: str = "", **options: Unpack[ToolOptions]
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a tool of a function: its name, description and parameters come from the function itself.

    Works on `async def` (runs on the event loop), on plain functions (run on a thread) and on methods (bound to their
    object). The docstring describes the tool and, in Google, NumPy or Sphinx style, its parameters; so does
    `Annotated[int, "how many"]`. A parameter annotated with `ToolContext` is given the context of the call.
    """

    def make(function: Callable[P, R]) -> Tool[P, R]:
        return _from_function(function, name, description, options)

    return make if function is None else make(function)


def tool_from_schema(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    function: Callable[[Arguments], Any] | Callable[[Arguments, ToolContext[Any]], Any],
    **options: Unpack[ToolOptions],
) -> Tool[..., Any]:
    """A tool from a raw JSON Schema.

    `function` is given the validated arguments as one dict, and the `ToolContext` if it takes a second parameter.
    """
    _check_function(function)
    takes_context = _takes_two(function)
    is_async = _is_async(function)
    carry_out = cast("Callable[..., Any]", function)

    def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
        given = (arguments, context) if takes_context else (arguments,)
        return carry_out(*given) if is_async else _on_thread(carry_out, given, {})

    if not isinstance(parameters, Mapping):
        check.refuse("tool_from_schema", "parameters", parameters, "give a JSON Schema as a dict")
    checked = schema.from_json_schema(dict(parameters))
    return Tool(name=name, description=description, parameters=checked, call=call, **_fields(options, checked))


def _from_function(function: Callable[P, R], name: str, description: str, options: ToolOptions) -> Tool[P, R]:
    if isinstance(function, (classmethod, staticmethod)):
        function = cast("Callable[P, R]", function.__func__)
    _check_function(function)
    receiver = _receiver_of(function)
    parameters, context = schema.from_function(function, skip=(receiver,) if receiver else (), context_type=ToolContext)
    named = _innermost(function)
    return Tool(
        name=name or getattr(named, "__name__", ""),
        description=description or parse_docstring(inspect.getdoc(named) or "").description,
        parameters=parameters,
        call=_caller(function, context),
        function=function,
        context_parameter=context,
        receiver=receiver,
        **_fields(options, parameters),
    )


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        return len(inspect.signature(function).parameters) > 1
    except ValueError:  # of some functions that are not written in Python
        return False


def _innermost(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.func if isinstance(function, functools.partial) else function


def _receiver_of(function: Callable[..., Any]) -> str | None:
    """The first parameter of a method that is not bound yet."""
    code = getattr(function, "__code__", None)
    first = code.co_varnames[0] if code is not None and code.co_argcount else None
    return first if first in {"self", "cls"} else None


def _caller(function: Callable[..., Any], context_parameter: str | None) -> Callable[..., Awaitable[Any]]:
    """The one async function of a tool, with as few layers as the function allows."""
    is_async = _is_async(function)

    def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
        if context_parameter is not None:
            arguments = {**arguments, context_parameter: context}
        return function(**arguments) if is_async else _on_thread(function, (), arguments)

    return call


def _is_async(function: Callable[..., Any]) -> bool:
    inner = _innermost(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


async def _on_thread(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Arguments) -> Any:
    value = await THREADS.run(function, args, kwargs)
    return await value if inspect.isawaitable(value) else value  # as of a lambda around an async function


def _check_function(function: object) -> None:
    if isinstance(function, Tool):
        message = f"{function!r} is a tool already"
        raise ConfigError(message)
    if not callable(function) or isinstance(function, type):
        message = f"{function!r} cannot be a tool: give a function or a method, plain or async"
        raise ConfigError(message)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        message = (
            f"{function!r} yields, and a tool returns: return the whole result, and tell progress with ToolContext.emit"
        )
        raise ConfigError(message)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or name.strip(_NAME):
        message = f"a tool cannot be called {name!r}: use 1 to 64 letters, digits, '_' or '-', as in @tool(name='add')"
        raise ConfigError(message)


def _check_options(tool: Tool[..., Any]) -> None:
    """Say where a tool is described what cannot work when it is called."""
    seconds, retries, permission = tool.timeout_seconds, tool.retries, tool.permission
    if tool.effect not in _EFFECTS:
        problem = f"effect={tool.effect!r}: use {', '.join(map(repr, _EFFECTS))}"
    elif seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        problem = f"timeout_seconds={seconds!r}: give a number above zero, or None to wait for ever"
    elif not isinstance(retries, int) or retries < 0:
        problem = f"retries={retries!r}: give a whole number, 0 for none"
    elif not isinstance(permission, bool) and not callable(permission):
        problem = f"permission={permission!r}: give True, False, or a function of the arguments"
    else:
        for name, allows in _KINDS.items():
            allows(f"tool {tool.name!r}: Tool", name, getattr(tool, name))
        return
    message = f"tool {tool.name!r} cannot have {problem}"
    raise ConfigError(message)


def _check_parameters(call: str, name: str, value: object) -> None:
    if not isinstance(value, schema.Parameters):
        check.refuse(call, name, value, "use tool_from_schema(…) to make a tool from a JSON Schema")


_KINDS: Mapping[str, Callable[[str, str, object], None]] = {
    **dict.fromkeys(("description", "action", "prompt"), check.text),
    **dict.fromkeys(("parallel", "abortable", "terminate", "asks_first", "credentials"), check.flag),
    **dict.fromkeys(("target", "summary"), check.function_or_none),
    **dict.fromkeys(("prepare", "finish"), check.functions),
    "call": check.function,
    "parameters": _check_parameters,
}
"""What the options may be that have no range of their own."""


def _fields(options: ToolOptions, parameters: schema.Parameters) -> dict[str, Any]:
    """Options as fields; `target="path"` is short for the argument of that name."""
    target = options.get("target")
    return {**options, "target": _argument(target, parameters)} if isinstance(target, str) else dict(options)


def _argument(name: str, parameters: schema.Parameters) -> Callable[[Arguments], str]:
    """A function that tells one argument as text, or the default of one that was not given."""
    known: dict[str, Any] = parameters.json_schema.get("properties", {})
    if known and name not in known:
        message = f"target={name!r} is not a parameter of the tool; there is {', '.join(map(repr, known))}"
        raise ConfigError(message)
    default = known.get(name, {}).get("default")

    def target(arguments: Arguments) -> str:
        value = arguments.get(name, default)
        return "" if value is None else str(value)

    return target
