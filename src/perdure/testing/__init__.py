"""For tests of agents, tools, models and stores: doubles of every seam, and the contracts that each seam keeps.

Nothing else in the package imports this one. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cache import assert_cache_stable
    from .clock import FakeClock
    from .contracts import check_store
    from .contracts_model import check_model
    from .recorder import Recorder
    from .reply import Pause, Reply, call, calls, pause, thinking
    from .scripted import ScriptedModel, ScriptEnded

__all__ = [
    "FakeClock",
    "Pause",
    "Recorder",
    "Reply",
    "ScriptEnded",
    "ScriptedModel",
    "assert_cache_stable",
    "call",
    "calls",
    "check_model",
    "check_store",
    "pause",
    "thinking",
]

_PLACES = {
    "FakeClock": "clock",
    "Pause": "reply",
    "Recorder": "recorder",
    "Reply": "reply",
    "ScriptEnded": "scripted",
    "ScriptedModel": "scripted",
    "assert_cache_stable": "cache",
    "call": "reply",
    "calls": "reply",
    "check_model": "contracts_model",
    "check_store": "contracts",
    "pause": "reply",
    "thinking": "reply",
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{place}", __name__), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
