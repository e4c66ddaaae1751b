"""`Tool` and the decorator `@tool`: a function that a model can call, with its description, parameters and options.

A tool has a description for the model, a parser for its arguments, and one async function to call. Wrappers
(`_core/tools/wrappers.py`) make a new tool from an old one.
"""

import functools
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
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
from msgspec.structs import force_setattr

from perdure._core.model.protocol import ToolSpec
from perdure._core.schema import parameters as schema
from perdure._core.schema.docstring import parse_clean_docstring
from perdure._core.schema.signature import read_signature
from perdure._core.values import checks
from perdure._core.values.checks import UnresolvedSignatureMeta
from perdure._core.values.error import ConfigError
from perdure._core.values.jsonable import to_text
from perdure._core.values.message import MAX_LABEL_LENGTH, ToolCall, ToolResult, check_labels, merge_labels

from .context import D, ToolContext
from .worker.threads import THREAD_POOL

if TYPE_CHECKING:
    from perdure._core.permission.targets.patterns import Target

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
"""The effect of running a call twice. `read`: nothing changes. `idempotent`: the service knows our key, and twice is
once. `at_most_once`: never run again; after a crash the result is *unknown*. `ask`: like `at_most_once`, and a person
settles the result after a crash.
"""

REPEATABLE_EFFECTS = frozenset({"read", "idempotent"})
"""The effects of calls that are made again after a crash."""
_EFFECTS = get_args(Effect)
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
_MAX_NAME_LENGTH = 64  # the limit of providers
_MAIN_MODULES = ("__main__", "__mp_main__")  # the second one in processes that multiprocessing has spawned


class ToolOutput(Struct, frozen=True):
    """Return value of a tool that returns more than text: data for a screen, a summary or labels.

    It can also ask to end the run.
    """

    content: Any = ""
    """For the model: text, parts, or any JSON value."""
    render: Any = None
    """For a screen; the model never sees it."""
    summary: str = ""
    """A short form that may replace the content in later turns."""
    terminate: bool = False
    """End the run after this turn, if every call of the turn sets this."""
    is_error: bool = False
    """The call failed, and the content is the error message."""
    labels: Sequence[str] = ()
    """Labels of the content, such as `untrusted`, besides those of the tool."""


class Skip(Struct, frozen=True):
    """Returned by a `prepare` hook of a tool: do not make this call, and send the model this reason as its result."""

    reason: str = "skipped by a hook"

    def __post_init__(self) -> None:
        checks.require_text("Skip", "reason", self.reason)


Arguments: TypeAlias = dict[str, Any]
Prepare: TypeAlias = Callable[[ToolCall, Arguments], "Arguments | Skip | Awaitable[Arguments | Skip | None] | None"]
"""A hook that receives a call before it is validated and gated. Returns other arguments, a `Skip`, or `None` to change
nothing.
"""
Finish: TypeAlias = Callable[[ToolCall, ToolResult], "ToolResult | Awaitable[ToolResult | None] | None"]
"""A hook that receives the result before it is stored. Returns another result, or `None` to change nothing."""


class Tool(Struct, Generic[P, R_co], frozen=True, kw_only=True, eq=False, metaclass=UnresolvedSignatureMeta):
    """A tool that a model can call: a function with its name, description, parameters and options."""

    name: str
    """Letters, digits, `_` and `-`; at most 64."""
    description: str
    """The description sent to the model."""
    parameters: schema.Parameters
    """The schema and the validation of its arguments."""
    call: Callable[[Arguments, ToolContext[Any]], Awaitable[Any]]
    """Carries out a call, given validated arguments. The one function that wrappers wrap."""
    function: Callable[..., Any] | None = None
    """The function that the tool was made from."""
    effect: Effect = "at_most_once"
    """The effect of running a call twice."""
    permission: bool | Callable[[Arguments], bool] = False
    """True if a call needs permission; or a plain function of the arguments that decides. Only False means no."""
    action: str = ""
    """The kind of action, for permission rules; the tool's name when empty."""
    target: "Callable[[Arguments], Target | str] | None" = None
    """Plain function that returns the target of a call, for permission rules; `None` for the arguments as JSON."""
    source: str = ""
    """Where the tool comes from: the module and name of its function, or a server. A part of its identity."""
    parallel: bool = True
    """`False`: no other call runs at the same time."""
    abortable: bool = True
    """`False`: a cancel waits until a call that has started is done. The end of the process, as with `Shutdown`, does
    not."""
    timeout_seconds: float | None = None
    """Stop waiting for the call after this long."""
    retries: int = 0
    """Number of retries after an error: only for tools that may run twice, or if the tool raises `EffectNotStarted`."""
    terminate: bool = False
    """End the run after a turn in which only such tools ran, and succeeded."""
    asks_first: bool = False
    """The call has no effect before `await context.begin()`: until then it may run again, with the answers that it was
    given, after a restart or when the answer arrives days later.
    """
    credentials: bool = True
    """`{{name}}` in its arguments may refer to a secret of the agent's vault; `False` for tools whose arguments are
    prose: for another model, for the log, for a file.
    """
    summary: Callable[[ToolResult], str | Awaitable[str]] | None = None
    """Makes the short form of a result, in a plain or an async function. If it fails, the result has none."""
    prompt: str = ""
    """A line for the instructions on how to use it."""
    prepare: tuple[Prepare, ...] = ()
    """Hooks before validation, in order."""
    finish: tuple[Finish, ...] = ()
    """Hooks after the effect, in order."""
    context_parameter: str | None = None
    """The name of the function's parameter that receives the `ToolContext`, or `None`."""
    needed_deps: str = ""
    """The type of `deps` that the function declares, as in `ToolContext[Shop]`: a run without deps is refused."""
    labels: Sequence[str] = ()
    """Labels of all its results, such as `untrusted`: gates see them with every later call."""
    sends: bool = False
    """True if a call can send data out of the machine: mail, HTTP requests, commands with network access.

    It is asked about once the model has seen private data and untrusted text.
    """
    isolate: bool = False
    """The function runs in a worker process, which is killed when the call is cancelled or its time is over."""
    agents: Sequence[Any] = ()
    """The agents that calls give tasks to, as far as they are known before a call: the secrets of their vaults are
    redacted from the first event of a session on.
    """
    is_of_the_runtime: bool = False
    """True for a tool by which a run ends or changes its agent, made by the runtime: no gate is asked about it.

    `@tool` has no such option, and a tool of yours that has the same name is like any other.
    """
    receiver: str | None = None
    """The `self` or `cls` parameter of a method that is not bound yet; `None` for functions and bound methods."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_options(self)
        if self.labels:
            force_setattr(self, "labels", check_labels(self.labels))

    @property
    def spec(self) -> ToolSpec:
        """The name, description and schema sent to the model."""
        return ToolSpec(self.name, self.description, self.parameters.json_schema)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the tool's function directly, without validation, permission or log."""
        if self.function is None:
            message = f"tool {self.name!r} was not made from a function: call it through an agent or `session.call`"
            raise ConfigError(message)
        return cast("R_co", self.function(*args, **kwargs))

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "Tool[P, R_co]": ...
    @overload
    def __get__(
        self: Callable[Concatenate[S, Q], R_co],  # not Tool[…]: some type checkers would refuse its named `self`
        instance: S,
        owner: type | None = None,
    ) -> "Tool[Q, R_co]": ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> "Tool[P, R_co]": ...
    def __get__(self, instance: object, owner: type | None = None) -> "Tool[..., R_co]":
        """Bind the tool to an object or class when `@tool` marks a method."""
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
    """The options of `@tool(...)`; each is a field of `Tool`."""

    effect: Effect
    permission: bool | Callable[[Arguments], bool]
    action: str
    target: "Callable[[Arguments], Target | str] | str | None"
    parallel: bool
    abortable: bool
    timeout_seconds: float | None
    retries: int
    terminate: bool
    asks_first: bool
    credentials: bool
    summary: Callable[[ToolResult], str | Awaitable[str]] | None
    prompt: str
    labels: Sequence[str]
    sends: bool
    isolate: bool


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
    """Make a tool from a function: it takes the function's name, docstring and parameters. Works as `@tool` and as
    `@tool(…)`.

    Works on `async def` (runs on the event loop), on plain functions (run on a thread) and on methods (bound to their
    object). The docstring describes the tool and, in Google, NumPy or Sphinx style, its parameters; so does
    `Annotated[int, "how many"]`. A parameter annotated with `ToolContext` receives the context of the call.
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
    """Make a tool from a raw JSON Schema of its parameters, and a function that gets the arguments as a dict.

    `function` receives the validated arguments as one dict, and the `ToolContext` if it takes a second parameter.
    """
    _check_function(function)
    if options.get("isolate"):
        raise ConfigError(f"tool_from_schema({name!r}, isolate=True): only functions marked @tool can be isolated")
    takes_context = _takes_context(function)
    is_async = checks.is_async_function(function)
    carry_out = cast("Callable[..., Any]", function)

    def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
        given = (arguments, context) if takes_context else (arguments,)
        return carry_out(*given) if is_async else _run_on_thread(context, carry_out, given, {})

    if not isinstance(parameters, Mapping):
        checks.raise_config_error("tool_from_schema", "parameters", parameters, "give a JSON Schema as a dict")
    checked = schema.build_parameters_from_json_schema(dict(parameters))
    return Tool(
        name=name,
        description=description,
        parameters=checked,
        call=call,
        source=_describe_source(function),
        **_options_to_fields(options, checked),
    )


def _from_function(function: Callable[P, R], name: str, description: str, options: ToolOptions) -> Tool[P, R]:
    if isinstance(function, (classmethod, staticmethod)):
        function = cast("Callable[P, R]", function.__func__)
    _check_function(function)
    receiver = _unbound_receiver_name(function)
    signature = read_signature(function, skip=(receiver,) if receiver else (), context_type=ToolContext)
    parameters, context = schema.build_parameters_from_signature(signature), signature.context
    named = _unwrap_partial(function)
    if not description:
        is_inner = named is signature.inner  # whose docstring has been parsed for its parameters
        docstring = signature.docstring if is_inner else parse_clean_docstring(inspect.getdoc(named) or "")
        description = docstring.description
    return Tool(
        name=name or getattr(named, "__name__", ""),
        description=description,
        parameters=parameters,
        call=_make_isolated_call(function, context, receiver)
        if options.get("isolate")
        else _make_call(function, context),
        function=function,
        source=_describe_source(function),
        context_parameter=context,
        needed_deps=signature.needed_deps,
        receiver=receiver,
        **_options_to_fields(options, parameters),
    )


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        return len(inspect.signature(function).parameters) > 1
    except ValueError:  # raised for some functions that are not written in Python
        return False


def _unwrap_partial(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.func if isinstance(function, functools.partial) else function


def _describe_source(function: Callable[..., Any]) -> str:
    """Return the module and the name of a function; of an object that can be called, those of its class."""
    named = _unwrap_partial(function)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{_get_import_name(named.__module__)}:{named.__qualname__}"


def _get_import_name(module: str) -> str:
    """Return the name by which other processes import a module: that of a program that is run is not `__main__`.

    Otherwise an approval in the program would not count in a worker that imports it. `__main__` is what it was run as
    by `python -m`, or the name of its file. It stays if no import could give another name, as for `python -c`.
    """
    if module not in _MAIN_MODULES:
        return module
    main = sys.modules.get(module)
    spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    name = spec.name if spec is not None else os.path.basename(path or "").removesuffix(".py")  # noqa: PTH119 - pathlib is slow
    return name if all(part.isidentifier() for part in name.split(".")) else "__main__"


def _unbound_receiver_name(function: Callable[..., Any]) -> str | None:
    """Return the name of the first parameter (`self`) of a method that is not bound yet, or `None`."""
    code = getattr(function, "__code__", None)
    first = code.co_varnames[0] if code is not None and code.co_argcount else None
    return first if first in {"self", "cls"} else None


def _make_call(function: Callable[..., Any], context_parameter: str | None) -> Callable[..., Awaitable[Any]]:
    """Return the tool's function as an async function of arguments and context."""
    is_async = checks.is_async_function(function)

    def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
        if context_parameter is not None:
            arguments = {**arguments, context_parameter: context}
        return function(**arguments) if is_async else _run_on_thread(context, function, (), arguments)

    return call


def _make_isolated_call(
    function: Callable[..., Any], context_parameter: str | None, receiver: str | None
) -> Callable[..., Awaitable[Any]]:
    """Return the tool's function as an async function that calls it in a worker process."""
    from .worker.process import (  # at first use: most tools share this process
        call_isolated,
        locate_isolated_function,
    )

    module, name = locate_isolated_function(function, context_parameter, receiver)

    def call(arguments: Arguments, context: ToolContext[Any]) -> Awaitable[Any]:
        return call_isolated(context.confirm_lease_on_thread, context.session_id, module, name, arguments)

    return call


async def _run_on_thread(
    context: ToolContext[Any], function: Callable[..., Any], args: tuple[Any, ...], kwargs: Arguments
) -> Any:
    def call_unless_fenced() -> Any:
        context.confirm_lease_on_thread()
        return function(*args, **kwargs)

    value = await THREAD_POOL.run(call_unless_fenced, (), {}, session_id=getattr(context, "full_session_id", None))
    return await value if inspect.isawaitable(value) else value  # as for a lambda around an async function


def _check_function(function: object) -> None:
    if isinstance(function, Tool):
        message = f"{function!r} is a tool already"
        raise ConfigError(message)
    if not callable(function) or isinstance(function, type):
        message = f"{function!r} cannot be a tool: give a function or a method, plain or async"
        raise ConfigError(message)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        message = f"{function!r} yields, and a tool returns: return it all, and report progress with ToolContext.emit"
        raise ConfigError(message)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME_LENGTH or name.strip(_NAME_CHARACTERS):
        message = f"a tool cannot be called {name!r}: use 1 to 64 letters, digits, '_' or '-', as in @tool(name='add')"
        raise ConfigError(message)


def _check_options(tool: Tool[..., Any]) -> None:
    """Raise `ConfigError` for options of a tool that could not work when it is called."""
    seconds, retries, permission = tool.timeout_seconds, tool.retries, tool.permission
    if tool.effect not in _EFFECTS:
        problem = f"effect={tool.effect!r}: use {', '.join(map(repr, _EFFECTS))}"
    elif seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        problem = f"timeout_seconds={seconds!r}: give a number above zero, or None to wait for ever"
    elif not isinstance(retries, int) or retries < 0:
        problem = f"retries={retries!r}: give a whole number, 0 for none"
    elif not isinstance(permission, bool) and (not callable(permission) or checks.is_async_function(permission)):
        problem = f"permission={permission!r}: give True, False, or a plain function of the arguments"
    else:
        for name, allows in _OPTION_CHECKS.items():
            allows(f"tool {tool.name!r}: Tool", name, getattr(tool, name))
        return
    message = f"tool {tool.name!r} cannot have {problem}"
    raise ConfigError(message)


def _check_parameters(call: str, name: str, value: object) -> None:
    if not isinstance(value, schema.Parameters):
        checks.raise_config_error(call, name, value, "use tool_from_schema(…) to make a tool from a JSON Schema")


_OPTION_CHECKS: Mapping[str, Callable[[str, str, object], None]] = {
    **dict.fromkeys(("description", "action", "prompt"), checks.require_text),
    **dict.fromkeys(
        ("parallel", "abortable", "terminate", "asks_first", "credentials", "isolate", "sends"),
        checks.require_bool,
    ),
    "target": checks.require_plain_function_or_none,
    "summary": checks.require_callable_or_none,
    **dict.fromkeys(("prepare", "finish"), checks.require_callables),
    "call": checks.require_callable,
    "parameters": _check_parameters,
}
"""The check for each option that has no range."""


def _options_to_fields(options: ToolOptions, parameters: schema.Parameters) -> dict[str, Any]:
    """Convert the options of `@tool` to fields of `Tool`; `target="path"` is short for the argument `path`.

    Raises `ConfigError` for an option that `@tool` does not have.
    """
    existing = ToolOptions.__annotations__
    for name in options:
        if name not in existing:
            advice = checks.suggest_name(name, existing) or f"its options are name, description, {', '.join(existing)}"
            raise ConfigError(f"@tool({name}=…): there is no option {name!r}: {advice.rstrip()}")
    target = options.get("target")
    if target is None:
        return dict(options)
    from perdure._core.permission.targets.text import TargetFromArgument  # at first use: most tools declare no target

    if isinstance(target, str):
        target = TargetFromArgument(target, lambda value: "" if value is None else str(value))
    if not isinstance(target, TargetFromArgument):
        return dict(options)
    known: dict[str, Any] = parameters.json_schema.get("properties", {})
    if known and target.name not in known:
        message = f"target={target.name!r} is not a parameter of the tool; there is {', '.join(map(repr, known))}"
        raise ConfigError(message)
    return {**options, "target": target.with_default(known.get(target.name, {}).get("default"))}


def sanitize_labels(labels: Any) -> tuple[str, ...]:
    """Convert the labels that a tool or hook has set to labels that can be stored; none is dropped."""
    if not labels:
        return ()
    given = cast("Sequence[Any]", labels if isinstance(labels, (tuple, list)) else (labels,))
    return merge_labels([to_text(each)[:MAX_LABEL_LENGTH] for each in given])
