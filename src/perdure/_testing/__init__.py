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
    "FakeClock": "perdure.testing",
    "MemoryFiles": "perdure.testing",
    "Pause": "perdure.testing",
    "Recorder": "perdure.testing",
    "Reply": "perdure.testing",
    "ScriptEnded": "perdure.testing",
    "Scripted": "perdure.testing",
    "ScriptedBrowser": "perdure.testing",
    "ScriptedModel": "perdure.testing",
    "ScriptedPage": "perdure.testing",
    "ScriptedShell": "perdure.testing",
    "ScriptedWeb": "perdure.testing",
    "assert_cache_stable": "perdure.testing",
    "call": "perdure.testing",
    "calls": "perdure.testing",
    "check_model": "perdure.testing",
    "check_store": "perdure.testing",
    "pause": "perdure.testing",
    "thinking": "perdure.testing",
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
