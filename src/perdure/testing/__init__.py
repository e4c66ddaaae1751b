"""Test doubles for agents, tools, models and stores, and contract tests for your own models and stores.

Nothing else in the package imports this one. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cache_stability import assert_cache_stable
    from .event_recorder import Recorder
    from .fake_clock import FakeClock
    from .memory_files import MemoryFiles
    from .model_contract import check_model
    from .scripted_browser import ScriptedBrowser, ScriptedPage
    from .scripted_model import Scripted, ScriptedModel, ScriptEnded
    from .scripted_reply import Pause, Reply, call, calls, pause, thinking
    from .scripted_shell import ScriptedShell
    from .scripted_web import ScriptedWeb
    from .store_contract import check_store

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
    "FakeClock": "perdure.testing.fake_clock",
    "MemoryFiles": "perdure.testing.memory_files",
    "Pause": "perdure.testing.scripted_reply",
    "Recorder": "perdure.testing.event_recorder",
    "Reply": "perdure.testing.scripted_reply",
    "ScriptEnded": "perdure.testing.scripted_model",
    "Scripted": "perdure.testing.scripted_model",
    "ScriptedBrowser": "perdure.testing.scripted_browser",
    "ScriptedModel": "perdure.testing.scripted_model",
    "ScriptedPage": "perdure.testing.scripted_browser",
    "ScriptedShell": "perdure.testing.scripted_shell",
    "ScriptedWeb": "perdure.testing.scripted_web",
    "assert_cache_stable": "perdure.testing.cache_stability",
    "call": "perdure.testing.scripted_reply",
    "calls": "perdure.testing.scripted_reply",
    "check_model": "perdure.testing.model_contract",
    "check_store": "perdure.testing.store_contract",
    "pause": "perdure.testing.scripted_reply",
    "thinking": "perdure.testing.scripted_reply",
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
