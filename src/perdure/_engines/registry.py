"""Engines, which decide how the turns and tool calls of a run follow each other; `open_engine` opens one by its name.

- `"react"`: turns and tool calls until the model answers. The default.
- `"chain_of_thought"`: the model first thinks about the task step by step, in private.
- `"planner"`: the model makes a plan, its tasks are carried out, several at a time, and the model answers from them.
- `"reflect"`: each answer is reviewed in private, and revised until it is good enough.
- `"autonomous"`: the model works until it calls a tool that says that it is done.
- `"passthrough"`: one reply of the model, without tools.

`register_engine` adds a name. All of them use the one loop, and what they ask the model outside the conversation
is a private run below a path in the log of the session.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from perdure._core.run.loop import react
from perdure._core.run.spec import Engine
from perdure._core.values import checks
from perdure._core.values.error import ConfigError

EngineFactory: TypeAlias = Callable[[], Engine]
"""Builds an engine, for an agent that names it."""

_BUILT_IN = ("autonomous", "chain_of_thought", "passthrough", "planner", "reflect")
"""The engines of ours that are modules beside this one, each imported at its first use."""
_factories: dict[str, EngineFactory] = {}
"""The engines that a program has registered."""


def list_engine_names() -> list[str]:
    """Return the names by which an agent can choose its engine."""
    return sorted({"react", *_BUILT_IN, *_factories})


def register_engine(name: str, factory: EngineFactory) -> None:
    """Register an engine under a name: `Agent(…, engine=name)` calls the factory for its engine.

    Raises `ConfigError` if the name is that of an engine of ours; one of your own is replaced.
    """
    checks.require_text("register_engine", "name", name, non_empty=True)
    checks.require_callable("register_engine", "factory", factory)
    if name == "react" or name in _BUILT_IN:
        checks.raise_config_error("register_engine", "name", name, "this engine is built in: choose a name")
    _factories[name] = factory


def open_engine(spec: str | Engine) -> Engine:
    """Return the engine of this name; an engine is returned as it is.

    Raises `ConfigError` for an unknown name, with the known ones, and for an object that cannot be called.
    """
    if spec == "react":
        return react
    if not isinstance(spec, str):
        if callable(spec) and not isinstance(spec, type):
            return spec
        raise ConfigError(f"Agent(engine={spec!r}): give the name of an engine, or an async function of a Run")
    if spec in _factories:
        return _build_registered(spec)
    if spec not in _BUILT_IN:
        near = checks.suggest_name(spec, list_engine_names())
        raise ConfigError(
            f"there is no engine {spec!r}: {near}known are {', '.join(list_engine_names())}; "
            "register_engine(name, factory) adds one"
        )
    engine: Engine = getattr(import_module(f".{spec}", __package__), spec)()
    return engine


def _build_registered(name: str) -> Engine:
    engine = _factories[name]()
    if not callable(engine) or isinstance(engine, type):
        checks.close_coroutine(engine)
        raise ConfigError(
            f"the factory of the engine {name!r} returned {engine!r}: it has to return a function of a Run"
        )
    return engine
