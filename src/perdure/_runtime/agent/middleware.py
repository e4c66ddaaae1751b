"""Middleware: named functions that wrap the runs, turns and tool calls of an agent.

Each function gets the next one as its first argument. It may do something before and after it, change what it returns,
call it again, or not at all. The first in the list is outermost.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from perdure._core.run.outcome import Outcome
from perdure._core.run.run import Run
from perdure._core.run.spec import Engine, TurnWrapper, call_engine
from perdure._core.tools.context import ToolContext
from perdure._core.tools.tool import Tool
from perdure._core.tools.wrappers import ToolWrapper, around
from perdure._core.values import checks
from perdure._core.values.checks import StrictOptionsMeta
from perdure._core.values.error import ConfigError, MiddlewareFailed, PerdureError
from perdure._core.values.message import Message

T = TypeVar("T")

RunMiddleware: TypeAlias = Callable[[Callable[[], Awaitable[Outcome[Any]]], Run], Awaitable[Outcome[Any]]]
"""Function around a whole run: `async def run(call_next, run)`, which returns the outcome. A plain one works too."""
TurnMiddleware: TypeAlias = Callable[[Callable[[], Awaitable[Message]], Run], Awaitable[Message]]
"""Function around one turn of the model: `async def turn(call_next, run)`, which returns the reply. A plain one works
too.
"""


class Middleware(Struct, frozen=True, kw_only=True, eq=False, metaclass=StrictOptionsMeta):
    """A middleware: functions that wrap the runs, turns and tool calls of an agent. Each is optional."""

    name: str
    """Its name, in the log and in errors."""
    run: RunMiddleware | None = None
    """Called around each run: `async def run(call_next, run)`."""
    turn: TurnMiddleware | None = None
    """Called around each turn: `async def turn(call_next, run)`. The reply is stored: it can be read, not changed."""
    tool: ToolWrapper | None = None
    """Called around each tool call: `async def tool(call_next, arguments, context)`."""
    tools: Sequence[str] = ()
    """Names of the only tools that `tool` is called for; empty for all."""

    def __post_init__(self) -> None:
        checks.require_text("Middleware", "name", self.name, non_empty=True)
        for field in ("run", "turn", "tool"):
            checks.require_callable_or_none("Middleware", field, getattr(self, field))
        if self.run is None and self.turn is None and self.tool is None:
            checks.raise_config_error("Middleware", "name", self.name, "give at least one of run, turn and tool")
        if not isinstance(self.tools, (list, tuple)) or not all(isinstance(each, str) for each in self.tools):
            checks.raise_config_error("Middleware", "tools", self.tools, "give a list of names of tools")

    def __repr__(self) -> str:
        scopes = [field for field in ("run", "turn", "tool") if getattr(self, field) is not None]
        return f"Middleware({self.name!r}, {', '.join(scopes)})"


def wrap_engine(engine: Engine, layers: Iterable[Middleware]) -> Engine:
    """Wrap an engine with the `run` functions of middleware; the first layer is outermost."""
    for layer in reversed(list(layers)):
        if layer.run is not None:
            engine = _wrap_engine(engine, layer.name, layer.run)
    return engine


def _wrap_engine(engine: Engine, name: str, wrapper: RunMiddleware) -> Engine:
    @functools.wraps(engine)
    async def run_inside(run: Run) -> Outcome[Any]:
        outcome = await _call_layer(
            name, "a run", lambda call_next: wrapper(call_next, run), lambda: call_engine(engine, run)
        )
        checks.require_return_type(f"middleware {name!r}", wrapper, outcome, Outcome, "the outcome of the run")
        return outcome

    return run_inside


def build_turn_wrapper(layers: Iterable[Middleware]) -> TurnWrapper | None:
    """Combine the `turn` functions of all middleware into one; `None` if there are none."""
    wrappers = [(layer.name, layer.turn) for layer in layers if layer.turn is not None]
    if not wrappers:
        return None

    async def run_turn_without_middleware(run: Run, request_reply: Callable[[], Awaitable[Message]]) -> Message:
        stored: list[Message] = []

        async def call_model() -> Message:
            stored.append(await request_reply())
            return stored[-1]

        call_next: Callable[[], Awaitable[Message]] = call_model
        for name, wrapper in reversed(wrappers):
            call_next = functools.partial(_call_turn, name, wrapper, run, call_next)
        await call_next()
        if not stored:
            names = ", ".join([repr(name) for name, _ in wrappers])
            raise ConfigError(f"the middleware {names} around turns has to await call_next(), which asks the model")
        return stored[-1]  # what is in the log is what goes on, whatever a layer returns

    return run_turn_without_middleware


async def _call_turn(
    name: str, wrapper: TurnMiddleware, run: Run, call_next: Callable[[], Awaitable[Message]]
) -> Message:
    reply = await _call_layer(name, "a turn", lambda next_one: wrapper(next_one, run), call_next)
    checks.require_return_type(f"middleware {name!r}", wrapper, reply, Message, "the reply")
    return reply


def wrap_tool(tool: Tool[..., Any], layers: Iterable[Middleware]) -> Tool[..., Any]:
    """Wrap a tool with the `tool` functions of middleware; the first layer is outermost."""
    for layer in reversed(list(layers)):
        if layer.tool is not None and (not layer.tools or tool.name in layer.tools):
            tool = around(tool, _name_tool_wrapper(layer.name, layer.tool))
    return tool


def _name_tool_wrapper(name: str, wrapper: ToolWrapper) -> ToolWrapper:
    async def call_inside(call_next: Any, arguments: Any, context: ToolContext[Any]) -> Any:
        where = f"a call of {context.name!r}"
        return await _call_layer(name, where, lambda next_one: wrapper(next_one, arguments, context), call_next)

    return call_inside


async def _call_layer(
    name: str,
    where: str,
    wrapper: Callable[[Callable[[], Awaitable[T]]], Awaitable[T] | T],
    call_next: Callable[[], Awaitable[T]],
) -> T:
    """Call one layer of middleware. Its own errors are raised as `MiddlewareFailed`, those from inside unchanged."""
    passed: list[Exception] = []

    async def call_inner() -> T:
        try:
            return await call_next()
        except Exception as error:
            passed.append(error)
            raise

    try:
        answer: Any = wrapper(call_inner)
        value: T = await answer if isawaitable(answer) else answer
        return value
    except PerdureError:
        raise
    except Exception as error:
        if error in passed:
            raise
        raise MiddlewareFailed(name, f"around {where}: {type(error).__name__}: {error}") from error
