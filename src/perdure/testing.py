"""Test doubles for agents, tools, models and stores; contract suites for your own, and replays.

As a plugin of pytest it has the fixture `replayed`: `pytest_plugins = ["perdure.testing"]`.
"""

from ._facade import export

NAMES_BY_MODULE = {
    "._core.values.clock": ("Clock",),
    "._runtime.transfer": ("Recording",),
    "._testing.browser": ("ScriptedBrowser", "ScriptedPage"),
    "._testing.cache": ("assert_cache_stable",),
    "._testing.clock": ("FakeClock",),
    "._testing.files": ("MemoryFiles",),
    "._testing.model": (
        "Pause",
        "Reply",
        "ScriptEnded",
        "ScriptStep",
        "Scripted",
        "ScriptedModel",
        "call",
        "calls",
        "pause",
        "thinking",
    ),
    "._testing.model_contract": ("check_model",),
    "._testing.recorder": ("Recorder",),
    "._testing.replay": ("Diverged", "check_replay", "record", "replayed"),
    "._testing.shell": ("ScriptedShell",),
    "._testing.store_contract.suite": ("check_store",),
    "._testing.web": ("ScriptedWeb",),
    "._work.replay.differences": ("DifferenceKind", "Divergence"),
    "._work.replay.replay": ("ReplayReport", "Source", "replay"),
}
"""The public names, by the module that defines them."""

__all__, __getattr__, __dir__ = export(__name__, NAMES_BY_MODULE)
