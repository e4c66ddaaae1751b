"""Test doubles for agents, tools, models and stores, and contract tests for your own models and stores.

Nothing else in the package imports this one. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .browser import ScriptedBrowser, ScriptedPage
    from .cache import assert_cache_stable
    from .clock import FakeClock
    from .files import MemoryFiles
    from .model import Pause, Reply, Scripted, ScriptedModel, ScriptEnded, call, calls, pause, thinking
    from .model_contract import check_model
    from .recorder import Recorder
    from .shell import ScriptedShell
    from .store_contract.suite import check_store
    from .web import ScriptedWeb

__all__ = [
    "FakeClock",
    "MemoryFiles",
    "Pause",
    "Recorder",
    "Reply",
    "ScriptEnded",
    "Scripted",
    "ScriptedBrowser",
    "ScriptedModel",
    "ScriptedPage",
    "ScriptedShell",
    "ScriptedWeb",
    "assert_cache_stable",
    "call",
    "calls",
    "check_model",
    "check_store",
    "pause",
    "thinking",
]

_PLACES = {
    "FakeClock": "perdure._testing.clock",
    "MemoryFiles": "perdure._testing.files",
    "Pause": "perdure._testing.model",
    "Recorder": "perdure._testing.recorder",
    "Reply": "perdure._testing.model",
    "ScriptEnded": "perdure._testing.model",
    "Scripted": "perdure._testing.model",
    "ScriptedBrowser": "perdure._testing.browser",
    "ScriptedModel": "perdure._testing.model",
    "ScriptedPage": "perdure._testing.browser",
    "ScriptedShell": "perdure._testing.shell",
    "ScriptedWeb": "perdure._testing.web",
    "assert_cache_stable": "perdure._testing.cache",
    "call": "perdure._testing.model",
    "calls": "perdure._testing.model",
    "check_model": "perdure._testing.model_contract",
    "check_store": "perdure._testing.store_contract.suite",
    "pause": "perdure._testing.model",
    "thinking": "perdure._testing.model",
}
"""Module of each name."""


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(place), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
