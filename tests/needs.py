"""The marks `needs` and `wire`: tests that use more than Python, and what becomes of them where it is missing.

A pytest plugin, loaded by conftest.py. The table of parts is in scripts/system_parts.py.
"""

import os
from pathlib import Path

import pytest

from scripts.system_parts import PARTS, advice

ROOT = Path(__file__).resolve().parent.parent


def under_ci() -> bool:
    """Whether this run decides if a change is taken."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def wire_folder() -> Path:
    """Where recordings of real traffic lie: WINDLASS_WIRE, or a folder beside the checkout."""
    return Path(os.environ.get("WINDLASS_WIRE") or ROOT.parent / "shared" / "wire")


@pytest.fixture
def wire() -> Path:
    """The folder of recordings, for tests marked `wire`."""
    return wire_folder()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out, visibly, what cannot run here; under CI nothing that could be installed may be left out."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            require_part(name)
    if item.get_closest_marker("wire") and not wire_folder().is_dir():
        pytest.skip(f"no recordings at {str(wire_folder())!r}: set WINDLASS_WIRE to their folder")


def require_part(name: str) -> None:
    """Skip the test, or fail it under CI, when the part is not there."""
    if name not in PARTS:
        known = ", ".join(sorted(PARTS)) or "none"
        pytest.fail(f"needs({name!r}): no such part in scripts/system_parts.py; known: {known}", pytrace=False)
    if PARTS[name].present():
        return
    reason = f"{name} is not installed. {advice(PARTS[name])}"
    if under_ci():
        pytest.fail(f"{reason}. Under CI nothing is left out", pytrace=False)
    pytest.skip(reason)
